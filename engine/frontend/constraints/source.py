"""Constraints as grammars of the llguidance library: a Lark grammar, and others that it refers to.

Text before a trigger is a lexeme of any text that ends with the trigger, the shortest one: as soon
as it is there, what follows must match. A trigger that is a control token is such a token, and no
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from llguidance import regex_to_lark

from engine.frontend.constraints import refusal
from engine.frontend.constraints.gbnf import TokenId
from engine.frontend.constraints.gbnf_lark import to_lark
from engine.frontend.constraints.json_schema.compiler import lark_of
from engine.frontend.constraints.json_schema.document import (
    Document,
    Path,
    SchemaFault,
    offset_of,
    parsed,
)
from engine.frontend.constraints.library import guarded
from engine.messages import Constraint, ConstraintKind

_LONGEST_TEXT = 1 << 20  # characters
_DEEPEST = 100  # nested brackets: the library's parsers are recursive
_TAG = re.compile(r"(<[^<>]*>|\[[^\[\]]*\])")  # perhaps a control token
_PARTS = re.compile(r"^\s+|<[^<>]*>|\[[^\[\]]*\]|(?:(?!<[^<>]*>|\[[^\[\]]*\]).)+", re.DOTALL)
_NOTHING = '""'
_ANY_TEXT = "TEXT: /(.|\\n)*/"
# Of a part, by counts of regular expressions and rules.
_MOST_REPEATED = 10_000
_COUNT = re.compile(r"\s*(?:\{\s*|~\s*)(\d+)[^}\n]{0,24}\}?")
_OPENING, _CLOSING = "([{", ")]}"
_IN_JSON = (ConstraintKind.JSON_SCHEMA, ConstraintKind.CHOICES, ConstraintKind.TOOLS)
# Texts in which a bracket is a character: strings, escaped characters, and classes.
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_CLASS = r"\[(?:[^\]\\]|\\.)*\]"
_TEXTS = {
    **dict.fromkeys(_IN_JSON, re.compile(_STRING)),
    ConstraintKind.REGEX: re.compile(rf"\\.|{_CLASS}", re.DOTALL),
    ConstraintKind.GBNF: re.compile(rf"{_STRING}|{_CLASS}"),
    ConstraintKind.LARK: re.compile(rf"{_STRING}|\\.|{_CLASS}"),
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool call: text that the schema describes, between two strings."""

    name: str
    schema: dict[str, Any] | bool
    begin: str
    end: str


@dataclass(frozen=True, slots=True)
class ToolRules:
    """Rules of tool calls: choices of items, which are texts, schemas, patterns or rules."""

    rules: dict[str, list[list[dict[str, Any]]]]
    schemas: list[dict[str, Any] | bool]
    after: dict[str, str]  # the rule that follows each trigger; empty: `start` is all of the answer
    # What begins and ends thoughts before the answer, in which triggers mean nothing.
    thoughts: tuple[str, str] | None
    repeats: bool  # behind calls, text and more calls may follow


def rules_of(found: Any) -> ToolRules | None:
    """The rules in the text of a constraint, as `engine.frontend.tool_formats.grammar` makes them."""
    if not isinstance(found, dict):
        return None
    given = cast("dict[str, Any]", found)
    thoughts = given.get("thoughts")
    after = given.get("after", {})
    marks = tuple(thoughts) if thoughts else None
    return ToolRules(given["rules"], given["schemas"], after, marks, bool(given.get("repeats")))


Control = Callable[[str], int | None]  # the control token of a text
Part = dict[str, Any]  # of the library's list of grammars


