"""Constraints as grammars of the llguidance library: a Lark grammar, and others that it refers to.

Text before a trigger is a lexeme of any text that ends with the trigger, the shortest one: as soon
as it is there, what follows must match. A trigger that is a control token is such a token, and no
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from llguidance import LLMatcher, regex_to_lark

from engine.inference.constraints import refusal
from engine.inference.constraints.finite import is_endless
from engine.inference.constraints.gbnf import TokenId
from engine.inference.constraints.gbnf_lark import to_lark
from engine.inference.constraints.library import guarded
from engine.messages import Constraint, ConstraintKind

_LONGEST_TEXT = 1 << 20  # characters
_DEEPEST = 100  # nested brackets: the library's parsers are recursive
_TAG = re.compile(r"(<[^<>]*>|\[[^\[\]]*\])")  # perhaps a control token
_ANY_TEXT = "TEXT: /(.|\\n)*/"
# Between the parts of a JSON text. Unlimited, a model may write white space without end.
_WHITESPACE = r"[ \t]{1,4}|(\r?\n){1,2}[ \t]{0,40}"
# Of a part, by counts of regular expressions and rules.
_MOST_REPEATED = 10_000
_COUNT = re.compile(r"\s*(?:\{\s*|~\s*)(\d+)[^}\n]{0,24}\}?")
_EXACT = 1 << 53  # below it a float has every integer
_OPENING, _CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool call: text that the schema describes, between two strings."""

    name: str
    schema: dict[str, Any] | bool
    begin: str
    end: str


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
    for at, character in enumerate(text):
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
    bodies = _bodies(constraint.kind, constraint.text, token_id)
    for body in bodies:
        lark = body.get("lark_grammar")
        patterns = [lark] if isinstance(lark, str) else _patterns(body)
        if any(least_repetitions(pattern) > _MOST_REPEATED for pattern in patterns):
            reason = f"nested counts ask for more than {_MOST_REPEATED:,} repetitions"
            raise refusal.refused(constraint.kind, reason, 1, 1)
    return bodies


def _bodies(kind: ConstraintKind, text: str, token_id: TokenId) -> list[Part]:
    match kind:
        case ConstraintKind.JSON_SCHEMA:
            schema = _parsed(kind, text)
            if not isinstance(schema, dict | bool):
                reason = "it must be a JSON object, true or false"
                raise refusal.refused_at(kind, text, reason, len(text) - len(text.lstrip()))
            if isinstance(schema, dict) and is_endless(cast("dict[str, Any]", schema)):
                reason = "no text can match it, for each would contain another"
                raise refusal.refused(kind, reason, 1, 1)
            return [_schema(cast("dict[str, Any] | bool", schema))]
        case ConstraintKind.GBNF:
            return [{"lark_grammar": to_lark(text, token_id)}]
        case ConstraintKind.LARK:
            return [{"lark_grammar": text}]
        case ConstraintKind.REGEX:
            with guarded():
                return [{"lark_grammar": f"start: /{regex_to_lark(text)}/"}]
        case ConstraintKind.CHOICES:
            choices = " | ".join(map(_quoted, _choices(text)))
            return [{"lark_grammar": f"start: {choices}"}]
        case ConstraintKind.TOOLS:
            return [_schema(tool.schema) for tool in tools(text)]


def _patterns(part: object) -> Iterator[str]:
    """The regular expressions in a schema."""
    waiting = [part]
    while waiting:
        match waiting.pop():
            case dict() as fields:
                for name, value in cast("dict[str, object]", fields).items():
                    waiting.append(value)
                    if name == "pattern" and isinstance(value, str):
                        yield value
                    elif name == "patternProperties" and isinstance(value, dict):
                        yield from cast("dict[str, object]", value)
            case list() as values:
                waiting += cast("list[object]", values)
            case _:
                pass


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


def combined(constraint: Constraint, bodies: Sequence[Part], control: Control) -> str:
    """The library's form of a whole answer: free text where there are triggers, and the bodies."""
    is_tools = constraint.kind is ConstraintKind.TOOLS
    if not constraint.trigger and not is_tools:
        return json.dumps({"grammars": bodies})
    named = [{**body, "name": f"body_{at}"} for at, body in enumerate(bodies)]
    lines = [_ANY_TEXT]
    if is_tools:
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


def _heads(triggers: Sequence[str], name: str, control: Control) -> _Heads:
    lines: list[str] = []
    names = [f"{name}_{at}" for at in range(len(triggers))]
    for rule, trigger in zip(names, triggers, strict=True):
        whole = control(trigger) is not None
        parts = [trigger] if whole else [part for part in _TAG.split(trigger) if part]
        pieces = [_tag(part, control) for part in parts]
        if any(piece.startswith("<[") for piece in pieces):  # control tokens are no text
            lines.append(f"{rule}: TEXT {' '.join(pieces)}")
        else:
            lines.append(f"{rule}[lazy]: TEXT {_quoted(trigger)}")
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
        return json.loads(text, parse_float=_number)
    except json.JSONDecodeError as error:
        raise refusal.refused(
            kind, f"it is not JSON, {error.msg}", error.lineno, error.colno
        ) from None
    except (ValueError, RecursionError):
        raise refusal.refused(kind, "it is nested too deeply or has a huge number", 1, 1) from None


def _number(text: str) -> float | int:
    """A number; the library wants bounds such as 2.0 as integers."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < _EXACT else value


def _schema(schema: dict[str, Any] | bool) -> Part:
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    with guarded():
        made = LLMatcher.grammar_from_json_schema(
            json.dumps(schema), defaults={"whitespace_pattern": _WHITESPACE}
        )
    return cast("Part", json.loads(made)["grammars"][0])


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
