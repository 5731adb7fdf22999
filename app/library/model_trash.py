"""Deleting models: moving them to the trash, restoring them, and removing them after 30 days."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app.library import trash
from app.library.index import ModelIndex, tried
from app.state.chat import ModelPhase, State
from app.state.library import LibraryState, Line, LineAction, Place, TrashedModel
from app.system.byte_size import size
from app.system.file_advice import advice
from app.system.translation import tr, trn
from app.system.worker import BackgroundWorker
from engine import model_label, search_models

UNDO_MILLISECONDS = 8000  # for which the models page offers Undo; the trash keeps the model
_DAY_MILLISECONDS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class _Done:
    """Result of work on the files: the models in the trash now, and what went wrong."""

    left: tuple[TrashedModel, ...]
    moved: tuple[TrashedModel, ...] = ()  # that the work was done for
    trouble: Line | None = None


class ModelTrash(QObject):
    """Keeps `LibraryState.trash` up to date."""

    emptied = Signal()  # the free disk space has changed

    def __init__(
        self,
        state: State,
        library: LibraryState,
        worker: BackgroundWorker,
        index: ModelIndex,
        file: Path,
        parent: QObject | None = None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`file` lists the deleted models."""
        super().__init__(parent)
        self._state, self._library, self._worker = state, library, worker
        self._index, self._file, self._now = index, file, now
        self._models: list[TrashedModel] = []  # used on the worker only
        self._fresh: list[TrashedModel] = []  # that Undo restores
        self._undo = QTimer(self, singleShot=True, interval=UNDO_MILLISECONDS)
        self._undo.timeout.connect(self._end_undo)
        self._daily = QTimer(self, interval=_DAY_MILLISECONDS)
        self._daily.timeout.connect(self._purge_old)

    def start(self, folders: Sequence[Path]) -> None:
        """Read the trash, also what an interrupted run left in the folders; remove old models."""

        def read() -> _Done:
            searches = search_models([each for each in folders if each.is_dir()]).folders.values()
            searched = [each for search in searches for each in search.folders]
            self._models = trash.read(self._file, searched, self._now())
            return self._purge()

        self._worker.run(read, self._show)
        self._daily.start()

    # --- deleting and restoring -----------------------------------------------------------------

    def delete(self, path: Path) -> None:
        """Move a model to the trash, unless it is in use."""
        found, model = self._index.found(path), self._state.model
        if found is None:
            return
        name = model_label(path)
        if model.loaded is not None and model.loaded.path == path:
            text = tr("{name} is in use.", name=name)
            self._library.set_line(Line(text, tr("Unload it first."), LineAction.UNLOAD))
            return
        if model.phase is ModelPhase.LOADING and model.path == path:
            text = tr("{name} is loading.", name=name)
            self._library.set_line(Line(text, tr("Cancel loading first.")))
            return
        linked = found.place is Place.FILE

        def move() -> _Done:
            model = trash.planned(path, linked=linked, now=self._now())
            self._models.append(model)
            self._save()  # first: a crash after it leaves no file that is not listed
            try:
                trash.move_to_trash(model)
            except OSError as error:
                self._models.remove(model)
                self._save()
                return self._done(trouble=_not_deleted(path, error))
            return self._done(model)

        self._worker.run(move, self._on_deleted)

    def undo_delete(self) -> None:
        """Restore what was just deleted."""
        fresh, self._fresh = self._fresh, []
        self._undo.stop()
        self.restore(fresh)

    def restore(self, models: Sequence[TrashedModel]) -> None:
        """Put models of the trash back where they were."""

        def put_back() -> _Done:
            restored: list[TrashedModel] = []
            trouble = None
            for model in (each for each in models if each in self._models):
                line = _try_to_restore(model)
                trouble = trouble or line
                if line is None:
                    self._models.remove(model)
                    restored.append(model)
            self._save()
            return self._done(*restored, trouble=trouble)

        self._worker.run(put_back, self._on_restored)

    def remove(self, models: Sequence[TrashedModel]) -> None:
        """Delete models of the trash for good; this frees their space."""

        def remove() -> _Done:
            trouble = None
            for model in (each for each in models if each in self._models):
                trouble = self._remove(model) or trouble
            self._save()
            return self._done(trouble=trouble)

        self._worker.run(remove, self._on_removed)

    # --- on the worker --------------------------------------------------------------------------

    def _done(self, *moved: TrashedModel, trouble: Line | None = None) -> _Done:
        return _Done(tuple(self._models), moved, trouble)

    def _save(self) -> None:
        """Write the list; if that fails, the hidden names still tell what was deleted."""
        models = tuple(self._models)
        tried(lambda: trash.write(self._file, models))

    def _purge(self) -> _Done:
        before = len(self._models)
        for model in [each for each in self._models if trash.is_old(each, self._now())]:
            # One on a disk that is not here is forgotten, and found again once the disk is back.
            if self._remove(model) is not None and not model.moves[0][1].parent.is_dir():
                self._models.remove(model)
        if len(self._models) != before:
            self._save()
        return self._done()

    def _remove(self, model: TrashedModel) -> Line | None:
        try:
            trash.delete_trashed(model)
        except OSError as error:
            return _not_deleted(model.path, error)
        self._models.remove(model)
        return None

    # --- results --------------------------------------------------------------------------------

    def _show(self, done: _Done) -> None:
        self._library.set_trash(done.left)

    def _on_deleted(self, done: _Done) -> None:
        self._show(done)
        if done.trouble is not None:
            self._library.set_line(done.trouble)
            self._index.refresh()
            return
        self._fresh += done.moved
        self._undo.start()
        self._refresh(done.moved, unlink=True)
        self._library.set_line(deleted_line(self._fresh))

    def _on_restored(self, done: _Done) -> None:
        self._show(done)
        self._fresh = [each for each in self._fresh if each in done.left]
        self._library.set_line(done.trouble)
        self._refresh(done.moved, unlink=False)

    def _on_removed(self, done: _Done) -> None:
        self._show(done)
        self._fresh = [each for each in self._fresh if each in done.left]
        line = self._library.line
        is_undo = line is not None and line.action is LineAction.UNDO
        if done.trouble is not None or (is_undo and not self._fresh):
            self._library.set_line(done.trouble)
        self.emptied.emit()

    def _refresh(self, models: Sequence[TrashedModel], *, unlink: bool) -> None:
        """Update the list of installed models, and the links to single files."""
        linked = [each.path for each in models if each.linked]
        for path in linked if unlink else ():
            self._index.unlink(path)
        if linked and not unlink:
            self._index.link(linked)
        self._index.refresh()

    def _end_undo(self) -> None:
        self._fresh = []
        line = self._library.line
        if line is not None and line.action is LineAction.UNDO:
            self._library.set_line(None)

    def _purge_old(self) -> None:
        def done(result: _Done) -> None:
            self._show(result)
            self.emptied.emit()

        self._worker.run(self._purge, done)


def deleted_line(deleted: Sequence[TrashedModel]) -> Line:
    """The status line after deleting."""
    amount = size(sum(each.size_bytes for each in deleted))
    if len(deleted) == 1:
        text = tr("{name} is in the trash.", name=deleted[0].name)
    else:
        text = trn(
            "{count} model is in the trash.", "{count} models are in the trash.", len(deleted)
        )
    remedy = tr("Emptying the trash frees {size}.", size=amount)
    return Line(text, remedy, action=LineAction.UNDO)


def _not_deleted(path: Path, error: OSError) -> Line:
    text = tr(
        "{file} could not be deleted: {reason}.", file=path.name, reason=error.strerror or error
    )
    remedy = advice(error, tr("Check that its folder can be written to."))
    return Line(text, remedy, trouble=True)


def _try_to_restore(model: TrashedModel) -> Line | None:
    """Restore a model; returns the line about its error, if any."""
    try:
        trash.restore_from_trash(model)
    except FileExistsError:
        reason = tr("another file has its name now")
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        return None
    text = tr("{name} could not be restored: {reason}.", name=model.name, reason=reason)
    return Line(text, tr("It stays in the trash."), trouble=True)
