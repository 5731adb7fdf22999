"""Cards of a message's calls: their places among its blocks, and which are open by themselves.

The cards of running calls with output open themselves, and close when the call has ended, unless
the user has opened or closed them.
"""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QRectF
from PySide6.QtGui import QGuiApplication

from app.ui.transcript.message.call_card import CARD_PADDING, CardLines
from app.ui.transcript.message.placed_block import PlacedBlock
from app.ui.transcript.message.sections import Row, Section, call_section, known_call
from app.ui.transcript.message.tool_call import CallLook, KnownCalls

_SPACE = 12.0  # pixels between a card and other blocks
_CONSENT = 300.0  # pixels: height of a consent that is not made yet
_BUSY = (CallLook.ASKING, CallLook.RUNNING, CallLook.WRITING)


class CardHolder(Protocol):
    """What the view of a message has of its sections."""

    sections: list[Section]
    unfolded: set[int]
    calls: KnownCalls

    @property
    def streaming(self) -> bool:
        """Whether the answer is being written."""
        ...

    def is_folded(self, section: int) -> bool:
        """Whether the blocks of a section are hidden."""
        ...


class Cards:
    """The cards of one message; areas are relative to it, x to the leading edge of its column."""

    def __init__(self, view: CardHolder) -> None:
        self._view = view
        self.areas: dict[int, QRectF] = {}  # of the lines, by section
        self._bottoms: dict[int, float] = {}  # of the open ones
        self.consent_heights: dict[str, float] = {}  # by call
        self._by_itself: set[int] = set()  # sections that were opened because they run
        self._chosen: set[int] = set()  # sections that the user has opened or closed
        self._lines: CardLines | None = None  # of the cards directly above
        self._width = 0.0
        self._rows: dict[int, Row] = {}  # by section, since the last layout

    # --- content --------------------------------------------------------------------------------

    @property
    def _sections(self) -> list[Section]:
        return self._view.sections

    @property
    def are_busy(self) -> bool:
        """Whether one of the last calls is written, waits for consent, or runs."""
        calls = (section.call for section in reversed(self._sections) if section.call)
        return any(call.look in _BUSY for call in calls)

    def update(self) -> bool:
        """Show what is known of the calls now; returns whether that is something else."""
        changed = False
        for number, section in enumerate(self._sections):
            if (before := section.call) is None:
                continue
            now = known_call(
                before.part,
                before.result,
                self._view.calls,
                streaming=self._view.streaming,
                is_last=before.is_last,
            )
            if now != before:
                self._sections[number] = call_section(now)
                changed = True
        self.open_by_themselves()
        return changed

    def open_by_themselves(self) -> None:
        """Open the cards that show output, and close those again that show none any more."""
        unfolded = self._view.unfolded
        for number, section in enumerate(self._sections):
            call = section.call
            if call is None or number in self._chosen:
                continue
            is_running = call.look is CallLook.RUNNING
            if is_running and call.live and call.live.output and number not in unfolded:
                unfolded.add(number)
                self._by_itself.add(number)
            elif number in self._by_itself and not is_running:
                unfolded.discard(number)
                self._by_itself.discard(number)

    def copy(self, other: Cards) -> None:
        """Be open as other views of these cards are."""
        self.consent_heights = other.consent_heights
        self._by_itself, self._chosen = other._by_itself, other._chosen

    def chosen(self, section: int) -> None:
        """The user opens or closes a section."""
        self._chosen.add(section)
        self._by_itself.discard(section)

    def of_call(self, call: str) -> int:
        """The section of a call; -1: it has none."""
        found = (n for n, one in enumerate(self._sections) if one.call and one.call.id == call)
        return next(found, -1)

    # --- layout ---------------------------------------------------------------------------------

    def begin(self, placed: int, width: float) -> None:
        """Begin to place cards of the sections behind `placed`."""
        self._width = width
        self._rows.clear()
        self.areas = {n: area for n, area in self.areas.items() if n <= placed}
        self._bottoms = {n: bottom for n, bottom in self._bottoms.items() if n < placed}
        self._lines = None

    def place(self, number: int, y: float, *, is_first: bool) -> float:
        """Place the card of a section; returns where its blocks, or what follows it, begin."""
        call = self._sections[number].call
        assert call is not None
        if self._lines is None:
            self._lines = CardLines(self._width, y if is_first else y + _SPACE)
        is_open = self._is_open(number)
        area = self._lines.place(call, alone=is_open, more=self._is_folded_card(number + 1))
        self.areas[number] = area
        if not is_open:
            return self._lines.bottom
        if self._sections[number].asks:
            bottom = area.bottom() + self.consent_heights.get(call.id, _CONSENT)
            self._bottoms[number] = self._lines.bottom = bottom
            return bottom
        return area.bottom() + 2.0

    def end_blocks(self, section: int, following: PlacedBlock | None, y: float) -> float:
        """The y after the block of a section, which is below its card if it was the last one."""
        if section < 0 or self._sections[section].call is None:
            return y
        if following is not None and following.section == section:
            return y
        if section in self.areas and section not in self._bottoms:
            self._bottoms[section] = y + CARD_PADDING
            if self._lines is None:
                self._lines = CardLines(self._width, y)
            self._lines.bottom = y + CARD_PADDING
            return y + CARD_PADDING
        return y

    def end_lines(self) -> float:
        """Say that what comes next is no card; returns the space to it if a card is above, else 0."""
        above, self._lines = self._lines, None
        return 0.0 if above is None else _SPACE

    def _is_open(self, number: int) -> bool:
        """Whether something of a card is seen below its line."""
        section = self._sections[number]
        return section.asks or bool(section.always) or not self._view.is_folded(number)

    def _is_folded_card(self, number: int) -> bool:
        """Whether the next section that is seen, from this one on, is a folded card."""
        for at in range(number, len(self._sections)):
            section = self._sections[at]
            if section.call is not None:
                return not self._is_open(at)
            if section.has_row or section.blocks:
                return False
        return False

    # --- painting and hit testing ---------------------------------------------------------------

    def row(self, number: int, left: float, width: float) -> Row:
        """The row of a card, relative to the message, in the direction of the window."""
        if (known := self._rows.get(number)) is not None:
            return known
        section, area = self._sections[number], self.areas[number]
        assert section.call is not None
        mirrored = QGuiApplication.isRightToLeft()
        x = left + (width - area.right() if mirrored else area.left())
        line = QRectF(x, area.top(), area.width(), area.height())
        frame = QRectF(line)
        frame.setBottom(self._bottoms.get(number, line.bottom()))
        folded = number not in self._view.unfolded
        self._rows[number] = row = Row(
            number,
            section.kind,
            section.words,
            line,
            folded,
            section.foldable,
            call=section.call,
            frame=frame,
        )
        return row

    def area_of(self, call: str) -> QRectF:
        """The line of the card of a call, relative to the leading edge; empty: it has none."""
        return self.areas.get(self.of_call(call), QRectF())

    def consent_area(self, call: str) -> QRectF:
        """Where the consent of a call is, relative to the leading edge; empty: nowhere."""
        number = self.of_call(call)
        if number < 0 or number not in self._bottoms or number not in self.areas:
            return QRectF()
        area = self.areas[number]
        height = self._bottoms[number] - area.bottom()
        return QRectF(area.left(), area.bottom(), area.width(), height)
