"""Card of a tool's call: its size, and where the folded ones stand.

Cards that follow one another stand in two columns where there is room; an open one has a line of
its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QRectF
from PySide6.QtGui import QGuiApplication

from app.ui.transcript.message.tool_call import CallLook, ShownCall

LINE = 36.0  # pixels: height of a folded card
CARD_PADDING = 12.0  # pixels between the frame and what is in an open card
GAP = 8.0  # pixels between cards
SECOND_LINE = 20.0  # of a narrow card, for the arguments
_NARROW = 340.0  # pixels: in a narrower card the arguments are on a second line
_TWO_COLUMNS = 2 * _NARROW + GAP
ICON = 16.0
BUTTON = 28.0


@dataclass(slots=True)
class CardLines:
    """Places cards from the leading edge, in lines; y grows downwards."""

    width: float  # of the column
    top: float  # of the first line
    bottom: float = 0.0  # of the last one
    _half: bool = False  # the last line has room for another card

    def place(self, call: ShownCall, *, alone: bool, more: bool) -> QRectF:
        """The area of the next card's line; its x is the distance from the leading edge.

        An `alone` one has its line to itself; `more` is whether another card follows that has not.
        """
        half = (self.width - GAP) // 2
        beside = self._half and not alone
        if not beside:
            self.top = self.bottom + GAP if self.bottom else self.top
        paired = self.width >= _TWO_COLUMNS and not alone and (beside or more)
        width = half if paired else self.width
        area = QRectF(self.width - half if beside else 0.0, self.top, width, height(call, width))
        self.bottom = max(self.bottom, area.bottom())
        self._half = paired and not beside
        return area


def height(call: ShownCall, width: float) -> float:
    """The height of a folded card, in pixels."""
    has_more = bool(call.server or (call.short and call.look is not CallLook.ASKING))
    return LINE + (SECOND_LINE if width < _NARROW and has_more else 0.0)


def stop_area(area: QRectF) -> QRectF:
    """The area of the button that stops a call, at the end of the first line of its card."""
    right = area.right() - 2 * 10 - ICON
    button = QRectF(right - BUTTON, area.top() + (LINE - BUTTON) / 2, BUTTON, BUTTON)
    return mirrored(button, area)


def mirrored(place: QRectF, area: QRectF) -> QRectF:
    """A place in an area, as it is in the direction of the window."""
    if not QGuiApplication.isRightToLeft():
        return place
    return QRectF(
        area.left() + area.right() - place.right(), place.top(), place.width(), place.height()
    )
