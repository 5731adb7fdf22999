"""Splits added tokens out of a text as the `tokenizers` library does: leftmost-longest match.

ggml's order (`engine.frontend.tokenizer.special`) differs for overlapping texts, without options per token.
Source: https://huggingface.co/docs/tokenizers/api/added-tokens
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.frontend.tokenizer.special import by_prefix, pieces, present

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
    """Matching options of an added token, named as in the `tokenizers` library."""

    lstrip: bool = False  # the match includes whitespace before it
    rstrip: bool = False  # the match includes whitespace after it
    single_word: bool = False  # no match next to a word character
    normalized: bool = False  # matched after all tokens without this option


_NO_OPTIONS = AddedTokenOptions()
Specials = dict[str, list[tuple[str, int]]]  # as returned by `by_prefix`


class AddedTokens:
    """Splits a prompt at added tokens as the library does."""

    def __init__(
        self,
        user_defined: Iterable[tuple[str, int]],
        control: Iterable[tuple[str, int]],
        options: Mapping[int, AddedTokenOptions],
    ) -> None:
        """`control` texts are split only on request; `options` are by token id."""
        self._options = options
        plain = list(user_defined)
        self._plain = self._passes(plain)
        self._all = self._passes(plain + list(control))

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

    def _passes(self, specials: Sequence[tuple[str, int]]) -> list[Specials]:
        return [
            by_prefix(
                [
                    special
                    for special in specials
                    if self._options_of(special[1]).normalized == normalized
                ]
            )
            for normalized in (False, True)
        ]

    def _cut(self, text: str, specials: Specials) -> list[str | int]:
        found = dict(present(text, specials))
        if not found:
            return [text]
        longest_first = sorted(found, key=len, reverse=True)
        spans: list[tuple[int, int, int]] = []  # start, stop, token
        for match in re.finditer("|".join(map(re.escape, longest_first)), text):
            token = found[match[0]]
            options = self._options_of(token)
            start, stop = match.span()
            if options.single_word and _touches_a_word(text, start, stop):
                continue
            if options.lstrip:
                end = spans[-1][1] if spans else 0
                while start > end and text[start - 1] in _SPACE:
                    start -= 1
            if options.rstrip:
                while stop < len(text) and text[stop] in _SPACE:
                    stop += 1
            # A match may begin within whitespace that the one before has included.
            spans.append((start, stop, token))
        return pieces(text, spans)

    def _options_of(self, token: int) -> AddedTokenOptions:
        return self._options.get(token, _NO_OPTIONS)


def _touches_a_word(text: str, start: int, stop: int) -> bool:
    return any(map(_is_word, (text[start - 1 : start], text[stop : stop + 1])))


def _is_word(character: str) -> bool:
    """Whether a character is part of a word, by https://www.unicode.org/reports/tr18 annex C."""
    return bool(character) and (
        unicodedata.category(character) in _WORD
        or character in _JOINERS
        or _LETTERS_IN_CIRCLES.match(character) is not None
    )
