"""Observable state of the embedding model: which one turns texts into vectors, or which can be got.

Only `app.chat.documents.encoder` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import Signal

from app.downloads.queue import Download
from app.state.library import Offer
from app.state.observable import Observable, ReadOnly
from engine import EmbedderFacts


@dataclass(frozen=True, slots=True)
class EncoderView:
    """What the window shows of the embedding model."""

    model: EmbedderFacts | None = None  # that is used; None: there is none
    installed: tuple[EmbedderFacts, ...] = ()  # all that could be used, the preferred one first
    searched: bool = False  # whether the installed files were looked at
    offer: Offer | None = None  # that one click gets; None: it is not needed, or not known yet
    download: Download | None = None  # of the offer, in progress or failed
    loaded: bool = False
    waiting: int = 0  # texts whose vectors are asked for
    problem: str = ""  # why texts get no vectors, in one sentence; "": they do
    remedy: str = ""

    @property
    def progress(self) -> float:
        """Part of the offer that is downloaded, from 0 to 1."""
        found = self.download
        return found.done_bytes / found.size_bytes if found and found.size_bytes else 0.0


class EncoderState(Observable):
    """Observable; the signal is sent after the value has changed."""

    changed = Signal()

    view = ReadOnly(EncoderView())

    def set_view(self, view: EncoderView) -> None:
        """Set what is shown: app.chat.documents.encoder only."""
        self._set(self.changed, view=view)
