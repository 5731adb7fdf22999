"""Find bar: the search field above the transcript, the number of matches, and the way to each."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QWidget

from app.system.translation import tr
from app.ui.transcript.find import Finder
from app.ui.widgets.controls import IconButton
from app.ui.widgets.find_row import FindRow

_LONGEST_SELECTION = 100  # characters of selected text that are taken as the query


class FindBar(FindRow):
    """Finds a query in the transcript; Esc closes it."""

    closed = Signal()

    def __init__(self, finder: Finder, parent: QWidget | None = None) -> None:
        super().__init__(tr("Find in this chat"), parent)
        self._finder = finder
        self.close_button = IconButton("close", tr("Close (Esc)"))
        self.row.setContentsMargins(0, 8, 0, 8)
        self.row.addWidget(self.close_button)
        self.field.textChanged.connect(self._search)
        self.close_button.clicked.connect(self.closed)
        finder.changed.connect(self._show_count)
        self.hide()

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
        self.announce()

    def _search(self, query: str) -> None:
        self._finder.search(query)

    def _show_count(self) -> None:
        finder = self._finder
        total, place = finder.total, finder.place
        self.show_count(finder.query.strip(), place, total, searching=finder.searching)
        self.count.setToolTip(
            tr("No exact match, so each word is found on its own.")
            if total and finder.separate_words
            else ""
        )
        if not finder.searching and not place:
            self.announce()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)
