"""Long paragraphs are parsed and shown in pieces, so that an update does not parse all of one again.

Where a piece ends depends only on its own characters: the pieces of a text do not depend on how it
was streamed. A piece ends between two words outside all inline markup; only if there is no such place
in its second half, it ends inside markup.
"""

from __future__ import annotations

import re

from app.markdown.blocks import Runs
from app.markdown.formulas import formula_at
from app.markdown.inline import References, inline_runs
from app.markdown.tail import close_last_line, toggle

PIECE = 4000  # characters

_MARKUP = re.compile(r"\\.|\$\$?|`+|\*{1,3}|_{1,3}|~~|\]\(|[\[\]]", re.DOTALL)
_BETWEEN_WORDS = re.compile(r"(?<=[^\s\\][ \n])(?=\w)")
_NEAR = 200  # characters: most formulas in a line are shorter


class Pieces:
    """The pieces of a text that grows: those before the last one are parsed once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._parsed: list[tuple[str, Runs]] = []

    def of(
        self, text: str, references: References, *, is_open: bool = False
    ) -> list[tuple[str, Runs]]:
        """The pieces of the text and their runs; `is_open`: unfinished markup is completed."""
        at, known = 0, 0
        while len(text) - at > self._size:
            if known < len(self._parsed) and text.startswith(self._parsed[known][0], at):
                at += len(self._parsed[known][0])
                known += 1
                continue
            del self._parsed[known:]
            known += 1
            piece = text[at : at + self._size]
            piece = piece[: _markup_cut(piece)]
            self._parsed.append((piece, inline_runs(piece, references)))
            at += len(piece)
        del self._parsed[known:]
        last = close_last_line(text[at:], cites=bool(references.passages)) if is_open else text[at:]
        return [*self._parsed, (last, inline_runs(last, references))]


def plain_pieces(text: str) -> list[str]:
    """The pieces of a text without markup."""
    pieces: list[str] = []
    while len(text) > PIECE:
        end = _word_cut(text[:PIECE])
        pieces.append(text[:end])
        text = text[end:]
    return [*pieces, text]


def _markup_cut(text: str) -> int:
    """Where to cut a text, which goes on behind its end."""
    for start, end in reversed(_outside_markup(text)):
        places = list(_BETWEEN_WORDS.finditer(text, max(start, len(text) // 2), end))
        if places:
            return places[-1].start()
    return _word_cut(text)


def _word_cut(text: str) -> int:
    places = list(_BETWEEN_WORDS.finditer(text, len(text) // 2))
    return places[-1].start() if places else len(text)


def _outside_markup(text: str) -> list[tuple[int, int]]:
    """The parts of a text outside all inline markup, also of markup that may end behind it."""
    parts: list[tuple[int, int]] = []
    open_marks: list[str] = []
    brackets = at = 0
    while match := _MARKUP.search(text, at):
        if not (open_marks or brackets):
            parts.append((at, match.start()))
        mark, start, at = match[0], match.start(), match.end()
        if mark[0] in "\\$":
            if source := formula_at(text, start):
                at = start + len(source)
            elif mark in ("$$", "\\(", "\\[") or (mark == "$" and len(text) - at < _NEAR):
                return parts
        elif mark[0] == "`":
            end = re.compile(f"(?<!`){mark}(?!`)").search(text, at)
            if end is None:
                return parts
            at = end.end()
        elif mark == "](":
            brackets = max(brackets - 1, 0)
            at = text.find(")", at) + 1
            if not at:
                return parts
        elif mark in "[]":
            brackets = max(brackets + (1 if mark == "[" else -1), 0)
        else:
            toggle(open_marks, mark, text[start - 1 : start], text[at : at + 1])
    if not (open_marks or brackets):
        parts.append((at, len(text)))
    return parts
