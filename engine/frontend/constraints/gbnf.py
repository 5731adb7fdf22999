"""GBNF grammars, as llama.cpp reads them: the parser.

Source: https://github.com/ggml-org/llama.cpp/blob/b6000/grammars/README.md
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from engine.frontend.constraints.refusal import refused_at
from engine.messages import ConstraintKind

ROOT = "root"
_MOST_RULES = 5_000
_LONGEST_LEAST = 100_000  # characters of the shortest text
_MOST_REPETITIONS = 100_000
_MOST_OPERATORS = 4  # one after the other
LAST_CHARACTER = 0x10FFFF
_NAME = re.compile(r"[a-zA-Z0-9-]+")
_TOKEN = re.compile(r"(!?)<(?:\[(\d{1,9})\]|([^<>\s\[\]][^<>\n]*))>")
_COUNT = re.compile(r"\{\s*(\d{0,9})\s*(?:(,)\s*(\d{0,9})\s*)?\}")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


# --- nodes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Characters:
    """One character out of ranges of code points."""

    ranges: tuple[tuple[int, int], ...]
    inverted: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """One token of the vocabulary, or any other one."""

    text: str  # in the library's syntax


@dataclass(frozen=True, slots=True)
class Reference:
    """The text of another rule."""

    name: str
    offset: int  # in the grammar


@dataclass(frozen=True, slots=True)
class Repeated:
    """A part several times; most None: without a limit."""

    part: Node
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Joined:
    """Parts after each other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """One of several parts."""

    parts: tuple[Node, ...]


Node = Characters | Token | Reference | Repeated | Joined | Either
TokenId = Callable[[str], int | None]


def parsed(text: str, token_id: TokenId) -> dict[str, Node]:
    """The rules of a GBNF grammar by name; every reference has its rule, and `root` some text.

    `token_id` finds the tokens that it names. Raises RequestError with line and column for a
    grammar that is malformed.
    """
    return _Parser(text, token_id).rules()


# --- parser -------------------------------------------------------------------------------------


