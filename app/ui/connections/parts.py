"""Parts of the page of connections: a copy button, and a value with buttons."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtGui import QFont, QGuiApplication
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.system.translation import isolated, tr
from app.ui.theme.theme import BODY, code_font, font
from app.ui.widgets import accessibility
from app.ui.widgets.cards import wrapped
from app.ui.widgets.controls import TextButton, label, make_selectable
from app.ui.widgets.wrap import WrapLayout

_COPIED_MILLISECONDS = 2000


class CopyButton(TextButton):
    """Copies a text to the clipboard, and says so for a moment."""

    def __init__(self, name: str) -> None:
        """`name` is what a screen reader says of the button."""
        super().__init__(tr("Copy"), "outlined")
        self.text_to_copy = ""
        self.setAccessibleName(name)
        self._timer = QTimer(self, singleShot=True, interval=_COPIED_MILLISECONDS)
        self._timer.timeout.connect(lambda: self.setText(tr("Copy")))
        self.clicked.connect(self._copy)

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.text_to_copy)
        self.setText(tr("Copied"))
        accessibility.announce(self, tr("Copied"))
        self._timer.start()


class ValueRow(QWidget):
    """A name, a line about it, a value that can be selected, and buttons for it."""

    def __init__(self, name: str, *buttons: QWidget) -> None:
        super().__init__()
        self.title = label(name, "", BODY)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.words = wrapped("")
        self.words.hide()
        self.value = label("", "", BODY, wraps=True)
        self.value.setFont(code_font(BODY))
        make_selectable(self.value)
        texts = QVBoxLayout(self)
        texts.setContentsMargins(0, 6, 0, 6)
        texts.setSpacing(2)
        for part in (self.title, self.words, self.value):
            texts.addWidget(part)
        line = QWidget()
        row = WrapLayout(line, 8, centred=False)
        for button in buttons:
            row.addWidget(button)
        texts.addWidget(line)
        line.setVisible(bool(buttons))

    def show_value(self, value: str, words: str = "") -> None:
        """Show a value, and a line about it."""
        self.value.setText(isolated(value))
        self.value.setVisible(bool(value))
        self.words.setText(words)
        self.words.setVisible(bool(words))
