"""Streamed answers: the blocks of a text that grows, and the thoughts in it.

The result does not depend on how the text was split into pieces. Finished blocks are kept; only what
is open at the end is parsed again, so the cost of an update does not grow with the text.
"""

from __future__ import annotations

from app.markdown.blocks import Block, Code, Paragraph, Place, Run
from app.markdown.inline import clean, clean_code
from app.markdown.leaves import TAB, CodeLeaf, Cursor, fence
from app.markdown.lines import Lines
from app.markdown.parser import Parser
from app.markdown.pieces import PIECE, plain_pieces
from app.markdown.unfenced_code import code_runs
from engine import THOUGHT_ENDS, THOUGHT_OPENS


class Stream:
    """Parses streamed markdown into `blocks`."""

    def __init__(self, piece: int = PIECE) -> None:
        self.blocks: list[Block] = []
        self._lines = Lines()
        self._parser = Parser(piece)

    def feed(self, text: str, *, last: bool = False) -> int:
        """Append text; returns how many of the first `blocks` are unchanged.

        With `last` the text is complete, and unfinished markup is parsed as text.
        """
        parser = self._parser
        kept = parser.finished
        for line in self._lines.add(text, last=last):
            parser.add(line)
        if last:
            kept = min(kept, parser.finish())
        open_blocks = [] if last else parser.preview(self._lines.partial)
        self.blocks[kept:] = [*parser.blocks[kept:], *open_blocks]
        return kept

    def source(self, start: int, end: int) -> str:
        """The source of the lines [start, end)."""
        return self._lines.source(start, end)


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
        code: CodeLeaf | None = None
        start = 0  # of what is between two fences
        for at, line in enumerate(self._lines.complete):
            cursor = Cursor(line)
            if code and code.closes(cursor):
                self._code(code, closed=True)
                code, start = None, at + 1
            elif code:
                code.add(cursor)
            elif cursor.indent < TAB and (code := fence(cursor, at, is_apart=True)):
                self._text(start, at)
        if code:
            self._code(code, closed=False)
        else:
            self._text(start, len(self._lines.complete))

    def _code(self, code: CodeLeaf, *, closed: bool) -> None:
        place = Place(code.start, code.start + len(code.lines) + 1 + closed)
        self.blocks.append(Code(place, code.language, code.text, closed))

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
        """Add the lines as a paragraph, in pieces if it is long."""
        text = clean(self._lines.source(start, end))
        for n, piece in enumerate(plain_pieces(text) if text else ()):
            last = start + piece.count("\n")
            self.blocks.append(Paragraph(Place(start, last + 1, joined=n > 0), (Run(piece),)))
            start = last
