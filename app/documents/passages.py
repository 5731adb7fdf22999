"""Passages: a document's text cut into pieces for search, at headings, paragraphs and sentences.

A passage stays within its page, except where a paragraph goes on to the next one. A paragraph that
is longer than a passage is cut between sentences, and the end of one piece is repeated in the next;
tables are cut between rows. Time grows with the text only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

from app.domain.documents import DocumentKind, PageStart, page_spans

SIZE = 1_200  # characters of a passage, about 200 words; it may be a little longer
WIDE = 3  # characters that a letter of a script without spaces counts for
PARTS = 4  # that a passage has for its vectors
_LEAST_PART = 100  # characters
_OVERLAP = 0.15  # of a passage: how much of a cut paragraph is repeated
_SEGMENT = 32  # passages that are cut together, so that none of them is short
_LEAST_PIECE = 40  # characters
_TITLE_LENGTH = 200  # characters of a heading or table header that are kept

# Chinese, Japanese, Korean, Thai, Lao, Burmese, Khmer: words that no spaces separate.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff"
    "\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{UNSPACED}]")
# Lines that no blank one separates; not more at once than takes a millisecond or two, because
# other threads wait for an expression.
_BLOCK = re.compile(r"\S[^\n]{0,9999}(?:\n[^\S\n]*+\S[^\n]{0,9999}){0,199}+")
_INDENT = re.compile(r"[^\S\n]*+")
_MARKED = re.compile(r"^[^\S\n]*(?:#{1,6}[^\S\n]|\||```|~~~|={3,}[^\S\n]*$|-{3,}[^\S\n]*$)", re.M)
_HEADING = re.compile(r"[^\S\n]{0,3}(#{1,6})[^\S\n]+([^\n]*)")
_UNDERLINE = re.compile(r"(?:={3,}|-{3,})[^\S\n]*")
_TABLE_RULE = re.compile(r"[\s|:-]+")
# Where a long paragraph may be cut: after a sentence, after a line of code, before a list's item.
_PIECE = re.compile(
    r"(?<=[.!?…])\s+|(?<=[.!?…][\"'\u201d\u2019)\]])\s+|(?<=[。\uff01\uff1f])|(?<=[;{})\]>])\n\s*+"
    r"|\n(?=[^\S\n]*+(?:[-*+•]|\d{1,4}[.)])\s)"
)
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。\uff01\uff1f])|\n+")
_GOES_ON = re.compile(r"[^\W\d_]|[,;]")  # how a paragraph begins on the page after
_ENDED = frozenset(".!?…:。\uff01\uff1f\"'\u201d\u2019»)|>`")
_WITHOUT_HEADINGS = (  # in which a line with # is something else
    DocumentKind.CODE,
    DocumentKind.JSON,
    DocumentKind.LOG,
    DocumentKind.SUBTITLES,
    DocumentKind.TABLE,
)


@dataclass(frozen=True, slots=True)
class Span:
    """A passage of a text: its characters, page, and what is above it and not in it."""

    start: int
    end: int
    page_index: int = 0
    headings: str = ""  # from the outermost to the nearest one
    table_head: str = ""  # of the table that it continues


class _Kind(Enum):
    PARAGRAPH = auto()
    HEADING = auto()
    TABLE = auto()
    CODE = auto()


@dataclass(slots=True)
class _Block:
    """A heading, paragraph, table or block of code, or a piece of one."""

    start: int
    end: int
    page_index: int
    kind: _Kind = _Kind.PARAGRAPH
    level: int = 0  # of a heading
    weight: int = 0  # length, in characters of a script with spaces
    whole: bool = True  # not a later piece of a cut one
    table_head: str = ""


def spans(
    text: str,
    starts: tuple[PageStart, ...] = (),
    kind: DocumentKind = DocumentKind.TEXT,
    size: int = SIZE,
) -> Iterator[Span]:
    """Yield the passages of a text, of about `size` characters; all that is not blank is in one."""
    return _Cutter(text, starts, kind, size).spans()


def parts_of(text: str) -> tuple[str, ...]:
    """The text of a passage in some pieces of whole sentences; () if it is one piece."""
    step = max(len(text) / PARTS, _LEAST_PART)
    made: list[str] = []
    start = before = 0
    for border in (*(found.end() for found in _SENTENCE_END.finditer(text)), len(text)):
        if before > start and before - start + (border - before) / 2 > step:
            made.append(text[start:before].strip())
            start = before
        before = border
    made.append(text[start:].strip())
    return tuple(filter(None, made)) if len(made) > 1 else ()


class _Cutter:
    """Cuts one text."""

    def __init__(
        self, text: str, starts: tuple[PageStart, ...], kind: DocumentKind, size: int
    ) -> None:
        self._text, self._size = text, max(size, 4)
        self._pages = list(page_spans(text, starts))
        self._narrow = text.isascii()
        self._headed = kind not in _WITHOUT_HEADINGS
        self._above: list[tuple[int, str]] = []  # levels and titles of the headings above
        self._in_code = False  # between two fences
        self._table_end, self._head = -2, ""  # of the table before: its end and header row

    def spans(self) -> Iterator[Span]:
        """Yield the passages."""
        segment: list[_Block] = []
        weight = 0
        for page_index in range(len(self._pages)):
            joined = False
            for at, block in enumerate(self._blocks(page_index)):
                block.weight = self._weight(block.start, block.end)
                if at == 0 and segment and self._goes_on(segment[-1], block):
                    segment[-1].end = block.end
                    segment[-1].weight += block.weight
                    joined = True
                    continue
                if segment and (at == int(joined) or weight > _SEGMENT * self._size):
                    yield from self._passages(segment)
                    segment, weight = [], 0
                segment.append(block)
                weight += block.weight
        yield from self._passages(segment)

    def _weight(self, start: int, end: int) -> int:
        if self._narrow:
            return end - start
        piece = self._text[start:end]
        if piece.isascii():
            return end - start
        return end - start + (WIDE - 1) * len(_UNSPACED.findall(piece))

    def _goes_on(self, before: _Block, after: _Block) -> bool:
        """Whether a paragraph at a page's end goes on at the start of the next page."""
        if not before.kind is after.kind is _Kind.PARAGRAPH:
            return False
        first = self._text[after.start]
        begins = _GOES_ON.match(first) is not None and not first.isupper()
        return begins and self._text[before.end - 1] not in _ENDED

    def _blocks(self, page_index: int) -> Iterator[_Block]:
        """Yield the blocks of a page."""
        text = self._text
        _, begin, end = self._pages[page_index]
        for match in _BLOCK.finditer(text, begin, end):
            start = max(begin, text.rfind("\n", begin, match.start()) + 1)
            begin = match.end()
            if _MARKED.match(text, start) or _MARKED.search(text, start, match.end()):
                yield from self._marked(start, match.end(), page_index)
            else:
                kind = _Kind.CODE if self._in_code else _Kind.PARAGRAPH
                yield _Block(match.start(), match.end(), page_index, kind)

    def _marked(self, start: int, end: int, page_index: int) -> Iterator[_Block]:
        """Yield the blocks of lines among which are headings, rows of tables or fences."""
        text = self._text
        block: _Block | None = None
        at = start
        while at < end:
            stop = text.find("\n", at, end)
            stop = end if stop < 0 else stop
            kind, level = self._line(at, stop)
            after = block is not None and block.kind is _Kind.PARAGRAPH and self._headed
            if after and block is not None and _UNDERLINE.fullmatch(text, at, stop):
                line = text.rfind("\n", block.start, block.end) + 1
                if line > block.start:
                    yield _Block(block.start, line - 1, page_index)
                block = _Block(max(line, block.start), stop, page_index, _Kind.HEADING)
                block.level = 1 if text[at] == "=" else 2
            elif block is not None and block.kind is kind is not _Kind.HEADING:
                block.end = stop
            else:
                if block is not None:
                    yield block
                block = _Block(at, stop, page_index, kind, level)
            at = stop + 1
        if block is not None:
            yield block

    def _line(self, start: int, end: int) -> tuple[_Kind, int]:
        """What a line is, and the level of a heading."""
        text = self._text
        indent = _INDENT.match(text, start, end)
        begin = indent.end() if indent else start
        if text.startswith(("```", "~~~"), begin, end):
            self._in_code = not self._in_code
            return _Kind.CODE, 0
        if self._in_code:
            return _Kind.CODE, 0
        if text.startswith("|", begin, end):
            return _Kind.TABLE, 0
        if self._headed and (heading := _HEADING.match(text, start, end)):
            return _Kind.HEADING, len(heading[1])
        return _Kind.PARAGRAPH, 0

    def _pieces(self, block: _Block) -> Iterator[_Block]:
        """Yield a block, or the pieces of one that is longer than a passage."""
        head = ""
        if block.kind is _Kind.TABLE:
            if block.start == self._table_end + 1:
                head = block.table_head = self._head  # of a table that is longer than a block
            else:
                head = self._table_head(block)
            self._table_end, self._head = block.end, head
        if block.weight <= self._size:
            yield block
            return
        page_index = block.page_index
        for at, (start, end) in enumerate(self._borders(block)):
            if self._text[start:end].isspace():
                continue
            weight = self._weight(start, end)
            while page_index + 1 < len(self._pages) and start >= self._pages[page_index + 1][1]:
                page_index += 1
            table_head = head if at else block.table_head
            yield _Block(
                start, end, page_index, block.kind, block.level, weight, not at, table_head
            )

    def _borders(self, block: _Block) -> Iterator[tuple[int, int]]:
        """Yield starts and ends of pieces of half a passage at most."""
        text, at = self._text, block.start
        if block.kind is _Kind.PARAGRAPH:
            found = (match.end() for match in _PIECE.finditer(text, block.start, block.end))
        else:
            found = (match.end() for match in re.finditer("\n", text[block.start : block.end]))
            found = (block.start + end for end in found)
        for border in chain(found, (block.end,)):
            if border - at < _LEAST_PIECE and border < block.end:
                continue
            yield from self._short(at, border)
            at = border

    def _short(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield a piece, cut between lines, words or letters if it is longer than half a passage."""
        text = self._text
        weight = self._weight(start, end)
        most = self._size // 2
        step = end - start if weight <= most else max(1, most * (end - start) // weight)
        while end - start > step:
            stop = start + step
            for separator in "\n ":
                found = text.rfind(separator, start + step // 2, stop)
                if found > start:
                    stop = found + 1
                    break
            else:
                while stop > start + step // 2 + 1 and unicodedata.combining(text[stop]):
                    stop -= 1
            yield start, stop
            start = stop
        if start < end:
            yield start, end

    def _table_head(self, block: _Block) -> str:
        """The header row of a Markdown table; "": it has none."""
        first, _, rest = self._text[block.start : block.start + 20_000].partition("\n")
        ruled = _TABLE_RULE.fullmatch(rest.partition("\n")[0]) is not None
        return first.strip()[: 5 * _TITLE_LENGTH] if ruled else ""

    def _passages(self, segment: Sequence[_Block]) -> Iterator[Span]:
        """Yield the passages of blocks, of about the same size."""
        total = sum(block.weight for block in segment)
        target = total / max(1, -(-total // self._size))
        taken: list[_Block] = []
        weight = 0
        for piece in chain.from_iterable(map(self._pieces, segment)):
            begins = piece.kind is _Kind.HEADING and weight >= target / 2
            if taken and (begins or weight + piece.weight / 2 > target):
                kept = self._kept(taken, piece)
                yield self._span(taken)
                taken = kept
                weight = sum(each.weight for each in taken)
            taken.append(piece)
            weight += piece.weight
        if taken:
            yield self._span(taken)

    def _kept(self, taken: list[_Block], after: _Block) -> list[_Block]:
        """What the next passage begins with: last headings, or the end of a cut paragraph."""
        count = len(taken)
        while count > 1 and taken[count - 1].kind is _Kind.HEADING:
            count -= 1
        if count < len(taken):
            kept = taken[count:]
            del taken[count:]
            return kept
        weight = 0
        if after.kind is _Kind.PARAGRAPH and not after.whole:
            while count > 1:
                weight += taken[count - 1].weight
                if weight > _OVERLAP * self._size or taken[count - 1].whole:
                    break
                count -= 1
        return taken[count:]

    def _span(self, taken: Sequence[_Block]) -> Span:
        """The passage of these blocks; the headings among them are above what follows."""
        first = taken[0]
        if first.kind is _Kind.HEADING:
            self._leave(first.level)
        label = self._pages[first.page_index][0]
        titles = [title for _, title in self._above]
        named = [label] if label and not label.isdigit() and label not in titles else []
        headings = " > ".join((*named, *titles))
        for block in taken:
            if block.kind is _Kind.HEADING and block.whole:
                self._leave(block.level)
                self._above.append((block.level, self._title(block)))
        start, end = first.start, taken[-1].end
        while end > start and self._text[end - 1].isspace():
            end -= 1
        return Span(start, end, first.page_index, headings, first.table_head)

    def _leave(self, level: int) -> None:
        """Forget the headings that end at one of this level."""
        while self._above and self._above[-1][0] >= level:
            self._above.pop()

    def _title(self, block: _Block) -> str:
        line = self._text[block.start : min(block.end, block.start + 4 * _TITLE_LENGTH)]
        return line.partition("\n")[0].strip().strip("#").strip()[:_TITLE_LENGTH]
