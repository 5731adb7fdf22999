"""Row with a search field, the number of matches, and buttons that step through them."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QIcon, QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QWidget

from app.system.translation import tr
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import SMALL
from app.ui.widgets import accessibility
from app.ui.widgets.controls import IconButton, label


class FindRow(QWidget):
    """Enter and Shift+Enter step through the matches; a kind of it says what a step is."""

    def __init__(self, words: str, parent: QWidget | None = None) -> None:
        """`words` say what is searched."""
        super().__init__(parent)
        self.field = QLineEdit(placeholderText=words)
        self.field.setAccessibleName(words)
        self._icon = self.field.addAction(QIcon(), QLineEdit.ActionPosition.LeadingPosition)
        self._icon.setText(tr("Find"))  # the accessible name of its button
        self.count = label("", "secondary", SMALL)
        self.previous_button = IconButton("chevron_up", tr("Previous match (Shift+Enter)"))
        self.next_button = IconButton("chevron_down", tr("Next match (Enter)"))
        self.row = QHBoxLayout(self)
        self.row.setContentsMargins(0, 0, 0, 0)
        self.row.setSpacing(4)
        self.row.addWidget(self.field, 1)
        self.row.addSpacing(8)
        self.row.addWidget(self.count)
        self.row.addSpacing(4)
        self.row.addWidget(self.previous_button)
        self.row.addWidget(self.next_button)
        self.previous_button.clicked.connect(lambda: self.step(forward=False))
        self.next_button.clicked.connect(lambda: self.step(forward=True))
        follow_palette(self._recolor)

    def step(self, *, forward: bool) -> None:
        """Go to the next or previous match."""
        raise NotImplementedError

    def _recolor(self, palette: Palette) -> None:
        self._icon.setIcon(icons.icon("search", palette.secondary, 16))

    def show_count(self, query: str, place: int, total: int, *, searching: bool) -> bool:
        """Show how many matches there are, and at which the user is; whether the words are others."""
        if not query:
            words = ""
        elif not total:
            words = tr("Searching…") if searching else tr("Not found")
        elif searching:
            words = tr("{place} of {total}…", place=place, total=total)
        else:
            words = tr("{place} of {total}", place=place, total=total)
        self.previous_button.setEnabled(total > 0)
        self.next_button.setEnabled(total > 0)
        is_other = words != self.count.text()
        self.count.setText(words)
        return is_other

    def announce(self) -> None:
        """Let a screen reader say the count, if there is one."""
        if self.count.text():
            accessibility.announce(self, self.count.text())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.step(forward=not event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        elif event.key() in (Qt.Key.Key_Down, Qt.Key.Key_Up) and self.field.hasFocus():
            self.step(forward=event.key() == Qt.Key.Key_Down)
        else:
            super().keyPressEvent(event)
