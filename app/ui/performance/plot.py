"""Plot of the last answers: speed above, time to the first word below, one point for each answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from PySide6.QtCore import QLineF, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QColor,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.state.performance import AnswerFigures
from app.system.translation import number, tr
from app.ui.theme.palette import mix, shown_palette
from app.ui.theme.theme import SMALL, figures, font
from app.ui.widgets import accessibility

_HEIGHT = 268
_SPEED_SHARE = 0.62  # of the height, of the upper plot
_LEFT, _RIGHT, _GAP = 44, 4, 24  # pixels around and between the plots
_TITLE = 28  # pixels from the top of a title to the plot
_RADIUS, _SELECTED = 3.0, 5.0  # pixels of a point
_LINE_SHARE = 0.5  # of the accent in the line
_MOST_STEP = 26.0  # pixels between two answers
_ROUND = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
_KEYS = (Qt.FocusReason.TabFocusReason, Qt.FocusReason.BacktabFocusReason)


class AnswerPlot(QWidget):
    """Draws the answers; the pointer and the arrow keys select one."""

    selected = Signal(int)  # index of an answer; -1: none

    def __init__(self) -> None:
        super().__init__()
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        accessibility.register_role(AnswerPlot, QAccessible.Role.Chart)
        self.setAccessibleName(tr("Speed of the last answers"))
        self._answers: Sequence[AnswerFigures] = ()
        self._index = -1
        self._has_ring = False  # the keyboard brought the focus here

    @property
    def index(self) -> int:
        """The selected answer; -1: none."""
        return self._index

    def show_answers(self, answers: Sequence[AnswerFigures]) -> None:
        """Show these answers; the last one is selected, unless the user has selected another."""
        before, index = self._answers, len(answers) - 1
        if 0 <= self._index < len(before) - 1:
            chosen = before[self._index]
            index = next((at for at, one in enumerate(answers) if one is chosen), index)
        self._answers = answers
        self._select(index)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(480, _HEIGHT)

    def _select(self, index: int) -> None:
        index = min(index, len(self._answers) - 1)
        if index != self._index:
            self._index = index
            self.update()
        self.selected.emit(index)

    # --- geometry -------------------------------------------------------------------------------

    def _step(self) -> float:
        """Pixels between two answers."""
        room = self.width() - _LEFT - _RIGHT - 4 * _SELECTED
        return min(room / max(len(self._answers) - 1, 1), _MOST_STEP)

    def _x(self, index: int) -> float:
        return _LEFT + 2 * _SELECTED + index * self._step()

    def _areas(self) -> tuple[QRectF, QRectF]:
        """The plots of speed and of waiting."""
        width, height = self.width() - _LEFT - _RIGHT, self.height() - _GAP - 2 * _TITLE - 8
        upper = QRectF(_LEFT, _TITLE, width, height * _SPEED_SHARE)
        lower = QRectF(_LEFT, upper.bottom() + _GAP + _TITLE, width, height * (1 - _SPEED_SHARE))
        return upper, lower

    # --- events ---------------------------------------------------------------------------------

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if self._answers:
            step = self._step()
            nearest = round((event.position().x() - self._x(0)) / step) if step else 0
            self._select(min(max(nearest, 0), len(self._answers) - 1))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        last = len(self._answers) - 1
        moves = {
            Qt.Key.Key_Left: self._index - 1,
            Qt.Key.Key_Right: self._index + 1,
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: last,
        }
        wanted = moves.get(Qt.Key(event.key()))
        if wanted is None or last < 0:
            super().keyPressEvent(event)
        else:
            self._select(min(max(wanted, 0), last))

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self._has_ring = event.reason() in _KEYS
        self.update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        upper, lower = self._areas()
        if self._index >= 0:
            x = round(self._x(self._index)) + 0.5
            painter.setPen(QPen(QColor(shown_palette().hairline), 1))
            for area in (upper, lower):
                painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
        speeds = [one.tokens_per_second for one in self._answers]
        waits = [one.first_token_seconds for one in self._answers]
        self._paint(painter, upper, tr("Tokens per second"), speeds)
        self._paint(painter, lower, tr("Seconds to the first word"), waits)
        if self.hasFocus() and self._has_ring:
            painter.setPen(QPen(QColor(shown_palette().accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 1, -1, -1), 6, 6)

    def _paint(self, painter: QPainter, area: QRectF, title: str, values: Sequence[float]) -> None:
        """One plot: its title, the axis with 0 and its top value, a thin line, and points.

        An answer without a value, 0, has no point. The line ends where another model begins.
        """
        colours = shown_palette()
        top = nice_above(max(values, default=0.0))
        painter.setFont(font(SMALL))
        painter.setPen(QColor(colours.secondary))
        line = painter.fontMetrics().height()
        heading = QRectF(0, area.top() - _TITLE, self.width(), line)
        painter.drawText(heading, Qt.AlignmentFlag.AlignLeft, title)
        painter.setFont(figures(SMALL))
        for value, y in ((top, area.top()), (0.0, area.bottom())):
            y = round(y) + 0.5
            painter.setPen(QPen(QColor(colours.hairline), 1))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            painter.setPen(QColor(colours.secondary))
            label = QRectF(0, y - line / 2, _LEFT - 8, line)
            side = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignAbsolute
            painter.drawText(label, side, number(value))
        points = {
            at: QPointF(self._x(at), area.bottom() - area.height() * value / top)
            for at, value in enumerate(values)
            if value > 0
        }
        accent = QColor(colours.accent)
        share = 1.0 if colours.hairline == colours.text else _LINE_SHARE  # high contrast: pure
        painter.setPen(QPen(QColor(mix(colours.background, colours.accent, share)), 1.5))
        # As single lines: Qt needs 30 times as long for the joins of a polyline, which points cover.
        for run in self._runs():
            known = [points[at] for at in run if at in points]
            painter.drawLines([QLineF(one, other) for one, other in pairwise(known)])
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(accent)
        for at, point in points.items():
            radius = _SELECTED if at == self._index else _RADIUS
            painter.drawEllipse(point, radius, radius)

    def _runs(self) -> list[range]:
        """The answers in a row that one model wrote, by index."""
        models = [one.model for one in self._answers]
        starts = [at for at in range(len(models)) if at == 0 or models[at] != models[at - 1]]
        return [range(start, end) for start, end in pairwise([*starts, len(models)])]


def nice_above(value: float) -> float:
    """The smallest round number that is not below a value: two thirds of it at least; 1 for 0."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * digit for digit in _ROUND if power * digit >= value * (1 - 1e-9))
