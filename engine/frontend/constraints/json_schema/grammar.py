"""The grammar of a schema: terminals and rules, and which of them some text can match."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from engine.frontend.constraints.json_schema.document import SchemaFault
from engine.frontend.constraints.library import LIMITS, guarded

_MOST_RULES = 20_000
_MOST_CHECKS = 2_000  # whether a terminal has texts: about a millisecond each
_MOST_LETTERS = 1 << 22
_MOST_JOINED = 12  # terminals that a text matches together: the library's work doubles with each
_MASK_WORDS = 9  # of 256 bytes and the end


@dataclass(frozen=True, slots=True)
class Repeat:
    """A sequence of symbols, several times; `most` None: without a limit."""

    symbols: tuple[str, ...]
    least: int
    most: int | None

    def __str__(self) -> str:
        most = "" if self.most is None else str(self.most)
        return f"({' '.join(self.symbols)}){{{self.least},{most}}}"


Sequence_ = tuple["str | Repeat", ...]


class Grammar:
    """Symbols are names: those of terminals begin with T, those of rules with r."""

    def __init__(self) -> None:
        self._terminals: dict[str, str] = {}  # names by expression
        self._expressions: dict[str, str] = {}  # by name
        self._joined: dict[str, int] = {}  # by name: how many terminals its texts match together
        self._rules: dict[str, list[Sequence_]] = {}
        self._empty: dict[str, bool] = {}  # by expression
        self._starts: dict[str, LLMatcher] = {}  # by terminal
        self._letters = 0

    # --- terminals ------------------------------------------------------------------------------

    def terminal(self, expression: str) -> str:
        """The terminal of a Lark expression."""
        name = self._terminals.get(expression)
        if name is None:
            name = self._terminals[expression] = f"T{len(self._terminals)}"
            self._expressions[name] = expression
            self._joined[name] = self._count_joined(expression)
            self._letters += len(expression)
            self._check_size()
        return name

    def regex(self, expression: str) -> str:
        """The terminal of a regular expression."""
        escaped = expression.replace("/", r"\/")
        return self.terminal(f"/{escaped}/")

    def literal(self, *texts: str) -> str:
        """The terminal of some texts."""
        return self.terminal(" | ".join(json.dumps(one, ensure_ascii=False) for one in texts))

    def both(self, wanted: Iterable[str], unwanted: Iterable[str] = ()) -> str | None:
        """The terminal of texts that match all of some terminals and none of others; None: no text."""
        parts = dict.fromkeys(wanted)
        for one in dict.fromkeys(unwanted):
            parts[f"~{one}"] = None
        expression = " & ".join(parts)
        if len(parts) == 1:
            return expression
        return None if self._is_empty(expression) else self.terminal(expression)

    def not_empty(self, terminal: str) -> str | None:
        """The terminal; None: no text matches it."""
        return None if self._is_empty(terminal) else terminal

    def _count_joined(self, expression: str) -> int:
        """How many terminals the texts of an expression match together, at least one."""
        if expression[0] in '"/':
            return 1
        counts = [self._joined.get(word, 0) for word in expression.split()]  # 0: of ~, & and |
        return max(1, sum(counts) if "&" in expression else max(counts))

    def _is_empty(self, expression: str) -> bool:
        found = self._empty.get(expression)
        if found is None:
            is_large = self._count_joined(expression) > _MOST_JOINED
            if is_large or len(self._empty) > _MOST_CHECKS:
                raise SchemaFault("it is too complex")
            found = self._empty[expression] = not self._has_text(expression)
        return found

    def has(self, terminal: str, text: str) -> bool:
        """Whether a terminal matches a text."""
        start = self._starts.get(terminal)
        if start is None:
            start = self._starts[terminal] = self._matcher(terminal)
        tokens = list(text.encode())
        with guarded():
            matcher = start.deep_copy()
            if matcher.validate_tokens(tokens) < len(tokens):
                return False
            return matcher.consume_tokens(tokens) and matcher.is_accepting()

    def _matcher(self, expression: str) -> LLMatcher:
        """The library's state at the start of a terminal's text."""
        lines = ["start: T", f"T: {expression}", *self._needed(expression)]
        source = json.dumps({"grammars": [{"lark_grammar": "\n".join(lines)}]})
        with guarded():
            matcher = LLMatcher(_bytes(), source, log_level=0, limits=LIMITS)
            if message := matcher.get_error():
                raise SchemaFault(message.strip().split("\n")[0])
        return matcher

    def _has_text(self, expression: str) -> bool:
        """Whether the library finds a first byte of the terminal."""
        mask = np.zeros(_MASK_WORDS, np.uint32)
        matcher = self._matcher(expression)
        with guarded():
            matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            if matcher.is_stopped() and not matcher.is_accepting():
                return "too complex" in matcher.get_error().lower()
        return True

    def _needed(self, expression: str) -> list[str]:
        """The definitions of the terminals that an expression names."""
        found: dict[str, str] = {}
        waiting = [expression]
        while waiting:
            for word in _names(waiting.pop()):
                if word not in found:
                    found[word] = self._expressions[word]
                    waiting.append(found[word])
        return [f"{name}: {one}" for name, one in found.items()]

    # --- rules ----------------------------------------------------------------------------------

    def new_rule(self) -> str:
        """A rule without alternatives yet."""
        name = f"r{len(self._rules)}"
        self._rules[name] = []
        self._check_size()
        return name

    def add(self, rule: str, *symbols: str | Repeat) -> None:
        """Add an alternative to a rule."""
        self._rules[rule].append(symbols)
        self._letters += 8 * len(symbols) + 8

    def rule(self, *alternatives: Sequence[str | Repeat]) -> str:
        """A rule of these alternatives."""
        name = self.new_rule()
        for symbols in alternatives:
            self.add(name, *symbols)
        return name

    def union(self, symbols: Iterable[str | None]) -> str | None:
        """A symbol for any of several; None: there is none. Terminals become one."""
        found = list(dict.fromkeys(one for one in symbols if one is not None))
        terminals = [one for one in found if one[0] == "T"]
        if len(terminals) > 1:
            joined = self.terminal(" | ".join(terminals))
            found = [one for one in found if one[0] != "T"] + [joined]
        if len(found) <= 1:
            return found[0] if found else None
        return self.rule(*((one,) for one in found))

    def _check_size(self) -> None:
        if len(self._rules) > _MOST_RULES or self._letters > _MOST_LETTERS:
            raise SchemaFault("it is too complex")

    # --- the whole ------------------------------------------------------------------------------

    def productive(self, start: str) -> set[str]:
        """The rules at hand from a symbol that some finite text matches."""
        reached, waiting = [start], [start]
        seen = {start}
        while waiting:
            for symbols in self._rules.get(waiting.pop(), ()):
                for one in symbols:
                    for name in one.symbols if isinstance(one, Repeat) else (one,):
                        if name[0] == "r" and name not in seen:
                            seen.add(name)
                            reached.append(name)
                            waiting.append(name)
        found: set[str] = set()
        grows = True
        while grows:
            grows = False
            for name in reversed(reached):
                if name not in found and any(
                    self._can_end(symbols, found) for symbols in self._rules.get(name, ())
                ):
                    found.add(name)
                    grows = True
        return found

    def has_text(self, start: str | None) -> bool:
        """Whether some finite text matches a symbol."""
        return start is not None and (start[0] == "T" or start in self.productive(start))

    @staticmethod
    def _can_end(symbols: Sequence_, productive: set[str]) -> bool:
        for one in symbols:
            if isinstance(one, Repeat):
                if one.least and not Grammar._can_end(one.symbols, productive):
                    return False
            elif one[0] == "r" and one not in productive:
                return False
        return True

    def lark(self, start: str) -> str:
        """The Lark grammar of a symbol that some text matches."""
        productive = self.productive(start)
        lines = [f"start: {start}"]
        used: set[str] = {start}
        for name, alternatives in self._rules.items():
            if name not in productive:
                continue
            texts: list[str] = []
            for symbols in alternatives:
                if not self._can_end(symbols, productive):
                    continue
                kept = [
                    one
                    for one in symbols
                    if not isinstance(one, Repeat) or self._can_end(one.symbols, productive)
                ]
                for one in kept:
                    used.update(one.symbols if isinstance(one, Repeat) else (one,))
                texts.append(" ".join(map(str, kept)) or '""')
            lines.append(f"{name}: {' | '.join(dict.fromkeys(texts))}")
        waiting = [one for one in used if one[0] == "T"]
        while waiting:
            inner = set(_names(self._expressions[waiting.pop()])) - used
            used |= inner
            waiting += inner
        lines += [f"{name}: {one}" for name, one in self._expressions.items() if name in used]
        return "\n".join(lines)


@cache
def _bytes() -> LLTokenizer:
    """The vocabulary of single bytes."""
    return LLTokenizer("byte")


def _names(expression: str) -> list[str]:
    """The terminals that an expression names; one in text or a regular expression names none."""
    if expression[0] in '"/':
        return []
    return [word.lstrip("~") for word in expression.split() if word not in "|&"]
