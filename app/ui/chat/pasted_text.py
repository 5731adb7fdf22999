"""Long pasted text in the composer: one row with its size instead of hundreds of lines."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QWidget

from app.system.translation import tr, trn
from app.ui.theme.palette import Palette
from app.ui.theme.theme import SMALL
from app.ui.widgets.controls import IconButton, TextButton, label

LONG_CHARACTERS, LONG_LINES = 2_000, 30  # longer pasted text is folded
_TYPED_CHARACTERS = 500  # at most so much below a blank line counts as typed after a paste


class PastedText(QFrame):
    """A row that stands for a pasted text: its size, Show and Remove."""

    shown = Signal()  # Show was clicked: the text goes into the editor
    removed = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("pasted")
        self.text = text
        self.words = label(_size(text), "secondary", SMALL)
        self.words.setToolTip(text[:400] + ("…" if len(text) > 400 else ""))
        self.show_button = TextButton(tr("Show"), "link")
        self.show_button.setAccessibleName(tr("Show the pasted text"))
        self.remove_button = IconButton("close", tr("Remove the pasted text"), 16)
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 2, 4, 2)
        row.setSpacing(8)
        row.addWidget(self.words)
        row.addStretch(1)
        row.addWidget(self.show_button)
        row.addWidget(self.remove_button)
        self.show_button.clicked.connect(self.shown)
        self.remove_button.clicked.connect(self.removed)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self.remove_button.apply_palette(palette)


def is_long(text: str) -> bool:
    """Whether a pasted text is folded into a row."""
    return len(text) > LONG_CHARACTERS or text.count("\n") >= LONG_LINES


def split(text: str) -> tuple[str, str]:
    """A stored draft as pasted text, empty if it is not long, and text typed after it."""
    if not is_long(text):
        return "", text
    pasted, blank, typed = text.rpartition("\n\n")
    if blank and len(typed) <= _TYPED_CHARACTERS and is_long(pasted) and not is_long(typed):
        return pasted, typed
    return text, ""


def _size(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")[:60]
    lines = text.strip("\n").count("\n") + 1
    size = (
        trn("{count} line", "{count} lines", lines)
        if lines >= LONG_LINES
        else tr("{count} characters", count=f"{len(text):,}")
    )
    return tr("Pasted text, {size}: {first}…", size=size, first=first)
