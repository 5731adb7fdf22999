"""List above the message field that offers what a typed text names; a key opens it.

The focus stays in the field, where typing filters the list. It is open only after its key was typed,
and only while something matches: a pasted text is text like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QListWidget, QListWidgetItem, QVBoxLayout, QWidget

from app.system.translation import isolated
from app.ui.chat.composer.composer import Composer
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import BODY, RADIUS_CARD, font
from app.ui.widgets import accessibility

_MOST_ROWS = 7  # shown at once; more scroll
_ROW_HEIGHT = 32
_TIP = 1000  # characters


@dataclass(frozen=True, slots=True)
class Offer:
    """One row: its words, what choosing it does, a longer text about it, and an icon."""

    words: str
    use: Callable[[], object]
    tip: str = ""
    icon: str = ""


class OfferList(QFrame):
    """Shows what matches; Up and Down choose, Enter and Tab use the choice, Escape closes.

    A kind of it says what is offered in `_query` and `_offers`.
    """

    def __init__(self, composer: Composer, parent: QWidget, name: str) -> None:
        """`name` is the accessible name of the list."""
        super().__init__(parent)
        self.setObjectName("offers")
        self._composer = composer
        self._offered: Sequence[Offer] = ()  # the rows
        self._is_wanted = False  # its key was typed, and neither Escape nor another text ended it
        self.list = QListWidget()
        self.list.setAccessibleName(name)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setFont(font(BODY))
        self.list.setIconSize(QSize(18, 18))
        self.list.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setUniformItemSizes(True)
        self.list.itemClicked.connect(self._use)
        self.rows = QVBoxLayout(self)
        self.rows.setContentsMargins(8, 8, 8, 8)
        self.rows.setSpacing(4)
        self.rows.addWidget(self.list)
        self.hide()
        editor = composer.editor
        # Not `textChanged`, which is blocked where the composer is emptied.
        editor.document().contentsChanged.connect(self.follow)
        editor.focused.connect(self._on_focus)
        editor.installEventFilter(self)
        composer.installEventFilter(self)
        follow_palette(self._recolor)

    def _query(self) -> str | None:
        """What is looked for; None: what is in the field looks for nothing."""
        raise NotImplementedError

    def _offers(self, query: str) -> Sequence[Offer]:
        """The rows for a query."""
        raise NotImplementedError

    def _has_rest(self, query: str) -> bool:
        """Whether it is shown with no row for this query."""
        return False

    def _recolor(self, palette: Palette) -> None:
        line = 2 if palette.hairline == palette.text else 1
        self.setStyleSheet(
            f"QFrame#offers {{ background: {palette.surface}; border: {line}px solid"
            f" {palette.hairline}; border-radius: {RADIUS_CARD}px; }}"
            f"QListWidget {{ background: transparent; border: none; color: {palette.text}; }}"
            f"QListWidget::item {{ height: {_ROW_HEIGHT}px; padding: 0 8px; border-radius: 6px; }}"
            f"QListWidget::item:selected {{ background: {palette.accent_soft};"
            f" color: {palette.text}; }}"
        )

    def open_list(self) -> None:
        """Show the list, for its key was typed."""
        self._is_wanted = True
        self.follow()

    def close_list(self) -> None:
        """Hide the list until its key is typed again."""
        self._is_wanted = False
        self.hide()

    def follow(self) -> None:
        """Show what matches now."""
        query = self._query() if self._is_wanted else None
        if query is None:
            self.close_list()
            return
        self._offered = offered = self._offers(query)
        self.list.clear()
        for each in offered:
            item = QListWidgetItem(isolated(each.words))
            item.setToolTip(each.tip[:_TIP])
            if each.icon:
                item.setIcon(icons.icon(each.icon, shown_palette().secondary, 18))
            self.list.addItem(item)
        self.list.setVisible(bool(offered))
        if offered or self._has_rest(query):
            self._place()
            self.show()
            self.raise_()
        else:
            self.hide()  # "/usr/bin": shown again when something matches
        if offered:
            self._choose(0)  # announced only in a shown list

    def _place(self) -> None:
        """Above the message field, and as wide."""
        composer, parent = self._composer, self.parentWidget()
        if parent is None:
            return
        rows = min(self.list.count(), _MOST_ROWS)
        self.list.setFixedHeight(rows * _ROW_HEIGHT + 2)
        top = composer.mapTo(parent, QPoint(0, 0))
        height = self.sizeHint().height()
        self.setGeometry(top.x(), max(top.y() - height - 6, 0), composer.width(), height)

    def _choose(self, row: int) -> None:
        self.list.setCurrentRow(row)
        if self.isVisible():
            accessibility.announce(self._composer.editor, self.list.item(row).text())

    def _use(self, item: QListWidgetItem) -> None:
        offer = self._offered[self.list.row(item)]
        self.close_list()
        offer.use()

    def _on_focus(self, focused: bool) -> None:
        # The field keeps the focus of a window that is not in front.
        if not focused and self.window().focusWidget() is not self._composer.editor:
            self.close_list()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._composer and event.type() in (QEvent.Type.Resize, QEvent.Type.Move):
            if self.isVisible():
                self._place()
        elif self.isVisible() and event.type() == QEvent.Type.KeyPress:
            return isinstance(event, QKeyEvent) and self._takes(event)
        return super().eventFilter(watched, event)

    def _takes(self, event: QKeyEvent) -> bool:
        """Whether a key in the field is for the list; all others type."""
        if self._composer.editor.composing:
            return False
        count, row = self.list.count(), self.list.currentRow()
        match event.key():
            case Qt.Key.Key_Escape:
                self.close_list()
                return True
            case Qt.Key.Key_Down | Qt.Key.Key_Up if count:
                step = 1 if event.key() == Qt.Key.Key_Down else -1
                self._choose((row + step) % count)
                return True
            case Qt.Key.Key_Return | Qt.Key.Key_Enter | Qt.Key.Key_Tab if count:
                if event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
                    return False
                self._use(self.list.item(row))
                return True
            case _:
                return False
