"""The pictures in a document, as a grid from which some are chosen to be attached."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QIcon, QImage, QKeyEvent, QPainter, QPixmap
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QListView,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.domain.documents import MOST_PAGE_PICTURES
from app.state.pictures import PictureCopy, embedded_key
from app.system.translation import number, tr
from app.ui.pictures.thumbnails import image_of
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import SMALL, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, label

PIXELS = 192  # of the longer side of a copy
_SIDE = 112  # pixels of a picture in the grid
_CELL = QSize(148, 158)


class _Grid(QListWidget):
    """Space and a click choose a picture, or no longer; Enter attaches those that are chosen."""

    entered = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.entered.emit()
        else:
            super().keyPressEvent(event)


class EmbeddedGrid(QWidget):
    """Shows the pictures in one document."""

    attached = Signal(object)  # places and names of those that are chosen, at least one
    wanted = Signal(object, int)  # places of pictures, and the longer side of a copy, in pixels
    left = Signal()  # the text is to be shown again

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._sha256 = ""
        self._names: Sequence[str] = ()
        self.grid = _Grid()
        self.grid.setObjectName("embedded")
        self.grid.setFrameShape(QFrame.Shape.NoFrame)
        self.grid.setViewMode(QListView.ViewMode.IconMode)
        self.grid.setResizeMode(QListView.ResizeMode.Adjust)
        self.grid.setMovement(QListView.Movement.Static)
        self.grid.setSelectionMode(QListView.SelectionMode.MultiSelection)
        self.grid.setUniformItemSizes(True)
        self.grid.setIconSize(QSize(_SIDE, _SIDE))
        self.grid.setGridSize(_CELL)
        self.grid.setFont(font(SMALL))
        self.grid.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.grid.setTabKeyNavigation(False)
        self.grid.setAccessibleName(tr("Pictures in the document"))
        self.grid.itemSelectionChanged.connect(self._on_chosen)
        self.grid.entered.connect(self._attach)
        self.note = label("", "danger", SMALL, wraps=True)
        self.back_button = TextButton(tr("Back to the text"), "link")
        self.back_button.clicked.connect(self.left)
        self.attach_button = TextButton(tr("Attach"), "primary")
        self.attach_button.clicked.connect(self._attach)
        row = QHBoxLayout()
        row.addWidget(self.back_button)
        row.addWidget(self.note, 1)
        row.addWidget(self.attach_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.grid, 1)
        layout.addLayout(row)
        self.setFocusProxy(self.grid)
        follow_palette(self._recolor)

    @property
    def count(self) -> int:
        """How many pictures the document has."""
        return len(self._names)

    def set_names(self, sha256: str, names: Sequence[str]) -> None:
        """The pictures of another document; their copies are asked for by `begin`."""
        self._sha256, self._names = sha256, names
        self.grid.clear()
        self._on_chosen()

    def begin(self) -> None:
        """Show the pictures."""
        if not self.grid.count():
            empty = QPixmap(_SIDE, _SIDE)
            empty.fill(Qt.GlobalColor.transparent)
            for name in self._names:
                item = QListWidgetItem(QIcon(empty), name)
                item.setToolTip(name)
                item.setSizeHint(_CELL)
                self.grid.addItem(item)
            self.grid.setCurrentRow(0, self.grid.selectionModel().SelectionFlag.NoUpdate)
            self.wanted.emit(range(self.count), PIXELS)

    def show_copy(self, copy: PictureCopy) -> None:
        """Show a copy, if it is one of these pictures; one that cannot be read cannot be chosen."""
        prefix, _, place = copy.sha256.rpartition("/")
        if prefix != self._sha256 or copy.longest != PIXELS or not place.isdigit():
            return
        item = (
            self.grid.item(int(place)) if copy.sha256 == embedded_key(prefix, int(place)) else None
        )
        if item is None:
            return
        ratio = self.devicePixelRatioF()
        if copy.fault:
            item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsSelectable & ~Qt.ItemFlag.ItemIsEnabled)
            item.setToolTip(copy.fault)
            missing = icons.pixmap("image", shown_palette().faint, 32, ratio)
            item.setIcon(_icon(missing.toImage(), ratio))
        else:
            item.setIcon(_icon(image_of(copy), ratio))

    def _on_chosen(self) -> None:
        count = len(self.grid.selectedItems())
        self.attach_button.setEnabled(0 < count <= MOST_PAGE_PICTURES)
        most = number(MOST_PAGE_PICTURES)
        words = tr("Choose up to {most} pictures.", most=most) if count > MOST_PAGE_PICTURES else ""
        if words and words != self.note.text():
            accessibility.announce(self.grid, words)
        self.note.setText(words)

    def _attach(self) -> None:
        rows = sorted(self.grid.row(item) for item in self.grid.selectedItems())
        if 0 < len(rows) <= MOST_PAGE_PICTURES:
            self.attached.emit([(row, self._names[row]) for row in rows])

    def _recolor(self, palette: Palette) -> None:
        self.grid.setStyleSheet(
            f"QListWidget {{ background: transparent; color: {palette.text}; outline: none; }}"
            "QListWidget::item { padding: 6px; border-radius: 8px; border: 2px solid transparent; }"
            f"QListWidget::item:selected {{ background: {palette.accent_soft};"
            f" color: {palette.text}; border-color: {palette.accent}; }}"
            f"QListWidget::item:hover {{ background: {palette.accent_soft}; }}"
            f"QListWidget:focus::item:focus {{ border-color: {palette.secondary}; }}"
        )


def _icon(image: QImage, ratio: float) -> QIcon:
    """A picture in the middle of a square, small ones as they are; the choice does not tint it."""
    side = round(_SIDE * ratio)
    if max(image.width(), image.height()) > side:
        how = Qt.AspectRatioMode.KeepAspectRatio, Qt.TransformationMode.SmoothTransformation
        image = image.scaled(side, side, *how)
    pixmap = QPixmap(side, side)
    pixmap.fill(Qt.GlobalColor.transparent)
    painter = QPainter(pixmap)
    place = QPoint((side - image.width()) // 2, (side - image.height()) // 2)
    painter.drawImage(QRect(place, image.size()), image)
    painter.end()
    pixmap.setDevicePixelRatio(ratio)
    icon = QIcon(pixmap)
    for mode in (QIcon.Mode.Selected, QIcon.Mode.Disabled):
        icon.addPixmap(pixmap, mode)
    return icon
