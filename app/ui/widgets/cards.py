"""Cards on pages: their frame, and lines of words that are hidden while they are empty."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QVBoxLayout, QWidget

from app.ui.theme.theme import SMALL
from app.ui.widgets.controls import label
from app.ui.widgets.wrap import WrapLayout


def wrapped(words: str, tone: str = "secondary", pixels: int = SMALL) -> QLabel:
    """A label of several lines, hidden while it is empty."""
    made = label(words, tone, pixels, wraps=True)
    made.setVisible(bool(words))
    return made


def show_words(line: QLabel, words: str) -> None:
    """Set the words of a label, and hide an empty one."""
    line.setText(words)
    line.setVisible(bool(words))


def framed(parent: QWidget) -> QVBoxLayout:
    """The layout of a card."""
    parent.setObjectName("news")
    parent.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
    layout = QVBoxLayout(parent)
    layout.setContentsMargins(12, 8, 12, 8)
    layout.setSpacing(4)
    return layout


def button_line(*buttons: QWidget) -> QWidget:
    """Buttons in a line, in several where there is no room."""
    line = QWidget()
    row = WrapLayout(line, 8, centred=False)
    for button in buttons:
        row.addWidget(button)
    return line
