"""Messages and tools of OpenAI's chat completions as turns and tools of the engine."""

from __future__ import annotations

import json
from typing import Any

from engine.messages import (
    Part,
    ReasoningPart,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    Turn,
)
from engine.server.fields import Fields
from engine.server.turns import prepared

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_TEXTS = {"text", "input_text", "output_text"}  # types of parts with a `text`
_CHOICES = {
    "auto": ToolChoice.AUTO,
    "none": ToolChoice.NONE,
    "required": ToolChoice.REQUIRED,
    "any": ToolChoice.REQUIRED,
}


def turns(body: Fields) -> tuple[Turn, ...]:
    """The turns of `messages`; raises ApiError for one that is wrong."""
    if not body.objects("messages"):
        body.fail("messages", "is missing or empty; give a list of messages.")
    made = [_turn(one) for one in body.objects("messages")]
    if len(made) > 1 and made[-1].role is made[-2].role is Role.ASSISTANT:
        body.fail("messages", "ends with two messages of the assistant; only one can be continued.")
    return prepared(made)


def _turn(message: Fields) -> Turn:
    name = message.required_text("role")
    role = _ROLES.get(name)
    if role is None:
        message.fail("role", f"must be one of {', '.join(_ROLES)}, not {name[:50]!r}.")
    text = content(message)
    if role is Role.TOOL:
        result = ToolResult(message.text("tool_call_id"), message.text("name"), text)
        return Turn(role, (result,))
    if role is not Role.ASSISTANT:
        return Turn(role, text)
    reasoning = message.text("reasoning_content") or message.text("reasoning")
    calls = [_call(one) for one in message.objects("tool_calls")]
    if not reasoning and not calls:
        return Turn(role, text)
    parts: list[Part] = [ReasoningPart(reasoning)] if reasoning else []
    parts += [TextPart(text)] if text else []
    return Turn(role, (*parts, *calls))


def content(message: Fields) -> str:
    """The text of a message: a string, or a list of parts of text."""
    value = message.get("content")
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        message.fail("content", "must be a string or a list of parts.")
    texts: list[str] = []
    for part in value:
        if isinstance(part, str):
            texts.append(part)
            continue
        if not isinstance(part, dict):
            message.fail("content", "must have parts that are objects.")
        fields = Fields(part, f"{message.path}content[{len(texts)}].")
        kind = fields.text("type", "text")
        if kind == "refusal":
            texts.append(fields.text("refusal"))
        elif kind in _TEXTS:
            texts.append(fields.required_text("text"))
        else:
            fields.fail("type", f"{kind[:50]!r} cannot be read by this model; send text.")
    return "".join(texts)


def _call(call: Fields) -> ToolCall:
    function = call.object("function") or call
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(call.text("id"), function.required_text("name"), text or "{}")


def tools(body: Fields) -> tuple[Tool, ...]:
    """The functions in `tools`; tools of other types, which only OpenAI runs, are left out."""
    made: list[Tool] = []
    for one in body.objects("tools"):
        function = one.object("function")
        if function is None:
            continue
        schema = function.object("parameters")
        text = "" if schema is None else json.dumps(schema.values)
        tool = Tool(function.required_text("name"), function.text("description"))
        made.append(Tool(tool.name, tool.description, text) if text else tool)
    return tuple(made)


def tool_choice(body: Fields, names: tuple[Tool, ...]) -> ToolChoice | str:
    """Whether the model must call a tool, or which."""
    value: Any = body.get("tool_choice")
    if value is None:
        return ToolChoice.AUTO
    if isinstance(value, str):
        if value not in _CHOICES:
            body.fail(
                "tool_choice", f"must be auto, none, required or a function, not {value[:50]!r}."
            )
        choice = _CHOICES[value]
        if choice is ToolChoice.REQUIRED and not names:
            body.fail("tool_choice", "is `required`, but there are no `tools`.")
        return choice
    asked = body.object("tool_choice")
    assert asked is not None
    function = asked.object("function") or asked
    if "name" not in function:
        return _CHOICES.get(asked.text("type"), ToolChoice.AUTO)
    name = function.text("name")
    if all(tool.name != name for tool in names):
        body.fail("tool_choice", f"names {name[:50]!r}, which is not in `tools`.")
    return name