def check(constraint: Constraint) -> None:
    """Raise RequestError for a text that the library must not see: too long or nested too deeply."""
    kind, text = constraint.kind, constraint.text
    if len(text) > _LONGEST_TEXT:
        reason = f"it has more than {_LONGEST_TEXT:,} characters"
        raise refusal.refused_at(kind, text, reason, _LONGEST_TEXT)
    if (at := text.find("\0")) >= 0:
        raise refusal.refused_at(kind, text, "it has a null character", at)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise refusal.refused_at(kind, text, "it has half a character", error.start) from None
    depth = 0
    for at, character in enumerate(_TEXTS[kind].sub(lambda found: " " * len(found[0]), text)):
        if character in _OPENING:
            depth += 1
            if depth > _DEEPEST:
                reason = f"brackets are nested more than {_DEEPEST} deep"
                raise refusal.refused_at(kind, text, reason, at)
        elif character in _CLOSING:
            depth = max(depth - 1, 0)
    if not all(constraint.trigger):
        raise refusal.refused(kind, "a trigger is empty", 1, 1)


def body_of(constraint: Constraint, token_id: TokenId) -> list[Part]:
    """The grammars of the constrained text, those of several tools in their order.

    Raises RequestError with line and column.
    """
    kind = constraint.kind
    larks = _larks(kind, constraint.text, token_id)
    for lark in larks if kind not in _IN_JSON else ():
        if least_repetitions(lark) > _MOST_REPEATED:
            reason = f"nested counts ask for more than {_MOST_REPEATED:,} repetitions"
            raise refusal.refused(kind, reason, 1, 1)
    return [{"lark_grammar": lark} for lark in larks]


def _larks(kind: ConstraintKind, text: str, token_id: TokenId) -> list[str]:
    match kind:
        case ConstraintKind.JSON_SCHEMA:
            schema = _parsed(kind, text)
            if not isinstance(schema, dict | bool):
                reason = "it must be a JSON object, true or false"
                raise refusal.refused_at(kind, text, reason, len(text) - len(text.lstrip()))
            return [_schema(kind, text, cast("dict[str, Any] | bool", schema), ())]
        case ConstraintKind.GBNF:
            return [to_lark(text, token_id)]
        case ConstraintKind.LARK:
            return [text]
        case ConstraintKind.REGEX:
            with guarded():
                return [f"start: /{regex_to_lark(text)}/"]
        case ConstraintKind.CHOICES:
            return [f"start: {' | '.join(map(_quoted, _choices(text)))}"]
        case ConstraintKind.TOOLS:
            if (rules := rules_of(_parsed(kind, text))) is not None:
                return [
                    _schema(kind, text, schema, ("schemas", number))
                    for number, schema in enumerate(rules.schemas)
                ]
            return [
                _schema(kind, text, tool.schema, (number, "schema"))
                for number, tool in enumerate(tools(text))
            ]


def least_repetitions(pattern: str) -> int:
    """How often nested counts such as (a{3}){5} repeat a part at least: here 15.

    The library writes a text without a choice as a whole, however long it is.
    """
    levels = [1]
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "\\":
            at += 1
        elif character == "(":
            levels.append(1)
        else:
            inner = levels.pop() if character == ")" and len(levels) > 1 else 1
            while found := _COUNT.match(pattern, at):
                inner = min(inner * max(int(found[1][:9]), 1), _MOST_REPEATED + 1)
                at = found.end()
            levels[-1] = max(levels[-1], inner)
    return max(levels)


def combined(
    constraint: Constraint, bodies: Sequence[Part], control: Control, controls: Sequence[int] = ()
) -> str:
    """The library's form of a whole answer: free text where there are triggers, and the bodies.

    `controls` are the control tokens that may be in the free text before tool calls.
    """
    is_tools = constraint.kind is ConstraintKind.TOOLS
    if not constraint.trigger and not is_tools:
        return json.dumps({"grammars": bodies})
    named = [{**body, "name": f"body_{at}"} for at, body in enumerate(bodies)]
    lines = [_ANY_TEXT]
    rules = rules_of(_parsed(constraint.kind, constraint.text)) if is_tools else None
    if rules is not None:
        lines += _rule_lines(rules, constraint, control, controls)
    elif is_tools:
        lines += _calls(constraint, control)
    else:
        heads = _heads(constraint.trigger, "head", control)
        lines += heads.lines
        free = "" if constraint.required else " | TEXT"
        lines.append(f"start: ({heads.any}) @body_0{free}")
    outer = {"name": "answer", "lark_grammar": "\n".join(lines)}
    return json.dumps({"grammars": [outer, *named]})


