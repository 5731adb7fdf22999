"""Refusals of grammars: what is wrong, with line and column, from the library's messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from engine.errors import RequestError
from engine.messages import ConstraintKind

_REMEDY = "Correct it, or ask for an answer without it."
_LONGEST = 240  # characters of a reason
# "at 2(6): …" or "2(6): …", and the line itself below.
_LARK_PLACE = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*)", re.DOTALL)
_REGEX_ERROR = re.compile(r"regex parse error:\n +(.*)\n( +)\^+\n *error: ([^\n]*)")
_JSON_PLACE = re.compile(r"^(.*) at line \d+ column \d+", re.DOTALL)
_QUOTED = re.compile(r"[\"']([^\"']+)[\"']")
_WORD = re.compile(r"[\w$]+")
_REGEX_INDENT = 4

Refuse = Callable[[str], RequestError]


class RefusedConstraint(RequestError):
    """A constraint that cannot be used, and where its fault is: line and column from 1."""

    def __init__(self, message: str, remedy: str, line: int, column: int) -> None:
        super().__init__(message, remedy)
        self.line, self.column = line, column


def refused(kind: ConstraintKind, reason: str, line: int, column: int) -> RefusedConstraint:
    """The error for a grammar with a fault at a line and column, both from 1."""
    text = " ".join(reason.split()).rstrip(".")
    if len(text) > _LONGEST:
        text = text[: _LONGEST - 1] + "…"
    sentence = f"The {kind.value} cannot be used: {text} (line {line}, column {column})."
    return RefusedConstraint(sentence, _REMEDY, line, column)


def refused_at(kind: ConstraintKind, text: str, reason: str, offset: int) -> RequestError:
    """The error for a grammar with a fault at a character of its text."""
    return refused(kind, reason, *place(text, offset))


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a character."""
    before = text[:offset]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def from_library(kind: ConstraintKind, text: str, message: str) -> RequestError:
    """The error for a message of the library about a grammar."""
    if kind is ConstraintKind.REGEX:
        return refused_at(kind, text, *_in_regex(text, message))
    found = _LARK_PLACE.match(message)
    if kind is ConstraintKind.LARK and found:
        lines = found[3].split("\n")
        inner = _REGEX_ERROR.search(message)
        reason = f"{lines[0].split(' (in regex)')[0]}: {inner[3]}" if inner else lines[0]
        return refused(kind, reason, int(found[1]), int(found[2]))
    reason = message.split("\n")[-1].removeprefix("error: ") if "\n" in message else message
    if found := _JSON_PLACE.match(reason):
        reason = found[1]
    return refused_at(kind, text, reason, _offset(text, message))


def _in_regex(text: str, message: str) -> tuple[str, int]:
    """Reason and place of a fault in a regular expression."""
    found = _REGEX_ERROR.search(message)
    if found is None:
        reason = re.sub(r"^(?:at )?\d+\(\d+\): ", "", message.split("\n")[0])
        return reason.split("(in regex): ")[-1], 0
    # The library writes a line feed as two characters.
    shown, at = found[1], len(found[2]) - _REGEX_INDENT
    return found[3], min(at - shown[:at].count("\\n") * ("\n" in text), len(text))


def _offset(text: str, message: str) -> int:
    """Where a schema has what a message is about: the first string that the message names."""
    pattern = _REGEX_ERROR.search(message)
    names = [pattern[1]] if pattern else [*_QUOTED.findall(message), *_WORD.findall(message)[::-1]]
    for name in names:
        for written in (json.dumps(name), json.dumps(f"#{name}")):
            if (at := text.find(written)) >= 0:
                return at
    return 0
