"""Block view of the end of a card of a tool's call: what became of the call, and two buttons."""

from __future__ import annotations

from dataclasses import dataclass, replace

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QGuiApplication

from app.markdown.blocks import Block, Paragraph
from app.system.translation import tr
from app.ui.blocks.blocks import BlockButton, Canvas, TextView
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.text import Flow

_HEIGHT = 28.0  # pixels: of a button
_GAP = 16.0


@dataclass(frozen=True, slots=True)
class CallFoot(Paragraph):
    """What became of a call; `again` is whether the answer can be written again from it."""

    again: bool


class CallFootView(TextView):
    """A line of small text with links below it."""

    def __init__(self, block: CallFoot, style: ReadingStyle) -> None:
        super().__init__(block, style)
        self._flow = Flow(block.runs, style, style.note_face)
        self.right_to_left = self._flow.right_to_left
        self._foot, self._style = block, style
        self._width = self._text_height = 0.0

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        self._text_height = super().layout(width) if self._foot.runs[0].text else 0.0
        self.height = max((each.area.bottom() for each in self.buttons()), default=0.0)
        return self.height

    def update(self, block: Block) -> bool:
        """True only for an equal foot."""
        return isinstance(block, CallFoot) and block == self.block

    def buttons(self) -> list[BlockButton]:
        """What can be done with the call, one after another, or below each other."""
        words = [("activity", tr("All calls of tools"))]
        if self._foot.again:
            words.insert(0, ("again", tr("Answer again from here")))
        metrics = QFontMetricsF(self._style.note)
        made: list[BlockButton] = []
        x, y = 0.0, self._text_height + (2.0 if self._text_height else 0.0)
        for name, text in words:
            wide = min(metrics.horizontalAdvance(text) + 2, self._width)
            if x and x + wide > self._width:
                x, y = 0.0, y + _HEIGHT
            left = self._width - x - wide if QGuiApplication.isRightToLeft() else x
            made.append(BlockButton(name, text, QRectF(left, y, wide, _HEIGHT), labelled=True))
            x += wide + _GAP
        return made

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Paint the text and the links."""
        super().paint(replace(canvas, color=canvas.style.secondary), origin, selected)
        painter, style = canvas.painter, canvas.style
        for button in self.buttons():
            hovered = canvas.hover is not None and button.area.contains(canvas.hover)
            face = QFont(style.note)
            face.setUnderline(hovered or style.high_contrast)
            painter.setFont(face)
            painter.setPen(style.accent)
            align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
            painter.drawText(button.area.translated(origin), align, button.words)

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the text of a line."""
        return y < self._text_height and super().over_text(x, y)