@dataclass(frozen=True, slots=True)
class _Heads:
    """Rules for free text that ends with a trigger."""

    lines: list[str]
    names: list[str]  # one for each trigger

    @property
    def any(self) -> str:
        return " | ".join(self.names)


def _heads(triggers: Sequence[str], name: str, control: Control, text: str = "TEXT") -> _Heads:
    lines: list[str] = []
    names = [f"{name}_{at}" for at in range(len(triggers))]
    for rule, trigger in zip(names, triggers, strict=True):
        whole = control(trigger) is not None
        parts = [trigger] if whole else [part for part in _TAG.split(trigger) if part]
        pieces = [_tag(part, control) for part in parts]
        if any(piece.startswith("<[") for piece in pieces):  # control tokens are no text
            lines.append(f"{rule}: {text} {' '.join(pieces)}")
        else:
            lines.append(f"{rule}[lazy]: {text} {_quoted(trigger)}")
    return _Heads(lines, names)


def _calls(constraint: Constraint, control: Control) -> list[str]:
    """The rules of an answer with tool calls: one without triggers, else any number in free text."""
    found = tools(constraint.text)
    if not constraint.trigger:
        calls = [_call(number, tool, "", control) for number, tool in enumerate(found)]
        return [f"start: {' | '.join(calls)}"]
    heads = _heads(constraint.trigger, "head", control)
    calls: list[str] = []
    for trigger, head in zip(constraint.trigger, heads.names, strict=True):
        own = [
            _call(number, tool, trigger, control)
            for number, tool in enumerate(found)
            if tool.begin.startswith(trigger)
        ]
        if not own:
            reason = f"no tool call begins with the trigger {trigger!r}"
            raise refusal.refused(constraint.kind, reason, 1, 1)
        calls.append(f"{head} ({' | '.join(own)})")
    for tool in found:
        if not tool.begin.startswith(constraint.trigger):
            at = constraint.text.find(json.dumps(tool.begin))
            reason = f"the call of {tool.name!r} begins with no trigger"
            raise refusal.refused_at(constraint.kind, constraint.text, reason, max(at, 0))
    lines = [*heads.lines, f"call: {' | '.join(calls)}"]
    return [*lines, f"start: call{'+' if constraint.required else '*'} TEXT"]


def _rule_lines(
    rules: ToolRules, constraint: Constraint, control: Control, controls: Sequence[int]
) -> list[str]:
    """The rules of an answer with calls, and free text before these where they have triggers."""
    lines: list[str] = []

    def written(item: dict[str, Any]) -> str:
        match item:
            case {"text": str(text)}:
                # White space apart: the library's lexer does not go back where texts begin alike.
                return " ".join(_tag(part, control) for part in _PARTS.findall(text))
            case {"schema": int(number)}:
                return f"@body_{number}"
            case {"rule": str(name)}:
                return name
            case {"pattern": str(pattern)}:
                return f"/{pattern}/"
            case _:
                head = _heads([item["until"]], f"until_{len(lines)}", control)
                lines.extend(head.lines)
                return head.names[0]

    for name, choices in rules.rules.items():
        written_choices = (" ".join(filter(None, map(written, one))) for one in choices)
        lines.append(f"{name}: {' | '.join(one or _NOTHING for one in written_choices)}")
    after = rules.after or dict.fromkeys(constraint.trigger, "start")
    if not after:
        return lines
    if not rules.after:
        lines = [re.sub(r"\Astart:", "whole:", line) for line in lines]
        after = dict.fromkeys(after, "whole")
    text, start = "TEXT", ""
    begins: set[int | None] = set()
    if rules.thoughts is not None:
        opens, ends = rules.thoughts
        pieces = [_tag(part, control) for part in _PARTS.findall(opens)]
        begins = {control(part) for part in _PARTS.findall(opens)} - {None}
        if begins:
            lines += ["SPACE: /[ \\n]+/", f"opening: SPACE? {' '.join(pieces)}"]
        else:  # a text that begins so is thoughts, and no free text
            opening = f"/[ \\n]*{_escaped(opens)}"
            lines += [f"OPENING: {opening}/", f"FREE: TEXT & ~{opening}(.|\\n)*/"]
            lines.append("opening: OPENING")
            text = "FREE"
        until = _heads([ends], "ending", control)
        lines += [*until.lines, f"thoughts: opening {until.names[0]}"]
        start = "thoughts? "
    heads = _heads(list(after), "head", control, text)
    calls = [f"{head} {rule}" for head, rule in zip(heads.names, after.values(), strict=True)]
    begun = {control(part) for one in after for part in (one, *_TAG.split(one)) if part}
    free = ",".join(str(token) for token in controls if token not in begun | begins)
    prefix = "segment*" if free else ""
    if free:
        lines.append(f"segment: {text} <[{free}]> | <[{free}]>")
    free_answer = "" if constraint.required else f" | {prefix} {text}"
    if rules.repeats and not constraint.required:
        lines.append(f"answer: ({prefix} ({' | '.join(calls)}))* {prefix} {text}")
    else:
        lines.append(f"answer: {prefix} ({' | '.join(calls)}){free_answer}")
    return [*lines, *heads.lines, f"start: {start}answer"]


