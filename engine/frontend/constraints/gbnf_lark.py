"""GBNF grammars as Lark grammars of the llguidance library.

GBNF has characters only; the library splits text into lexemes, each of them as long as it can be.
A part without recursion becomes one lexeme, a regular expression, only where the longest match is
the only one: no character that may continue it may also begin what follows. Elsewhere it is joined
with what follows, or written as rules of smaller parts, in the end of single characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from engine.frontend.constraints.gbnf import (
    LAST_CHARACTER,
    ROOT,
    Characters,
    Either,
    Joined,
    Node,
    Reference,
    Repeated,
    Token,
    TokenId,
    children,
    parsed,
    references,
)

_LARGEST_EXPRESSION = 10_000  # characters of a regular expression; longer ones stay rules
_PLAIN = re.compile(r"[a-zA-Z0-9 _]")


def to_lark(text: str, token_id: TokenId = lambda text: None) -> str:
    """The Lark form of a GBNF grammar; `token_id` finds the tokens that it names.

    Raises RequestError with line and column for one that is malformed.
    """
    return "\n".join(_Writer(parsed(text, token_id)).lines())


class _Sets:
    """Sets of characters that begin and continue texts, as bits of classes that no rule divides."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._starts = sorted({0, *_boundaries(rules)})
        self._index = {start: at for at, start in enumerate(self._starts)}
        self._empty: set[str] = set()  # rules that match the empty text
        self._first = dict.fromkeys(rules, 0)
        self.follow = dict.fromkeys(rules, 0)  # by rule: what may begin the text behind it
        both_ways = [*rules.items(), *list(rules.items())[::-1]]  # chains of rules go either way
        self._more: dict[str, int] = {}
        self._used: dict[str, int] = {}
        self._changed = True
        while self._changed:
            self._changed = False
            for name, node in both_ways:
                self._note(self._first, name, self.first(node))
                if name not in self._empty and self.is_nullable(node):
                    self._empty.add(name)
                    self._changed = True
        self._changed = True
        while self._changed:
            self._changed = False
            for name, node in both_ways:
                self._spread(node, self.follow[name])

    def learn(self, name: str) -> None:
        """Prepare `more` of a rule without recursion, once those are that it uses."""
        self._more[name] = self.more(self._rules[name])
        self._used[name] = self._all(self._rules[name])

    def is_nullable(self, node: Node) -> bool:
        """Whether a node matches the empty text."""
        match node:
            case Reference(name):
                return name in self._empty
            case Repeated(part, least, _):
                return not least or self.is_nullable(part)
            case Joined(parts):
                return all(map(self.is_nullable, parts))
            case Either(parts):
                return any(map(self.is_nullable, parts))
            case _:
                return False

    def first(self, node: Node) -> int:
        """The characters that begin texts of a node."""
        match node:
            case Characters():
                return self._bits(node)
            case Token():
                return 0
            case Reference(name):
                return self._first[name]
            case Joined(parts):
                return self.behind(parts, 0)
            case _:
                return self._union([self.first(part) for part in children(node)])

    def behind(self, parts: Sequence[Node], after: int) -> int:
        """The characters that begin texts of these parts, and of what follows if they are empty."""
        found = 0
        for part in parts:
            found |= self.first(part)
            if not self.is_nullable(part):
                return found
        return found | after

    def more(self, node: Node) -> int:
        """The characters that may continue a text of a node to a longer one; some too many."""
        match node:
            case Reference(name):
                return self._more[name]
            case Repeated(part, least, most):
                again = self.first(part) if most != 1 or not least else 0
                return self.more(part) | again
            case Joined(parts):
                found = 0
                for part in reversed(parts):
                    found |= self.more(part)
                    if not self.is_nullable(part):
                        break
                return found
            case Either(parts):
                found, firsts = self._union([self.more(part) for part in parts]), 0
                overlap = self.is_nullable(node)
                for part in parts:
                    overlap |= bool(firsts & self.first(part))
                    firsts |= self.first(part)
                # One part may be the beginning of another.
                return found | (self._all(node) if overlap and len(parts) > 1 else 0)
            case _:
                return 0

    def _all(self, node: Node) -> int:
        match node:
            case Characters():
                return self._bits(node)
            case Reference(name):
                return self._used[name]
            case _:
                return self._union([self._all(part) for part in children(node)])

    def _spread(self, node: Node, after: int) -> None:
        """Note what follows the rules in a node that `after` follows."""
        match node:
            case Reference(name):
                self._note(self.follow, name, after)
            case Repeated(part, _, most):
                self._spread(part, after | (self.first(part) if most != 1 else 0))
            case Joined(parts):
                for at, part in enumerate(parts):
                    self._spread(part, self.behind(parts[at + 1 :], after))
            case _:
                for part in children(node):
                    self._spread(part, after)

    def _note(self, table: dict[str, int], name: str, bits: int) -> None:
        if bits & ~table[name]:
            table[name] |= bits
            self._changed = True

    def _bits(self, node: Characters) -> int:
        found = 0
        for low, high in node.ranges:
            end = self._index.get(high + 1, len(self._starts))
            found |= (1 << end) - (1 << self._index[low])
        return ((1 << len(self._starts)) - 1) & ~found if node.inverted else found

    @staticmethod
    def _union(sets: Sequence[int]) -> int:
        found = 0
        for one in sets:
            found |= one
        return found


