"""The saved prompts, observable."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal

from app.domain.snippet import Snippet
from app.state.observable import Observable, ReadOnly


class SnippetState(Observable):
    """The saved prompts by name, and the one that was deleted last."""

    changed = Signal()

    snippets = ReadOnly[tuple[Snippet, ...]](())
    deleted = ReadOnly[Snippet | None](None)  # that can be restored

    def set(self, snippets: Sequence[Snippet], deleted: Snippet | None = None) -> None:
        """Set all of them; called by `app.chat.settings.snippets` only."""
        self._snippets = tuple(sorted(snippets, key=lambda each: (each.name.casefold(), each.id)))
        self._deleted = deleted
        self.changed.emit()
