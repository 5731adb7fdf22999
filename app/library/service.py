"""The model library: handles the intents of the models page, and keeps `LibraryState` up to date.

Disk and hub requests run on worker threads; downloads run in `app.downloads.queue`, whose
notifications are coalesced into one update of the GUI thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.downloads.queue import Download, Downloads, Phase
from app.downloads.transfer import Limits, free_bytes
from app.library import folders as library_places
from app.library.better_model import BetterModelOffer
from app.library.files import folder_of
from app.library.index import ModelIndex
from app.library.load_times import LoadTimes
from app.library.model_trash import ModelTrash
from app.library.pictures import PictureChoices
from app.library.recommended import Recommendations
from app.library.search import HubBrowser
from app.library.settings_editor import ModelSettingsEditor
from app.library.speed import DownloadSpeed
from app.library.trash import file as trash_list
from app.net.http import WebError
from app.net.hub import HUB, HubError, Piece, Source
from app.settings import model_settings as model_defaults
from app.settings.table import Settings
from app.state.chat import ModelPhase, State
from app.state.faults import explain
from app.state.library import FileState, LibraryState, Line, LineAction, Offer
from app.system.byte_size import size
from app.system.translation import sentences, tr
from app.system.worker import BackgroundWorker
from engine import (
    ModelFacts,
    belonging,
    inspect_model,
    model_label,
    models_folder,
    names_beside,
)

_UPDATE_MILLISECONDS = 100  # interval of updates while downloads progress
_ACTIVE = (Phase.QUEUED, Phase.CONNECTING, Phase.RUNNING, Phase.WAITING, Phase.VERIFYING)


class Library(QObject):
    """Handles the intents of the models page."""

    use_requested = Signal(Path)  # the user pressed "Use" in the status line
    unload_requested = Signal()
    _update_requested = Signal()  # from the download threads

    def __init__(
        self,
        state: State,
        library: LibraryState,
        settings: Settings,
        files: BackgroundWorker,
        parent: QObject | None = None,
        *,
        places_file: Path | None = None,
        defaults_file: Path | None = None,
        limits: Limits | None = None,
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """`files` is the worker for the user's files, on any drive; `close` ends it."""
        super().__init__(parent)
        self._state, self.state = state, library
        self._limits, self._free = limits or Limits(), free
        self._files = files
        self.defaults = ModelSettingsEditor(
            library, self._files, defaults_file or model_defaults.file(), settings, self
        )
        self.model_index = ModelIndex(
            state, library, self._files, places_file or library_places.file(),
            self.defaults.whole, self,
        )  # fmt: skip
        self.trash = ModelTrash(
            state, library, self._files, self.model_index,
            trash_list(places_file or library_places.file()), self,
        )  # fmt: skip
        self.downloads = Downloads(
            models_folder(), self._on_download_changed, limits=self._limits, free=free
        )
        self.speed = DownloadSpeed(
            library, self._files,
            (places_file or library_places.file()).with_name("download-speed.json"),
        )  # fmt: skip
        self.load_times = LoadTimes(
            state, self._files,
            (places_file or library_places.file()).with_name("load-times.json"),
        )  # fmt: skip
        self._choices = PictureChoices()
        self.hub = HubBrowser(
            library,
            self._installed_path,
            self._is_coming,
            self.model_index.reclaimable,
            self._choices,
            self._sees,
            self,
        )
        self.catalog = Recommendations(
            library,
            self._files,
            self._installed_path,
            self._is_coming,
            self.model_index.reclaimable,
            self._choices,
            self._sees,
            self,
        )
        self.better_model = BetterModelOffer(
            state,
            library,
            lambda: self.defaults.settings,
            download=self.download,
            cancel=self.cancel,
            parent=self,
        )
        self._update_scheduled = threading.Event()  # the GUI thread will read all downloads
        self._done: set[int] = set()  # finished downloads that were announced
        self._seeing: frozenset[Path] = frozenset()  # inspected models with a picture encoder
        self._started = self._closed = False
        self._update_timer = QTimer(self, singleShot=True, interval=_UPDATE_MILLISECONDS)
        self._connect()
        self.set_settings(settings)

    def _connect(self) -> None:
        self._update_requested.connect(self._schedule_update, Qt.ConnectionType.QueuedConnection)
        self._update_timer.timeout.connect(self._show_downloads)
        self.model_index.places_read.connect(self._start_trash)
        self.model_index.scan_finished.connect(self._on_scan_finished)
        self.trash.emptied.connect(self._on_scan_finished)
        self.defaults.changed.connect(self._defaults_changed)
        self._state.model_changed.connect(self._model_changed)
        self.state.installed_changed.connect(self._installed_changed)

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Scan the folders, and list unfinished downloads as paused; call after the first paint."""
        self._started = True
        self.model_index.start(self.defaults.has_own)
        self.downloads.start()
        self.catalog.start()
        self.speed.start()
        self.load_times.start()

    def opened(self) -> None:
        """The page was opened: scan the folders and predict memory again."""
        if self._started:
            self.model_index.refresh()
            self.catalog.predict()

    def picker_opened(self) -> None:
        """The model picker was opened: list files copied in meanwhile, and inspect new ones."""
        if self._started:
            self.model_index.refresh()
            self.model_index.inspect_files([file.path for file in self._state.installed])

    def set_settings(self, settings: Settings) -> None:
        """Apply the settings: hub address, proxy, parallel downloads, defaults of models."""
        self.defaults.settings = settings
        self.better_model.refresh()
        endpoint = settings.hub_endpoint or HUB
        self.hub.endpoint, self.hub.proxy = endpoint, settings.proxy
        self.downloads.set_endpoint(endpoint)
        self.downloads.set_parallel(settings.parallel_downloads)
        try:
            self.downloads.set_proxy(settings.proxy)
        except WebError as error:
            self.state.set_line(Line(str(error), error.remedy, trouble=True))

    def close(self) -> None:
        """Pause downloads so that they resume next time, and end all threads; may block briefly."""
        if self._closed:
            return
        self._closed = True
        self._update_timer.stop()
        self.hub.close()
        self.downloads.close()
        self.model_index.close()
        self._files.close()

    # --- intents --------------------------------------------------------------------------------

    def download(self, offer: Offer) -> None:
        """Download a model, unless the disk has too little free space."""
        self._download(offer.source, offer.size_bytes, offer.name)

    def choose_encoder(self, offer: Offer, encoder: str) -> None:
        """Download a model with this picture encoder of its repository, or with none: ""."""
        self._choices.choose(offer.source, encoder)
        self._offers_changed()

    def add_pictures(self, offer: Offer) -> None:
        """Download the preferred picture encoder of an installed model, to lie beside it."""
        path = offer.here
        if path is None or not offer.encoders or not may_add_pictures(path):
            return
        encoder = offer.encoder or offer.encoders[0]
        names = names_beside(path.name, encoder.file)
        taken = {row.path for row in self.state.installed}
        name = next((name for name in names if path.with_name(name) not in taken), names[-1])
        folder = path.parent.relative_to(models_folder()).as_posix()
        # Of a recommended model the size is computed, and there is no hash.
        size_bytes = encoder.size_bytes if encoder.sha256 else 0
        source = Source(
            offer.source.repository, offer.source.revision, encoder.file, size_bytes, encoder.sha256,
            folder="" if folder == "." else folder, name=name,
        )  # fmt: skip
        self._download(source, encoder.size_bytes, offer.name)

    def _download(self, source: Source, size_bytes: int, name: str) -> None:
        """Download files of so many bytes, 0 if unknown, unless the disk has too little space."""
        promised = sum(
            max(each.size_bytes - each.done_bytes, 0)
            for each in self.downloads.all()
            if each.phase in _ACTIVE
        )
        needed = size_bytes + self._limits.margin_bytes if size_bytes else 0
        available = self._free_bytes() - promised
        if needed > available:
            space = size(max(available - self._limits.margin_bytes, 0))
            text = (
                tr("{name} needs {size}; only {space} is free besides your other downloads.",
                   name=name, size=size(size_bytes), space=space)
                if promised
                else tr("{name} needs {size}; the disk has only {space} free.",
                        name=name, size=size(size_bytes), space=space)
            )  # fmt: skip
            waiting = sum(each.size_bytes for each in self.state.trash)
            remedy = (
                tr("Empty the trash, which holds {size}, or choose a smaller one.",
                   size=size(waiting))
                if waiting
                else tr("Delete models you no longer use, or choose a smaller one.")
            )  # fmt: skip
            self.state.set_line(Line(text, remedy, trouble=True))
            return
        try:
            self.downloads.add(source)
        except HubError as error:
            self.state.set_line(Line(str(error), error.remedy, trouble=True))
        self._show_downloads()

    def cancel(self, number: int) -> None:
        """Cancel a download and delete its partial file."""
        self.downloads.cancel(number)
        self._show_downloads()

    def open_files(self, paths: Sequence[Path]) -> None:
        """Link dropped files in place, and add dropped folders to the scan."""
        for folder in (path for path in paths if path.is_dir()):
            self.model_index.add_folder(folder)
        self.model_index.link([path for path in paths if not path.is_dir()])

    def act_on_line(self) -> None:
        """Run the action of the status line."""
        line = self.state.line
        self.state.set_line(None)
        if line is None:
            return
        if line.action is LineAction.UNDO:
            self.trash.undo_delete()
        elif line.action is LineAction.UNLOAD:
            self.unload_requested.emit()
        elif line.action is LineAction.USE and line.about is not None:
            self.use_requested.emit(line.about)

    def close_line(self) -> None:
        """Hide the status line."""
        self.state.set_line(None)

    # --- downloads ------------------------------------------------------------------------------

    def _on_download_changed(self, download: Download) -> None:
        """Called on download threads: emit one signal for all changes until it is handled."""
        if not self._update_scheduled.is_set():
            self._update_scheduled.set()
            self._update_requested.emit()

    def _schedule_update(self) -> None:
        if not self._closed and not self._update_timer.isActive():
            self._update_timer.start()

    def _show_downloads(self) -> None:
        self._update_scheduled.clear()
        downloads = self.downloads.all()
        self.state.set_downloads(downloads)
        self.speed.note(downloads)
        fresh = [
            each for each in downloads if each.phase is Phase.DONE and each.id not in self._done
        ]
        if fresh:
            self.model_index.refresh()
        for each in fresh:
            self._done.add(each.id)
            self._announce(each)
        self._offers_changed()

    def _announce(self, download: Download) -> None:
        """Announce a finished download once it has been inspected."""
        path = download.path

        def inspected(facts: ModelFacts) -> None:
            name = model_label(path)
            if facts.fault is not None and facts.fault.about == "mmproj":
                text = tr("Pictures are added. They work once the model is loaded again.")
                self.state.set_line(Line(text))
            elif facts.embeds:
                text = tr("{name} is downloaded, and searches your documents.", name=name)
                self.state.set_line(Line(text))
            elif facts.problem:
                text = tr("{name} is downloaded, but cannot be used.", name=name)
                shown = explain(facts.fault, path.name, facts.problem, facts.remedy)
                line = Line(sentences(text, shown.sentence), shown.remedy, trouble=True)
                self.state.set_line(line)
            else:
                text = sentences(tr("{name} is downloaded.", name=name), download.lacking)
                self.state.set_line(Line(text, action=LineAction.USE, about=path))

        reclaimable = self.model_index.reclaimable()
        whole = self.defaults.whole(path)
        context, memory, device = whole.context or 0, whole.memory_bytes, whole.device
        self._files.run(
            lambda: inspect_model(
                path, context, reclaimable=reclaimable, memory_bytes=memory, device=device
            ),
            inspected,
        )

    def _is_coming(self, source: Source) -> bool:
        return any(
            each.is_of(source)
            for each in self.state.downloads
            if each.phase not in (Phase.DONE, Phase.CANCELLED)
        )

    def _sees(self, path: Path, encoders: Sequence[Piece]) -> bool:
        """Whether an installed model has a picture encoder, or one of these is on its way.

        Before its file is inspected the names of the files beside it tell.
        """
        if not may_add_pictures(path):
            return True  # there is nothing to offer
        row = next((each for each in self.state.installed if each.path == path), None)
        if row is not None and row.state is FileState.GOOD and row.sees:
            return True
        files = {each.file for each in encoders}
        is_known = row is not None and row.state is FileState.GOOD
        beside = [] if is_known else [each.path for each in self.state.installed if each.is_encoder]
        going = (Phase.DONE, Phase.CANCELLED)
        coming = [each for each in self.state.downloads if each.phase not in going]
        if any(each.path == path for each in coming):
            return True
        beside += [each.path for each in coming if each.url.rpartition("/")[2] in files]
        return any(
            each.parent == path.parent and belonging(each.name, path.name) >= 0 for each in beside
        )

    def _installed_path(self, source: Source) -> Path | None:
        """Path of an installed file with the name and size of `source`, if any."""
        for row in self.state.installed:
            same = not source.size_bytes or row.size_bytes == source.size_bytes
            if row.path.name == _file_of(source) and same and row.size_bytes:
                return row.path
        return None

    # --- what changed ---------------------------------------------------------------------------

    def _start_trash(self) -> None:
        self.trash.start([models_folder(), *self.model_index.places.folders])

    def _on_scan_finished(self) -> None:
        """Show the folders and offers after a scan."""
        self.state.set_folders(self.model_index.folders, self._free_bytes())
        self._offers_changed()

    def _installed_changed(self) -> None:
        """Offer pictures no longer, or again, once inspecting a model tells whether it sees."""
        seeing = frozenset(row.path for row in self.state.installed if row.sees)
        if seeing != self._seeing:
            self._seeing = seeing
            self._offers_changed()

    def _offers_changed(self) -> None:
        self.catalog.refresh()
        self.hub.refresh()

    def _defaults_changed(self, path: Path) -> None:
        self.model_index.show()
        self.model_index.inspect_files([path])

    def _model_changed(self) -> None:
        model = self._state.model
        self.defaults.reclaimable = self.model_index.reclaimable()
        if model.phase is ModelPhase.NONE and model.freed_bytes > 0:
            freed = size(model.freed_bytes)
            self.state.set_line(
                Line(tr("Model unloaded. {size} of memory is free again.", size=freed))
            )
        elif model.phase is ModelPhase.LOADING:
            line = self.state.line
            if line is not None and line.action is not LineAction.UNDO and not line.trouble:
                self.state.set_line(None)
        if model.phase is ModelPhase.READY:
            self.model_index.remember_used()

    def _free_bytes(self) -> int:
        """Free bytes on the disk of the app's own folder."""
        return self._free(folder_of(models_folder()))


def may_add_pictures(path: Path) -> bool:
    """Whether a file may be added beside a model: only in the app's own folder."""
    return path.is_relative_to(models_folder())


def _file_of(source: Source) -> str:
    return source.file.rpartition("/")[2]
