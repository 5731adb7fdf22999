"""The saved prompts, observable."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QObject, Signal

from app.domain.snippet import Snippet
from app.state.read_only import ReadOnly


class SnippetState(QObject):
    """The saved prompts by name, and the one that was deleted last."""

    changed = Signal()

    snippets = ReadOnly[tuple[Snippet, ...]]()
    deleted = ReadOnly[Snippet | None]()  # that can be restored

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._snippets = tuple[Snippet, ...]()
        self._deleted: Snippet | None = None

    def set(self, snippets: Sequence[Snippet], deleted: Snippet | None = None) -> None:
        """Set all of them; called by `app.chat.snippets` only."""
        self._snippets = tuple(sorted(snippets, key=lambda each: (each.name.casefold(), each.id)))
        self._deleted = deleted
        self.changed.emit()
