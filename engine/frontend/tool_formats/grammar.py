"""The grammar of an answer's tool calls, as a constraint: arguments are what a tool's schema allows.

Where the model may choose, the constraint begins behind the marker of a call; the text before and
behind calls is free. Where it must call, the answer is thoughts, if it may think, and calls.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from engine.errors import RequestError
from engine.frontend.tool_formats.formats import Kind, ToolFormat
from engine.frontend.tool_formats.values import GEMMA_QUOTE, types_of
from engine.messages import Constraint, ConstraintKind, Tool, ToolChoice
from engine.messages.reasoning_markers import ThoughtMarkers

Item = dict[str, Any]  # of a rule: a text, the number of a schema, another rule, ...
_HARMONY_HEAD = "<|channel|>commentary to=functions."
_MOST_CALLS = 32  # in a row: a model that repeats itself would call without end
_DEEPEST = 20  # schemas within schemas, of arguments that are no JSON


def tool_constraint(
    tool_format: ToolFormat,
    tools: Sequence[Tool],
    choice: ToolChoice | str,
    *,
    parallel: bool,
    thoughts: ThoughtMarkers | None = None,
) -> Constraint | None:
    """The constraint of an answer with these tools; None: it has none.

    `thoughts`: the answer may begin with some, in which no call begins. Raises RequestError for a
    choice that is no tool, and for two tools of one name: a call could not say which it is of.
    """
    if choice is ToolChoice.NONE or not tools:
        return None
    ((name, count),) = Counter(tool.name for tool in tools).most_common(1)
    if count > 1:
        raise RequestError(
            f"{count} tools have the name {name[:100]!r}.", "Give each its own name."
        )
    if isinstance(choice, str):
        parallel, tools = False, [tool for tool in tools if tool.name == choice]
        if not tools:
            raise RequestError(
                f"The tool {choice!r} that the answer must call is not among the tools.",
                "Name one of the tools of the request.",
            )
    made = _Grammar(tool_format, tools, parallel=parallel)
    if choice is ToolChoice.AUTO:
        after = made.after()
        # Some models write text behind calls; after one that must be the only one, all ends.
        repeats = parallel and not tool_format.has_messages
        free = {"rules": made.rules, "schemas": made.schemas, "after": after, "repeats": repeats}
        if thoughts is not None and thoughts.can_think and not tool_format.has_messages:
            free["thoughts"] = [thoughts.opens, thoughts.ends]
        text = json.dumps(free)
        return Constraint(ConstraintKind.TOOLS, text, trigger=tuple(after))
    space = made.rule("space", [{"pattern": r"[ \n]{1,3}"}], [])
    start = [space, *made.whole()]
    made.rules["start"] = [start]
    if thoughts is not None and thoughts.can_think:
        ends = thoughts.again.removesuffix(thoughts.opens) or thoughts.ends
        thought = made.rule("thought", [_text(thoughts.opens), {"until": ends}])
        made.rules["start"].append([thought, *start])
    text = json.dumps({"rules": made.rules, "schemas": made.schemas})
    return Constraint(ConstraintKind.TOOLS, text, required=True)


def relaxed(tools: Sequence[Tool]) -> list[Tool]:
    """The tools with any object as arguments, where their schemas cannot be followed."""
    return [Tool(tool.name, tool.description, '{"type": "object"}') for tool in tools]


def _text(text: str) -> Item:
    return {"text": text}


class _Grammar:
    """Rules of calls: each a list of choices, each of these a list of items."""

    def __init__(self, tool_format: ToolFormat, tools: Sequence[Tool], *, parallel: bool) -> None:
        self.rules: dict[str, list[list[Item]]] = {}
        self.schemas: list[Any] = []
        self._format, self._tools = tool_format, tools
        self._parallel = parallel and tool_format.kind is not Kind.HARMONY
        self._calls = [self._call(tool) for tool in tools]
        self.rules["call"] = [[one] for one in self._calls]

    def rule(self, name: str, *choices: list[Item]) -> Item:
        """Add a rule; returns the item that refers to it."""
        self.rules[name] = list(choices)
        return {"rule": name}

    # --- around calls ---------------------------------------------------------------------------

    @property
    def _opening(self) -> str:
        """What is before the first call, up to its name or its JSON."""
        form = self._format
        if form.kind is Kind.HARMONY:
            return _HARMONY_HEAD
        bracket = "[" if form.is_list or form.kind is Kind.PYTHON else ""
        return form.section[0] + form.begin + bracket

    @property
    def _rest(self) -> list[Item]:
        """What follows the first call."""
        form = self._format
        is_list = form.is_list or form.kind is Kind.PYTHON
        closing = f"]{form.end}" if is_list else form.section[1]
        if not self._parallel:
            return [_text(closing)]
        between = form.between or ", " if is_list else form.between + form.begin
        more = {"repeat": [_text(between), {"rule": "call"}], "most": _MOST_CALLS - 1}
        return [more, _text(closing)]

    def whole(self) -> list[Item]:
        """One call or more, from the first marker."""
        return [_text(self._opening), {"rule": "call"}, *self._rest]

    def after(self) -> dict[str, str]:
        """The rules of what follows each text by which calls may begin."""
        form, opening = self._format, self._opening
        if form.kind is Kind.HARMONY:
            heads = ("commentary to=functions.", "assistant to=functions.")
            self.rule("rest", [{"rule": "call"}])
            return dict.fromkeys((*heads, "analysis to=functions."), "rest")
        if form.begins and not form.at_start:
            trigger = form.section[0].strip() or form.begins[0]
            head = _text(opening.lstrip().removeprefix(trigger))
            items = [head, {"rule": "call"}, *self._rest]
            self.rule("rest", items)
            return {trigger: "rest"}
        # Without a marker, the beginning of a call of each tool.
        made: dict[str, str] = {}
        rest = self._rest
        for number, (tool, call) in enumerate(zip(self._tools, self._calls, strict=True)):
            head, *arguments = self.rules[call["rule"]][0]
            name = f"rest_{number}"
            self.rule(name, [*arguments, *rest])
            made |= {opening + one: name for one in form.spellings(head["text"])}
            assert tool.name in head["text"]
        return made

    # --- one call -------------------------------------------------------------------------------

    def _call(self, tool: Tool) -> Item:
        """The rule of a call of a tool, behind what is before every call."""
        form, number = self._format, len(self.rules)
        schema = _object_schema(tool)
        name, head = f"call_{number}", form.heads([tool.name])[tool.name]
        match form.kind:
            case Kind.JSON:
                end = "}" if form.is_list else "}" + form.end
                return self.rule(name, [_text(head), self._schema(schema), _text(end)])
            case Kind.NAMED:
                return self.rule(name, [_text(head), self._schema(schema), _text(form.end)])
            case Kind.HARMONY:
                ends = (
                    " <|constrain|>json<|message|>",
                    "<|channel|>commentary <|constrain|>json<|message|>",
                )
                header = self.rule(f"header_{number}", *([_text(end)] for end in ends))
                return self.rule(name, [_text(head), header, self._schema(schema)])
            case Kind.TAGGED:
                sep, end = form.key_sep, form.end
            case Kind.PYTHON:
                sep, end = ", ", ")"
            case Kind.GEMMA:
                sep, end = ",", f"}}{form.end}"
        arguments = self._arguments(name, schema, schema, sep, end)
        return self.rule(name, [_text(head), arguments])

    def _arguments(
        self, name: str, schema: Any, root: Any, sep: str, end: str, depth: int = 0
    ) -> Item:
        """Arguments in the order of the schema: those required, and any of the others, and an end.

        Of rule i, the first choice of `_a` is that none came before, of `_b` that some did.
        """
        properties = _properties(schema)
        required = schema.get("required") or ()
        last = len(properties)
        first_end = end.lstrip() if self._format.kind is Kind.TAGGED else end
        self.rule(f"{name}_a{last}", [_text(first_end)])
        self.rule(f"{name}_b{last}", [_text(end)])
        for number, (key, inner) in reversed(list(enumerate(properties.items()))):
            items = self._argument(f"{name}_v{number}", key, inner, root, depth)
            following = {"rule": f"{name}_b{number + 1}"}
            for state, before in (("a", ""), ("b", sep)):
                choices = [[_text(before), *items, following]]
                if key not in required:
                    choices.append([{"rule": f"{name}_{state}{number + 1}"}])
                self.rule(f"{name}_{state}{number}", *choices)
        return {"rule": f"{name}_a0"}

    def _argument(self, name: str, key: str, schema: Any, root: Any, depth: int) -> list[Item]:
        form = self._format
        if form.kind is Kind.PYTHON:
            return [_text(f"{key}="), self._schema(_with_root(schema, root))]
        if form.kind is Kind.GEMMA:
            return [_text(f"{key}:"), self._gemma(name, schema, root, depth)]
        types = types_of(schema, root)
        is_text = types is None or "string" in types
        key_end = form.key_end.replace('string="true"', f'string="{str(is_text).lower()}"')
        if not is_text:
            kind = next(iter(sorted(types or ())), "string").replace("integer", "number")
            key_end = key_end.replace('type="string"', f'type="{kind}"')
        head = _text(form.key_begin + key + key_end)
        if choices := _texts(schema):
            return [head, self._choice(name, choices), _text(form.value_end)]
        if is_text:
            return [head, {"until": form.value_end}]
        return [head, self._schema(_with_root(schema, root)), _text(form.value_end)]

    def _choice(self, name: str, texts: Sequence[str], quote: str = "") -> Item:
        return self.rule(name, *([_text(quote + one + quote)] for one in texts))

    def _gemma(self, name: str, schema: Any, root: Any, depth: int) -> Item:
        """A value with Gemma's quotes."""
        types = types_of(schema, root)
        given = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
        if choices := _texts(schema):
            return self._choice(name, choices, GEMMA_QUOTE)
        if types is None or len(types) > 1 or depth > _DEEPEST or "$ref" in given:
            return self._any_gemma()
        (kind,) = types
        if kind == "string":
            return self.rule(name, [_text(GEMMA_QUOTE), {"until": GEMMA_QUOTE}])
        if kind == "object" and _properties(given):
            inner = self._arguments(f"{name}o", given, root, ",", "}", depth + 1)
            return self.rule(name, [_text("{"), inner])
        if kind == "array" and isinstance(given.get("items"), Mapping):
            one = self._gemma(f"{name}i", given["items"], root, depth + 1)
            more = {"rule": f"{name}m"}
            self.rule(f"{name}m", [_text(","), one, more], [_text("]")])
            return self.rule(name, [_text("[]")], [_text("["), one, more])
        if kind in ("object", "array"):
            return self._any_gemma(kind)
        return self._schema(_with_root(schema, root))

    def _any_gemma(self, kind: str = "value") -> Item:
        if "gemma_value" not in self.rules:
            text = [_text(GEMMA_QUOTE), {"until": GEMMA_QUOTE}]
            value, key = {"rule": "gemma_value"}, {"pattern": "[A-Za-z_][A-Za-z0-9_]{0,63}:"}
            plain = self._schema({"type": ["number", "boolean", "null"]})
            lists = [{"rule": "gemma_array"}], [{"rule": "gemma_object"}]
            self.rule("gemma_value", text, [plain], *lists)
            for name, (begin, end), before in (
                ("array", "[]", list[Item]()),
                ("object", "{}", [key]),
            ):
                more = {"rule": f"gemma_{name}_more"}
                self.rule(f"gemma_{name}_more", [_text(","), *before, value, more], [_text(end)])
                self.rule(
                    f"gemma_{name}", [_text(begin + end)], [_text(begin), *before, value, more]
                )
        return {"rule": f"gemma_{kind}"}

    def _schema(self, schema: Any) -> Item:
        self.schemas.append(schema)
        return {"schema": len(self.schemas) - 1}


def _object_schema(tool: Tool) -> dict[str, Any]:
    """The schema of a tool's arguments, which are an object. Raises RequestError."""
    try:
        schema = json.loads(tool.schema or "{}")
    except (ValueError, RecursionError) as error:
        raise RequestError(
            f"The schema of the tool {tool.name!r} is not JSON.", "Correct it."
        ) from error
    if not isinstance(schema, dict):
        raise RequestError(
            f"The schema of the tool {tool.name!r} is not a JSON object.", "Correct it."
        )
    given = cast("dict[str, Any]", schema)
    return given if "type" in given else {"type": "object", **given}


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    found = schema.get("properties")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _with_root(schema: Any, root: Mapping[str, Any]) -> Any:
    """A schema within another, with the definitions that it may refer to."""
    if not isinstance(schema, Mapping):
        return schema
    named = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return {**cast("Mapping[str, Any]", schema), **named}


def _texts(schema: Any) -> list[str]:
    """The texts that a schema leaves a choice of."""
    given = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else {}
    found = given.get("enum") or ([given["const"]] if "const" in given else [])
    is_list = isinstance(found, list) and all(
        isinstance(one, str) and one for one in cast("list[Any]", found)
    )
    return cast("list[str]", found) if is_list else []
