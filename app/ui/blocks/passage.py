"""Block view of a passage of a document: its place and first words, its score and two buttons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QGuiApplication, QPen

from app.domain.document_words import place_words
from app.domain.documents import Passage
from app.domain.passages import first_words
from app.markdown.blocks import Block, Paragraph, Place, Run, passage_link
from app.system.translation import isolated, tr
from app.ui.blocks.blocks import BlockButton, Canvas, TextView
from app.ui.blocks.style import ReadingStyle, mixed
from app.ui.blocks.text import Link
from app.ui.theme.icons import pixmap
from app.ui.theme.theme import RADIUS_CONTROL

_LENGTH, _STRUCK_LENGTH = 150, 60  # characters of the first words
_RIGHT_TO_LEFT = "\u200f"  # a mark of no width
_BOX = 26.0  # pixels: of a button
_ICON = 16
_BAR_WIDTH, _BAR_HEIGHT = 34.0, 4.0
_GAP = 12.0
_BESIDE = 2 * _BOX + _BAR_WIDTH + 2 * _GAP


@dataclass(frozen=True, slots=True)
class PassageEntry(Paragraph):
    """A passage in the list of those of a question."""

    passage: Passage


def passage_entry(passage: Passage, line: int) -> PassageEntry:
    """The entry of a passage, on two lines of the source from `line` on.

    In a right-to-left window all entries are right-to-left, whatever their documents are.
    """
    struck, mirrored = passage.struck, QGuiApplication.isRightToLeft()
    title = f"[{passage.number}] {place_words(passage)}"  # the number as answers write it
    title = f"{_RIGHT_TO_LEFT}{title}" if mirrored else title
    runs = [Run(title, bold=True, strike=struck, link=passage_link(passage.number))]
    about = [tr("in {folder}", folder=Path(passage.path).parent.name)] if passage.path else []
    if passage.score:
        about.append(score_words(passage))
    if passage.above and not struck:
        about.append(tr("read above"))
    runs += [Run(f" · {words}") for words in about]
    length = _STRUCK_LENGTH if struck else _LENGTH
    words = first_words(passage, length)
    runs.append(Run(f"\n{isolated(words) if mirrored else words}"))
    return PassageEntry(Place(line, line + 2), tuple(runs), passage)


def score_words(passage: Passage) -> str:
    """How well a passage fits."""
    return tr("{percent} %", percent=round(100 * passage.score))


class PassageView(TextView):
    """The entry of a passage; its controls are at the end of its first line."""

    def __init__(self, block: PassageEntry, style: ReadingStyle) -> None:
        super().__init__(block, style)
        self.passage = block.passage
        self._width = 0.0
        self._line = style.line

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        return super().layout(max(width - _BESIDE, 60.0))

    def update(self, block: Block) -> bool:
        """True only for an equal passage."""
        return isinstance(block, PassageEntry) and block == self.block

    def buttons(self) -> list[BlockButton]:
        """What can be done with the passage."""
        passage = self.passage
        pin = (
            tr("Do not read this passage with the next questions")
            if passage.pinned
            else tr("Read this passage with the next questions too")
        )
        strike = tr("Use this passage again") if passage.struck else tr("Strike this passage out")
        made = [] if passage.struck else [("pin", pin, passage.pinned)]
        made.append(("strike", strike, passage.struck))
        return [
            BlockButton(name, words, self._box(2 - len(made) + place), checked=checked)
            for place, (name, words, checked) in enumerate(made)
        ]

    def _box(self, place: int) -> QRectF:
        """The area of a button, counted from the text on."""
        x = _BOX * (1 - place) if self.right_to_left else self._width - _BOX * (2 - place)
        return QRectF(x, (self._line - _BOX) / 2, _BOX, _BOX)

    @property
    def _shift(self) -> float:
        """The x of the text: the controls are before it if it is right-to-left."""
        return _BESIDE if self.right_to_left else 0.0

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Paint the text, the bar of the score and the buttons."""
        super().paint(canvas, origin + QPointF(self._shift, 0.0), selected)
        self._paint_bar(canvas, origin)
        painter, style = canvas.painter, canvas.style
        ratio = painter.device().devicePixelRatio()
        for button in self.buttons():
            hovered = canvas.hover is not None and button.area.contains(canvas.hover)
            area = button.area.translated(origin)
            if hovered or button.checked:
                edge = QPen(style.hairline, 2) if style.high_contrast else Qt.PenStyle.NoPen
                painter.setPen(edge)
                painter.setBrush(mixed(style.accent, style.card, 0.16))
                painter.drawRoundedRect(area, RADIUS_CONTROL, RADIUS_CONTROL)
                painter.setBrush(Qt.BrushStyle.NoBrush)
            color = style.accent if button.checked else style.ink if hovered else style.secondary
            inset = QPointF((_BOX - _ICON) / 2, (_BOX - _ICON) / 2)
            picture = pixmap(button.name, color.name(), _ICON, ratio)
            painter.drawPixmap(area.topLeft() + inset, picture)

    def _paint_bar(self, canvas: Canvas, origin: QPointF) -> None:
        """Paint the score; nothing for a passage that was not searched for this question."""
        score, style, painter = self.passage.score, canvas.style, canvas.painter
        if not score or self.passage.struck:
            return
        outer = 2 * _BOX + _GAP
        x = outer if self.right_to_left else self._width - outer - _BAR_WIDTH
        y = (self._line - _BAR_HEIGHT) / 2
        bar = QRectF(x, y, _BAR_WIDTH, _BAR_HEIGHT).translated(origin)
        filled = QRectF(bar)
        filled.setWidth(max(_BAR_WIDTH * min(score, 1.0), _BAR_HEIGHT))
        if self.right_to_left:
            filled.moveRight(bar.right())
        painter.setPen(Qt.PenStyle.NoPen)
        round_ = _BAR_HEIGHT / 2
        for area, color in ((bar, mixed(style.secondary, style.card, 0.3)), (filled, style.accent)):
            painter.setBrush(color)
            painter.drawRoundedRect(area, round_, round_)
        painter.setBrush(Qt.BrushStyle.NoBrush)

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        return super().hit(x - self._shift, y)

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the text of a line."""
        return super().over_text(x - self._shift, y)

    def link_at(self, x: float, y: float) -> str:
        """The link under a point, or an empty text."""
        return super().link_at(x - self._shift, y)

    def links(self) -> list[Link]:
        """The link that opens the passage."""
        return [link.moved(self._shift, 0.0) for link in super().links()]

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The rectangles of a range of positions, one or more per line."""
        return (area.translated(self._shift, 0.0) for area in super().areas(start, end))

    def end_point(self) -> QPointF:
        """The end of the text, vertically centred on its last line."""
        return super().end_point() + QPointF(self._shift, 0.0)
