"""The library of models: what the page asks for in, what it shows out.

Files and questions are worked on beside the window; downloads run in `app.downloads.queue`, whose word
comes from its own thread and is brought to the window's in one go, however often it comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.downloads.queue import Download, Downloads, Phase
from app.downloads.transfer import Limits, free_bytes
from app.library import folders as library_places
from app.library.files import folder_of
from app.library.index import ModelIndex
from app.library.recommended import Recommendations
from app.library.search import HubPages
from app.library.settings_editor import Defaults
from app.net.http import WebError
from app.net.hub import HUB, HubError, Source
from app.settings import model_settings as model_defaults
from app.settings.table import Settings
from app.state.chat import ModelPhase, State
from app.state.library import LibraryState, Line, Offer
from app.system.byte_size import size
from app.system.worker import BackgroundWorker
from engine import ModelFacts, inspect_model, model_name, models_folder

_GATHER_MILLISECONDS = 100  # of news about downloads
_ACTIVE = (Phase.QUEUED, Phase.CONNECTING, Phase.RUNNING, Phase.WAITING, Phase.VERIFYING)


class Library(QObject):
    """Carries out what the page of models asks for."""

    use_requested = Signal(Path)  # the person pressed "Use" in the line at the top
    unload_requested = Signal()
    _news = Signal()  # from the threads of the downloads

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
        """`files` works on the files of all drives; it ends with the library."""
        super().__init__(parent)
        self._state, self.state = state, library
        self._limits, self._free = limits or Limits(), free
        self._files = files
        self.defaults = Defaults(
            library, self._files, defaults_file or model_defaults.file(), settings, self
        )
        self.model_index = ModelIndex(
            state, library, self._files, places_file or library_places.file(),
            self.defaults.whole, self,
        )  # fmt: skip
        self.downloads = Downloads(models_folder(), self._on_news, limits=self._limits, free=free)
        self.hub = HubPages(
            library, self._here, self._is_coming, self.model_index.reclaimable, self
        )
        self.catalog = Recommendations(
            library, self._files, self._here, self._is_coming, self.model_index.reclaimable, self
        )
        self._update_scheduled = threading.Event()  # news is on its way to the window's thread
        self._done: set[int] = set()  # downloads whose end was shown
        self._started = self._closed = False
        self._gather = QTimer(self, singleShot=True, interval=_GATHER_MILLISECONDS)
        self._connect()
        self.set_settings(settings)

    def _connect(self) -> None:
        self._news.connect(self._gather_news, Qt.ConnectionType.QueuedConnection)
        self._gather.timeout.connect(self._show_downloads)
        self.model_index.settled.connect(self._settled)
        self.defaults.changed.connect(self._defaults_changed)
        self._state.model_changed.connect(self._model_changed)

    # --- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Look through the folders and take up unfinished downloads, paused; after the first paint."""
        self._started = True
        self.model_index.start(self.defaults.has_own)
        self.downloads.start()
        self.catalog.start()

    def opened(self) -> None:
        """The page came into view: see what changed on the disk since."""
        if self._started:
            self.model_index.refresh()
            self.catalog.predict()

    def set_settings(self, settings: Settings) -> None:
        """Other settings hold: the hub's address, the proxy, what models begin with."""
        self.defaults.settings = settings
        endpoint = settings.hub_endpoint or HUB
        self.hub.endpoint, self.hub.proxy = endpoint, settings.proxy
        self.downloads.set_endpoint(endpoint)
        self.downloads.set_parallel(settings.parallel_downloads)
        try:
            self.downloads.set_proxy(settings.proxy)
        except WebError as error:
            self.state.set_line(Line(str(error), error.remedy, trouble=True))

    def close(self) -> None:
        """Stop downloads so that they go on next time, and end every thread; may block briefly."""
        if self._closed:
            return
        self._closed = True
        self._gather.stop()
        self.hub.close()
        self.downloads.close()
        self._files.close(self.model_index.last_words())

    # --- intents --------------------------------------------------------------------------------

    def download(self, offer: Offer) -> None:
        """Fetch a model, unless the disk has no room for it."""
        source = offer.source
        promised = sum(
            max(each.size_bytes - each.done_bytes, 0)
            for each in self.downloads.all()
            if each.phase in _ACTIVE
        )
        needed = source.size_bytes + self._limits.margin_bytes if source.size_bytes else 0
        room = self._room() - promised
        if needed > room:
            others = " beside what is on its way" if promised else ""
            self.state.set_line(
                Line(
                    f"{offer.name} needs {size(source.size_bytes)}, but the disk has room for "
                    f"only {size(max(room - self._limits.margin_bytes, 0))}{others}.",
                    "Delete models you no longer use, or choose a smaller one.",
                    trouble=True,
                )
            )
            return
        try:
            self.downloads.add(source)
        except HubError as error:
            self.state.set_line(Line(str(error), error.remedy, trouble=True))
        self._show_downloads()

    def cancel(self, number: int) -> None:
        """Give a download up and remove what has arrived."""
        self.downloads.cancel(number)
        self._show_downloads()

    def open_files(self, paths: Sequence[Path]) -> None:
        """List dropped files where they lie, and look through dropped folders."""
        for folder in (path for path in paths if path.is_dir()):
            self.model_index.add_folder(folder)
        self.model_index.link([path for path in paths if not path.is_dir()])

    def act_on_line(self) -> None:
        """The person pressed the link of the line at the top."""
        line = self.state.line
        self.state.set_line(None)
        if line is None:
            return
        if line.action == "Undo":
            self.model_index.undo_delete()
        elif line.action == "Unload":
            self.unload_requested.emit()
        elif line.action == "Use" and line.about is not None:
            self.use_requested.emit(line.about)

    def close_line(self) -> None:
        """The person has read the line at the top."""
        self.state.set_line(None)

    # --- downloads ------------------------------------------------------------------------------

    def _on_news(self, download: Download) -> None:
        """On a thread of the downloads: one signal stands for all news until it is seen."""
        if not self._update_scheduled.is_set():
            self._update_scheduled.set()
            self._news.emit()

    def _gather_news(self) -> None:
        if not self._closed and not self._gather.isActive():
            self._gather.start()

    def _show_downloads(self) -> None:
        self._update_scheduled.clear()
        downloads = self.downloads.all()
        self.state.set_downloads(downloads)
        fresh = [
            each for each in downloads if each.phase is Phase.DONE and each.id not in self._done
        ]
        if fresh:
            self.model_index.refresh()
        for each in fresh:
            self._done.add(each.id)
            self._welcome(each)
        self._offers_changed()

    def _welcome(self, download: Download) -> None:
        """A model has come: verified by now, and looked into before it is offered."""
        path = download.path

        def inspected(facts: ModelFacts) -> None:
            name = facts.name or model_name(path)
            if facts.problem:
                sentence = f"{name} is here, but cannot be used. {facts.problem}"
                self.state.set_line(Line(sentence, facts.remedy, trouble=True))
            else:
                self.state.set_line(Line(f"{name} is here.", "", "Use", about=path))

        reclaimable = self.model_index.reclaimable()
        context = self.defaults.whole(path).context or 0
        self._files.run(lambda: inspect_model(path, context, reclaimable=reclaimable), inspected)

    def _is_coming(self, source: Source) -> bool:
        return any(
            each.repository == source.repository and each.file == _file_of(source)
            for each in self.state.downloads
            if each.phase not in (Phase.DONE, Phase.CANCELLED)
        )

    def _here(self, source: Source) -> Path | None:
        """Where a file already is: one of its name and size, in any place."""
        for row in self.state.installed:
            same = not source.size_bytes or row.size_bytes == source.size_bytes
            if row.path.name == _file_of(source) and same and row.size_bytes:
                return row.path
        return None

    # --- what changed ---------------------------------------------------------------------------

    def _settled(self) -> None:
        """The folders were looked through."""
        self.state.set_folders(self.model_index.folders, self._room())
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
            self.state.set_line(Line(f"Unloaded, {size(model.freed_bytes)} given back."))
        elif model.phase is ModelPhase.LOADING:
            line = self.state.line
            if line is not None and line.action in ("", "Use", "Unload") and not line.trouble:
                self.state.set_line(None)
        if model.phase is ModelPhase.READY:
            self.model_index.remember_used()

    def _room(self) -> int:
        """Bytes the disk of the app's own folder still takes."""
        return self._free(folder_of(models_folder()))


def _file_of(source: Source) -> str:
    return source.file.rpartition("/")[2]
