"""Sections of a message: the parts it is shown as, with their blocks and the rows that fold them.

Text has no row. A thought, a call of a tool with its result, an attached file and an image are each
one row; its blocks are below it, and hidden while it is folded. The row of a file has none: its text
may be long, and is opened beside the chat. That of an image is its thumbnail.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

from PySide6.QtCore import QRectF

from app.domain.documents import Reads
from app.domain.file_words import file_words, image_name, section_words
from app.domain.parts import (
    FilePart,
    ImagePart,
    Part,
    Parts,
    PassagesPart,
    SectionPart,
    TablePart,
    TextPart,
    ThoughtPart,
    ToolCallPart,
    ToolResultPart,
    prompt_text,
)
from app.domain.table_words import result_notes, result_text, table_words
from app.domain.tool_rounds import answers
from app.domain.tool_words import pretty_json
from app.markdown.blocks import Block, Paragraph, Place, Run
from app.markdown.stream import PlainText, Reply, Stream
from app.system.translation import number, tr, trn
from app.ui.blocks.passage import passage_entry
from app.ui.transcript.message.call_card import stop_area
from app.ui.transcript.message.kept_files import KeptFiles
from app.ui.transcript.message.tool_call import (
    NOTHING_KNOWN,
    CallLook,
    KnownCalls,
    ShownCall,
    block_text,
)

_MOST_SECTIONS = 2048  # whose blocks are kept


class Kind(Enum):
    """What a section shows."""

    TEXT = "text"
    THOUGHT = "thought"
    TOOL = "tool"
    FILE = "file"
    PASSAGES = "passages"
    SECTION = "section"
    QUERY = "query"  # over a table
    RESULT = "result"  # of the query before it
    IMAGE = "image"
    INSTRUCTIONS = "instructions"


@dataclass(slots=True)
class Section:
    """One part of a message, or a call of a tool with its result."""

    kind: Kind
    words: str = ""  # of its row; the view replaces those of a thought by its duration
    blocks: list[Block] = field(default_factory=list[Block])
    source: Callable[[int, int], str] = lambda start, end: ""  # Markdown of lines [start, end)
    characters: int = 0  # of a thought that has ended
    file: FilePart | None = None  # that its row opens
    image: ImagePart | None = None  # whose thumbnail is its row
    call: ShownCall | None = None  # whose card it is
    always: tuple[Block, ...] = ()  # those of `blocks` that are seen while it is folded, too

    @property
    def has_row(self) -> bool:
        """Whether a row stands for it."""
        return self.kind not in (Kind.TEXT, Kind.RESULT)

    @property
    def foldable(self) -> bool:
        """Whether its row folds and unfolds blocks."""
        return self.has_row and bool(self.blocks) and not self.asks

    @property
    def asks(self) -> bool:
        """Whether the user is asked for consent in it, which is always open."""
        return self.call is not None and self.call.look is CallLook.ASKING

    @property
    def text(self) -> str:
        """The Markdown of all its blocks."""
        return self.source(0, sys.maxsize)


@dataclass(frozen=True, slots=True)
class Row:
    """The row of a section, as it is shown now."""

    section: int
    kind: Kind
    words: str
    area: QRectF  # relative to the message
    folded: bool
    foldable: bool
    file: FilePart | None = None  # that it opens
    image: ImagePart | None = None  # that it shows, and opens
    call: ShownCall | None = None  # whose card it is the first line of
    frame: QRectF = field(default_factory=QRectF)  # of that card

    @property
    def stop(self) -> QRectF:
        """The area of the button that stops a running call; empty: it does not run."""
        return (
            stop_area(self.area) if self.call and self.call.look is CallLook.RUNNING else QRectF()
        )

    @property
    def usable(self) -> bool:
        """Whether it does something when it is clicked."""
        return self.foldable or self.file is not None or self.image is not None


def own_sections(parts: Parts) -> list[Section]:
    """The sections of a message of the user, whose text is not Markdown."""
    made: list[Section] = []
    for part in parts:
        match part:
            case TextPart():
                own = PlainText(part.text)
                made.append(Section(Kind.TEXT, "", own.blocks, own.source))
            case _:
                made += _row_sections(part)
    return made


def sections_before(
    parts: Parts,
    cites: frozenset[int],
    known: KnownCalls = NOTHING_KNOWN,
    *,
    streaming: bool = False,
) -> list[Section]:
    """The sections of the parts of an answer to which no more text is added.

    `cites` are the numbers of the passages that it may refer to; `streaming` is whether it is being
    written.
    """
    made: list[Section] = []
    calls: list[tuple[ToolCallPart, int]] = []  # without a result so far, and their sections
    run: list[Part] = []
    for part in (*parts, None):
        if run and (isinstance(part, ThoughtPart) or not isinstance(part, TextPart)):
            made += _read_run(prompt_text(run), cites)
            run.clear()
        match part:
            case TextPart() | ThoughtPart():
                run.append(part)
            case ToolCallPart():
                calls.append((part, len(made)))
                is_last = part is parts[-1]
                call = known_call(part, None, known, streaming=streaming, is_last=is_last)
                made.append(call_section(call))
            case ToolResultPart():
                found = next((each for each in calls if answers(part, each[0])), None)
                call = known_call(found[0] if found else None, part, known, streaming=streaming)
                if found is None:
                    made.append(call_section(call))
                else:
                    calls.remove(found)
                    made[found[1]] = call_section(call)
            case None:
                pass
            case _:
                made += _row_sections(part)
    return made


@lru_cache(_MOST_SECTIONS)
def _read_run(text: str, cites: frozenset[int]) -> tuple[Section, ...]:
    """Parse a text to which nothing is added: the answer goes on with calls of tools behind it."""
    return tuple(reply_sections(read_reply(text, cites, last=True)))


def read_reply(text: str, cites: frozenset[int], *, last: bool) -> Reply:
    """Parse a text that a model wrote, and that may refer to passages; with `last` it is complete."""
    reply = Reply(cites)
    reply.feed(text, last=last)
    return reply


def reply_sections(reply: Reply) -> list[Section]:
    """The section of the thoughts, if there are any, and the one of the text."""
    body = Section(Kind.TEXT, "", reply.body.blocks, reply.body.source)
    if not reply.has_thoughts:
        return [body]
    thoughts = reply.thoughts
    words = thought_words(0.0, thinking=False)
    made = Section(Kind.THOUGHT, words, thoughts.blocks, thoughts.source, reply.thought_characters)
    return [made, body]


def json_sections(reply: Reply) -> list[Section]:
    """The sections of an answer that had to be JSON: its text is a block of code."""
    *before, body = reply_sections(reply)
    text = body.text.strip()
    stream = Stream()
    stream.feed(_fenced(pretty_json(text) or text, "json"), last=True)
    return [*before, Section(Kind.TEXT, "", stream.blocks, stream.source)]


def _row_sections(part: Part) -> list[Section]:
    match part:
        case FilePart(name=""):
            own = PlainText(part.text)
            return [Section(Kind.FILE, file_words(part), own.blocks, own.source)]
        case FilePart():
            words = file_words(part)
            if part.pages and part.reads is Reads.WHOLE:
                words = tr("{words} · {more}", words=words, more=tr("all read"))
            return [Section(Kind.FILE, words, file=part)]
        case PassagesPart():
            return [_passages_section(part)]
        case SectionPart():
            stream = _read_section(part.text)
            return [Section(Kind.SECTION, section_words(part), [*stream.blocks], stream.source)]
        case TablePart():
            return _table_sections(part)
        case ImagePart():
            return [Section(Kind.IMAGE, image_name(part), image=part)]
        case ToolCallPart():
            return [call_section(ShownCall(part))]
        case ToolResultPart():
            return [call_section(ShownCall(None, part))]
        case TextPart() | ThoughtPart():
            return reply_sections(read_reply(prompt_text((part,)), frozenset(), last=True))
        case _:  # an error is a line below the message
            return []


@lru_cache(_MOST_SECTIONS)
def _read_section(text: str) -> Stream:
    """Parse what a model made of a part: an answer is shown again whenever it has one more."""
    stream = Stream()
    stream.feed(text, last=True)
    return stream


def _passages_section(part: PassagesPart) -> Section:
    """The passages of a question, each an entry of two lines, below what was searched."""
    blocks: list[Block] = []
    lines: list[str] = []
    if part.searched:
        words = tr("Searched for: {words}", words=" ".join(part.searched.split()))
        blocks.append(Paragraph(Place(0, 1), (Run(words),)))
        lines.append(words)
    for passage in part.passages:
        entry = passage_entry(passage, len(lines))
        blocks.append(entry)
        lines += "".join(run.text for run in entry.runs).split("\n")
    return Section(
        Kind.PASSAGES,
        passages_words(part),
        blocks,
        lambda start, end: "\n".join(lines[start:end]),
    )


def _table_sections(part: TablePart) -> list[Section]:
    """The query over a table, as it is written below its row, and what it has found."""
    query, result = Stream(), Stream()
    query.feed(_fenced(pretty_json(part.query), "json"), last=True)
    words = table_words(part)
    result.feed(result_text(part), last=True)
    lines = result.source(0, sys.maxsize).split("\n")
    notes = "\n".join(result_notes(part))
    blocks = [
        *result.blocks,
        Paragraph(Place(len(lines), len(lines) + 1), (Run(notes),)),
    ]
    return [
        Section(
            Kind.QUERY,
            words,
            [Paragraph(Place(0, 0), (Run(words),)), *query.blocks],  # the row may be cut
            query.source,
        ),
        Section(
            Kind.RESULT,
            "",
            blocks,
            lambda start, end: "\n".join([*lines, notes][start:end]),
        ),
    ]


@lru_cache(_MOST_SECTIONS)
def call_section(call: ShownCall) -> Section:
    """A call of a tool, whose row is its card: the same one for an equal call."""
    blocks = call.blocks()
    lines = "\n".join(map(block_text, blocks)).split("\n")
    return Section(
        Kind.TOOL,
        call.words if call.look is not CallLook.RUNNING else call.title,
        blocks,
        lambda start, end: "\n".join(lines[start:end]),
        call=call,
        always=tuple(block for block in blocks if isinstance(block, KeptFiles)),
    )


def known_call(
    part: ToolCallPart | None,
    result: ToolResultPart | None,
    known: KnownCalls,
    *,
    streaming: bool = False,
    is_last: bool = False,
) -> ShownCall:
    """A call with all that is known of it."""
    call = ShownCall(part, result)
    live = known.live.get(call.id) if call.id and result is None else None
    tool, made = known.tools.get(call.name), known.made.get(call.id)
    return ShownCall(part, result, live, tool, made, streaming, is_last)


def _fenced(text: str, language: str) -> str:
    """A fenced block of code; its fence is longer than any in the text."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{language}\n{text.removesuffix(chr(10))}\n{fence}"


