"""Incremental markdown parser: finished blocks are kept, only the unfinished tail is parsed again.

The result does not depend on how the text was split into pieces: a block is finished only when a
later top-level block has begun on a complete line, which no further text can undo; and a block
longer than `SECTION` characters is split after parsing exactly its first `SECTION` characters of
complete lines. So the cost of an update does not grow with the answer, and parsing the whole text
at once gives the same blocks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from app.markdown.blocks import Block, Code, Paragraph, Place, Run, Table
from app.markdown.lines import Lines
from app.markdown.parser import Top, clean, clean_code, definition, language_of, make_parser, read
from app.markdown.tail import tail_lines
from app.markdown.unfenced_code import code_runs
from engine import THOUGHT_ENDS, THOUGHT_OPENS

SECTION = 4000  # characters parsed at a time; longer blocks are split if possible

_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$")


@dataclass(slots=True)
class _Fence:
    """An open top-level code block, whose lines are not parsed as markdown."""

    start: int
    indent: int
    mark: str
    language: str
    text: str = ""
    new: list[str] = field(default_factory=list[str])  # lines not in `text` yet
    empty: bool = True

    def add(self, line: str, *, joined: bool) -> None:
        """Append a line; `joined`: it continues the line before."""
        line = line if joined else self.stripped(line)
        self.new.append(clean_code(line if joined or self.empty else f"\n{line}"))
        self.empty = False

    def stripped(self, line: str) -> str:
        """Remove up to the fence's indentation from a line."""
        return line[min(self.indent, len(line) - len(line.lstrip(" "))) :]

    def closes(self, line: str) -> bool:
        """Whether this line is the closing fence."""
        stripped = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        return (
            len(indent.expandtabs(4)) <= 3
            and len(stripped) >= len(self.mark)
            and set(stripped) == {self.mark[0]}
        )

    def block(self, end: int, *, closed: bool, more: str = "") -> Code:
        """The code block so far; `more` is the partial line."""
        self.text += "".join(self.new)
        self.new.clear()
        text = self.text
        if more:
            text = clean_code(more) if self.empty else f"{text}\n{clean_code(more)}"
        return Code(Place(self.start, end), self.language, text, closed)


