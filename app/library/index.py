"""Model index: scans for installed models, also when their folders change, and inspects them.

Inspecting a file takes milliseconds and there may be hundreds, so only files whose rows are
visible are inspected, the latest request first, and again only when the file or the settings have
changed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QFileSystemWatcher, QObject, QTimer, Signal

from app.library import files as library_files
from app.library import folders as library_places
from app.library.files import FoundFile, ScanResult
from app.library.folders import Places
from app.library.offers import layout_of
from app.settings.model_settings import ModelDefaults
from app.state.chat import ModelFile, State
from app.state.library import (
    FileState,
    FolderRow,
    InstalledRow,
    LibraryState,
    Line,
    Memory,
)
from app.system import json_file
from app.system.json_file import JsonFileError
from app.system.translation import tr
from app.system.worker import BackgroundWorker
from engine import (
    DEFAULT_CACHE,
    CacheType,
    ModelFacts,
    inspect_model,
    model_name,
    models_folder,
)

_CHANGE_MILLISECONDS = 300  # after a change in a folder: more follow at once
_COPYING_MILLISECONDS = 2000  # between scans while a file grows: folders do not report that
_MOST_WATCHED = 256  # folders
# Stamp, context, cache, reclaimable bytes, most bytes of memory, device, encoders beside it.
_Key = tuple[tuple[int, int], int, CacheType, int, int, str, library_files.Beside]
_Known = tuple[_Key, ModelFacts]
_Basis = tuple[FoundFile, _Known | None, bool]  # inputs of a row


class ModelIndex(QObject):
    """Keeps `LibraryState.installed` and `folders`, and `State.installed`, up to date."""

    places_read = Signal()  # `places` is read
    scan_finished = Signal()  # `LibraryState.installed` and `folders` are up to date

    def __init__(
        self,
        state: State,
        library: LibraryState,
        worker: BackgroundWorker,
        places_file: Path,
        defaults: Callable[[Path], ModelDefaults],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._state, self._library, self._worker = state, library, worker
        self._places_file = places_file
        self._defaults = defaults  # of a model, every value set
        self._own_settings: Callable[[Path], bool] = lambda path: False
        self.places = Places()
        self._scan = ScanResult((), ())
        self._facts: dict[Path, _Known] = {}
        self._rows: dict[Path, tuple[_Basis, InstalledRow]] = {}
        self._to_inspect: list[Path] = []  # the most urgent last
        self._inspecting = False
        self._watcher = QFileSystemWatcher(self)
        self._rescan = QTimer(self, singleShot=True)
        self._rescan.timeout.connect(self.refresh)
        self._watcher.directoryChanged.connect(lambda: self._rescan.start(_CHANGE_MILLISECONDS))

    # --- life -----------------------------------------------------------------------------------

    def start(self, own_settings: Callable[[Path], bool]) -> None:
        """Read the places and scan them."""
        self._own_settings = own_settings
        path = self._places_file
        self._worker.run(lambda: library_places.load(path), self._on_places_read)

    def _on_places_read(self, places: Places) -> None:
        self.places = places
        self.refresh()
        self.places_read.emit()

    def refresh(self) -> None:
        """Scan all places again; changed files are inspected again when their rows are visible."""
        places = self.places
        self._worker.run(lambda: library_files.scan(places), self._on_scanned)

    def close(self) -> None:
        """Watch the folders no longer."""
        self._rescan.stop()
        if watched := self._watcher.directories():
            self._watcher.removePaths(watched)

    def _on_scanned(self, scan: ScanResult) -> None:
        before = {found.path: found.stamp for found in self._scan.files}
        changed = any(before.get(found.path) != found.stamp for found in scan.files)
        if changed and self._library.searched and not self._rescan.isActive():
            self._rescan.start(_COPYING_MILLISECONDS)
        self._scan = scan
        self._watch(scan.searched)
        listed = {found.path for found in scan.files}
        self._facts = {path: facts for path, facts in self._facts.items() if path in listed}
        self.show()
        self.remember_used()
        self.scan_finished.emit()

    def _watch(self, folders: Sequence[Path]) -> None:
        wanted = {str(folder) for folder in folders[:_MOST_WATCHED] if _may_be_watched(folder)}
        watched = set(self._watcher.directories())
        if gone := watched - wanted:
            self._watcher.removePaths(list(gone))
        if fresh := wanted - watched:
            self._watcher.addPaths(list(fresh))

    # --- rows -----------------------------------------------------------------------------------

    def show(self) -> None:
        """Rebuild the rows whose file, facts or settings have changed."""
        rows: dict[Path, tuple[_Basis, InstalledRow]] = {}
        for found in self._scan.files:
            known = self._facts.get(found.path)
            basis = (found, known, self._own_settings(found.path))
            before = self._rows.get(found.path)
            same = before is not None and before[0] == basis
            rows[found.path] = before if before and same else (basis, self._row(*basis))
        self._rows = rows
        listed = [row for _, row in rows.values()]
        self._library.set_installed(listed)
        self._state.set_installed([_choice(row) for row in listed if row.may_chat])

    @property
    def folders(self) -> tuple[FolderRow, ...]:
        """The folders of the last scan."""
        return self._scan.folders

    def found(self, path: Path) -> FoundFile | None:
        """The scan result of one file."""
        return next((each for each in self._scan.files if each.path == path), None)

    def reclaimable(self) -> int:
        """Bytes of memory that unloading the current model frees."""
        loaded = self._state.model.loaded
        return loaded.held_bytes if loaded is not None else 0

    def _row(self, found: FoundFile, known: _Known | None, own_settings: bool) -> InstalledRow:
        row = InstalledRow(
            found.path,
            model_name(found.path),
            found.size_bytes,
            found.place,
            FileState.MISSING if found.stamp == (0, 0) else FileState.UNKNOWN,
            own_settings=own_settings,
        )
        if known is None or known[0][0] != found.stamp or row.state is FileState.MISSING:
            return row
        facts = known[1]
        return replace(
            row,
            name=facts.name or row.name,
            state=_state(facts),
            layout=facts.layout,
            format=facts.format,
            architecture=facts.architecture,
            parameters=facts.parameters,
            context_model=facts.context_model,
            memory=memory_of(facts),
            problem=facts.problem,
            remedy=facts.remedy,
            fault=facts.fault,
            encoder=facts.encoder,
        )

    # --- inspecting files -----------------------------------------------------------------------

    def inspect_files(self, paths: Sequence[Path]) -> None:
        """Inspect the files of the visible rows, before any others."""
        fresh = [path for path in paths if not self._is_known(path)]
        self._to_inspect = fresh[::-1]
        self._inspect_next()

    def _key(self, path: Path) -> _Key | None:
        found = self.found(path)
        if found is None or found.stamp == (0, 0):
            return None
        values = self._defaults(path)
        cache = values.cache or DEFAULT_CACHE
        context, memory = values.context or 0, values.memory_bytes
        reclaimable = self.reclaimable()
        return found.stamp, context, cache, reclaimable, memory, values.device, found.beside

    def _is_known(self, path: Path) -> bool:
        key, known = self._key(path), self._facts.get(path)
        return key is None or (known is not None and known[0] == key)

    def _inspect_next(self) -> None:
        if self._inspecting or not self._to_inspect:
            return
        path = self._to_inspect.pop()
        key = self._key(path)
        if key is None or self._is_known(path):
            self._inspect_next()
            return
        _, context, cache, reclaimable, memory, device, _ = key
        self._inspecting = True

        def inspected(facts: ModelFacts) -> None:
            self._inspecting = False
            self._facts[path] = (key, facts)
            self.show()
            self._inspect_next()

        self._worker.run(
            lambda: inspect_model(
                path, context, cache, reclaimable=reclaimable, memory_bytes=memory, device=device
            ),
            inspected,
        )

    # --- places ---------------------------------------------------------------------------------

    def add_folder(self, folder: Path) -> None:
        """Add a folder to the scan."""
        folder = folder.absolute()
        if folder == models_folder() or folder in self.places.folders:
            self._library.set_line(Line(tr("This folder is already in the list.")))
            return
        self._set_places(replace(self.places, folders=(*self.places.folders, folder)))

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder from the scan; its files are not touched."""
        kept = tuple(each for each in self.places.folders if each != folder)
        self._set_places(replace(self.places, folders=kept))

    def link(self, paths: Sequence[Path]) -> None:
        """Link single files in place, unless they are listed already."""
        known = {found.path for found in self._scan.files} | set(self.places.files)
        fresh = dict.fromkeys(path.absolute() for path in paths if path.absolute() not in known)
        if fresh:
            self._set_places(replace(self.places, files=(*self.places.files, *fresh)))

    def remember_used(self) -> None:
        """Link the file of the loaded model in place, unless it is listed already."""
        model = self._state.model
        path = model.loaded.path if model.loaded is not None else None
        if path is not None and self._library.searched and path.is_file():
            self.link([path])

    def unlink(self, path: Path) -> None:
        """Remove a single file from the list; the file is not touched."""
        kept = tuple(each for each in self.places.files if each != path)
        self._set_places(replace(self.places, files=kept))

    def _set_places(self, places: Places) -> None:
        if places == self.places:
            return
        self.places = places

        def write() -> JsonFileError | None:
            return tried(lambda: library_places.save(self._places_file, places))

        self._worker.run(write, self._on_saved)
        self.refresh()

    def _on_saved(self, error: JsonFileError | None) -> None:
        if error is not None:
            self._library.set_line(Line(str(error), error.remedy, trouble=True))