def _escaped(text: str) -> str:
    """A text as part of a regular expression in slashes."""
    return re.escape(text).replace("\\ ", " ").replace("\\\n", "\\n").replace("/", "\\/")


def _call(number: int, tool: Tool, trigger: str, control: Control) -> str:
    """One call, without the trigger that was generated before it."""
    begin = _tag(tool.begin[len(trigger) :], control)
    return f"{begin} @body_{number} {_tag(tool.end, control)}".strip()


def _tag(text: str, control: Control) -> str:
    token = control(text.strip())
    if token is None:
        return _quoted(text) if text else ""
    before, after = text.split(text.strip())
    parts = [_quoted(before) if before else "", f"<[{token}]>", _quoted(after) if after else ""]
    return " ".join(filter(None, parts))


# --- JSON ---------------------------------------------------------------------------------------


def _parsed(kind: ConstraintKind, text: str) -> Any:
    try:
        return parsed(text)
    except json.JSONDecodeError as error:
        raise refusal.refused(
            kind, f"it is not JSON, {error.msg}", error.lineno, error.colno
        ) from None
    except (ValueError, RecursionError):
        raise refusal.refused(kind, "it is nested too deeply or has a huge number", 1, 1) from None


def _schema(kind: ConstraintKind, text: str, schema: dict[str, Any] | bool, path: Path) -> str:
    try:
        return lark_of(Document(schema, path))
    except SchemaFault as fault:
        place = offset_of(text, fault.path or path)
        raise refusal.refused_at(kind, text, fault.reason, place) from None


def _choices(text: str) -> list[str]:
    found = _parsed(ConstraintKind.CHOICES, text)
    is_list = isinstance(found, list) and found
    if not is_list or not all(isinstance(one, str) for one in cast("list[object]", found)):
        reason = "it must be a JSON array of one or more strings"
        raise refusal.refused(ConstraintKind.CHOICES, reason, 1, 1)
    return cast("list[str]", found)


def tools(text: str) -> list[Tool]:
    """The tool calls of a constraint's text. Raises RequestError."""
    found = _parsed(ConstraintKind.TOOLS, text)
    made: list[Tool] = []
    for one in cast("list[object]", found) if isinstance(found, list) else []:
        match one:
            case {
                "name": str(name),
                "schema": dict() | bool() as schema,
                "begin": str(begin),
                "end": str(end),
            }:
                made.append(Tool(name, cast("dict[str, Any] | bool", schema), begin, end))
            case _:
                made.clear()
                break
    if not made:
        reason = 'it must be a JSON array of objects with "name", "schema", "begin" and "end"'
        raise refusal.refused(ConstraintKind.TOOLS, reason, 1, 1)
    return made


def _quoted(text: str) -> str:
    """A string of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False)