class Stream:
    """Parses streamed markdown into `blocks`."""

    def __init__(self, section: int = SECTION) -> None:
        self.blocks: list[Block] = []
        self._section = section
        self._lines = Lines()
        self._references: dict[str, str] = {}
        self._late_reference = False
        self._finished: int = 0  # number of blocks that will not change
        self._next: int = 0  # the first line after them
        self._limit = section  # characters to parse, more if a block cannot be split
        self._fence: _Fence | None = None
        self._number: int | None = None  # number of the next item of a list that was split here
        self._table: Table | None = None  # first part of a table that was split here
        self._joined = False  # a paragraph was split here

    def _reset(self) -> None:
        """Discard the blocks, and keep the lines and link definitions."""
        self.blocks.clear()
        self._finished = 0
        self._fence = None
        self._take([], 0)

    def feed(self, text: str, *, last: bool = False) -> int:
        """Append text; returns how many of the first `blocks` are unchanged.

        With `last` the text is complete, and unfinished markup is parsed as text.
        """
        scanned = len(self._lines.complete)
        self._lines.add(text, last=last)
        for line in self._lines.complete[scanned:]:
            self._define(line)
        if last and self._late_reference:
            self._reset()  # resolve links that were used above their definition
        kept = self._finished
        del self.blocks[self._finished :]
        if last or len(self._lines.complete) > scanned:
            self._advance(last=last)
        self._finished = len(self.blocks)
        if not last:
            self._show_tail()
        return min(kept, self._finished)

    def source(self, start: int, end: int) -> str:
        """The markdown source of the lines [start, end)."""
        return self._lines.source(start, end)

    def _define(self, line: str) -> None:
        found = definition(line) if "]:" in line else None
        if found and found[0] not in self._references:
            self._references[found[0]] = found[1]
            self._late_reference = self._finished > 0

    # --- finishing --------------------------------------------------------------------------

    def _advance(self, *, last: bool) -> None:
        """Finish all blocks that later text cannot change."""
        lines = self._lines.complete
        while self._next < len(lines):
            if self._fence:
                self._run_fence()
            elif not lines[self._next].strip() and self._table is None:
                self._next += 1
                self._joined = False
            elif not self._opens_fence() and not self._finish_section(last=last):
                break
        if last:
            self._end()

    def _opens_fence(self) -> bool:
        match = _FENCE.match(self._lines.complete[self._next])
        if match is None or self._table is not None:
            return False
        language = language_of(match[3])
        self._fence = _Fence(self._next, len(match[1]), match[2], language)
        self._next += 1
        self._number, self._joined = None, False
        return True

    def _run_fence(self) -> None:
        """Append the complete lines to the open code block."""
        fence = self._fence
        assert fence is not None
        lines = self._lines.complete
        while self._next < len(lines):
            line = lines[self._next]
            joined = self._next in self._lines.joined
            self._next += 1
            if not joined and fence.closes(line):
                self.blocks.append(fence.block(self._next, closed=True))
                self._fence = None
                return
            fence.add(line, joined=joined)

    def _end(self) -> None:
        """Finish the open code block or table at the end of the text."""
        if self._fence:
            self.blocks.append(self._fence.block(self._next, closed=False))
            self._fence = None
        if self._table:
            self.blocks.append(self._table)
            self._table = None

    def _finish_section(self, *, last: bool) -> bool:
        """Parse one section and finish its certain blocks; False when more lines are needed."""
        end, size = self._next, 0
        lines = self._lines.complete
        while end < len(lines) and size < self._limit:
            size += len(lines[end]) + 1
            end += 1
        tops = self._read(lines[self._next : end])
        whole = last and end == len(lines) and size < self._limit
        if len(tops) > 1 or whole:
            stop = len(tops) if whole else len(tops) - 1
            if self._limit > self._section:  # finish only the long block
                stop = 1
            if self._lines.joined:  # only `_run_fence` joins split lines
                stop = next((n for n in range(1, stop) if tops[n].kind == "fence"), stop)
            self._take(tops[:stop], tops[stop].line if stop < len(tops) else end)
            return True
        if size < self._limit:
            return False
        if not (tops and self._cut(tops[0], end)):
            self._limit *= 2  # a block that cannot be split
        return True

    def _read(self, lines: list[str]) -> list[Top]:
        """Parse lines from the first unfinished one on, in the context of a split block."""
        before = self._lines.complete[self._next - 1] if self._next else ""
        first = self._next
        if self._table:
            head = self._table.place.start
            lines = [*self._lines.complete[head : head + 2], *lines]
            first -= 2
        tops = read(lines, first, self._references, before, self._number)
        if self._table and tops:
            self._resume_table(tops[0])
        if self._joined and tops and tops[0].blocks:
            block = tops[0].blocks[0]
            tops[0].blocks[0] = replace(block, place=replace(block.place, joined=True))
        return tops

    def _resume_table(self, top: Top) -> None:
        """Prepend the rows of the first parts of a split table."""
        assert self._table is not None
        table = top.blocks[0]
        assert isinstance(table, Table)
        end = max(table.place.end, self._next)
        place = replace(self._table.place, end=end)
        top.blocks[0] = replace(table, place=place, rows=self._table.rows + table.rows)

    def _take(self, tops: list[Top], next_line: int) -> None:
        for top in tops:
            self.blocks.extend(top.blocks)
        self._next = next_line
        self._limit = self._section
        self._number, self._table, self._joined = None, None, False

    def _cut(self, top: Top, end: int) -> bool:
        """Split a long block and finish its first part; False when it cannot be split."""
        if top.kind in ("bullet_list_open", "ordered_list_open") and len(top.items) > 1:
            item = top.items[-1]
            top.blocks = top.blocks[: item.block]
            self._take([top], item.line)
            self._number = item.number
            return True
        if top.kind == "table_open" and len(top.row_lines) > 1:
            table = top.blocks[0]
            assert isinstance(table, Table)
            self._take([], top.row_lines[-1])
            place = replace(table.place, end=self._next)
            self._table = replace(table, place=place, rows=table.rows[:-1])
            return True
        if top.kind == "paragraph_open" and end - self._next > 1:
            whole = self._lines.complete
            part = self._read(whole[self._next : end - 1])
            if len(part) == 1 and part[0].kind == "paragraph_open":
                self._take(part, end - 1)
                self._joined = True
                return True
        return False

    # --- the tail ---------------------------------------------------------------------------

    def _show_tail(self) -> None:
        """Append the unfinished blocks, parsed as if the text ended here."""
        lines, partial = self._lines, self._lines.partial
        if self._fence:
            fence = self._fence
            closing = partial.strip() and not partial.strip().strip(fence.mark[0])
            more = "" if closing else fence.stripped(partial)
            self.blocks.append(fence.block(len(lines.complete), closed=False, more=more))
            return
        shown = tail_lines(lines.complete[self._next :], partial)
        if self._table or any(line.strip() for line in shown):
            for top in self._read(shown):
                self.blocks.extend(top.blocks)


