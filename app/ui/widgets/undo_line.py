"""Line that says what was deleted last, with Undo."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QWidget

from app.system.translation import tr
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, fade_in, label, set_margins


class UndoLine(QFrame):
    """Hidden while there is nothing to undo."""

    undone = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("undo")
        self.words = label("", wraps=True)
        self.button = TextButton(tr("Undo"), "link")
        self.button.clicked.connect(self.undone)
        layout = QHBoxLayout(self)
        set_margins(layout, 12, 6, 6, 6)
        layout.addWidget(self.words, 1)
        layout.addWidget(self.button)
        self.hide()

    def show_words(self, words: str) -> None:
        """Show what Undo would undo; "" hides the line."""
        if words and (words != self.words.text() or self.isHidden()):
            self.words.setText(words)
            accessibility.announce(self, words)
        if bool(words) == self.isHidden():
            self.setVisible(bool(words))
            if words:
                fade_in(self)