def _boundaries(rules: Mapping[str, Node]) -> Iterator[int]:
    """The first characters of ranges, and those behind them."""
    waiting = list(rules.values())
    while waiting:
        node = waiting.pop()
        waiting += children(node)
        if isinstance(node, Characters):
            for low, high in node.ranges:
                yield low
                if high < LAST_CHARACTER:
                    yield high + 1


class _Writer:
    """Writes rules: `start`, and those that it needs."""

    def __init__(self, rules: Mapping[str, Node]) -> None:
        self._rules = rules
        self._names = {name: f"r{at}" for at, name in enumerate(rules)} | {ROOT: "start"}
        self._regular = _regular(rules)
        self._sets = _Sets(rules)
        for name in self._regular:
            self._sets.learn(name)
        self._waiting = [ROOT]  # rules to write
        self._written: set[str] = {ROOT}

    def lines(self) -> Iterator[str]:
        """One line for each rule."""
        while self._waiting:
            name = self._waiting.pop()
            yield f"{self._names[name]}: {self._rule(self._rules[name], self._sets.follow[name])}"

    def _rule(self, node: Node, after: int) -> str:
        """A node that is followed by these characters."""
        lexeme = self._lexeme([node], after)
        if lexeme is not None:
            return lexeme
        match node:
            case Token(text):
                return text
            case Reference(name):
                if name not in self._written:
                    self._written.add(name)
                    self._waiting.append(name)
                return self._names[name]
            case Repeated(part, least, most):
                if most != 1:
                    after |= self._sets.first(part)
                counts = f"{{{least},{'' if most is None else most}}}"
                return f"({self._rule(part, after)}){counts}"
            case Either(parts):
                return f"({' | '.join(self._rule(part, after) for part in parts)})"
            case Joined(parts):
                return " ".join(self._joined(parts, after)) or '""'
            case _:
                raise AssertionError("a character is a lexeme")

    def _joined(self, parts: Sequence[Node], after: int) -> Iterator[str]:
        """The parts of a sequence, each with as few of the next as make it a lexeme."""
        at = 0
        while at < len(parts):
            for end in range(at + 1, len(parts) + 1):
                if _expression(Joined(tuple(parts[at:end])), self._regular) is None:
                    end = at
                    break
                rest = self._sets.behind(parts[end:], after)
                lexeme = self._lexeme(parts[at:end], rest)
                if lexeme is not None:
                    yield lexeme
                    break
            else:
                end = at
            if end == at:
                end = at + 1
                yield self._rule(parts[at], self._sets.behind(parts[end:], after))
            at = end

    def _lexeme(self, parts: Sequence[Node], after: int) -> str | None:
        """Parts as one regular expression, if its longest match is the only one."""
        node = parts[0] if len(parts) == 1 else Joined(tuple(parts))
        expression = _expression(node, self._regular)
        if expression is None or self._sets.more(node) & after:
            return None
        return f"/{expression}/" if expression else '""'


def _regular(rules: Mapping[str, Node]) -> dict[str, str]:
    """The regular expressions of rules without recursion and tokens, unless they are too long."""
    needed = {name: {one.name for one in references(node)} for name, node in rules.items()}
    waiting = {name: len(names) for name, names in needed.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, names in needed.items():
        for other in names:
            users[other].append(name)
    ready = [name for name, count in waiting.items() if not count]
    found: dict[str, str] = {}
    while ready:
        name = ready.pop()
        expression = _expression(rules[name], found)
        if expression is None:
            continue  # and so are its users
        is_atom = len(expression) == 1 or isinstance(rules[name], Reference)
        found[name] = expression if is_atom else f"(?:{expression})"
        for user in users[name]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return found


def _expression(node: Node, regular: Mapping[str, str]) -> str | None:
    """The regular expression of a node; None if it has none, or a very long one."""
    match node:
        case Characters(ranges, inverted):
            if not inverted and len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                return _escaped(ranges[0][0])
            inside = "".join(
                _escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}"
                for low, high in ranges
            )
            return f"[{'^' if inverted else ''}{inside}]"
        case Token():
            return None
        case Reference(name):
            return regular.get(name)
        case Repeated(part, least, most):
            inner = _expression(part, regular)
            if inner is None:
                return None
            return f"(?:{inner}){{{least},{'' if most is None else most}}}"
        case Joined(parts) | Either(parts):
            inner = [_expression(part, regular) for part in parts]
            written = [one for one in inner if one is not None]
            if len(written) < len(parts):
                return None
            text = "".join(written) if isinstance(node, Joined) else f"(?:{'|'.join(written)})"
            return text if len(text) <= _LARGEST_EXPRESSION else None


def _escaped(code: int) -> str:
    character = chr(code)
    return character if _PLAIN.match(character) else f"\\x{{{code:x}}}"
