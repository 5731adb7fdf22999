"""What is shown of saved reading: whether the shown conversation goes on at once, and what it takes.

`app.chat.snapshots` is the only one that changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from PySide6.QtCore import QObject, Signal

from app.state.read_only import ReadOnly


class ResumePhase(Enum):
    """Where bringing a conversation back stands."""

    RESTORING = "restoring"
    DONE = "done"  # as far as it went


@dataclass(frozen=True, slots=True)
class Resume:
    """What of a conversation the model need not read again; tokens and seconds as the engine says."""

    conversation: int
    phase: ResumePhase = ResumePhase.RESTORING
    restored_tokens: int = 0  # read from the disk now
    ready_tokens: int = 0  # that need not be read again, wherever they came from
    total_tokens: int = 0  # of the conversation
    seconds: float = 0.0  # that restoring took
    remaining_prefill_seconds: float = 0.0  # estimate for the next message; 0: unknown
    refused: str = ""  # one sentence: why what was saved could not be used

    @property
    def unread_tokens(self) -> int:
        """What the model reads again with the next message."""
        return max(0, self.total_tokens - self.ready_tokens)


@dataclass(frozen=True, slots=True)
class SavedReading:
    """What saved reading takes on the disk."""

    size_bytes: int = -1  # -1: not known yet
    deleting: bool = False
    error: str = ""  # why the last of it could not be saved or deleted
    remedy: str = ""


class SessionState(QObject):
    """Observable; every signal is sent after the values have changed."""

    resume_changed = Signal()
    saved_changed = Signal()

    resume = ReadOnly[Resume | None]()  # of the shown conversation; None: nothing to say
    saved = ReadOnly[SavedReading]()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._resume: Resume | None = None
        self._saved = SavedReading()

    # --- changing: app.chat.snapshots only ------------------------------------------------------------

    def set_resume(self, resume: Resume | None) -> None:
        """The shown conversation is being brought back, is there, or needs nothing."""
        if resume != self.resume:
            self._resume = resume
            self.resume_changed.emit()

    def set_saved(self, saved: SavedReading) -> None:
        """What saved reading takes now."""
        if saved != self.saved:
            self._saved = saved
            self.saved_changed.emit()
