"""Offer of a more capable model on the empty page: one click downloads, verifies and loads it.

It is made while the starter is the only model, or there is none. The model is the one that the
models page recommends for this computer: nothing is sent before the user accepts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.downloads.queue import Download, Phase
from app.settings.table import Settings
from app.state.chat import ModelPhase, Notice, State
from app.state.library import BetterModel, FileState, LibraryState, Offer
from engine import starter_path

NOTICE = "better model"  # kind of the notice when the download cannot begin


class BetterModelOffer(QObject):
    """Keeps `LibraryState.better` up to date."""

    use_requested = Signal(Path)  # the accepted model is here and verified

    def __init__(
        self,
        state: State,
        library: LibraryState,
        settings: Callable[[], Settings],
        *,
        download: Callable[[Offer], None],
        cancel: Callable[[int], None],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._state, self._library, self._settings = state, library, settings
        self._download, self._cancel = download, cancel
        self._accepted: Offer | None = None
        self._put_away = 0  # id of a download that failed or is paused, and is not shown in chats
        for changed in (
            state.model_changed,
            library.catalog_changed,
            library.installed_changed,
            library.downloads_changed,
        ):
            changed.connect(self.refresh)
        state.conversation_changed.connect(self.put_away)

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

    def put_away(self) -> None:
        """Show a download that failed or is paused no longer in the chats, until it goes on."""
        shown = self._library.better
        download = shown.download if shown is not None else None
        if download is not None and download.phase in (Phase.FAILED, Phase.PAUSED):
            self._put_away = download.id
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
            self._show(accepted, progress)
            return
        offer = self._choice()
        if offer is None:
            self._library.set_better(None)
        else:
            self._show(offer, self._progress(offer))

    def _show(self, offer: Offer, download: Download | None) -> None:
        rests = download is not None and download.phase in (Phase.FAILED, Phase.PAUSED)
        if download is not None and download.id == self._put_away and not rests:
            self._put_away = 0
        # One of an earlier run was told then: it does not follow the user into every chat.
        is_known = download is not None and download.id == self._put_away
        away = rests and (is_known or self._accepted is None)
        self._library.set_better(BetterModel(offer, download, put_away=away))

    def _choice(self) -> Offer | None:
        model, library = self._state.model, self._library
        without = model.phase in (ModelPhase.NONE, ModelPhase.FAILED)
        if not library.searched or not (self._settings().offer_better_model or without):
            return None
        starter = starter_path()
        if model.phase is ModelPhase.LOADING and model.path != starter:
            return None
        unusable = (FileState.MISSING, FileState.BAD, FileState.EMBEDS)
        usable = [row for row in library.installed if row.state not in unusable]
        if any(row.path != starter for row in usable):
            return None
        if model.loaded is not None and model.loaded.path != starter:
            return None
        return next((row.offer for row in library.catalog if row.offer.recommended), None)

    def _progress(self, offer: Offer) -> Download | None:
        """The download of this offer; None before it begins and once it is cancelled."""
        for each in reversed(self._library.downloads):
            if each.is_of(offer.source):
                return None if each.phase is Phase.CANCELLED else each
        return None
