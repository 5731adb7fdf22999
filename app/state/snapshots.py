"""Observable state of snapshots: the restored context of the shown chat, and disk space used.

Only `app.chat.models.snapshots` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from PySide6.QtCore import Signal

from app.state.observable import Observable, ReadOnly
from engine import OTHER_FAULT, Fault


class ResumePhase(Enum):
    """Phase of loading a conversation's snapshot."""

    RESTORING = "restoring"
    DONE = "done"  # perhaps only a prefix of it was usable


@dataclass(frozen=True, slots=True)
class Resume:
    """Cached context of a conversation after its snapshot was loaded, as the engine reports it."""

    conversation: int
    phase: ResumePhase = ResumePhase.RESTORING
    restored_tokens: int = 0  # loaded from the disk
    ready_tokens: int = 0  # cached, from the disk or already in memory
    total_tokens: int = 0  # of the conversation
    seconds: float = 0.0  # duration of the load
    remaining_prefill_seconds: float = 0.0  # estimate for the next message; 0: unknown
    refused: str = ""  # one sentence with all details: why the snapshot could not be used
    fault: Fault = OTHER_FAULT  # `refused` as a code
    full: bool = False  # it fills the context, and its policy is to stop

    @property
    def unread_tokens(self) -> int:
        """Tokens to prefill with the next message."""
        return max(0, self.total_tokens - self.ready_tokens)


@dataclass(frozen=True, slots=True)
class SavedSnapshots:
    """Disk space of all snapshots."""

    size_bytes: int = -1  # -1: not known yet
    deleting: bool = False
    error: str = ""  # why the last one could not be saved or deleted
    remedy: str = ""


class SessionState(Observable):
    """Observable; every signal is sent after the values have changed."""

    resume_changed = Signal()
    saved_changed = Signal()

    resume = ReadOnly[Resume | None](None)  # of the shown conversation; None: nothing to show
    saved = ReadOnly(SavedSnapshots())

    # --- changing: app.chat.models.snapshots only ------------------------------------------------------

    def set_resume(self, resume: Resume | None) -> None:
        """Set the restore status of the shown conversation; None hides it."""
        self._set(self.resume_changed, resume=resume)

    def set_saved(self, saved: SavedSnapshots) -> None:
        """Set the disk space of all snapshots."""
        self._set(self.saved_changed, saved=saved)
