"""Tools that a request offers, and which of them the model must call, in the words of every API."""

from __future__ import annotations

import json
from dataclasses import replace

from engine.messages import Tool, ToolChoice
from engine.server.fields import Fields

_CHOICES = {
    "auto": ToolChoice.AUTO,
    "none": ToolChoice.NONE,
    "required": ToolChoice.REQUIRED,
    "any": ToolChoice.REQUIRED,
}


def tools(body: Fields) -> tuple[Tool, ...]:
    """The functions in `tools`; tools of other types, which only OpenAI's servers run, are left out."""
    return tuple(
        tool(one.object("function") or one)  # the Responses API has it in one object
        for one in body.objects("tools")
        if one.text("type", "function") == "function"
    )


def tool(function: Fields, schema: str = "parameters") -> Tool:
    """A tool, whose arguments are described by the field `schema`."""
    made = Tool(function.required_text("name"), function.text("description"))
    found = function.object(schema)
    return made if found is None else replace(made, schema=json.dumps(found.values))


def tool_choice(body: Fields, tools: tuple[Tool, ...]) -> tuple[tuple[Tool, ...], ToolChoice | str]:
    """The tools that may be called, and whether one must be, or which; raises ApiError."""
    if not isinstance(body.get("tool_choice"), dict):
        name = body.choice("tool_choice", tuple(_CHOICES), "auto")
        return tools, _mode(body, "tool_choice", name, tools)
    choice = body.object("tool_choice")
    assert choice is not None
    kind = choice.choice("type", ("function", "allowed_tools", *_CHOICES), "function")
    if kind in _CHOICES:
        return tools, _mode(choice, "type", kind, tools)
    inner = choice.object(kind) or choice  # the Responses API has it in one object
    if kind == "function":
        return tools, named_tool(inner, tools)
    allowed = {(one.object("function") or one).text("name") for one in inner.objects("tools")}
    kept = tuple(one for one in tools if one.name in allowed)
    mode = inner.choice("mode", ("none", "auto", "required"), "auto")
    return kept, _mode(inner, "mode", mode, kept)


def named_tool(choice: Fields, tools: tuple[Tool, ...]) -> str:
    """The name in a choice, which must be that of a tool."""
    name = choice.required_text("name")
    if all(one.name != name for one in tools):
        choice.fail("name", f"is {name[:50]!r}, which is not in `tools`.")
    return name


def _mode(fields: Fields, field: str, name: str, tools: tuple[Tool, ...]) -> ToolChoice:
    if (mode := _CHOICES[name]) is ToolChoice.REQUIRED and not tools:
        fields.fail(field, f"is {name!r}, but `tools` has no function.")
    return mode
