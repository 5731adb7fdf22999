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
from engine import THOUGHT_ENDS, THOUGHT_OPENS, AnswerPiece, split_answer

_TAG_END = "think>"


class Stream:
    """Parses streamed markdown into `blocks`."""

    def __init__(self, piece: int = PIECE, passages: frozenset[int] = frozenset()) -> None:
        """`passages` are the numbers of those that the text may cite."""
        self.blocks: list[Block] = []
        self.ended = False
        self._fed: list[str] = []
        self._lines = Lines()
        self._parser = Parser(piece, passages)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._fed)

    def feed(self, text: str, *, last: bool = False) -> int:
        """Append text; returns how many of the first `blocks` are unchanged.

        With `last` the text is complete, and unfinished markup is parsed as text.
        """
        parser, self.ended = self._parser, last
        self._fed.append(text)
        kept = parser.finished
        for line in self._lines.add(text, last=last):
            parser.add(line)
        if last:
            kept = min(kept, parser.finish())
        open_blocks = [] if last else parser.preview(self._lines.partial)
        closed = len(parser.blocks) if last else parser.finished
        self.blocks[kept:] = [*parser.blocks[kept:closed], *open_blocks]
        return kept

    def source(self, start: int, end: int) -> str:
        """The source of the lines [start, end)."""
        return self._lines.source(start, end)


class Reply:
    """A streamed answer, or the last part of one: thoughts, and the text after them."""

    def __init__(self, passages: frozenset[int] = frozenset()) -> None:
        """`passages` are the numbers of those that the answer may cite."""
        self._passages = passages
        self.thoughts = Stream(passages=passages)
        self.body = Stream(passages=passages)
        self.has_thoughts = False
        self.thinking = False  # inside the thoughts
        self.thought_characters = 0
        self.kept = 0  # first blocks of the body that the last feed did not change
        self._text: list[str] = []
        self._held = ""  # the end of the text, which may be part of a tag
        self._tagged = False  # a tag is in the incomplete last line
        self._known = False  # whether it begins with thoughts

    def feed(self, text: str, *, last: bool = False) -> None:
        """Append text; with `last` it is complete."""
        self._text.append(text)
        new = self._held + text
        self._held = "" if last else _begun_tag(new)
        new = new.removesuffix(self._held)
        had_tag = self._tagged
        ended, _, line = new.rpartition("\n")
        self._tagged = _TAG_END in line or (had_tag and not ended and line == new)
        if last or not self._known or had_tag or _TAG_END in new:
            self._split(last=last)
        elif self.thinking:
            self._think(new, ended=False)
        else:
            self.kept = self.body.feed(new)

    def _split(self, *, last: bool) -> None:
        """Tell thoughts and text apart; what was taken for the other is parsed again."""
        text = "".join(self._text).removesuffix(self._held)
        if not last and THOUGHT_OPENS.startswith((text + self._held).lstrip()):
            return
        self._known = True
        first, *rest = split_answer(text) or [AnswerPiece("")]
        if not first.is_thought:
            first, rest = AnswerPiece(""), [first, *rest]
        said = "".join(piece.written for piece in rest)
        thought = self.thoughts.text
        grows = first.text.startswith(thought) and said.startswith(self.body.text)
        if not grows or (self.thoughts.ended and not (first.ends and first.text == thought)):
            self.thoughts = Stream(passages=self._passages)
            self.body, self.thought_characters = Stream(passages=self._passages), 0
        self.has_thoughts = bool(first.opens or first.text.strip())
        self.thinking = self.has_thoughts and not (first.ends or last)
        if self.has_thoughts:
            self._think(first.text[len(self.thoughts.text) :], ended=not self.thinking)
        self.kept = self.body.feed(said[len(self.body.text) :], last=last)

    def _think(self, text: str, *, ended: bool) -> None:
        self.thought_characters += len(text)
        if not self.thoughts.ended:
            self.thoughts.feed(text, last=ended)


def _begun_tag(text: str) -> str:
    """The end of a text that may be the beginning of a tag."""
    at = text.rfind("<", -len(THOUGHT_ENDS) + 1)
    is_begun = at >= 0 and (
        THOUGHT_ENDS.startswith(text[at:]) or THOUGHT_OPENS.startswith(text[at:])
    )
    return text[at:] if is_begun else ""


def parse(text: str, passages: frozenset[int] = frozenset()) -> list[Block]:
    """The blocks of a whole markdown text, which may cite `passages` by their numbers."""
    stream = Stream(passages=passages)
    stream.feed(text, last=True)
    return stream.blocks


class PlainText:
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
