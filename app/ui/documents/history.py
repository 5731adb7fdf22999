"""Undo of attached and removed chips, in turn with the undo of the text field beside them."""

from __future__ import annotations

from collections.abc import Callable

from app.ui.documents.chips import Chips
from app.ui.widgets.message_field import MessageField
from app.ui.widgets.text_undo import UNDOABLE


class ChipHistory:
    """Changes of the chips that Undo in the text field takes back."""

    def __init__(self, editor: MessageField, chips: Chips) -> None:
        self._editor = editor
        editor.undo_pressed.connect(self.undo)
        chips.undo_requested.connect(self.undo)
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
        """Undo the last change of the chips, or what was typed since."""
        if not self._changes or self._editor.document().availableUndoSteps() > self._changes[-1][1]:
            self._editor.undo()
            return
        undo, _ = self._changes.pop()
        self._editor.setProperty(UNDOABLE, bool(self._changes))
        undo()
