"""Regular expressions of schemas (ECMA 262) as regular expressions of JSON texts.

A JSON text spells each string in one way: quotes, backslashes and control characters by their
shortest escape, all other characters as they are. So a name is excluded by one spelling. Where
the dialects of regular expressions differ, a class has the characters that they agree on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
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


def strings_like(pattern: str, wide: bool = False) -> list[tuple[bool, str]]:
    """Regular expressions of JSON texts: the strings that match all of them, and no negative one.

    Each is (whether it is to match, expression). `wide`: strings that match in some dialect,
    instead of those that match in all. Raises PatternFault.
    """
    options = _Parser(pattern, wide).parsed()
    while len(options) == 1 and len(options[0]) == 1 and _is_single(options[0][0]):
        options = options[0][0].options
    found: list[tuple[bool, str]] = []
    if len(options) == 1:  # looks ahead from the beginning
        sequence = options[0]
        if sequence and sequence[0].kind == "start":
            rest = sequence[1:]
            while rest and rest[0].kind == "look":
                found.append((not rest[0].negative, _searching(_anchored(rest[0].options))))
                rest = rest[1:]
            options = ((sequence[0], *rest),)
        elif sequence and sequence[0].kind == "look" and _begins_anchored(sequence[0].options):
            # "(?!^a)b" looks at the beginning too; elsewhere it says nothing.
            first = sequence[0]
            rest = sequence[1:]
            if first.negative and rest and rest[0].kind == "start":
                found.append((False, _searching(_anchored(first.options))))
                options = (rest,)
    return [(True, _searching(options)), *found]


def _is_single(node: Node) -> bool:
    return node.kind == "group" and not node.repeats


def _anchored(options: Options) -> Options:
    """The options at the beginning of a string."""
    start = Node("start")
    return tuple(one if one and one[0].kind == "start" else (start, *one) for one in options)


def _begins_anchored(options: Options) -> bool:
    return all(one and one[0].kind == "start" for one in options)


def _searching(options: Options) -> str:
    """The JSON texts of strings in which the options are found."""
    return f'"{_rendered(options, True, True)}"'


def _rendered(options: Options, first: bool, last: bool) -> str:
    """The options; at the edge of the pattern with any text around, where no anchor stands."""
    every = f"{CHARACTER}*"
    texts: list[str] = []
    for sequence in options:
        items, left, right = list(sequence), first, last
        before = after = ""
        if left and items and items[0].kind == "start":
            left = False
            while items and items[0].kind == "start":
                del items[0]
        elif left and not (items and _is_single(items[0])):
            before, left = every, False
        if right and items and items[-1].kind == "end":
            right = False
            after = items[-1].text
            while items and items[-1].kind == "end":
                del items[-1]
        elif right and not (items and _is_single(items[-1])):
            after, right = every, False
        parts = [
            _item(item, left and at == 0, right and at == len(items) - 1)
            for at, item in enumerate(items)
        ]
        texts.append(f"{before}{''.join(parts)}{after}")
    return f"(?:{'|'.join(texts)})"


def _item(node: Node, first: bool, last: bool) -> str:
    match node.kind:
        case "text":
            return node.text
        case "group":
            return _rendered(node.options, first, last) + node.repeats
        case "look":
            raise PatternFault("a pattern can look ahead only right after ^")
        case _:
            anchor = "^" if node.kind == "start" else "$"
            raise PatternFault(f"{anchor} inside a pattern cannot be enforced")


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
