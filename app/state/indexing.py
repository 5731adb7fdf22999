"""Observable state of the document index: how many documents and passages are still to be done.

Only `app.chat.documents.indexing` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Signal

from app.state.observable import Observable, ReadOnly


@dataclass(frozen=True, slots=True)
class IndexingView:
    """What is being indexed; counts begin anew when all is done."""

    documents: int = 0
    documents_done: int = 0
    fraction: float = 0.0  # of the document in progress
    passages: int = 0  # that get vectors of the embedding model
    passages_done: int = 0
    paused: bool = False  # an answer is being written

    @property
    def is_working(self) -> bool:
        """Whether documents are being indexed, or passages get vectors."""
        return self.documents_done < self.documents or self.passages_done < self.passages


class IndexingState(Observable):
    """Observable; the signal is sent after the value has changed."""

    changed = Signal()

    view = ReadOnly(IndexingView())

    def set_view(self, view: IndexingView) -> None:
        """Set what is shown; called by `app.chat.documents.indexing` only."""
        self._set(self.changed, view=view)
