"""Pages of a document beside its text: a list to go to one and, before sending, to choose some."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRectF, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QPainter, QPen
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.domain.document_words import page_words
from app.domain.documents import PageUnit
from app.domain.page_ranges import read_ranges, write_ranges
from app.system.translation import tr
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, label

_ROW = 28  # pixels
_CHECKED, _UNCHECKED = Qt.CheckState.Checked, Qt.CheckState.Unchecked


class _List(QListWidget):
    """Space switches the page of the keyboard, and Enter goes to it."""

    entered = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.entered.emit()
        else:
            super().keyPressEvent(event)


class _Boxes(QStyledItemDelegate):
    """Paints the check boxes in the colours of the window."""

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        super().paint(painter, option, index)
        state = index.data(Qt.ItemDataRole.CheckStateRole)
        if state is None:
            return
        self.initStyleOption(option, index)
        view = self.parent()
        assert isinstance(view, QWidget)
        element = QStyle.SubElement.SE_ItemViewItemCheckIndicator
        box = QRectF(view.style().subElementRect(element, option, view)).adjusted(1, 1, -1, -1)
        is_checked, palette = Qt.CheckState(state) is _CHECKED, shown_palette()
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(palette.accent if is_checked else palette.secondary), 1.25))
        painter.setBrush(QColor(palette.accent if is_checked else palette.surface))
        painter.drawRoundedRect(box, 4, 4)
        if is_checked:
            size = round(box.width())
            tick = icons.pixmap(
                "check", palette.on_accent, size, painter.device().devicePixelRatio()
            )
            painter.drawPixmap(box.topLeft(), tick)
        painter.restore()


class PageList(QWidget):
    """The pages; with `choosing` each has a check box, and a field takes ranges of them."""

    chosen = Signal(object)  # indexes of the pages, at least one
    opened = Signal(int)  # index of the page to be shown

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._labels: Sequence[str] = ()
        self._choosing = False
        self.ranges = QLineEdit()
        self.ranges.setPlaceholderText(tr("1-3, 7"))
        self.ranges.setAccessibleName(tr("Pages that the model reads, such as 1-3, 7"))
        self.ranges.textEdited.connect(self._on_ranges)
        self.ranges.editingFinished.connect(self._tidy)
        self.note = label("", "danger", SMALL, wraps=True)
        self.all_button = TextButton(tr("All"), "link")
        self.all_button.setAccessibleName(tr("Choose all pages"))
        self.all_button.clicked.connect(lambda: self._choose(range(len(self._labels))))
        self.list = _List()
        self.list.setObjectName("pages")
        self.list.setFrameShape(QFrame.Shape.NoFrame)
        self.list.setFont(font(BODY))
        self.list.setUniformItemSizes(True)
        self.list.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setAccessibleName(tr("Pages"))
        self.list.setTabKeyNavigation(False)
        self.list.setItemDelegate(_Boxes(self.list))
        self.list.itemChanged.connect(self._on_checked)
        self.list.currentRowChanged.connect(self._on_row)
        self.list.itemClicked.connect(self._on_clicked)
        self.list.entered.connect(lambda: self._on_row(self.list.currentRow()))
        self._top = QWidget()
        top = QHBoxLayout(self._top)
        top.setContentsMargins(0, 0, 0, 0)
        top.setSpacing(4)
        top.addWidget(self.ranges, 1)
        top.addWidget(self.all_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        layout.addWidget(self._top)
        layout.addWidget(self.note)
        layout.addWidget(self.list, 1)
        self.note.hide()
        follow_palette(self._recolor)

    def show_pages(self, unit: PageUnit, labels: Sequence[str], *, choosing: bool) -> None:
        """Show the pages of another document."""
        self._labels, self._choosing = labels, choosing
        self._top.setVisible(choosing)
        self.note.hide()
        with QSignalBlocker(self.list):
            self.list.clear()
            for each in labels:
                words = page_words(unit, each)
                item = QListWidgetItem(words[:1].upper() + words[1:])
                item.setToolTip(each if len(each) > 20 else "")
                if choosing:
                    item.setFlags(item.flags() | Qt.ItemFlag.ItemIsUserCheckable)
                self.list.addItem(item)

    def show_chosen(self, chosen: Sequence[int]) -> None:
        """Show which pages the model reads."""
        read = frozenset(chosen)
        with QSignalBlocker(self.list):
            for row in range(self.list.count() if self._choosing else 0):
                self.list.item(row).setCheckState(_CHECKED if row in read else _UNCHECKED)
        if not self.ranges.hasFocus():
            self.ranges.setText(write_ranges(chosen, self._labels))

    def show_page(self, page: int) -> None:
        """Mark the page whose text is shown."""
        if 0 <= page < self.list.count():
            with QSignalBlocker(self.list):
                self.list.setCurrentRow(page)

    def _recolor(self, palette: Palette) -> None:
        self.list.setStyleSheet(
            f"QListWidget {{ background: transparent; color: {palette.text}; }}"
            f"QListWidget::item {{ height: {_ROW}px; padding: 0 6px; border-radius: 6px;"
            " border: 2px solid transparent; }"
            f"QListWidget::item:selected {{ background: {palette.accent_soft};"
            f" color: {palette.text}; }}"
            f"QListWidget:focus::item:selected {{ border-color: {palette.accent}; }}"
            "QListWidget::indicator { width: 16px; height: 16px; border: none; image: none;"
            " background: transparent; }"
        )

    def _checked(self) -> tuple[int, ...]:
        rows = range(self.list.count())
        return tuple(row for row in rows if self.list.item(row).checkState() is _CHECKED)

    def _on_checked(self, item: QListWidgetItem) -> None:
        chosen = self._checked()
        if not chosen:
            with QSignalBlocker(self.list):
                item.setCheckState(_CHECKED)
            self.say(tr("The model reads at least one page. Remove the file to read none."))
            return
        self._choose(chosen)

    def _choose(self, chosen: Sequence[int]) -> None:
        self.say("")
        self.ranges.setText(write_ranges(chosen, self._labels))
        self.show_chosen(chosen)
        self.chosen.emit(tuple(chosen))

    def _on_ranges(self, text: str) -> None:
        chosen = read_ranges(text, self._labels)
        if chosen:
            self.say("")
            self.show_chosen(chosen)
            self.chosen.emit(chosen)
            self.show_page(chosen[0])
            self.opened.emit(chosen[0])
        else:
            wrong = tr("There is no such page.") if chosen is None else tr("Choose a page.")
            self.say(wrong)

    def _tidy(self) -> None:
        """Show the pages that are chosen in place of what was typed."""
        self.say("")
        self.ranges.setText(write_ranges(self._checked(), self._labels))

    def _on_clicked(self, item: QListWidgetItem) -> None:
        self.opened.emit(self.list.row(item))

    def _on_row(self, row: int) -> None:
        if row >= 0:
            self.opened.emit(row)

    def say(self, words: str) -> None:
        """Say what is wrong with the choice; "": nothing."""
        if words and words != self.note.text():
            accessibility.announce(self.ranges, words)
        self.note.setText(words)
        self.note.setVisible(bool(words))
