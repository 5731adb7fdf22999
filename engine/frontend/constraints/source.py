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
# Of terminals, by & in a text: the library's work doubles with each. In schemas it writes them.
_MOST_JOINED = 12
_JOINED = re.compile(r"&(?!\s*~)")
_JOINING = re.compile(r'"(?:pattern|format|patternProperties|propertyNames)"')
_COUNT = re.compile(r"\s*(?:\{\s*|~\s*)(\d+)[^}\n]{0,24}\}?")
_ASCII_CLASSES = "dw"  # \d and \w; \s has the white space of Unicode
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
class ToolRules:
    """Rules of tool calls: choices of items, which are texts, schemas, patterns or rules."""

    rules: dict[str, list[list[dict[str, Any]]]]
    schemas: list[dict[str, Any] | bool]
    after: dict[str, str]  # the rule that follows each trigger; empty: `start` is all of the answer
    # What begins and ends thoughts before the answer, in which triggers mean nothing.
    thoughts: tuple[str, str] | None
    repeats: bool  # behind calls, text and more calls may follow


def _rules_of(text: str) -> ToolRules:
    """The rules in the text of a constraint, as `engine.frontend.tool_formats.grammar` makes them."""
    kind = ConstraintKind.TOOLS
    found = _parsed(kind, text)
    given = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if not {"rules", "schemas"} <= given.keys():
        raise refusal.refused(kind, 'it must be a JSON object with "rules" and "schemas"', 1, 1)
    marks = tuple(given["thoughts"]) if given.get("thoughts") else None
    after, repeats = given.get("after", {}), bool(given.get("repeats"))
    return ToolRules(given["rules"], given["schemas"], after, marks, repeats)


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
    if kind is ConstraintKind.LARK:
        plain = _TEXTS[kind].sub("", constraint.text)
        joined = len(_JOINED.findall(plain))
        joined += len(_JOINING.findall(constraint.text)) if "%json" in plain else 0
        if joined > _MOST_JOINED:
            reason = f"more than {_MOST_JOINED} terminals are joined by & or in schemas"
            raise refusal.refused(kind, reason, 1, 1)
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
            with guarded():  # classes as in ECMA 262, as in the patterns of schemas
                return [f"start: /{regex_to_lark(text, _ASCII_CLASSES)}/"]
        case ConstraintKind.CHOICES:
            return [f"start: {' | '.join(map(_quoted, _choices(text)))}"]
        case ConstraintKind.TOOLS:
            return [
                _schema(kind, text, schema, ("schemas", number))
                for number, schema in enumerate(_rules_of(text).schemas)
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
    lines = [_ANY_TEXT]
    if constraint.kind is ConstraintKind.TOOLS:
        lines += _rule_lines(_rules_of(constraint.text), constraint, control, controls)
    elif constraint.trigger:
        heads = _heads(constraint.trigger, "head", control)
        free = "" if constraint.required else " | TEXT"
        lines += [*heads.lines, f"start: ({' | '.join(heads.names)}) @body_0{free}"]
    else:
        return json.dumps({"grammars": bodies})
    named = [{**body, "name": f"body_{at}"} for at, body in enumerate(bodies)]
    outer = {"name": "answer", "lark_grammar": "\n".join(lines)}
    return json.dumps({"grammars": [outer, *named]})


@dataclass(frozen=True, slots=True)
class _Heads:
    """Rules for free text that ends with a trigger."""

    lines: list[str]
    names: list[str]  # one for each trigger


def _heads(triggers: Sequence[str], name: str, control: Control, text: str = "TEXT") -> _Heads:
    lines: list[str] = []
    names = [f"{name}_{at}" for at in range(len(triggers))]
    for rule, trigger in zip(names, triggers, strict=True):
        whole = control(trigger) is not None
        parts = [trigger] if whole else [part for part in _TAG.split(trigger) if part]
        pieces = [_tag(part, control) for part in parts]
        spelled = rule
        if any(piece.startswith("<[") for piece in pieces):  # control tokens are no text
            spelled = f"{rule}_text"
            lines.append(f"{rule}: {text} {' '.join(pieces)} | {spelled}")
        lines.append(f"{spelled}[lazy]: {text} {_quoted(trigger)}")
    return _Heads(lines, names)


def _rule_lines(
    rules: ToolRules, constraint: Constraint, control: Control, controls: Sequence[int]
) -> list[str]:
    """The rules of an answer with calls, and free text before these where they have triggers."""
    lines: list[str] = []
    is_lazy = bool(constraint.trigger)

    def written(item: dict[str, Any]) -> str:
        match item:
            case {"text": str(text)}:
                # White space apart: the library's lexer does not go back where texts begin alike.
                parts = _PARTS.findall(text)
                return " ".join(_tag(part, control, is_spelled=is_lazy) for part in parts)
            case {"schema": int(number)}:
                return f"@body_{number}"
            case {"rule": str(name)}:
                return name
            case {"pattern": str(pattern)}:
                return f"/{pattern}/"
            case {"repeat": list(items), "most": int(most)}:
                return f"({' '.join(filter(None, map(written, items)))}){{0,{most}}}"
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


def _tag(text: str, control: Control, *, is_spelled: bool = False) -> str:
    """A text, which may be a control token; `is_spelled`: or its letters as other tokens."""
    token, name = control(text.strip()), text.strip()
    if token is None:
        return _quoted(text) if text else ""
    before, after = text.split(name)
    own = f"(<[{token}]> | {_quoted(name)})" if is_spelled else f"<[{token}]>"
    return " ".join(filter(None, (before and _quoted(before), own, after and _quoted(after))))


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


def _quoted(text: str) -> str:
    """A string of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False)