class _Parser:
    def __init__(self, text: str, token_id: TokenId) -> None:
        self._text = text
        self._at = 0
        self._token_id = token_id

    def rules(self) -> dict[str, Node]:
        """All rules by name; every reference has its rule."""
        found: dict[str, Node] = {}
        self._skip(newlines=True)
        while self._at < len(self._text):
            start = self._at
            name = self._name()
            self._skip(newlines=False)
            if not self._text.startswith("::=", self._at):
                self._fail("expected ::= after the name of a rule")
            if name in found:
                self._fail(f"the rule {name!r} is defined twice", start)
            if len(found) == _MOST_RULES:
                self._fail(f"it has more than {_MOST_RULES:,} rules", start)
            self._at += 3
            self._skip(newlines=True)
            found[name] = self._alternatives(nested=False)
            if self._at < len(self._text) and self._text[self._at] not in "\r\n":
                self._fail("expected the end of the rule")
            self._skip(newlines=True)
        for node in found.values():
            for reference in references(node):
                if reference.name not in found:
                    self._fail(f"there is no rule {reference.name!r}", reference.offset)
        if ROOT not in found:
            self._fail(f"there is no rule {ROOT!r}", 0)
        shortest = _shortest(found)
        if ROOT not in shortest:
            self._fail("no text can match it, for its rules never end", 0)
        if shortest[ROOT] > _LONGEST_LEAST:
            self._fail(f"it asks for more than {_LONGEST_LEAST:,} characters", 0)
        return found

    def _alternatives(self, *, nested: bool) -> Node:
        parts = [self._sequence(nested=nested)]
        while self._next_is_bar(nested):
            self._at += 1
            self._skip(newlines=True)
            parts.append(self._sequence(nested=nested))
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _next_is_bar(self, nested: bool) -> bool:
        """Whether another alternative follows, also on the next line."""
        before = self._at
        self._skip(newlines=True)
        if self._text.startswith("|", self._at):
            return True
        if not nested:
            self._at = before
        return False

    def _sequence(self, *, nested: bool) -> Node:
        parts: list[Node] = []
        while True:
            self._skip(newlines=nested)
            start = self._at
            part = self._part()
            if part is None:
                return parts[0] if len(parts) == 1 else Joined(tuple(parts))
            self._skip(newlines=nested)
            part = self._repeated(part)
            if isinstance(part, Repeated) and isinstance(part.part, Joined) and not part.part.parts:
                self._fail("nothing to repeat", start)
            parts.append(part)

    def _part(self) -> Node | None:
        text, at = self._text, self._at
        character = text[at : at + 1]
        if character == '"':
            return self._literal()
        if character == "[":
            return self._class()
        if character == ".":
            self._at += 1
            return Characters(((0, LAST_CHARACTER),))
        if character == "(":
            self._at += 1
            self._skip(newlines=True)
            inner = self._alternatives(nested=True)
            self._skip(newlines=True)
            if not text.startswith(")", self._at):
                self._fail("expected )")
            self._at += 1
            return inner
        if character in ("<", "!"):
            return self._token()
        if _NAME.match(text, at):
            return Reference(self._name(), at)
        if character in ("*", "+", "?", "{"):
            self._fail("nothing to repeat")
        return None

    def _repeated(self, part: Node) -> Node:
        text, start = self._text, self._at
        depth = 0
        while (character := text[self._at : self._at + 1]) and character in "*+?{":
            depth += 1
            if depth > _MOST_OPERATORS:
                self._fail(f"more than {_MOST_OPERATORS} repetitions of the same part", start)
            if character == "{":
                found = _COUNT.match(text, self._at)
                if found is None or not (found[1] or found[3]):
                    self._fail("expected a count such as {2}, {2,} or {2,3}")
                least = int(found[1] or 0)
                most = (int(found[3]) if found[3] else None) if found[2] else least
                if max(least, most or 0) > _MOST_REPETITIONS:
                    self._fail(f"more than {_MOST_REPETITIONS:,} repetitions")
                if most is not None and most < least:
                    self._fail("the largest count is smaller than the least")
                self._at = found.end()
            else:
                least, most = int(character == "+"), 1 if character == "?" else None
                self._at += 1
            part = Repeated(part, least, most)
            self._skip(newlines=False)
        return part

    def _literal(self) -> Node:
        start = self._at
        self._at += 1
        codes: list[int] = []
        while not self._text.startswith('"', self._at):
            codes.append(self._character(start, "the string does not end"))
        self._at += 1
        parts = tuple(Characters(((code, code),)) for code in codes)
        return parts[0] if len(parts) == 1 else Joined(parts)

    def _class(self) -> Node:
        start = self._at
        self._at += 1
        inverted = self._text.startswith("^", self._at)
        self._at += inverted
        ranges: list[tuple[int, int]] = []
        while not self._text.startswith("]", self._at):
            at = self._at
            first = last = self._character(start, "the class of characters does not end")
            is_range = self._text.startswith("-", self._at)
            if is_range and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._character(start, "the class of characters does not end")
            if last < first:
                self._fail("the range of characters is reversed", at)
            ranges.append((first, last))
        self._at += 1
        if not ranges and not inverted:
            self._fail("the class of characters is empty", start)
        if not ranges:
            return Characters(((0, LAST_CHARACTER),))
        return Characters(tuple(ranges), inverted)

    def _character(self, start: int, unfinished: str) -> int:
        """The code of the next character, escaped or not."""
        text, at = self._text, self._at
        if at >= len(text) or text[at] in "\r\n":
            self._fail(unfinished, start)
        if text[at] != "\\":
            self._at += 1
            return ord(text[at])
        kind = text[at + 1 : at + 2]
        if kind in _HEX_DIGITS:
            digits = text[at + 2 : at + 2 + _HEX_DIGITS[kind]]
            if not re.fullmatch(f"[0-9a-fA-F]{{{_HEX_DIGITS[kind]}}}", digits):
                self._fail(f"expected {_HEX_DIGITS[kind]} hexadecimal digits after \\{kind}", at)
            self._at += 2 + len(digits)
            code = int(digits, 16)
            if code > LAST_CHARACTER or 0xD800 <= code < 0xE000:
                self._fail("there is no such character", at)
            return code
        if kind not in _ESCAPES:
            self._fail("unknown escape", at)
        self._at += 2
        return ord(_ESCAPES[kind])

    def _token(self) -> Node:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._fail("expected a token such as <[10]> or <name>")
        token = int(found[2]) if found[2] else self._token_id(f"<{found[3]}>")
        if token is None:
            self._fail(f"the model has no token <{found[3]}>")
        self._at = found.end()
        return Token(f"<[{'^' if found[1] else ''}{token}]>")

    def _name(self) -> str:
        found = _NAME.match(self._text, self._at)
        if found is None:
            self._fail("expected the name of a rule")
        self._at = found.end()
        return found[0]

    def _skip(self, *, newlines: bool) -> None:
        text = self._text
        while self._at < len(text):
            character = text[self._at]
            if character == "#":
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif character in " \t" or (newlines and character in "\r\n"):
                self._at += 1
            else:
                return

    def _fail(self, reason: str, offset: int | None = None) -> NoReturn:
        at = self._at if offset is None else offset
        raise refused_at(ConstraintKind.GBNF, self._text, reason, at)


def children(node: Node) -> Sequence[Node]:
    """The parts of a node."""
    match node:
        case Joined(parts) | Either(parts):
            return parts
        case Repeated(part):
            return (part,)
        case _:
            return ()


def references(node: Node) -> Iterator[Reference]:
    """All references in a node."""
    if isinstance(node, Reference):
        yield node
    for child in children(node):
        yield from references(child)


def _shortest(rules: Mapping[str, Node]) -> dict[str, int]:
    """The length of the shortest text of each rule, up to a limit; none for a rule without end."""
    found: dict[str, int] = {}
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, node in rules.items():
        for reference in references(node):
            users[reference.name].add(name)
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        length = _length(rules[name], found)
        if length < found.get(name, math.inf):
            found[name] = int(min(length, _LONGEST_LEAST + 1))
            waiting += users[name]
    return found


def _length(node: Node, known: Mapping[str, int]) -> float:
    """The length of the shortest text of a node, infinite if none is known."""
    match node:
        case Reference(name):
            return known.get(name, math.inf)
        case Repeated(part, least, _):
            return least * _length(part, known) if least else 0
        case Joined(parts):
            return sum(_length(part, known) for part in parts)
        case Either(parts):
            return min(_length(part, known) for part in parts)
        case _:
            return 1
