"""Find bar: the search field above the transcript, the number of matches, and the way to each."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app.system.translation import tr
from app.ui.theme import icons
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import SMALL
from app.ui.transcript.find import Finder
from app.ui.widgets import accessibility
from app.ui.widgets.controls import IconButton, label

_LONGEST_SELECTION = 100  # characters of selected text that are taken as the query


class FindBar(QWidget):
    """Row with a search field; Enter and Shift+Enter step through the matches, Esc closes it."""

    closed = Signal()

    def __init__(self, finder: Finder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._finder = finder
        self.field = QLineEdit(placeholderText=tr("Find in this chat"))
        self.field.setAccessibleName(tr("Find in this chat"))
        self._icon = self.field.addAction(
            icons.icon("search", LIGHT.secondary, 16), QLineEdit.ActionPosition.LeadingPosition
        )
        self._icon.setText(tr("Find"))  # the accessible name of its button
        self.count = label("", "secondary", SMALL)
        self.previous_button = IconButton("chevron_up", tr("Previous match (Shift+Enter)"))
        self.next_button = IconButton("chevron_down", tr("Next match (Enter)"))
        self.close_button = IconButton("close", tr("Close (Esc)"))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 8, 0, 8)
        row.setSpacing(4)
        row.addWidget(self.field, 1)
        row.addSpacing(8)
        row.addWidget(self.count)
        row.addSpacing(4)
        row.addWidget(self.previous_button)
        row.addWidget(self.next_button)
        row.addWidget(self.close_button)
        self.field.textChanged.connect(self._search)
        self.previous_button.clicked.connect(lambda: self.step(forward=False))
        self.next_button.clicked.connect(lambda: self.step(forward=True))
        self.close_button.clicked.connect(self.closed)
        finder.changed.connect(self._show_count)
        self.hide()

    def apply_palette(self, palette: Palette) -> None:
        """Recolour the icons."""
        self._icon.setIcon(icons.icon("search", palette.secondary, 16))
        for button in (self.previous_button, self.next_button, self.close_button):
            button.apply_palette(palette)

    def open(self, selected: str = "") -> None:
        """Show the bar and take the focus; a selected text becomes the query."""
        selected = selected.strip()
        usable = 0 < len(selected) <= _LONGEST_SELECTION and "\n" not in selected
        self.show()
        self.field.setFocus(Qt.FocusReason.ShortcutFocusReason)
        if usable and selected != self.field.text():
            self.field.setText(selected)
        elif self.field.text() != self._finder.query:
            self._finder.search(self.field.text())
        self.field.selectAll()

    def show_found(self, query: str, message: int) -> None:
        """Show the bar with the matches of a query, the first in one message; keeps the focus."""
        with QSignalBlocker(self.field):
            self.field.setText(query)
        self.show()
        self._finder.search(query, message)

    def step(self, *, forward: bool) -> None:
        """Go to the next or previous match."""
        self._finder.step(forward=forward)
        self._announce()

    def _search(self, query: str) -> None:
        self._finder.search(query)

    def _show_count(self) -> None:
        finder = self._finder
        total = finder.total
        if not finder.query.strip():
            words = ""
        elif not total:
            words = tr("Searching…") if finder.searching else tr("Not found")
        elif finder.searching:
            words = tr("{place} of {total}…", place=finder.place, total=total)
        else:
            words = tr("{place} of {total}", place=finder.place, total=total)
        self.count.setText(words)
        self.count.setToolTip(
            tr("No exact match, so each word is found on its own.")
            if total and finder.separate_words
            else ""
        )
        self.previous_button.setEnabled(total > 0)
        self.next_button.setEnabled(total > 0)
        if words and not finder.searching and not finder.place:
            self._announce()

    def _announce(self) -> None:
        accessibility.announce(self, self.count.text())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.step(forward=not event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up) and self.field.hasFocus():
            self.step(forward=event.key() == Qt.Key.Key_Down)
        else:
            super().keyPressEvent(event)