class Reply:
    """Splits a streamed answer into thoughts and body, and parses both."""

    def __init__(self) -> None:
        self.thoughts = Stream()
        self.body = Stream()
        self.has_thoughts = False
        self.thinking = False  # inside the thoughts
        self.thought_characters = 0
        self.kept = 0  # first blocks of the body that the last feed did not change
        self._buffer = ""  # text that may be part of a thought tag
        self._started = False  # whether `has_thoughts` is known

    def feed(self, text: str, *, last: bool = False) -> None:
        """Append text; with `last` it is complete."""
        self._buffer += text
        if not self._started and not self._start(last=last):
            return
        if self.thinking:
            self._think(last=last)
        if not self.thinking:
            self.kept = self.body.feed(self._buffer, last=last)
            self._buffer = ""

    def _start(self, *, last: bool) -> bool:
        """Detect whether the answer begins with thoughts; False while that is not known."""
        begin = self._buffer.lstrip()
        if not last and len(begin) < len(THOUGHT_OPENS) and THOUGHT_OPENS.startswith(begin):
            return False
        self._started = True
        if begin.startswith(THOUGHT_OPENS):
            self.has_thoughts = self.thinking = True
            self._buffer = begin.removeprefix(THOUGHT_OPENS)
        return True

    def _think(self, *, last: bool) -> None:
        thoughts, tag, rest = self._buffer.partition(THOUGHT_ENDS)
        ended = bool(tag)
        self._buffer = rest
        if not ended and not last:
            hold = max(
                (n for n in range(1, len(THOUGHT_ENDS)) if thoughts.endswith(THOUGHT_ENDS[:n])),
                default=0,
            )
            thoughts, self._buffer = (
                thoughts[: len(thoughts) - hold],
                thoughts[len(thoughts) - hold :],
            )
        self.thought_characters += len(thoughts)
        self.thoughts.feed(thoughts, last=ended or last)
        self.thinking = not ended


def parse(text: str) -> list[Block]:
    """The blocks of a whole markdown text."""
    stream = Stream()
    stream.feed(text, last=True)
    return stream.blocks


class OwnText:
    """A user message: kept as typed with its line breaks; only code is not shown as prose.

    Code is what is fenced, and what looks like code.
    """

    def __init__(self, text: str) -> None:
        self.blocks: list[Block] = []
        self._lines = Lines()
        self._lines.add(text, last=True)
        self._read()

    def source(self, start: int, end: int) -> str:
        """The source of the lines [start, end)."""
        return self._lines.source(start, end)

    def _read(self) -> None:
        lines, fence, start = self._lines.complete, None, 0
        for at, line in enumerate(lines):
            if fence:
                if fence.closes(line):
                    self.blocks.append(fence.block(at + 1, closed=True))
                    fence, start = None, at + 1
                else:
                    fence.add(line, joined=at in self._lines.joined)
            elif match := _FENCE.match(line):
                self._text(start, at)
                fence = _Fence(at, len(match[1]), match[2], language_of(match[3]))
        if fence:
            self.blocks.append(fence.block(len(lines), closed=False))
        else:
            self._text(start, len(lines))

    def _text(self, start: int, end: int) -> None:
        """Add the lines between two fences."""
        before = start
        for first, last in code_runs(self._lines.complete[start:end]):
            self._paragraphs(before, start + first)
            before = start + last
            code = clean_code(self._lines.source(start + first, before))
            self.blocks.append(Code(Place(start + first, before), "", code, True))
        self._paragraphs(before, end)

    def _paragraphs(self, start: int, end: int) -> None:
        """Add a paragraph for each run of lines that are not blank."""
        for at in range(start, end):
            if not self._lines.complete[at].strip():
                self._paragraph(start, at)
                start = at + 1
        self._paragraph(start, end)

    def _paragraph(self, start: int, end: int) -> None:
        """Add the lines as paragraphs of at most about `SECTION` characters."""
        joined = False
        while start < end:
            at, size = start, 0
            while at < end and size < SECTION:
                size += len(self._lines.complete[at]) + 1
                at += 1
            text = clean(self._lines.source(start, at))
            self.blocks.append(Paragraph(Place(start, at, joined=joined), (Run(text),)))
            start, joined = at, True


def to_html(source: str) -> str:
    """Markdown as HTML for the clipboard, without raw HTML and without pictures."""
    return make_parser().disable("image").render(source)
