"""Layout of one message: its sections with their rows and blocks, card, error text and tool row.

A message is parsed and laid out only before it becomes visible or in idle time; until then it has
an estimated height. While it streams, only the changed blocks are laid out again.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFontMetricsF, QGuiApplication

from app.domain.document_words import place_words
from app.domain.documents import Passage
from app.domain.growing import growing_part_index
from app.domain.mark_parser import find_marks
from app.domain.message import Message, MessageState
from app.domain.parts import (
    ImagePart,
    Parts,
    PassagesPart,
    TextPart,
    prompt_text,
    typed_text,
    without_error,
)
from app.domain.passages import first_words, passages_part, to_send_again, with_passages
from app.domain.tool_files import shown_pictures
from app.markdown.blocks import (
    Block,
    Code,
    Formula,
    Heading,
    Paragraph,
    Rule,
    Run,
    Table,
    passage_number,
)
from app.markdown.stream import Reply
from app.system.translation import tr
from app.ui.blocks.blocks import BlockView, RuleView, TextView
from app.ui.blocks.call_foot import CallFoot, CallFootView
from app.ui.blocks.code import CodeView
from app.ui.blocks.formula import formula_view
from app.ui.blocks.passage import PassageEntry, PassageView
from app.ui.blocks.style import CODE_HEADER, ReadingStyle
from app.ui.blocks.table import TableView
from app.ui.blocks.text import Flow
from app.ui.blocks.typesetting import TYPESETTER
from app.ui.transcript.message.call_card import CARD_PADDING
from app.ui.transcript.message.cards import Cards
from app.ui.transcript.message.endings import ended_in_thoughts, ending
from app.ui.transcript.message.instructions import instructions_section
from app.ui.transcript.message.kept_files import KeptFiles, KeptFilesView
from app.ui.transcript.message.message_tools import ROW
from app.ui.transcript.message.pictures import PictureLines
from app.ui.transcript.message.placed_block import ROW_INDENT, PlacedBlock, gap, indent
from app.ui.transcript.message.sections import (
    Kind,
    Row,
    Section,
    json_sections,
    own_sections,
    read_reply,
    reply_sections,
    sections_before,
    thought_words,
)
from app.ui.transcript.message.tool_call import NOTHING_KNOWN, KnownCalls
from engine import ConstraintKind, Role

CARD_SHARE = 0.85  # maximum width of a user message's card, as a share of the column
CARD_PADDING_X, CARD_PADDING_Y = 16.0, 11.0  # pixels: horizontal and vertical padding of that card
ROW_LINE = 28.0  # height of the row of a section
ROW_TEXT = 16.0  # x of the words of a row, after its icon
_ROW_TRIM = 5.0  # by which a row at the edge of a card extends into its padding
_ROW_GAP = 8.0  # between a row and other blocks
_TIP_LENGTH = 200  # characters of a passage in a tooltip
_TOOLS_GAP = 4.0  # pixels between the text and the tool row
_AFTER = {Role.USER: 8.0, Role.ASSISTANT: 20.0, Role.SYSTEM: 0.0}  # pixels to the next message


class MessageView:
    """Layout of one message for a column width; coordinates are relative to its top-left corner."""

    def __init__(
        self, message: Message, style: ReadingStyle, highlight_later: Callable[[CodeView], None]
    ) -> None:
        self.message = message
        self.parts: list[PlacedBlock] = []
        self.height = 0.0
        self.built = False
        self.unfolded: set[int] = set()  # sections
        self.passages: Mapping[int, Passage] = {}  # that an answer may refer to, by number
        self.left_out = False  # the model no longer reads the passages of this question
        self.note = ""  # shown instead of an empty answer
        self.calls = NOTHING_KNOWN
        self.cards = Cards(self)
        self.card = QRectF()
        self.hidden_for_edit = False
        self.edit_height = 0.0
        self.error: Flow | None = None
        self.tools_top = 0.0
        self.natural_height = 0.0  # what `height` is with the tool row directly below the text
        self.end_beside = 0.0  # y of the end of the text in the other column; 0: there is none
        self.changed_from = 0.0  # y from which the last update needs a repaint
        self._style = style
        self._highlight_later = highlight_later
        self._column = 0.0
        self.sections: list[Section] = []
        self._reply: Reply | None = None  # the last sections: thoughts and text, which may grow
        self._before = 0  # number of sections before those
        self._row_ys: dict[int, float] = {}  # by section
        self._thumbnails: dict[int, QRectF] = {}  # by section; x is from the leading edge
        self._row_x = 0.0
        self._row_width = 0.0
        self._end = 0.0  # y of the end of all sections
        self.content_end = 0.0  # y of the end of the text, with the error below it
        self._ys: list[float] = []
        self._marks: tuple[Parts, bool] = ((), False)  # whether these have any
        self._thinking_since = 0.0
        self._thought_seconds = 0.0

    def copy_thinking_times(self, other: MessageView) -> None:
        """Copy the measured thinking time from another view of the same message."""
        self._thinking_since = other._thinking_since
        self._thought_seconds = other._thought_seconds

    # --- passages ---------------------------------------------------------------------------

    @property
    def own_passages(self) -> PassagesPart | None:
        """Those of this question, as they would be sent again; None: there are none."""
        part = passages_part(self.message.parts)
        return to_send_again(part) if part else None

    @property
    def passages_changed(self) -> bool:
        """Whether some of this question were struck out, or are used again, and it is not sent."""
        return self.own_passages != passages_part(self.message.parts)

    def set_passages(self, passages: Mapping[int, Passage]) -> None:
        """Set those that the answer may refer to; its text is parsed again if they are others."""
        before, self.passages = self.passages, passages
        if before.keys() != passages.keys() and not self.is_user:
            self.read_again()

    def passage(self, link: str) -> Passage | None:
        """The passage that a link of the message refers to; None: it is an address."""
        number, own = passage_number(link), self.own_passages
        mine = {each.number: each for each in own.passages} if own and number else {}
        return mine.get(number) or self.passages.get(number) if number else None

    def link_words(self, link: str) -> str:
        """Where a link leads: its address, or the place and the first words of a passage."""
        passage = self.passage(link)
        if passage is None:
            return link
        return f"{place_words(passage)}\n{first_words(passage, _TIP_LENGTH)}"

    def read_again(self) -> None:
        """Parse and lay out the message again, if it is laid out."""
        if self.built:
            self.parts.clear()
            self._read()
            self.changed_from = 0.0
            self.layout()

    # --- content ----------------------------------------------------------------------------

    @property
    def has_marks(self) -> bool:
        """Whether it is an answer that has ended, and names boxes or points of a picture."""
        if self.message.role is not Role.ASSISTANT or self.streaming:
            return False
        parts, found = self._marks
        if parts is not self.message.parts:
            parts = self.message.parts
            found = bool(find_marks(typed_text(parts)))
            self._marks = parts, found
        return found

    @property
    def is_user(self) -> bool:
        """Whether it is a user message."""
        return self.message.role is Role.USER

    @property
    def streaming(self) -> bool:
        """Whether the answer is still being generated."""
        return self.message.state is MessageState.STREAMING

    @property
    def thinking(self) -> bool:
        """Whether the answer being generated is still in its thoughts."""
        return self._reply is not None and self._reply.thinking and self.streaming

    @property
    def rows(self) -> list[Row]:
        """The rows that stand for parts of the message, from first to last."""
        found: list[Row] = []
        for number, y in self._row_ys.items():
            section = self.sections[number]
            if section.call is not None:
                found.append(self.cards.row(number, self._row_x, self._row_width))
                continue
            words = self._row_words(number)
            folded = number not in self.unfolded
            if section.image is not None:
                area = self._thumbnail_area(number)
                row = Row(number, section.kind, words, area, folded, False, image=section.image)
                found.append(row)
                continue
            width = QFontMetricsF(self._style.note).horizontalAdvance(words) + ROW_TEXT + 20
            wide = min(max(width, 220.0), self._row_width + 16)
            at_end = self._row_width + 16 - wide if QGuiApplication.isRightToLeft() else 0.0
            area = QRectF(self._row_x - 8 + at_end, y, wide, ROW_LINE)
            row = Row(number, section.kind, words, area, folded, section.foldable, section.file)
            found.append(row)
        return found

    def _thumbnail_area(self, number: int) -> QRectF:
        """The area of a thumbnail, at its side of the window."""
        area = self._thumbnails[number]
        mirrored = QGuiApplication.isRightToLeft()
        left = self._row_width - area.right() if mirrored else area.left()
        return QRectF(self._row_x + left, area.top(), area.width(), area.height())

    def _row_words(self, number: int) -> str:
        section = self.sections[number]
        if section.call is not None:
            return section.call.words
        if section.kind is Kind.PASSAGES and self.left_out:
            return tr("{words} · {more}", words=section.words, more=tr("no longer read"))
        if section.kind is not Kind.THOUGHT:
            return section.words
        growing = self._reply is not None and number == self._before
        seconds = self._thought_seconds if growing else 0.0
        made, budget = self.message.details, 0
        if made is not None and made.thought_tokens and not self.streaming:
            thoughts = [n for n, one in enumerate(self.sections) if one.kind is Kind.THOUGHT]
            if number == thoughts[-1]:  # what the engine measured is of the last ones
                seconds, budget = made.thought_seconds or seconds, made.thought_budget
        if not seconds and not self.streaming:  # not measured: its share of the time for the text
            length = max(len(self.message.text), 1)
            characters = (
                self._reply.thought_characters if growing and self._reply else section.characters
            )
            seconds = self.message.seconds * characters / length
        return thought_words(seconds, thinking=growing and self.thinking, budget=budget)

    def is_folded(self, section: int) -> bool:
        """Whether the blocks of a section are hidden."""
        shown = self.sections[section]
        return shown.has_row and (section not in self.unfolded or shown.asks)

    def _blocks(self, section: int) -> Sequence[Block]:
        """The blocks of a section that are seen now."""
        shown = self.sections[section]
        return shown.always if self.is_folded(section) else shown.blocks

    def set_calls(self, known: KnownCalls) -> bool:
        """Show what is known of its calls now; returns whether its height or text has changed."""
        self.calls, height = known, self.height
        if not self.built or not self.cards.update():
            return False
        self.changed_from = 0.0
        self._sync(0, everything=True)
        self.layout()
        return self.height != height

    def source(self, part: int) -> str:
        """The source of the lines of a part."""
        place = self.parts[part].view.block.place
        return self.sections[self.parts[part].section].source(place.start, place.end)

    @property
    def spoken(self) -> str:
        """The text for a screen reader: the row instead of what is folded."""
        sections = self.sections if self.built else self._read_sections()[0]
        pieces: list[str] = []
        for number, section in enumerate(sections):
            if section.has_row:
                pieces.append(self._row_words(number) if self.built else section.words)
            if not section.has_row or number in self.unfolded:
                pieces.append(section.text.strip())
        return "\n\n".join(filter(None, pieces))

    # --- building ---------------------------------------------------------------------------

    def built_for(self, column: float) -> bool:
        """Whether it is laid out for this column width."""
        return self.built and self._column == column

    @property
    def column(self) -> float:
        """The width that it is laid out for, in pixels."""
        return self._column

    @property
    def _is_json(self) -> bool:
        """Whether it is a complete answer that had to be JSON."""
        made = self.message.details
        kind = made.constraint if made is not None else ""
        return kind == ConstraintKind.JSON_SCHEMA.value and not self.streaming

    def build(self, column: float) -> None:
        """Parse and lay out the message, if not done yet for this column width."""
        if not self.built:
            self._read()
        if not self.built or column != self._column:
            self.built = True
            self._column = column
            self.layout()

    def _read(self) -> None:
        self.sections, self._reply, self._before = self._read_sections()
        self._show_lone_thoughts()
        self.cards.open_by_themselves()
        self._sync(0, everything=True)

    def _show_lone_thoughts(self) -> None:
        """Unfold the thoughts of an answer that ended in them."""
        if ended_in_thoughts(self.message):
            shown = (n for n, one in enumerate(self.sections) if one.kind is Kind.THOUGHT)
            self.unfolded.update(shown)

    def _read_sections(self) -> tuple[list[Section], Reply | None, int]:
        """The sections, the parser of the last ones if they can grow, and how many are before."""
        parts = without_error(self.message.parts)
        if self.message.role is Role.SYSTEM:
            return [instructions_section(self.message)], None, 1
        if self.is_user:
            sections = own_sections(with_passages(parts, self.own_passages))
            return sections, None, len(sections)
        at, cites = growing_part_index(parts), frozenset(self.passages)
        before = sections_before(parts[:at], cites, self.calls, streaming=self.streaming)
        reply = read_reply(prompt_text(parts[at:]), cites, last=not self.streaming)
        if self._is_json:
            sections = [*before, *json_sections(reply)]
            return sections, None, len(sections)
        return [*before, *reply_sections(reply)], reply, len(before)

    def append(self, message: Message, text: str) -> None:
        """Show the message with streamed text; the cost depends on the unfinished tail only."""
        before = growing_part_index(without_error(self.message.parts))
        self.message = message
        if not self.built:
            return
        if growing_part_index(message.parts) == before:
            self._feed(text, last=False)
        else:  # another thought has begun
            self.read_again()

    def _feed(self, text: str, *, last: bool) -> None:
        reply = self._reply
        assert reply is not None
        thinking, had_thoughts, body = reply.thinking, reply.has_thoughts, reply.body
        reply.feed(text, last=last)
        if reply.has_thoughts != had_thoughts or reply.body is not body:
            self.sections[self._before :] = reply_sections(reply)
        if reply.thinking and not thinking:
            self._thinking_since = time.monotonic()
        elif thinking and not reply.thinking:
            self._thought_seconds = time.monotonic() - self._thinking_since
        self.changed_from = max(self.bottom() - 2 * self._style.line, 0.0)
        self._sync(reply.kept)
        if self.built and reply.has_thoughts != had_thoughts:
            self.changed_from = 0.0
            self._place(0)

    def _sync(self, kept: int, *, everything: bool = False) -> None:
        """Update the parts to match the blocks, of which the first `kept` are unchanged.

        `everything`: also those before the text that grows may have changed.
        """
        *before, body = self.sections if self._reply else (*self.sections, None)
        fixed = sum(len(self._blocks(number)) for number in range(len(before)))
        growing = self._reply is not None and self._reply.has_thoughts
        if growing and not self.is_folded(self._before):
            kept, fixed_now = 0, fixed - len(self.sections[self._before].blocks)
        else:
            fixed_now = fixed
        first = 0 if everything else min(fixed_now + kept, len(self.parts))
        wanted: list[tuple[Block, int]] = []
        if first < fixed:
            wanted = [
                (block, number) for number in range(len(before)) for block in self._blocks(number)
            ][first:]
        if body is not None:
            last = len(self.sections) - 1
            wanted += [(block, last) for block in body.blocks[max(first - fixed, 0) :]]
        changed = count = first + len(wanted)
        for index, (block, section) in enumerate(wanted, first):
            part = self.parts[index] if index < len(self.parts) else None
            if part and part.view.block is block and part.section == section:
                continue
            changed = min(changed, index)
            if part is None or part.section != section or not self._updated_in_place(part, block):
                if part:
                    self.changed_from = min(self.changed_from, part.y - 30)
                below_row = self.sections[section].has_row
                part = PlacedBlock(self._make(block), block.place.path, section, below_row)
                self.parts[index : index + 1] = [part]
        if len(self.parts) > count:
            del self.parts[count:]
            changed = min(changed, count)
        if self.built and (changed < count or len(self._ys) != count):
            self._place(changed)

    def _updated_in_place(self, part: PlacedBlock, block: Block) -> bool:
        if block.place.path != part.path or not part.view.update(block):
            return False
        if isinstance(part.view, CodeView | TableView):
            self.changed_from = min(self.changed_from, part.y + part.view.changed_from)
        part.view.block = block
        return True

    def _make(self, block: Block) -> BlockView:
        match block:
            case KeptFiles():
                return KeptFilesView(block, self._style)
            case CallFoot():
                return CallFootView(block, self._style)
            case PassageEntry():
                return PassageView(block, self._style)
            case Code():
                return CodeView(block, self._style, self._highlight_later)
            case Table():
                return TableView(block, self._style)
            case Rule():
                return RuleView(block)
            case Formula():
                return formula_view(block, self._style)
            case Paragraph() | Heading():
                return TextView(block, self._style)

    def show_typeset(self) -> bool:
        """Rebuild the parts whose formulas were typeset meanwhile; returns whether any was."""
        ready = [
            index
            for index, part in enumerate(self.parts)
            if part.view.waiting and any(map(TYPESETTER.ready, part.view.waiting))
        ]
        for index in ready:
            part = self.parts[index]
            old, part.view = part.view, self._make(part.view.block)
            if isinstance(old, TableView) and isinstance(part.view, TableView):
                part.view.layout(part.width)
                part.view.horizontal_scroll.move_to(old.horizontal_scroll.offset)
        if ready:
            self.changed_from = self.parts[ready[0]].y - 30
            self._place(ready[0])
        return bool(ready)

    def collapse(self, section: int, folded: bool) -> None:
        """Hide or show the blocks of a section."""
        self.cards.chosen(section)
        if folded:
            self.unfolded.discard(section)
        else:
            self.unfolded.add(section)
        self.parts.clear()
        self._sync(0)
        self.layout()

    def update(self, message: Message) -> None:
        """Update to a later state of the message, incrementally if only text was appended."""
        before, self.message = self.message, message
        if not self.built:
            return
        new, old = without_error(message.parts), without_error(before.parts)
        at = growing_part_index(old)
        text, known = prompt_text(new[at:]), prompt_text(old[at:])
        grown_only = (
            growing_part_index(new) == at and new[:at] == old[:at] and text.startswith(known)
        )
        grows = grown_only and before.state is MessageState.STREAMING and not self._is_json
        if before.state is MessageState.STREAMING:
            self._show_lone_thoughts()
        if self._reply and grows:
            self._feed(text[len(known) :], last=not self.streaming)
            if not self.streaming and self.cards.update():
                self._sync(0, everything=True)
        elif (
            new != old
            or self.streaming
            or (self._reply and self._is_json)
            or message.role is Role.SYSTEM  # the number of its tokens
        ):
            self._read()
        self.layout()

    # --- layout -----------------------------------------------------------------------------

    def guess(self, column: float) -> float:
        """The estimated height, from the length of the text."""
        parts = self.message.parts
        text = "".join(part.text for part in parts if isinstance(part, TextPart))
        rows = sum(not isinstance(part, TextPart | ImagePart) for part in parts) * ROW_LINE
        width = column * (CARD_SHARE if self.is_user else 1.0)
        shown = shown_pictures(parts)
        pictures = PictureLines(width, rows, len(shown) == 1)
        for image in shown:
            rows = max(rows, pictures.place(image).bottom())
        lines = len(text) * 7.4 / max(width, 100.0) + text.count("\n") * 0.6 + 1
        return round(lines * self._style.line + rows + ROW + _AFTER[self.message.role])

    def layout(self) -> None:
        """Lay out all parts for the column."""
        self._place(0)

    def _place(self, first: int) -> None:
        """Lay out the parts from `first` on, then the error text and the tool row."""
        if self.is_user:
            self._place_card()
        else:
            self._end = self._stack(first, 0.0, 0.0, self._column)
        bottom = self.bottom()
        self.error = None
        if below := ending(self.message):
            style = self._style
            self.error = Flow((Run(below),), style, style.note_face)
            self.error.layout(self._column)
            bottom += self.error.height + (8 if self._end else 0)
        self.content_end = bottom
        self.place_tools(self.end_beside)

    def place_tools(self, end_beside: float = 0.0) -> None:
        """Place the tool row below the text, and below the end of a text beside it."""
        self.end_beside = end_beside
        if self.built:
            below = _TOOLS_GAP + ROW + _AFTER[self.message.role]
            end = max(self.content_end, end_beside)
            self.tools_top = end + _TOOLS_GAP
            self.natural_height, self.height = self.content_end + below, end + below

    def bottom(self) -> float:
        """The y coordinate of the end of the text, the editor or the waiting note."""
        if self.hidden_for_edit:
            return self.edit_height
        if self.is_user:
            return self.card.bottom()
        waiting = self.streaming and not self.thinking and not self.text_begun
        waiting = waiting and not self.cards.are_busy
        return self._end + (self._style.line if waiting else 0.0)

    @property
    def text_begun(self) -> bool:
        """Whether the last thing shown is a block of the text that can grow."""
        return bool(self.parts) and self.parts[-1].section == len(self.sections) - 1

    def _place_card(self) -> None:
        available = round(self._column * CARD_SHARE) - 2 * CARD_PADDING_X
        first, last = self.sections[:1], self.sections[-1:]
        top = _padding(first[0]) if first else CARD_PADDING_Y
        end = self._stack(0, top, 0.0, available)
        wide = any(isinstance(part.view, CodeView | PassageView) for part in self.parts)
        natural = max((part.view.natural_width for part in self.parts), default=0.0)
        rows = (row.area.width() - 20 for row in self.rows if row.image is None)
        pictures = (area.right() for area in self._thumbnails.values())
        natural = max(natural, *rows, *pictures, 0.0)
        width = available if wide else min(available, max(natural + 1, 12.0))
        mirrored = QGuiApplication.isRightToLeft()
        left = CARD_PADDING_X if mirrored else self._column - width - CARD_PADDING_X
        if width < available and any(part.view.right_to_left for part in self.parts):
            end = self._stack(0, top, 0.0, width)
        for part in self.parts:
            part.x += left
        self._row_x, self._row_width = left, width
        ends_with_row = bool(last) and self.is_folded(len(self.sections) - 1)
        full = width + 2 * CARD_PADDING_X
        bottom = end + (_padding(last[0]) if ends_with_row else CARD_PADDING_Y)
        self.card = QRectF(0.0 if mirrored else self._column - full, 0.0, full, bottom)

    def _stack(self, first: int, top: float, left: float, width: float) -> float:
        """Lay out from part `first` on, from top to bottom; returns the y of the end of all."""
        self._row_x, self._row_width = left, width
        before: PlacedBlock | None = self.parts[first - 1] if first else None
        placed = before.section if before else -1  # the last section whose row is placed
        self._row_ys = {n: y for n, y in self._row_ys.items() if n <= placed}
        self._thumbnails = {n: area for n, area in self._thumbnails.items() if n <= placed}
        self.cards.begin(placed, width)
        lines: PictureLines | None = None  # of the thumbnails directly above y
        pictures = sum(each.image is not None for each in self.sections)
        y = before.y + before.view.height if before else top
        above_row = False  # whether a row is directly above y
        del self._ys[first:]
        for index in range(first, len(self.parts) + 1):
            part = self.parts[index] if index < len(self.parts) else None
            y = self.cards.end_blocks(before.section if before else -1, part, y)
            for number in range(placed + 1, part.section + 1 if part else len(self.sections)):
                placed = number
                if self.sections[number].call is not None:
                    lines = None
                    y = self.cards.place(number, y, is_first=not before and not above_row)
                    self._row_ys[number] = self.cards.areas[number].top()
                    above_row = True
                    continue
                if (image := self.sections[number].image) is not None:
                    space = _ROW_GAP if lines is None and (before or above_row) else 0.0
                    y += self.cards.end_lines() or space
                    lines = lines or PictureLines(width, y, pictures == 1)
                    self._thumbnails[number] = area = lines.place(image)
                    self._row_ys[number] = area.top()
                    y, above_row = lines.bottom, True
                elif self.sections[number].has_row:
                    lines = None
                    y += self.cards.end_lines() or (_ROW_GAP if before and not above_row else 0.0)
                    self._row_ys[number] = y
                    y, above_row = y + ROW_LINE, True
            if part is None:
                break
            in_card = self.sections[part.section].call is not None
            if not in_card and (space := self.cards.end_lines()):
                y += space
            elif above_row:
                y += 0.0 if part.below_row else _ROW_GAP
            elif before:
                y += gap(before, part)
            inset = indent(part.path) + (ROW_INDENT if part.below_row else 0.0)
            part.width = max(width - inset, 60.0)
            part.x = left + (0.0 if part.view.right_to_left else inset)
            if in_card:
                part.x, part.width = left + CARD_PADDING, max(width - 2 * CARD_PADDING, 60.0)
            part.y = y
            self._ys.append(y)
            y += part.view.layout(part.width)
            before, above_row, lines = part, False, None
        return y

    # --- hit testing ------------------------------------------------------------------------

    def part_at(self, y: float) -> int:
        """The index of the part nearest to `y`; -1 without parts."""
        return min(max(bisect_right(self._ys, y) - 1, 0), len(self.parts) - 1)

    def parts_between(self, top: float, bottom: float) -> Sequence[int]:
        """The indices of the parts between two y coordinates."""
        if not self.parts:
            return ()
        first = self.part_at(top)
        return range(first, bisect_right(self._ys, bottom))

    def hover_bands(self) -> list[tuple[float, float]]:
        """The y ranges whose painting depends on the mouse position."""
        bands = [
            (part.y, part.y + CODE_HEADER) for part in self.parts if isinstance(part.view, CodeView)
        ]
        rows = [  # the frame of a card, too
            (min(area.top() for area in areas), max(area.bottom() for area in areas))
            for areas in ((row.area, row.frame) if row.call else (row.area,) for row in self.rows)
        ]
        return [*rows, *bands]

    def row_at(self, point: QPointF) -> int:
        """The index of the row at a point that folds blocks or opens a file; -1: none."""
        rows = self.rows
        return next((n for n, r in enumerate(rows) if r.usable and r.area.contains(point)), -1)

    def end_point(self) -> QPointF:
        """The position of the streaming dot, relative to the message."""
        if self.parts and (self.text_begun or (self.thinking and self.parts[-1].below_row)):
            part = self.parts[-1]
            return part.view.end_point() + QPointF(part.x, part.y)
        return QPointF(0.0, self._end + self._style.line / 2)


def _padding(section: Section) -> float:
    """What is between the edge of a card and a section there; a thumbnail has the same all round."""
    if section.image is not None:
        return CARD_PADDING_X
    return CARD_PADDING_Y - (_ROW_TRIM if section.has_row else 0.0)
