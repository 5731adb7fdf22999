"""Regular expressions of schemas (ECMA 262) as regular expressions of JSON texts.

A JSON text spells each string in one way: quotes, backslashes and control characters by their
shortest escape, all other characters as they are. So a name is excluded by one spelling. Where
the dialects of regular expressions differ, a class has the characters that they agree on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

_SHORT = {"\b": "b", "\t": "t", "\n": "n", "\f": "f", "\r": "r"}
_CONTROLS = [chr(code) for code in (*range(32), 127)]
_PLAIN = r'[^"\\\x00-\x1f\x7f]'
# One character of a string.
CHARACTER = rf'(?:{_PLAIN}|\\(?:["\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f]|7f)))'
_DEEPEST = 60  # groups within each other
_MOST_REPEATED = 10_000
_ESCAPES = {"t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r", "0": "\0"}
_COUNT = re.compile(r"\{(\d{1,9})(?:(,)(\d{0,9}))?\}")
_GROUP = re.compile(r"\(\?(?:(:)|P?<([A-Za-z_]\w*)>|([=!])|(<[=!]))")
_SURROGATES = range(0xD800, 0xE000)
# Characters of which other dialects than this one say that they belong to the class.
_CLASSES = {
    "d": ("0-9", r"\p{Nd}"),
    "w": ("A-Za-z0-9_", r"\p{L}\p{M}\p{N}\p{Pc}\p{Join_Control}"),
    "s": (r"\t\n\x0b\f\r ", r"\s\x1c-\x1f\x{85}\x{feff}\x{180e}"),
}
_SPACES = "\t\n\v\f\r \x1c\x1d\x1e\x1f"


class PatternFault(Exception):
    """A pattern that is malformed or cannot be enforced: the sentence says why."""


@dataclass(frozen=True, slots=True)
class Characters:
    """A class of characters, and which of those that JSON escapes belong to it."""

    body: str  # within the brackets of a class
    escaped: frozenset[str]
    negated: bool = False

    def text(self) -> str:
        """The regular expression of one of them in a JSON text."""
        parts: list[str] = []
        if self.body:
            parts.append(rf"[[{'^' * self.negated}{self.body}]&&{_PLAIN}]")
        elif self.negated:
            parts.append(_PLAIN)
        wanted = set(_CONTROLS) | {'"', "\\"}
        found = wanted - self.escaped if self.negated else wanted & self.escaped
        parts += [re.escape(spelled(one)) for one in sorted(found)]
        return f"(?:{'|'.join(parts)})" if parts else r"[^\x00-\x{10ffff}]"


Options = tuple[tuple["Node", ...], ...]  # sequences, one of which matches


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a pattern."""

    kind: str  # text, start, end, look, group
    text: str = ""  # of a part that matches characters, of a JSON text
    options: Options = ()  # of a group or look
    negative: bool = False  # of a look
    repeats: str = ""  # of a group


def spelled(character: str) -> str:
    """A character within a JSON string."""
    if character in '"\\':
        return "\\" + character
    if character in _SHORT:
        return "\\" + _SHORT[character]
    return f"\\u{ord(character):04x}" if character in _CONTROLS else character


def quoted(text: str) -> str:
    """A string as a JSON text, in the only spelling that an answer may have."""
    return f'"{"".join(map(spelled, text))}"'


@dataclass(frozen=True, slots=True)
class Expression:
    """Texts: those of a regular expression, of expressions in a row, of any or of all of several."""

    kind: str  # regex, row, any, all
    regex: str = ""
    parts: tuple[Expression, ...] = ()
    is_negated: bool = False  # within `all`


def strings_like(pattern: str, wide: bool = False) -> Expression:
    """The JSON texts of the strings in which a pattern is found.

    `wide`: in some dialect of regular expressions, instead of in all. Raises PatternFault.
    """
    options = _without_anchors(_Parser(pattern, wide).parsed(), True, True)
    return _joined(_regex('"'), _any(_row(sequence, _regex('"')) for sequence in options))


