"""Long pasted text in the composer: one row with its size instead of hundreds of lines."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QWidget

from app.domain.parts import FilePart, ImagePart
from app.system.translation import tr
from app.ui.theme.palette import Palette
from app.ui.theme.theme import SMALL
from app.ui.transcript.sections import MANY_LINES, attachment_words
from app.ui.widgets.controls import IconButton, TextButton, label, set_margins
from app.ui.widgets.text_undo import UNDOABLE

LONG_CHARACTERS, LONG_LINES = 2_000, MANY_LINES  # longer pasted text is folded


class PastedText(QFrame):
    """A row that stands for an attachment, such as a long pasted text: its size, Show and Remove."""

    shown = Signal()  # Show was clicked: the text goes into the editor
    removed = Signal()

    def __init__(self, part: FilePart | ImagePart, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("pasted")
        self.part = part
        self.text = text = part.text if isinstance(part, FilePart) else ""
        self.words = label(attachment_words(part), "secondary", SMALL)
        self.words.setToolTip(text[:400] + ("…" if len(text) > 400 else ""))
        self.show_button = TextButton(tr("Show"), "link")
        self.show_button.setAccessibleName(tr("Show the pasted text"))
        self.remove_button = IconButton("close", tr("Remove the pasted text"), 16)
        row = QHBoxLayout(self)
        set_margins(row, 12, 2, 4, 2)
        row.setSpacing(8)
        row.addWidget(self.words)
        row.addStretch(1)
        row.addWidget(self.show_button)
        row.addWidget(self.remove_button)
        self.show_button.setVisible(isinstance(part, FilePart))
        self.show_button.clicked.connect(self.shown)
        self.remove_button.clicked.connect(self.removed)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self.remove_button.apply_palette(palette)


class PasteHistory:
    """Undo of pasted rows, in turn with the undo of the text field beside them."""

    def __init__(self, editor: QPlainTextEdit) -> None:
        self._editor = editor
        # How to take each change back, and the undo steps of the field at that time.
        self._changes: list[tuple[Callable[[], None], int]] = []

    def add(self, undo: Callable[[], None]) -> None:
        """Remember how to undo a change that was just made."""
        document = self._editor.document()
        document.setModified(False)  # what is typed next is an undo step apart from the last one
        self._changes.append((undo, document.availableUndoSteps()))
        self._editor.setProperty(UNDOABLE, True)

    def clear(self) -> None:
        """Forget all changes."""
        self._changes.clear()
        self._editor.setProperty(UNDOABLE, False)

    def undo(self) -> None:
        """Undo the last change of the rows, or what was typed since."""
        if not self._changes or self._editor.document().availableUndoSteps() > self._changes[-1][1]:
            self._editor.undo()
            return
        undo, _ = self._changes.pop()
        self._editor.setProperty(UNDOABLE, bool(self._changes))
        undo()


def is_long(text: str) -> bool:
    """Whether a pasted text is folded into a row."""
    return len(text) > LONG_CHARACTERS or text.count("\n") >= LONG_LINES