# --- words ----------------------------------------------------------------------------------------


def passages_words(part: PassagesPart) -> str:
    """The row of the passages that the model reads for a question."""
    if part.skipped:
        return tr("Answered without passages")
    read = [passage for passage in part.passages if not passage.struck]
    documents = len({(passage.sha256, passage.path, passage.name) for passage in read})
    words = tr(
        "{passages} from {documents}",
        passages=trn("{count} passage", "{count} passages", len(read)),
        documents=trn("{count} document", "{count} documents", documents),
    )
    if not part.passages:
        words = tr("No passage fits: the model answers without them")
    elif not read:
        words = tr("All passages are struck out: the model answers without them")
    if part.unread:
        more = trn("{count} more found", "{count} more found", part.unread)
        words = tr("{words} · {more}", words=words, more=more)
    if part.missing:
        more = trn(
            "{count} document is not indexed yet",
            "{count} documents are not indexed yet",
            part.missing,
        )
        words = tr("{words} · {more}", words=words, more=more)
    return words


def thought_words(seconds: float, *, thinking: bool, budget: int = 0) -> str:
    """The row of thoughts that took so long, and ended after a budget of so many tokens."""
    words = _thought_time(seconds, thinking=thinking)
    if thinking or not budget:
        return words
    count = number(budget)
    return tr("{thought} (budget of {count} tokens reached)", thought=words, count=count)


def _thought_time(seconds: float, *, thinking: bool) -> str:
    if thinking:
        return tr("Thinking…")
    if seconds < 0.5:
        return tr("Thought")
    if seconds < 60:
        return tr("Thought for {seconds} s", seconds=max(round(seconds), 1))
    minutes, rest = divmod(round(seconds), 60)
    return tr("Thought for {minutes} min {seconds} s", minutes=minutes, seconds=rest)
