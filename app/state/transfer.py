"""Observable state of an import or export: what a file contains, and how far the work is.

Only `app.chat.transfer` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from PySide6.QtCore import Signal

from app.domain.transfer import ImportPreview, Progress
from app.state.observable import Observable, ReadOnly


class TransferState(Observable):
    """Observable; the signal is sent after the values have changed."""

    changed = Signal()

    preview = ReadOnly[ImportPreview | None](None)  # the user is asked about it
    progress = ReadOnly[Progress | None](None)  # None: nothing is being done

    # --- changing: app.chat.transfer only -------------------------------------------------------

    def show(self, preview: ImportPreview | None, progress: Progress | None) -> None:
        """Set both."""
        self._set(self.changed, preview=preview, progress=progress)
