"""A text that is read exactly, such as a command: plain, selectable, as high as its lines."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent, QTextOption
from PySide6.QtWidgets import QFrame

from app.ui.theme.theme import SMALL, code_font
from app.ui.widgets.plain_text import PlainTextField


class CodeText(PlainTextField):
    """Read-only; of more than `most` lines the others are scrolled to."""

    def __init__(self, name: str, most: int = 8) -> None:
        """`name` is what a screen reader says of it."""
        super().__init__()
        self._most = most
        self.setReadOnly(True)
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(code_font(SMALL))
        self.setWordWrapMode(QTextOption.WrapMode.WrapAnywhere)  # nothing is out of sight
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.setAccessibleName(name)
        self.set_code(True)

    def show_text(self, text: str) -> None:
        """Show a text; one that is the same stays where it was scrolled to."""
        if text != self.text():
            bar = self.verticalScrollBar()
            is_at_end = bar.value() == bar.maximum() and bar.maximum() > 0
            self.set_text(text)
            self._fit()
            if is_at_end:
                bar.setValue(bar.maximum())

    def _fit(self) -> None:
        lines = min(max(int(self.document().size().height()), 1), self._most)
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 4)

    def resizeEvent(self, e: QResizeEvent) -> None:
        super().resizeEvent(e)
        if e.oldSize().width() != e.size().width():
            self._fit()
