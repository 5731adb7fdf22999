"""Where the `tokenizers` library finds added tokens in a text: leftmost first, the longest there.

That differs from ggml's way (`engine.tokenizer.special`) where texts overlap, and each token has habits
of its own. Source: https://huggingface.co/docs/tokenizers/api/added-tokens
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.tokenizer.special import by_prefix, pieces, present

_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_WORD = frozenset(("Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Nd", "Mn", "Mc", "Me", "Pc"))
_JOINERS = "\u200c\u200d"
_LETTERS_IN_CIRCLES = re.compile(
    "[\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189]"
)


@dataclass(frozen=True, slots=True)
class AddedTokenOptions:
    """What an added token does beside standing for its text."""

    takes_space_before: bool = False
    takes_space_after: bool = False
    whole_word: bool = False  # it is no token where a letter or a digit touches it
    late: bool = False  # it is looked for in what the others leave


_NONE = AddedTokenOptions()
Specials = dict[str, list[tuple[str, int]]]  # as `by_prefix` makes them


class AddedTokens:
    """Cuts added tokens out of a prompt as the library does."""

    def __init__(
        self,
        user_defined: Iterable[tuple[str, int]],
        control: Iterable[tuple[str, int]],
        habits: Mapping[int, AddedTokenOptions],
    ) -> None:
        """`control` texts are cut only on request; `habits` are those of tokens that have some."""
        self._habits = habits
        plain = list(user_defined)
        self._plain = self._rounds(plain)
        self._all = self._rounds(plain + list(control))

    def split(self, text: str, *, parse_control: bool) -> list[str | int]:
        """Text and token ids in order; no piece of text is empty."""
        parts: list[str | int] = [text] if text else []
        for specials in self._all if parse_control else self._plain:
            parts = [
                piece
                for part in parts
                for piece in ([part] if isinstance(part, int) else self._cut(part, specials))
            ]
        return parts

    def _rounds(self, specials: Sequence[tuple[str, int]]) -> list[Specials]:
        rounds = (False, True)
        return [
            by_prefix([special for special in specials if self._of(special[1]).late == late])
            for late in rounds
        ]

    def _cut(self, text: str, specials: Specials) -> list[str | int]:
        found = dict(present(text, specials))
        if not found:
            return [text]
        longest_first = sorted(found, key=len, reverse=True)
        spans: list[tuple[int, int, int]] = []  # start, stop, token
        for match in re.finditer("|".join(map(re.escape, longest_first)), text):
            token = found[match[0]]
            habits = self._of(token)
            start, stop = match.span()
            if habits.whole_word and _touches_a_word(text, start, stop):
                continue
            if habits.takes_space_before:
                end = spans[-1][1] if spans else 0
                while start > end and text[start - 1] in _SPACE:
                    start -= 1
            if habits.takes_space_after:
                while stop < len(text) and text[stop] in _SPACE:
                    stop += 1
            # One that begins within space another has taken is found all the same.
            spans.append((start, stop, token))
        return pieces(text, spans)

    def _of(self, token: int) -> AddedTokenOptions:
        return self._habits.get(token, _NONE)


def _touches_a_word(text: str, start: int, stop: int) -> bool:
    return any(map(_is_word, (text[start - 1 : start], text[stop : stop + 1])))


def _is_word(character: str) -> bool:
    """Whether a character is part of a word, by https://www.unicode.org/reports/tr18 annex C."""
    return bool(character) and (
        unicodedata.category(character) in _WORD
        or character in _JOINERS
        or _LETTERS_IN_CIRCLES.match(character) is not None
    )
