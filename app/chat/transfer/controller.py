"""Import and export of chats: reads files on a worker thread, and stores batch by batch.

Between two batches the changes of the window are stored, so nothing waits for a large import. A file
is read twice: for the preview, and again when the user imports it, so that it is never held whole.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from PySide6.QtCore import QObject, QTimer

from app.chat.conversations import Conversations
from app.chat.deletions import Deletions
from app.chat.folders import Folders
from app.chat.transfer.faults import Cancelled, TransferError
from app.chat.transfer.files import FreePaths, not_written, replaced
from app.chat.transfer.pieces import MOST_CHARACTERS, MOST_MESSAGES, pieces_of, size_of
from app.domain.chat_tree import ChatTree
from app.domain.transfer import Dropped, ExportFormat, ImportPreview, Program, Progress, Work
from app.state.chat import Notice, State
from app.state.transfer import TransferState
from app.store.chat_trees import ImportPiece, Known
from app.store.schema import DamagedStore, ReadOnlyStore, RowNotFound, StoreError
from app.store.store import Store
from app.store.writer import StoreQueue
from app.system.translation import tr, trn
from app.system.worker import BackgroundWorker

if TYPE_CHECKING:
    from app.chat.transfer.sources import Source

NOTICE = "transfer"  # kind of the notice about a file that cannot be used
DONE_NOTICE = "imported"  # kind of the notice that offers Undo
EXPORTED_NOTICE = "exported"  # kind of the notice about `Transfer.exported`
_WAITING_BATCHES = 4  # transactions that may wait for the store
_REPORT_SECONDS = 0.1  # between two reports of progress
_PAUSE_SECONDS = 0.0005  # after each piece of a file, in which the window gets its turn
_SLICE_SECONDS = 0.008  # of work for a PDF between two events of the window
_FETCHED = 16  # chats read from the store at once
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Documents:
    """Writers of documents that look like the transcript, which belong to the window."""

    style_sheet: Callable[[], str]  # GUI thread
    html: Callable[[ChatTree, str], Iterator[str]]  # any thread
    pdf: Callable[[ChatTree, Path], Iterator[None]]  # GUI thread, one step at a time


@dataclass(slots=True)
class _Job:
    """One import or export; it ends early when it is cancelled."""

    work: Work
    cancelled: threading.Event
    done_bytes: int = 0
    reported: float = 0.0
    chats: int = 0

    def check(self) -> None:
        """Raise Cancelled if the user has cancelled."""
        if self.cancelled.is_set():
            raise Cancelled


class Transfer(QObject):
    """Previews, imports and exports chats; one of these at a time."""

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
        self._made: list[int] = []  # chats of the import that is not done yet
        self._imported: tuple[int, ...] = ()
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
        from app.chat.transfer.sources import counted, opened

        found = _Found()
        with opened(paths) as source:
            found.programs = source.programs
            try:
                for _, chat in source.chats(self._reporter(job, source)):
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
        self._made = made = list[int]()

        def ended(error: Exception | None) -> None:
            self._made = []
            if error is not None:
                self._remove(made)
            self._folders.read()
            self._conversations.read()

        self._run(
            job, lambda: self._import(job, preview.paths, skipped, made), self._show_done, ended
        )

    def _remove(self, made: Sequence[int]) -> None:
        numbers = tuple(made)
        if numbers:
            self._store_queue.write(lambda store: store.remove_imported(numbers))

    def _import(
        self, job: _Job, paths: tuple[Path, ...], skipped: frozenset[str], made: list[int]
    ) -> list[int]:
        """Store all chats of the files; returns their ids."""
        from app.chat.transfer.sources import opened

        batches = _Batches(self._worker, self._store_queue, job)
        seen: set[tuple[str, str]] = set()
        with opened(paths) as source:
            try:
                for program, chat in source.chats(self._reporter(job, source)):
                    tree = chat.tree
                    if tree is None or not tree.messages or tree.origin in skipped:
                        continue
                    for n, piece in enumerate(pieces_of(tree, program)):
                        key = (tree.origin, piece.digest)
                        if n == 0 and tree.origin and key in seen:
                            break
                        if n == 0:
                            seen.add(key)
                            made.append(piece.conversation)
                        batches.add(piece)
                    job.chats = len(made)
            except TransferError:
                if not made:  # else the preview has said that the file is damaged
                    raise
        batches.finish()
        return made

    def _show_done(self, made: list[int]) -> None:
        self._imported = tuple(made)
        sentence = trn("{count} chat was imported.", "{count} chats were imported.", len(made))
        self._state.set_notice(DONE_NOTICE, Notice(sentence, action=tr("Undo") if made else ""))

    def undo(self) -> None:
        """Delete the chats that were imported last; Undo brings them back."""
        self._state.set_notice(DONE_NOTICE, None)
        self._deletions.delete(self._imported)
        self._imported = ()

    # --- export ---------------------------------------------------------------------------------

    def export_chats(self, ids: Sequence[int], format: ExportFormat, path: Path) -> None:
        """Write chats to a file; several that are no JSON to a file each, in the folder `path`."""
        if not ids or self._refuse_busy():
            return
        from app.chat.transfer import native_json
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
            return documents.html(tree, sheet) if documents else ()

        def write() -> None:
            if format is ExportFormat.JSON:
                with replaced(path) as file:
                    trees = self._fetched(job, numbers)
                    for count in native_json.write(file, trees, time.time()):
                        self.report(job, count / len(numbers), count)
                return
            free = FreePaths(path, format.value)
            for count, tree in enumerate(self._fetched(job, numbers), 1):
                place = path if len(numbers) == 1 else free.path(tree.title)
                with replaced(place) as file:
                    for piece in pieces(tree):
                        job.check()
                        file.write(piece.encode("utf-8", "replace"))
                self.report(job, count / len(numbers), count)

        self._run(job, write, lambda _: self.say_exported(path, len(numbers)))

    def all_chats(self, then: Callable[[list[int]], None]) -> None:
        """Give the ids of all chats that are not deleted to `then`, archived ones too."""
        self._store_queue.read(lambda store: store.chat_ids(), then)

    def copy(self, ids: Sequence[int], then: Callable[[str], None]) -> None:
        """Give the text of whole chats, as Markdown, to `then`."""
        from app.chat.transfer.markdown_export import chats_text

        numbers = tuple(ids)
        self._store_queue.read(lambda store: chats_text(_trees(store, numbers)), then)

    def say_exported(self, path: Path, count: int) -> None:
        """Show where chats were written."""
        sentence = trn(
            "{count} chat was exported to {path}.", "{count} chats were exported to {path}.",
            count, path=path,
        )  # fmt: skip
        self.exported = path
        self._state.set_notice(EXPORTED_NOTICE, Notice(sentence, action=tr("Show in folder")))

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
            self.finished(error)
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
        found: queue.SimpleQueue[list[ChatTree]] = queue.SimpleQueue()
        wanted = tuple(ids)
        self._worker.post(
            lambda: self._store_queue.read(lambda store: list(_trees(store, wanted)), found.put)
        )
        while True:
            job.check()
            try:
                return found.get(timeout=0.1)
            except queue.Empty:
                if (fault := self._fault) is not None and not isinstance(fault, ReadOnlyStore):
                    raise TransferError(str(fault), fault.remedy) from None

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

    def settle(self, origin: str) -> None:
        """A chat is here with all that it has in the file."""
        self.skipped.add(origin)
        self.known += 1
        self.chats -= 1
        self.messages -= self._messages[origin]
        del self.uncertain[origin]


class _Batches:
    """Stores pieces of chats, some in one transaction; waits when too many wait for the store."""

    def __init__(self, worker: BackgroundWorker, store_queue: StoreQueue, job: _Job) -> None:
        self._worker, self._store_queue, self._job = worker, store_queue, job
        self._slots = threading.Semaphore(_WAITING_BATCHES)
        self._failed: list[Exception] = []
        self._pieces: list[ImportPiece] = []
        self._messages = self._characters = 0

    def add(self, piece: ImportPiece) -> None:
        """Add a piece; raises Cancelled, and StoreError if the store rejected an earlier one."""
        self._pieces.append(piece)
        self._messages += len(piece.messages)
        self._characters += sum(map(size_of, piece.messages))
        if self._messages >= MOST_MESSAGES or self._characters >= MOST_CHARACTERS:
            self._write()

    def finish(self) -> None:
        """Store the rest, and wait until all is stored."""
        if self._pieces:
            self._write()
        for _ in range(_WAITING_BATCHES):
            self._wait()

    def _wait(self) -> None:
        while not self._slots.acquire(timeout=0.1):
            self._job.check()
        if self._failed:
            raise self._failed[0]

    def _write(self) -> None:
        self._wait()
        pieces, self._pieces = tuple(self._pieces), []
        self._messages = self._characters = 0

        def write(store: Store) -> None:
            try:
                if not self._job.cancelled.is_set():
                    store.import_pieces(pieces)
            except StoreError as error:
                if error.temporary or isinstance(error, DamagedStore):
                    raise  # tried again
                self._failed.append(error)
            except Exception as error:  # noqa: BLE001  (raised by `_wait`)
                self._failed.append(error)
            self._slots.release()

        self._worker.post(lambda: self._store_queue.write(write))


class _PdfExport:
    """Writes PDF files in short steps between the events of the window."""

    def __init__(
        self,
        transfer: Transfer,
        job: _Job,
        write: Callable[[ChatTree, Path], Iterator[None]],
        ids: tuple[int, ...],
        path: Path,
    ) -> None:
        self._transfer, self._job, self._write = transfer, job, write
        self._ids, self._path = ids, path
        self._free = FreePaths(path, ExportFormat.PDF.value)
        self._done = 0
        self._steps: Iterator[None] = iter(())
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
        self._steps = iter(())
        for tree in trees:
            place = self._path if len(self._ids) == 1 else self._free.path(tree.title)
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self._end(not_written(place, error))
                return
            self._steps = self._write(tree, place)
        self._timer.start()

    def _step(self) -> None:
        """Work for a slice of time."""
        until = time.perf_counter() + _SLICE_SECONDS
        try:
            self._transfer.report(self._job, self._done / len(self._ids), self._done)
            while time.perf_counter() < until:
                next(self._steps)
        except StopIteration:
            self._timer.stop()
            self._next()
        except (Cancelled, TransferError) as error:
            self._end(error)
        except OSError as error:
            self._end(not_written(self._path, error))

    def _end(self, error: Exception | None) -> None:
        self._timer.stop()
        close = getattr(self._steps, "close", None)  # removes a file that is not complete
        if close is not None:
            close()
        self._timer.deleteLater()
        self._transfer.finished(error)