# --- anchors ------------------------------------------------------------------------------------


def _is_single(node: Node) -> bool:
    return node.kind == "group" and not node.repeats


def _without_anchors(options: Options, first: bool, last: bool) -> Options:
    """The options of a whole string: at the edges with any text around, where no anchor stands."""
    every = Node("text", f"{CHARACTER}*")
    found: list[tuple[Node, ...]] = []
    for sequence in options:
        items, left, right = list(sequence), first, last
        if left and items and items[0].kind == "start":
            left = False
            while items and items[0].kind == "start":
                del items[0]
            for at in range(_looking(items)):
                items[at] = _at_beginning(items[at])
        elif left and not (items and _is_single(items[0])):
            items.insert(0, every)
            left = False
        if right and items and items[-1].kind == "end":
            right = False
            after = items[-1].text
            while items and items[-1].kind == "end":
                del items[-1]
            if after:
                items.append(Node("text", after))
        elif right and not (items and _is_single(items[-1])):
            items.append(every)
            right = False
        for at, item in enumerate(items):
            if item.kind in ("start", "end"):
                anchor = "^" if item.kind == "start" else "$"
                raise PatternFault(f"{anchor} inside a pattern cannot be enforced")
            if item.options:
                is_look = item.kind == "look"
                edges = (
                    (False, True) if is_look else (left and at == 0, right and at == len(items) - 1)
                )
                items[at] = replace(item, options=_without_anchors(item.options, *edges))
        found.append(tuple(items))
    return tuple(found)


def _looking(items: Sequence[Node]) -> int:
    """How many items look ahead before the first that does not."""
    return next((at for at, one in enumerate(items) if one.kind != "look"), len(items))


def _at_beginning(look: Node) -> Node:
    """A look ahead from the beginning of a string, where `^` says nothing."""
    options = tuple(
        tuple(one for at, one in enumerate(sequence) if at or one.kind != "start")
        for sequence in look.options
    )
    return replace(look, options=options)


# --- rendering ----------------------------------------------------------------------------------


def _regex(text: str) -> Expression:
    return Expression("regex", text)


def _joined(*parts: Expression) -> Expression:
    if all(part.kind == "regex" for part in parts):
        return _regex("".join(part.regex for part in parts))
    return Expression("row", parts=parts)


def _any(options: Iterable[Expression]) -> Expression:
    parts = tuple(options)
    if len(parts) == 1:
        return parts[0]
    if all(part.kind == "regex" for part in parts):
        return _regex(f"(?:{'|'.join(part.regex for part in parts)})")
    return Expression("any", parts=parts)


def _looks(node: Node) -> bool:
    return node.kind == "look" or any(_looks(one) for row in node.options for one in row)


def _row(items: Sequence[Node], rest: Expression) -> Expression:
    """The texts of items and then of `rest`, which a look ahead also looks at."""
    before: list[Expression] = []
    for at, item in enumerate(items):
        if not _looks(item):
            before.append(_regex(_text(item)))
            continue
        options = item.options
        if item.repeats == "?":
            options = (*options, ())
        elif item.repeats:
            raise PatternFault("a repeated part of a pattern cannot look ahead")
        after = _row(items[at + 1 :], rest)
        if item.kind == "look":
            seen = _any(_row(sequence, _regex('"')) for sequence in item.options)
            both = (after, replace(seen, is_negated=item.negative))
            return _joined(*before, Expression("all", parts=both))
        return _joined(*before, _any(_row(sequence, after) for sequence in options))
    return _joined(*before, rest)


def _text(node: Node) -> str:
    """The regular expression of a part that does not look ahead."""
    if node.kind == "text":
        return node.text
    texts = ["".join(map(_text, sequence)) for sequence in node.options]
    return f"(?:{'|'.join(texts)}){node.repeats}"