def _may_be_watched(folder: Path) -> bool:
    """Whether watching a folder does no harm: on Windows it would keep a drive from being ejected."""
    return sys.platform != "win32" or folder.anchor == models_folder().anchor


def _state(facts: ModelFacts) -> FileState:
    if facts.embeds:
        return FileState.EMBEDS
    return FileState.BAD if facts.problem else FileState.GOOD


def _choice(row: InstalledRow) -> ModelFile:
    """A row for the model picker; before the file is inspected its name tells the format."""
    return ModelFile(
        row.path,
        row.name,
        row.size_bytes,
        row.format or layout_of(row.path.name),
        bad=row.state is FileState.BAD,
        from_disk=row.memory is not None and row.memory.offloaded_bytes > 0,
        sees=row.sees,
    )


def memory_of(facts: ModelFacts) -> Memory | None:
    """The memory prediction of an inspected file, if there is one."""
    if facts.memory_bytes <= 0:
        return None
    return Memory(
        facts.memory_bytes,
        facts.available_bytes,
        facts.context,
        facts.weights_bytes,
        facts.cache_bytes,
        facts.scratch_bytes,
        offloaded_bytes=facts.offloaded_bytes,
        offloaded_seconds=facts.offloaded_seconds,
        encoder_bytes=facts.encoder_bytes,
    )


def tried(write: Callable[[], None]) -> JsonFileError | None:
    """Call `write`; returns its error, if any."""
    try:
        write()
    except json_file.JsonFileError as error:
        return error
    return None
