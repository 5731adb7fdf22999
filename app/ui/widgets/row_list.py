"""A list of rows of two lines, and the page that it fills: the trash, the archive, the presets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QVBoxLayout,
    QWidget,
)

from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import BODY, font
from app.ui.widgets.controls import Column, page_title
from app.ui.widgets.page import Page

_ENTRY_ROLE = Qt.ItemDataRole.UserRole + 1
_ROW_HEIGHT = 52


class RowList(QListWidget):
    """Rows of two lines, each of one entry."""

    entered = Signal()  # Enter: the selected rows
    removed = Signal()  # Delete or Backspace: the selected rows

    def __init__(self, name: str, *, several: bool = True) -> None:
        """`name` is for screen readers; `several` rows can be selected at once."""
        super().__init__()
        self.setAccessibleName(name)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(font(BODY))
        self.setUniformItemSizes(True)
        if several:
            self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideRight)
        follow_palette(self._recolor)

    def _recolor(self, palette: Palette) -> None:
        ring = palette.accent if palette.accent_soft == palette.sunken else palette.accent_soft
        self.setStyleSheet(
            f"QListView::item {{ color: {palette.text}; padding: 0 10px; border-radius: 6px;"
            f" border: 2px solid transparent; }}"
            f"QListView::item:hover {{ background: {palette.sunken}; }}"
            f"QListView::item:selected {{ color: {palette.text};"
            f" background: {palette.accent_soft}; border-color: {ring}; }}"
            f"QListView::item:selected:active:focus {{ border-color: {palette.accent}; }}"
        )

    def add_row(self, text: str, entry: object, *, selected: bool = False) -> None:
        """Add a row of two lines."""
        item = QListWidgetItem(text)
        item.setData(_ENTRY_ROLE, entry)
        item.setToolTip(text)  # a narrow list elides it
        item.setSizeHint(QSize(120, _ROW_HEIGHT))
        self.addItem(item)
        item.setSelected(selected)

    @property
    def height_of_rows(self) -> int:
        """Pixels that all rows need."""
        return self.count() * _ROW_HEIGHT + 2 * self.frameWidth()

    def entry(self, row: int) -> Any:
        """The entry of a row."""
        return self.item(row).data(_ENTRY_ROLE)

    def entries(self) -> list[Any]:
        """The selected ones."""
        return [item.data(_ENTRY_ROLE) for item in self.selectedItems()]

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        by_mouse = event.reason() is Qt.FocusReason.MouseFocusReason
        if self.count() and not by_mouse and not self.selectedItems():
            self.setCurrentRow(max(self.currentRow(), 0))  # a list shows the focus by its row

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.entered.emit()
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.removed.emit()
        elif event.key() == Qt.Key.Key_Escape:
            event.ignore()  # closes the page
        else:
            super().keyPressEvent(event)


def lay_out(page: Page, rows: Sequence[QWidget | QHBoxLayout]) -> None:
    """Lay out a page: its accessible name as the title, and rows, the last of which stretches."""
    head = QHBoxLayout()
    head.addWidget(page_title(page.accessibleName()), 1)
    head.addWidget(page.close_button)
    content = QWidget()
    column = QVBoxLayout(content)
    column.setContentsMargins(0, 12, 0, 12)
    column.setSpacing(12)
    column.addLayout(head)
    for row in rows:
        if isinstance(row, QHBoxLayout):
            column.addLayout(row)
        else:
            column.addWidget(row, int(row is rows[-1]))
    column.addStretch()  # takes the room of a list that is hidden while it is empty
    outer = QVBoxLayout(page)
    outer.setContentsMargins(0, 0, 0, 0)
    outer.addWidget(Column(content))


def buttons(*first: QWidget, last: QWidget) -> QHBoxLayout:
    """A row of buttons, the last one at the end."""
    row = QHBoxLayout()
    row.setSpacing(8)
    for button in first:
        row.addWidget(button)
    row.addStretch(1)
    row.addWidget(last)
    return row