class _Parser:
    def __init__(self, pattern: str, wide: bool) -> None:
        self._text, self._at, self._depth, self._wide = pattern, 0, 0, wide

    def parsed(self) -> Options:
        options, _ = self._options()
        if self._at < len(self._text):
            raise PatternFault("unopened group")
        return options

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternFault("unfinished escape or class")
        self._at += 1
        return self._text[self._at - 1]

    def _options(self) -> tuple[Options, int]:
        """Options up to a closing parenthesis, and how often they repeat a part at least."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise PatternFault(f"groups are nested more than {_DEEPEST} deep")
        found: list[tuple[Node, ...]] = []
        items: list[Node] = []
        most = 1
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "|":
                self._at += 1
                found.append(tuple(items))
                items = []
                continue
            node, least = self._atom()
            node, least = self._repeated(node, least)
            most = max(most, least)
            items.append(node)
        self._depth -= 1
        return (*found, tuple(items)), most

    def _atom(self) -> tuple[Node, int]:
        character = self._next()
        match character:
            case "^":
                return Node("start"), 1
            case "$":
                return self._end(), 1
            case "(":
                return self._group()
            case "[":
                return Node("text", self._class().text()), 1
            case ".":
                lines = "\n" if self._wide else "\n\r"
                body = "" if self._wide else r"\x{2028}\x{2029}"
                return Node("text", Characters(body, frozenset(lines), True).text()), 1
            case "\\":
                return self._escape(), 1
            case "*" | "+" | "?":
                raise PatternFault(f"nothing before {character} to repeat")
            case _:
                return Node("text", _literal(character)), 1

    def _end(self) -> Node:
        """The end; in some dialects a last line feed may follow."""
        return Node("end", r"(?:\\n)?" if self._wide else "")

    def _group(self) -> tuple[Node, int]:
        kind, negative = "group", False
        if self._text.startswith("?", self._at):
            found = _GROUP.match(self._text, self._at - 1)
            if found is None:
                raise PatternFault("flags in a pattern cannot be enforced")
            if found[4]:
                raise PatternFault("a pattern that looks behind cannot be enforced")
            if found[3]:
                kind, negative = "look", found[3] == "!"
            self._at = found.end()
        self._wide ^= negative  # what must not follow does not in any dialect
        options, least = self._options()
        self._wide ^= negative
        if self._at >= len(self._text):
            raise PatternFault("unclosed group")
        self._at += 1
        return Node(kind, options=options, negative=negative), least

    def _repeated(self, node: Node, least: int) -> tuple[Node, int]:
        while self._at < len(self._text):
            character = self._text[self._at]
            counted = _COUNT.match(self._text, self._at) if character == "{" else None
            if counted is None and character not in "*+?":
                break
            if node.kind in ("start", "end", "look"):
                raise PatternFault("a repeated anchor cannot be enforced")
            if node.repeats:
                raise PatternFault("two repetitions follow each other")
            text = counted[0] if counted else character
            if counted:
                low, high = int(counted[1]), counted[3] or ""
                if high and int(high) < low:
                    raise PatternFault("invalid repetition, its counts are in the wrong order")
                least *= max(low, 1)
                if least > _MOST_REPEATED:
                    reason = f"nested counts ask for more than {_MOST_REPEATED:,} repetitions"
                    raise PatternFault(reason)
            self._at += len(text)
            if self._text.startswith("?", self._at):  # lazy: the same texts
                self._at += 1
            options = node.options if node.kind == "group" else ((node,),)
            node = Node("group", options=options, repeats=text)
        return node, least

    def _escape(self) -> Node:
        character = self._next()
        if character in "AZz":
            return Node("start") if character == "A" else self._end()
        if character in "bB":
            raise PatternFault(f"\\{character} in a pattern cannot be enforced")
        if (character.isdecimal() and character != "0") or character == "k":
            raise PatternFault("a back reference in a pattern cannot be enforced")
        self._at -= 1
        found = self._member()
        if isinstance(found, Characters):
            return Node("text", found.text())
        return Node("text", _literal(found))

    def _member(self) -> str | Characters:
        """What follows a backslash: a character or a class."""
        character = self._next()
        if character.lower() in _CLASSES:
            agreed, disputed = _CLASSES[character.lower()]
            spaces = frozenset(_SPACES if character in "sS" else "")
            if character.isupper() == self._wide:  # the fewest or the most characters
                disputed, spaces = "", spaces - frozenset("\x1c\x1d\x1e\x1f")
            return Characters(agreed + disputed, spaces, character.isupper())
        if character in "pP":
            end = self._text.find("}", self._at)
            if not self._text.startswith("{", self._at) or end < 0:
                raise PatternFault("a property of characters must be written \\p{…}")
            name = self._text[self._at : end + 1]
            self._at = end + 1
            # Whether a property has a quote or a control character is left open.
            every = frozenset((*_CONTROLS, '"', "\\")) if self._wide else frozenset[str]()
            return Characters(rf"\{character}{name}", every)
        if character == "u" and self._text.startswith("{", self._at):
            end = self._text.find("}", self._at)
            digits = self._text[self._at + 1 : max(end, self._at + 1)]
            self._at = end + 1
            return self._code(digits)
        if character in "ux":
            length = 4 if character == "u" else 2
            digits = self._text[self._at : self._at + length]
            self._at += length
            return self._code(digits if len(digits) == length else "")
        if character == "c":
            return chr(ord(self._next()) % 32)
        return _ESCAPES.get(character, character)

    def _code(self, digits: str) -> str:
        try:
            code = int(digits, 16)
        except ValueError:
            code = -1
        if not 0 <= code < 0x110000:
            raise PatternFault("a character code in a pattern is not hexadecimal")
        if code in _SURROGATES:
            raise PatternFault("half a character in a pattern cannot be enforced")
        return chr(code)

    def _class(self) -> Characters:
        negated = self._text.startswith("^", self._at)
        self._at += negated
        begin = self._at
        self._wide ^= negated
        body: list[str] = []
        escaped: set[str] = set()
        while (character := self._next()) != "]":
            first = self._class_member(character)
            if isinstance(first, Characters):
                body.append(_nested(first))
                escaped |= first.escaped if not first.negated else _complement(first.escaped)
                continue
            last: str | Characters = first
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._class_member(self._next())
                if isinstance(last, Characters):  # "a-\d" is an "a", a "-" and digits
                    body += [_code_of("-"), _nested(last)]
                    escaped |= last.escaped if not last.negated else _complement(last.escaped)
                    last = first
            if last < first:
                raise PatternFault("a range of characters is in the wrong order")
            body.append(_code_of(first) + (f"-{_code_of(last)}" if last != first else ""))
            escaped |= {one for one in (*_CONTROLS, '"', "\\") if first <= one <= last}
        self._wide ^= negated
        classes = set(re.findall(r"\\(.)", self._text[begin : self._at], re.DOTALL))
        if any({name, name.upper()} <= classes for name in _CLASSES):  # such as [\s\S]
            return Characters("", frozenset(), not negated)
        return Characters("".join(body), frozenset(escaped), negated)

    def _class_member(self, character: str) -> str | Characters:
        if character != "\\":
            return character
        if self._text.startswith("b", self._at):
            self._at += 1
            return "\b"
        return self._member()


def _complement(characters: frozenset[str]) -> frozenset[str]:
    return frozenset((*_CONTROLS, '"', "\\")) - characters


def _nested(inner: Characters) -> str:
    """A class within another."""
    return f"[^{inner.body}]" if inner.negated else inner.body


def _code_of(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


def _literal(character: str) -> str:
    if 0xD800 <= ord(character) < 0xE000:
        _fail("half a character in a pattern cannot be enforced")
    return re.escape(spelled(character))


def _fail(reason: str) -> NoReturn:
    raise PatternFault(reason)
