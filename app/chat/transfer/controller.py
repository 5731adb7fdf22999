"""Import and export of chats: reads files on a worker thread, and stores batch by batch.

Between two batches the changes of the window are stored, so nothing waits for a large import. A file
is read twice: for the preview, and again when the user imports it, so that it is never held whole.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.chat_list.conversations import Conversations
from app.chat.chat_list.deletions import Deletions
from app.chat.chat_list.folders import Folders
from app.chat.transfer.batches import Batches, Made
from app.chat.transfer.faults import Cancelled, TransferError
from app.chat.transfer.files import FreePaths, replaced
from app.chat.transfer.pieces import pieces_of
from app.domain.chat_tree import ChatTree
from app.domain.transfer import Dropped, ExportFormat, ImportPreview, Program, Progress, Work
from app.state.chat import Deletion, Notice, State
from app.state.transfer import TransferState
from app.store.blobs import Blobs
from app.store.chat_trees import Known
from app.store.schema import ReadOnlyStore, RowNotFound, StoreError
from app.store.store import Store
from app.store.writer import StoreQueue
from app.system.translation import tr, trn
from app.system.worker import BackgroundWorker

if TYPE_CHECKING:
    from app.chat.transfer.sources import Source

NOTICE = "transfer"  # kind of the notice about a file that cannot be used
DONE_NOTICE = "imported"  # kind of the notice that offers Undo
EXPORTED_NOTICE = "exported"  # kind of the notice about `Transfer.exported`
_REPORT_SECONDS = 0.1  # between two reports of progress
_PAUSE_SECONDS = 0.0005  # after each piece of a file, in which the window gets its turn
_SLICE_SECONDS = 0.008  # of work for a PDF between two events of the window
_FETCHED = 16  # chats read from the store at once
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Documents:
    """Writers of documents that look like the transcript, which belong to the window."""

    style_sheet: Callable[[], str]  # GUI thread
    # Of a chat, a style sheet, and what reads the files of pictures; any thread.
    html: Callable[[ChatTree, str, Callable[[str], bytes]], Iterator[str]]
    pdf: Callable[[ChatTree], Generator[None, None, bytes]]  # GUI thread, one step at a time


@dataclass(slots=True)
class _Job:
    """One import or export; it ends early when it is cancelled."""

    work: Work
    cancelled: threading.Event
    done_bytes: int = 0
    reported: float = 0.0
    chats: int = 0
    missing: int = 0  # attached files that could not be exported

    def check(self) -> None:
        """Raise Cancelled if the user has cancelled."""
        if self.cancelled.is_set():
            raise Cancelled


class Transfer(QObject):
    """Previews, imports and exports chats; one of these at a time."""

    imported = Signal()  # an import has ended, or was cancelled

    def __init__(
        self,
        state: State,
        shown: TransferState,
        store_queue: StoreQueue,
        conversations: Conversations,
        folders: Folders,
        deletions: Deletions,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._state, self._shown = state, shown
        self._store_queue = store_queue
        self._conversations, self._folders, self._deletions = conversations, folders, deletions
        self.documents: Callable[[], Documents] | None = None  # set by the wiring
        self._worker = BackgroundWorker("transfer", self)
        self._job: _Job | None = None
        self._fault: StoreError | None = None
        self._skipped: frozenset[str] = frozenset()  # origins that the preview found here
        self._made = Made()  # by the import that is not done yet
        self._last = Deletion()  # what the last import made, for `undo`
        deletions.undid_import = self._on_undone
        self.exported = Path()  # where chats were written last
        store_queue.fault_changed.connect(self._on_fault)

    def _on_fault(self, fault: StoreError | None) -> None:
        self._fault = fault

    @property
    def busy(self) -> bool:
        """Whether something is being read or written."""
        return self._job is not None

    def end(self) -> None:
        """Stop what is being done, because the app closes; nothing of an import is kept."""
        if self._job is not None:
            self._job.cancelled.set()
        self._remove(self._made)
        self._worker.end()

    def cancel(self) -> None:
        """Stop what is being done, or close the preview; nothing of an import is kept."""
        if self._job is not None:
            self._job.cancelled.set()
        elif self._shown.preview is not None:
            self._shown.show(None, None)

    # --- import ---------------------------------------------------------------------------------

    def preview(self, paths: Sequence[Path]) -> None:
        """Read files, and show what would be imported; files without chats are refused."""
        if not paths or self._refuse_busy():
            return
        if isinstance(self._fault, ReadOnlyStore):
            self._refuse(TransferError(str(self._fault), self._fault.remedy))
            return
        self._forget()
        job = self._start(Work.READING)
        chosen = tuple(paths)

        def known(origins: dict[str, Known]) -> None:
            self._run(job, lambda: self._look(job, chosen, origins), self._show_preview)

        self._store_queue.read(lambda store: store.origins(), known)

    def _look(self, job: _Job, paths: tuple[Path, ...], origins: dict[str, Known]) -> _Found:
        from app.chat.transfer.native_json import Extras
        from app.chat.transfer.sources import counted, opened

        found = _Found()
        with opened(paths) as source:
            found.programs = source.programs
            extras = Extras(attached=found.check_attached)
            try:
                for _, chat in source.chats(self._reporter(job, source), extras):
                    found.add(chat.tree, counted(chat), origins)
                    job.chats += 1
            except TransferError as error:
                found.problem = str(error)
        if found.uncertain:
            self._compare(job, found, origins)
        if found.problem and not found.chats and not found.known:
            raise TransferError(found.problem)
        found.paths = paths
        return found

    def _compare(self, job: _Job, found: _Found, origins: dict[str, Known]) -> None:
        """Tell chats that were continued here from those that were continued there."""
        for origin, paths in list(found.uncertain.items()):
            numbers = origins[origin].conversations
            if any(tree.paths >= paths for tree in self._fetch(job, numbers)):
                found.settle(origin)

    def _show_preview(self, found: _Found) -> None:
        self._skipped = frozenset(found.skipped)
        self._shown.show(
            ImportPreview(
                found.paths,
                found.programs,
                found.chats,
                found.messages,
                found.known,
                len(found.uncertain),
                dict(found.dropped),
                found.problem,
            ),
            None,
        )

    def accept(self) -> None:
        """Import what the preview shows."""
        preview = self._shown.preview
        if preview is None or self.busy:
            return
        job, skipped = self._start(Work.IMPORTING), self._skipped
        self._made = made = Made()

        def ended(error: Exception | None) -> None:
            self._made = Made()
            if error is not None:
                self._remove(made)
            self._folders.read()
            self._conversations.read()
            self.imported.emit()

        self._run(
            job, lambda: self._import(job, preview.paths, skipped, made), self._show_done, ended
        )

    def _remove(self, made: Made) -> None:
        numbers = tuple(made.chats)
        if numbers:  # the list of folders may still grow
            self._store_queue.write(lambda store: store.remove_imported(numbers, made.folders))

    def _import(
        self, job: _Job, paths: tuple[Path, ...], skipped: frozenset[str], made: Made
    ) -> Made:
        """Store all chats of the files, with their folders and attached files."""
        from app.chat.transfer.native_json import Extras
        from app.chat.transfer.sources import opened

        batches = Batches(self._worker, self._store_queue, job.cancelled, made)
        blobs = Blobs(self._store_queue.path)
        extras = Extras(batches.add_folders, lambda _, pieces: blobs.add(pieces))
        seen: set[tuple[str, str]] = set()
        with opened(paths) as source:
            try:
                for program, chat in source.chats(self._reporter(job, source), extras):
                    tree = chat.tree
                    if tree is not None:
                        batches.used.update(accumulate((name,) for name in tree.folder))
                    if tree is None or not tree.messages or tree.origin in skipped:
                        continue
                    for n, piece in enumerate(pieces_of(tree, program)):
                        key = (tree.origin, piece.digest)
                        if n == 0 and tree.origin and key in seen:
                            break
                        if n == 0:
                            seen.add(key)
                            made.chats.append(piece.conversation)
                        batches.add(piece)
                    job.chats = len(made.chats)
            except TransferError:
                if not made.chats:  # else the preview has said that the file is damaged
                    raise
        batches.finish()
        return made

    def _show_done(self, made: Made) -> None:
        count = len(made.chats)
        self._last = Deletion(imported=tuple(made.chats), imported_folders=tuple(made.folders))
        if made.chats or made.folders:
            self._deletions.push(self._last)
        sentence = trn("{count} chat was imported.", "{count} chats were imported.", count)
        self._state.set_notice(DONE_NOTICE, Notice(sentence, action=tr("Undo") if count else ""))

    def undo(self) -> None:
        """Delete what was imported last, but no folder with something else; Undo brings it back."""
        self._state.set_notice(DONE_NOTICE, None)
        self._deletions.delete_imported(self._last)

    def _on_undone(self, made: Deletion) -> None:
        if made is self._last:
            self._state.set_notice(DONE_NOTICE, None)

    # --- export ---------------------------------------------------------------------------------

    def export_chats(self, ids: Sequence[int], format: ExportFormat, path: Path) -> None:
        """Write chats to a file; several that are no JSON to a file each, in the folder `path`."""
        if not ids or self._refuse_busy():
            return
        from app.chat.transfer.markdown_export import chat_markdown

        self._forget()
        documents = self.documents() if self.documents else None
        job, numbers = self._start(Work.EXPORTING), tuple(ids)
        if format is ExportFormat.PDF and documents is not None:
            _PdfExport(self, job, documents.pdf, numbers, path).start()
            return
        sheet = documents.style_sheet() if documents and format is ExportFormat.HTML else ""

        def pieces(tree: ChatTree) -> Iterable[str]:
            if format is ExportFormat.MARKDOWN:
                return (chat_markdown(tree),)
            return documents.html(tree, sheet, picture) if documents else ()

        blobs = Blobs(self._store_queue.path, writable=False)

        def picture(sha256: str) -> bytes:
            """The file of a picture; b"" if it is missing or damaged, so that its name is there."""
            try:
                return blobs.read(sha256)
            except (StoreError, ValueError):  # no name of a blob
                return b""

        def write() -> None:
            if format is ExportFormat.JSON:
                self._write_json(job, numbers, path)
                return
            free = FreePaths(path, format.value)
            for count, tree in enumerate(self._fetched(job, numbers), 1):
                place = path if len(numbers) == 1 else free.path(tree.title)
                with replaced(place) as file:
                    for piece in pieces(tree):
                        job.check()
                        file.write(piece.encode("utf-8", "replace"))
                self.report(job, count / len(numbers), count)

        self._run(job, write, lambda _: self.say_exported(path, len(numbers), job.missing))

    def _write_json(self, job: _Job, numbers: Sequence[int], path: Path) -> None:
        from app.chat.transfer import native_json

        folders = self._ask(job, lambda store: store.folder_records(numbers))
        names = self._ask(job, lambda store: store.attached(numbers))
        blobs = Blobs(self._store_queue.path, writable=False)

        def pieces(name: str) -> Iterator[bytes]:
            try:
                for piece in blobs.pieces(name, native_json.PIECE):
                    self.report(job, 0.0, 0)
                    yield piece
            except (StoreError, ValueError):  # no name of a blob
                job.missing += 1

        with replaced(path) as file:
            attached = ((name, pieces(name)) for name in names)
            trees = self._fetched(job, numbers)
            for count in native_json.write(file, trees, time.time(), folders, attached):
                self.report(job, count / len(numbers), count)

    def all_chats(self, then: Callable[[list[int]], None]) -> None:
        """Give the ids of all chats that are not deleted to `then`, archived ones too."""
        self._store_queue.read(lambda store: store.chat_ids(), then)

    def copy(self, ids: Sequence[int], then: Callable[[str], None]) -> None:
        """Give the text of whole chats, as Markdown, to `then`."""
        from app.chat.transfer.markdown_export import chats_text

        numbers = tuple(ids)
        self._store_queue.read(lambda store: chats_text(_trees(store, numbers)), then)

    def say_exported(self, path: Path, count: int, missing: int = 0) -> None:
        """Show where chats were written, and how many attached files could not be."""
        sentence = trn(
            "{count} chat was exported to {path}.", "{count} chats were exported to {path}.",
            count, path=path,
        )  # fmt: skip
        lost = trn(
            "{count} attached file is not in it, because it is missing or damaged.",
            "{count} attached files are not in it, because they are missing or damaged.",
            missing,
        )
        self.exported = path
        notice = Notice(sentence, lost if missing else "", tr("Show in folder"))
        self._state.set_notice(EXPORTED_NOTICE, notice)

    # --- steps ----------------------------------------------------------------------------------

    def _refuse_busy(self) -> bool:
        if self._job is not None:
            sentence = tr("Another import or export is not done yet.")
            self._state.set_notice(NOTICE, Notice(sentence, tr("Wait for it, or cancel it.")))
        return self._job is not None

    def _start(self, work: Work) -> _Job:
        self._job = job = _Job(work, threading.Event())
        self._shown.show(None, Progress(work))
        return job

    def _forget(self) -> None:
        """Hide the notices about earlier files."""
        self._state.set_notice(NOTICE, None)
        self._state.set_notice(EXPORTED_NOTICE, None)

    def _refuse(self, error: TransferError) -> None:
        self._state.set_notice(NOTICE, Notice(str(error), error.remedy))

    def _run(
        self,
        job: _Job,
        call: Callable[[], T],
        then: Callable[[T], None],
        ended: Callable[[Exception | None], None] = lambda _: None,
    ) -> None:
        """Run a job on the worker thread; `ended` runs in any case, `then` if it was successful."""

        def work() -> None:
            error: Exception | None = None
            result: list[T] = []
            try:
                job.check()
                result.append(call())
            except Exception as raised:  # noqa: BLE001  (`finish` raises what is a bug)
                error = raised
            self._worker.post(lambda: finish(error, result))

        def finish(error: Exception | None, result: list[T]) -> None:
            try:
                self.finished(error)  # raises what is a bug
            finally:
                ended(error)
            for each in result:
                then(each)

        self._worker.run(work)

    def finished(self, error: Exception | None) -> None:
        """End the job; an error is shown."""
        self._job = None
        self._shown.show(None, None)
        if isinstance(error, TransferError):
            self._refuse(error)
        elif isinstance(error, StoreError):
            self._refuse(TransferError(str(error), error.remedy))
        elif error is not None and not isinstance(error, Cancelled):
            raise error  # a bug, which the hook reports

    def _reporter(self, job: _Job, source: Source) -> Callable[[int], None]:
        total = max(source.size, 1)

        def report(count: int) -> None:
            job.done_bytes += count
            self.report(job, min(job.done_bytes / total, 1.0), job.chats)
            time.sleep(_PAUSE_SECONDS)

        return report

    def report(self, job: _Job, share: float, chats: int) -> None:
        """Show the progress from time to time; raises Cancelled."""
        job.check()
        now = time.monotonic()
        if now - job.reported < _REPORT_SECONDS:
            return
        job.reported = now
        progress = Progress(job.work, share, chats)

        def show() -> None:
            if self._job is job:
                self._shown.show(None, progress)

        self._worker.post(show)

    def _fetched(self, job: _Job, ids: Sequence[int]) -> Iterator[ChatTree]:
        """Chats of the store, read some at a time."""
        for start in range(0, len(ids), _FETCHED):
            yield from self._fetch(job, ids[start : start + _FETCHED])

    def _fetch(self, job: _Job, ids: Sequence[int]) -> list[ChatTree]:
        """Chats of the store, for the worker thread; those that are gone are left out."""
        wanted = tuple(ids)
        return self._ask(job, lambda store: list(_trees(store, wanted)))

    def _ask(self, job: _Job, query: Callable[[Store], T]) -> T:
        """What the store answers, for the worker thread."""
        found: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._worker.post(lambda: self._store_queue.read(query, found.put))
        while True:
            job.check()
            try:
                return found.get(timeout=0.1)
            except queue.Empty:
                if (fault := self._fault) is not None and not isinstance(fault, ReadOnlyStore):
                    raise TransferError(str(fault), fault.remedy) from None

    def write_file(
        self, path: Path, content: bytes, then: Callable[[TransferError | None], None]
    ) -> None:
        """Write a whole file, for the GUI thread, which does not wait for it."""

        def work() -> TransferError | None:
            try:
                with replaced(path) as file:
                    file.write(content)
            except TransferError as error:
                return error
            return None

        self._worker.run(work, then)

    def read_tree(self, number: int, then: Callable[[list[ChatTree]], None]) -> None:
        """Read one chat, for the GUI thread; none if it is gone."""
        self._store_queue.read(lambda store: list(_trees(store, (number,))), then)


def _trees(store: Store, ids: Sequence[int]) -> Iterator[ChatTree]:
    for number in ids:
        try:
            yield store.tree(number)
        except RowNotFound:
            continue


class _Found:
    """What a preview has found so far."""

    def __init__(self) -> None:
        self.paths: tuple[Path, ...] = ()
        self.programs: tuple[Program, ...] = ()
        self.chats = self.messages = self.known = 0
        self.dropped: Counter[Dropped] = Counter()
        self.problem = ""
        self.skipped: set[str] = set()
        self.uncertain: dict[str, frozenset[bytes]] = {}  # changed here or there, by origin
        self._messages: dict[str, int] = {}  # of those
        self._seen: set[tuple[str, str]] = set()

    def add(
        self, tree: ChatTree | None, dropped: Counter[Dropped], origins: dict[str, Known]
    ) -> None:
        """Add one chat."""
        if tree is None or not tree.messages:
            self.dropped += dropped
            return
        if tree.origin:
            paths = tree.paths
            key = (tree.origin, tree.digest)
            if key in self._seen:
                return
            self._seen.add(key)
            known = origins.get(tree.origin)
            if known and tree.digest in known.digests:
                self.known += 1
                self.skipped.add(tree.origin)
                return
            if known:
                self.uncertain[tree.origin] = paths
                self._messages[tree.origin] = len(tree.messages)
        self.dropped += dropped
        self.chats += 1
        self.messages += len(tree.messages)

    def check_attached(self, sha256: str, pieces: Iterator[bytes]) -> None:
        """Count an attached file that is damaged."""
        made = hashlib.sha256()
        for piece in pieces:
            made.update(piece)
        self.dropped[Dropped.FILES] += made.hexdigest() != sha256

    def settle(self, origin: str) -> None:
        """A chat is here with all that it has in the file."""
        self.skipped.add(origin)
        self.known += 1
        self.chats -= 1
        self.messages -= self._messages[origin]
        del self.uncertain[origin]


class _PdfExport:
    """Writes PDF files in short steps between the events of the window."""

    def __init__(
        self,
        transfer: Transfer,
        job: _Job,
        made: Callable[[ChatTree], Generator[None, None, bytes]],
        ids: tuple[int, ...],
        path: Path,
    ) -> None:
        self._transfer, self._job, self._made = transfer, job, made
        self._ids, self._path = ids, path
        self._free = FreePaths(path, ExportFormat.PDF.value)
        self._done = 0
        self._place = path  # of the chat at hand
        self._steps: Generator[None, None, bytes] | None = None
        self._timer = QTimer(transfer, interval=0)
        self._timer.timeout.connect(self._step)

    def start(self) -> None:
        """Begin with the first chat."""
        self._next()

    def _next(self) -> None:
        if self._done == len(self._ids):
            self._end(None)
            self._transfer.say_exported(self._path, len(self._ids))
        else:
            self._transfer.read_tree(self._ids[self._done], self._begin)

    def _begin(self, trees: list[ChatTree]) -> None:
        self._done += 1
        if not trees:  # it was deleted meanwhile
            self._next()
            return
        self._place = self._path if len(self._ids) == 1 else self._free.path(trees[0].title)
        self._steps = self._made(trees[0])
        self._timer.start()

    def _step(self) -> None:
        """Work for a slice of time."""
        until = time.perf_counter() + _SLICE_SECONDS
        assert self._steps is not None
        try:
            self._transfer.report(self._job, self._done / len(self._ids), self._done)
            while time.perf_counter() < until:
                next(self._steps)
        except StopIteration as end:
            self._timer.stop()
            self._transfer.write_file(self._place, end.value, self._on_written)
        except Cancelled as error:
            self._end(error)

    def _on_written(self, error: TransferError | None) -> None:
        if error is None:
            self._next()
        else:
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self._timer.stop()
        if self._steps is not None:
            self._steps.close()  # its painter ends
        self._timer.deleteLater()
        self._transfer.finished(error)
