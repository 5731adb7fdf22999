"""Block view of the files that a tool returned: thumbnails of pictures, and the others to be saved.

A file is never opened: its chip asks where it is to be saved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QGuiApplication, QPainter, QPen

from app.domain.file_words import image_name
from app.domain.parts import KeptFile, ToolResultPart
from app.domain.tool_files import left_out_sentence
from app.markdown.blocks import Block, Paragraph, Place, Run
from app.system.byte_size import size
from app.system.translation import isolated, tr
from app.ui.blocks.blocks import BlockButton, Canvas, TextView
from app.ui.blocks.style import ReadingStyle
from app.ui.blocks.text import Flow, Link
from app.ui.theme.file_icons import file_icon
from app.ui.theme.icons import pixmap
from app.ui.theme.theme import RADIUS_CONTROL
from app.ui.transcript.message import pictures
from app.ui.transcript.message.pictures import PictureLines

_GAP = 8.0  # pixels between chips, and between these and what is above them
_TOP = 6.0  # above all
_CHIP = 32.0  # height of a chip
_PADDING, _ICON = 10.0, 16.0
_WIDEST_NAME = 260.0


@dataclass(frozen=True, slots=True)
class KeptFiles(Paragraph):
    """The files of a result; its text says what is wrong with them."""

    files: tuple[KeptFile, ...]

    @property
    def text(self) -> str:
        """Their names, and what is wrong."""
        said = "".join(run.text for run in self.runs)
        return "\n".join((*(file.name for file in self.files), *filter(None, (said,))))


def kept_files(result: ToolResultPart) -> KeptFiles | None:
    """The block of the files of a result; None: it has none."""
    if not result.files and not result.files_left_out:
        return None
    said = [_fault(file) for file in result.files if file.fault]
    text = "\n".join(filter(None, (*said, left_out_sentence(result))))
    return KeptFiles(Place(0, 1), (Run(text),), result.files)


def _fault(file: KeptFile) -> str:
    """Why a picture is not shown."""
    from app.documents.source import ExtractionFault
    from app.state.document_faults import fault_sentence

    try:
        return fault_sentence(isolated(file.name), ExtractionFault(file.fault))[0]
    except ValueError:  # one of a later version
        return ""


class KeptFilesView(TextView):
    """Thumbnails in lines, below them chips, and below these the text."""

    def __init__(self, block: KeptFiles, style: ReadingStyle) -> None:
        super().__init__(block, style)
        self._flow = Flow(block.runs, style, style.note_face)
        self._files, self._style = block.files, style
        self._areas: dict[int, QRectF] = {}  # by file; x is from the leading edge
        self._width = self._text_top = 0.0

    def layout(self, width: float) -> float:
        """Lay out for a width; returns the height."""
        self._width = width
        images = {n: image for n, file in enumerate(self._files) if (image := file.image)}
        lines = PictureLines(width, _TOP, len(images) == 1)
        self._areas = {n: lines.place(image) for n, image in images.items()}
        x, y = 0.0, lines.bottom + _GAP if images else _TOP
        bottom = lines.bottom
        for number, file in enumerate(self._files):
            if number in images:
                continue
            wide = min(self._chip_width(file), width)
            if x and x + wide > width:
                x, y = 0.0, y + _CHIP + _GAP
            self._areas[number] = QRectF(x, y, wide, _CHIP)
            x, bottom = x + wide + _GAP, y + _CHIP
        has_text = bool(self._flow.length)
        self._text_top = bottom + (6.0 if has_text else 0.0)
        text_height = self._flow.layout(width) if has_text else 0.0
        self.height = self._text_top + text_height
        return self.height

    def _chip_width(self, file: KeptFile) -> float:
        metrics = QFontMetricsF(self._style.note)
        name = min(metrics.horizontalAdvance(file.name) + 1, _WIDEST_NAME)
        return 2 * _PADDING + _ICON + 8.0 + name + self._chip_rest(file)

    def _chip_rest(self, file: KeptFile) -> float:
        """The room for a size and the word behind the name, with the gaps before them."""
        small = QFontMetricsF(self._style.small)
        note = QFontMetricsF(self._style.note)
        words = note.horizontalAdvance(tr("Save as…"))
        return 8.0 + small.horizontalAdvance(size(file.size_bytes)) + 1 + 14.0 + words + 1

    def update(self, block: Block) -> bool:
        """True only for equal files."""
        return isinstance(block, KeptFiles) and block == self.block

    def file_of(self, button: str) -> KeptFile:
        """The file that a button stands for."""
        return self._files[int(button.rpartition(" ")[2])]

    def buttons(self) -> list[BlockButton]:
        """One for each file: a picture is shown, another file saved."""
        made: list[BlockButton] = []
        for number in sorted(self._areas):
            file, area = self._files[number], self._areas[number]
            if QGuiApplication.isRightToLeft():
                area = QRectF(self._width - area.right(), area.top(), area.width(), area.height())
            if (image := file.image) is not None:
                made.append(BlockButton(f"show {number}", image_name(image), area))
                continue
            words = tr(
                "Save “{name}” ({size}) as…", name=isolated(file.name), size=size(file.size_bytes)
            )
            made.append(BlockButton(f"save {number}", words, area))
        return made

    def paint(self, canvas: Canvas, origin: QPointF, selected: tuple[int, int] | None) -> None:
        """Paint the files and the text; a thumbnail is asked for only where it is seen."""
        for button in self.buttons():
            area, file = button.area.translated(origin), self.file_of(button.name)
            if not area.adjusted(-5, -5, 5, 5).intersects(canvas.clip):
                continue
            hovered = canvas.hover is not None and button.area.contains(canvas.hover)
            if (image := file.image) is not None:
                shown = canvas.thumbnail(image) if canvas.thumbnail else None
                pictures.paint(
                    canvas.painter, canvas.style, area, shown, hovered=hovered, focused=False
                )
            else:
                self._paint_chip(canvas.painter, area, file, hovered=hovered)
        below, style = origin + QPointF(0.0, self._text_top), canvas.style
        self._flow.paint(canvas.painter, below, style, style.secondary, selected, canvas.clip)

    def _paint_chip(
        self, painter: QPainter, area: QRectF, file: KeptFile, *, hovered: bool
    ) -> None:
        style = self._style
        edge = style.accent if hovered else style.hairline
        painter.setPen(QPen(edge, 2 if style.high_contrast else 1))
        painter.setBrush(style.sunken)
        painter.drawRoundedRect(area.adjusted(0.5, 0.5, -0.5, -0.5), RADIUS_CONTROL, RADIUS_CONTROL)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        ratio = painter.device().devicePixelRatio()
        icon = pixmap(file_icon(file.name), style.secondary.name(), int(_ICON), ratio)
        left, right = area.left() + _PADDING, area.right() - _PADDING
        mirrored = QGuiApplication.isRightToLeft()
        icon_x = right - _ICON if mirrored else left
        painter.drawPixmap(QPointF(icon_x, area.center().y() - _ICON / 2), icon)
        inside = QRectF(left, area.top(), right - left, area.height())
        beside = _ICON + 8.0
        inside.adjust(*((0, 0, -beside, 0) if mirrored else (beside, 0, 0, 0)))
        note = QFont(style.note)
        painter.setFont(note)
        metrics, rest = QFontMetricsF(note), self._chip_rest(file)
        room = max(inside.width() - rest, 0.0)
        name = metrics.elidedText(file.name, Qt.TextElideMode.ElideMiddle, room)
        align = Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine
        leading, trailing = Qt.AlignmentFlag.AlignLeading, Qt.AlignmentFlag.AlignTrailing
        painter.setPen(style.ink)
        painter.drawText(inside, align | leading, isolated(name))
        wide = min(metrics.horizontalAdvance(name) + 1, room) + 8.0
        after = inside.adjusted(*((0, 0, -wide, 0) if mirrored else (wide, 0, 0, 0)))
        painter.setFont(style.small)
        painter.setPen(style.secondary)
        painter.drawText(after, align | leading, size(file.size_bytes))
        note.setUnderline(hovered or style.high_contrast)
        painter.setFont(note)
        painter.setPen(style.accent)
        painter.drawText(inside, align | trailing, tr("Save as…"))

    # --- the text, which is below the files -----------------------------------------------------

    def hit(self, x: float, y: float) -> int:
        """The position nearest to a point."""
        return super().hit(x, y - self._text_top)

    def over_text(self, x: float, y: float) -> bool:
        """Whether a point lies on the text of a line."""
        return y >= self._text_top and super().over_text(x, y - self._text_top)

    def link_at(self, x: float, y: float) -> str:
        """Empty: it has no links."""
        del x, y
        return ""

    def links(self) -> list[Link]:
        """Empty: it has no links."""
        return []

    def areas(self, start: int, end: int) -> Iterator[QRectF]:
        """The rectangles of a range of positions, one or more per line."""
        return (area.translated(0.0, self._text_top) for area in super().areas(start, end))

    def end_point(self) -> QPointF:
        """The end of the text, vertically centred on its last line."""
        return super().end_point() + QPointF(0.0, self._text_top)
