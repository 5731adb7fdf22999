"""Row of a switch: its name and a line about it, with the switch at the end."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.controls import label
from app.ui.widgets.switch import Switch


class SwitchRow(QWidget):
    """A switch with its name and a line about it."""

    switched = Signal(bool)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.title = label(name, "", BODY, wraps=True)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.words = label("", "secondary", SMALL, wraps=True)
        self.switch = Switch()
        self.switch.clicked.connect(self.switched)
        texts = QVBoxLayout()
        texts.setSpacing(0)
        texts.addWidget(self.title)
        texts.addWidget(self.words)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 5, 0, 5)
        layout.addLayout(texts, 1)
        layout.addWidget(self.switch, 0, Qt.AlignmentFlag.AlignTop)

    def show_state(self, name: str, words: str, *, on: bool) -> None:
        """Show the name, the line, and whether it is on."""
        self.title.setText(name)
        self.words.setText(words)
        self.words.setVisible(bool(words))
        self.switch.setChecked(on)
        self.switch.setAccessibleName(name)
        self.switch.setAccessibleDescription(words)
