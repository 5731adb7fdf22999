"""Offer of a more capable model on the empty page: one click downloads, verifies and loads it.

It is made while the starter is the only model, or there is none. The choice depends on the memory
of this computer and on the catalog only: nothing is sent before the user accepts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.downloads.queue import Download, Phase
from app.settings.table import Settings
from app.state.chat import ModelPhase, Notice, State
from app.state.library import BetterModel, CatalogRow, FileState, LibraryState, Offer
from engine import starter_path

NOTICE = "better model"  # kind of the notice when the download cannot begin
_MEMORY_SHARE = 0.25  # of the available memory: other programs keep theirs, and answers are fast


class BetterModelOffer(QObject):
    """Keeps `LibraryState.better` up to date."""

    use_requested = Signal(Path)  # the accepted model is here and verified

    def __init__(
        self,
        state: State,
        library: LibraryState,
        settings: Callable[[], Settings],
        *,
        predict: Callable[[], None],
        download: Callable[[Offer], None],
        cancel: Callable[[int], None],
        parent: QObject | None = None,
    ) -> None:
        """`predict` predicts the memory of the catalog's models, in the background."""
        super().__init__(parent)
        self._state, self._library, self._settings = state, library, settings
        self._predict, self._download, self._cancel = predict, download, cancel
        self._predicting = False
        self._accepted: Offer | None = None
        for changed in (
            state.model_changed,
            library.catalog_changed,
            library.installed_changed,
            library.downloads_changed,
        ):
            changed.connect(self.refresh)

    def accept(self) -> None:
        """Download the offered model, or resume its download; it is loaded when it is here."""
        shown = self._library.better
        if shown is None:
            return
        self._accepted = shown.offer
        self._state.set_notice(NOTICE, None)
        self._download(shown.offer)
        self.refresh()
        line = self._library.line
        if self._progress(shown.offer) is None and line is not None and line.trouble:
            self._accepted = None
            self._state.set_notice(NOTICE, Notice(line.sentence, line.remedy))

    def cancel(self) -> None:
        """Cancel the download, and offer the model again."""
        shown = self._library.better
        self._accepted = None
        if shown is not None and shown.download is not None:
            self._cancel(shown.download.id)
        self.refresh()

    def refresh(self) -> None:
        """Make, update or withdraw the offer."""
        accepted = self._accepted
        if accepted is not None:
            progress = self._progress(accepted)
            if progress is not None and progress.phase is Phase.DONE:
                self._accepted = None
                self._library.set_better(None)
                self.use_requested.emit(progress.path)
                return
            self._library.set_better(BetterModel(accepted, progress))
            return
        offer = self._choice()
        self._library.set_better(BetterModel(offer, self._progress(offer)) if offer else None)

    def _choice(self) -> Offer | None:
        model, library = self._state.model, self._library
        if not self._settings().offer_better_model or not library.searched:
            return None
        if model.phase is ModelPhase.LOADING:
            return None
        starter = starter_path()
        usable = [row for row in library.installed if row.state is not FileState.MISSING]
        if any(row.path != starter for row in usable):
            return None
        if model.loaded is not None and model.loaded.path != starter:
            return None
        if library.catalog and not self._predicting:
            self._predicting = True
            self._predict()
        return choose(library.catalog)

    def _progress(self, offer: Offer) -> Download | None:
        """The download of this offer; None before it begins and once it is cancelled."""
        for each in reversed(self._library.downloads):
            if each.is_of(offer.source):
                return None if each.phase is Phase.CANCELLED else each
        return None


def choose(rows: Sequence[CatalogRow]) -> Offer | None:
    """The largest model that takes a quarter of the available memory at most.

    The smallest file wins among models of one size. None while no memory is predicted. Where
    nothing is that small, the model that takes the least memory, if it fits at all.
    """
    known = [
        (row, row.offer.memory)
        for row in rows
        if row.offer.memory and not row.offer.problem and row.model.sha256 and not row.offer.here
    ]
    if not known:
        return None
    small = [
        row
        for row, memory in known
        if memory.needed_bytes <= memory.available_bytes * _MEMORY_SHARE
    ]
    if small:
        return max(small, key=_capability).offer
    row, memory = min(known, key=lambda each: each[1].needed_bytes)
    return row.offer if memory.needed_bytes <= memory.available_bytes else None


def _capability(row: CatalogRow) -> tuple[float, int]:
    return round(row.model.parameters / 1e9, 1), -row.model.size_bytes
