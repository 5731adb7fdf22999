"""Collections of documents: made, changed and deleted; their files read, indexed and watched.

Folders are looked through again every few seconds while the shown chat uses them, else every
minute: notifications of the system have limits on folders, and say nothing of network drives. A
file is read when its size or time has changed, one after another, and never while an answer is
written. What cannot be reached, such as a drive that is not connected, stays in the index until it
is there again and its files are not, or the user lets it go.

What is known of files and what is in the index are kept in two files of their own, so that a crash
may leave either behind. They are compared at the start, and when all is read.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from errno import ETIMEDOUT
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer

from app.chat.documents.collection_reader import READER, ReadFile
from app.chat.documents.collection_reading import CollectionReading
from app.chat.documents.file_texts import TextExtractor
from app.chat.documents.indexed_files import IndexedFiles
from app.chat.documents.indexing import Indexing
from app.chat.documents.retrieval import Read, Retrieval, passage_of
from app.documents.folder_scan import Difference, Scan, difference, inside, is_in, scan
from app.documents.source import ExtractionFault
from app.domain.collection import (
    Collection,
    CollectionFile,
    CollectionView,
    FileState,
    Problem,
)
from app.domain.documents import FoundPassage, Passage
from app.domain.ids import new_id
from app.domain.message import Message
from app.state.chat import State
from app.state.collection_faults import (
    emptied_problem,
    gone_problem,
    more_gone_problem,
    more_problem,
    problem_of,
    source_problem,
)
from app.state.collections import CollectionsState
from app.store.store import Store, StoreError
from app.store.writer import StoreQueue
from app.system import paths
from app.system.translation import tr
from app.system.worker import BackgroundWorker

if TYPE_CHECKING:
    from app.documents.known_files import KnownFiles

_log = logging.getLogger(__name__)
SHOWN_SECONDS, OTHER_SECONDS = 3, 60  # between two looks through the folders
_SHARE = 20  # at most one part of so many of the time is spent with looking
_MOST_INDEXING = 8  # documents that wait to be indexed, with their texts in memory
_AT_ONCE = 1_000  # files that are taken over from a scan, so that the window stays fluent
_MOST_WAITED_FOR = 32  # files; a question does not wait until more are read,
_WAIT_MILLISECONDS = 20_000  # nor longer
_RESPONSE_SECONDS = 2.0  # a question does not wait for a drive that takes longer
_SAVE_MILLISECONDS = 500
_SHOW_MILLISECONDS = 200
_MOST_SAID = 100  # problems of a kind that are said one by one


class Collections(QObject):
    """Changes the collections, and reads their files; every method returns at once."""

    def __init__(
        self,
        state: State,
        shown: CollectionsState,
        store_queue: StoreQueue,
        indexing: Indexing,
        path: Path,
        extractor: Callable[[], TextExtractor],
        index: IndexedFiles,
        retrieval: Retrieval,
        parent: QObject | None = None,
    ) -> None:
        """`path` is that of the file in which known files are kept; `index` is what forgets the
        documents that nothing names any more.
        """
        super().__init__(parent)
        self._state, self.state, self._store_queue = state, shown, store_queue
        self._indexing, self._path, self._forget = indexing, path, index.forget_unnamed
        self._own = path.parent, paths.config(), paths.state(), paths.cache()  # the app's folders
        self._worker = BackgroundWorker("collections", self)
        # One for each collection: a drive that does not respond must keep no other from being read.
        self._lookers: dict[int, BackgroundWorker] = {}
        self._reads = CollectionReading(extractor, self._on_hung, self)
        self._known: KnownFiles | None = None  # on the worker
        self._closed = self._has_read = False
        self._files: dict[str, CollectionFile] | None = None  # by path; None: not known yet
        self._loading = False
        self._failed: dict[str, None] = {}  # paths of files without a text
        self._of: dict[int, frozenset[str]] = {}  # paths of the files of a collection
        self._scans: dict[int, Scan] = {}  # the last one
        self._hidden: dict[
            int, Counter[str]
        ] = {}  # files that may still be there, by what hides them
        self._devices: dict[str, int] = {}  # of folders, as they were when their files were seen
        self._gone: dict[int, dict[str, str]] = {}  # until the end of the program: hashes by path
        self._waits: list[Callable[[], None]] = []  # questions, to be looked at when files are read
        self._missed = set[str]()  # hashes of texts that were once not in the index
        self._texts: dict[str, CollectionFile] = {}  # those that are read, by hash
        self._waiting: dict[str, None] = {}  # paths of files to read, in order
        self._untidy = False  # texts may have become unused, or the index may lack some
        self._scanning = set[int]()
        self._seen_alive: dict[int, float] = {}  # when the drive of a collection last responded
        self._looked: dict[int, tuple[float, float]] = {}  # when, and seconds it took
        self._unsaved: dict[str, CollectionFile | None] = {}  # None: it is to be forgotten
        self._save = QTimer(self, singleShot=True, interval=_SAVE_MILLISECONDS)
        self._save.timeout.connect(self._write_known)
        self._show_later = QTimer(self, singleShot=True, interval=_SHOW_MILLISECONDS)
        self._show_later.timeout.connect(self._show)
        self._look_again = QTimer(self, interval=1_000)
        self._look_again.timeout.connect(self._look)
        self._look_again.timeout.connect(self._look_at_waits)
        index.others = self.named
        retrieval.documents.append(self)
        state.generations_changed.connect(self._advance)
        state.conversation_changed.connect(self._look)
        state.settings_changed.connect(self._look)
        indexing.state.changed.connect(self._advance)
        indexing.lost.connect(self._read_all_again)
        store_queue.fault_changed.connect(self._on_store_fault)

    # --- the store ------------------------------------------------------------------------------

    def read(self) -> None:
        """Read them from the store; those made meanwhile stay."""

        def found(stored: list[Collection]) -> None:
            own = {each.id for each in self.state.collections}
            self._has_read = True
            self._set([*self.state.collections, *(e for e in stored if e.id not in own)])

        self._store_queue.read(Store.collections, found)

    def write_all(self) -> None:
        """Write all of them, after a repair of the store."""
        for each in self.state.collections:
            self._write(each)

    def close(self) -> None:
        """Stop; what is not read is read after the next start."""
        self._closed = True
        self._write_known()
        self._look_again.stop()

        def last() -> None:
            if self._known is not None:
                self._known.close()

        for each in self._lookers.values():
            each.end()
        self._reads.close()
        self._worker.close(last)

    # --- intents --------------------------------------------------------------------------------

    def add(self, sources: Iterable[Path], name: str = "") -> int:
        """Make a collection of folders and files; returns its id."""
        paths = _paths(sources)
        named = name or (Path(paths[0]).name if paths else "")
        made = Collection(new_id(), _one_line(named) or tr("Documents"), paths, time.time())
        self._write(made)
        self._set([*self.state.collections, made])
        return made.id

    def rename(self, id: int, name: str) -> None:
        """Give a collection another name; an empty one changes nothing."""
        self._change(id, lambda each: replace(each, name=_one_line(name) or each.name))

    def add_sources(self, id: int, sources: Iterable[Path]) -> None:
        """Add folders and files to a collection."""
        more = _paths(sources)
        self._change(
            id, lambda each: replace(each, sources=tuple(dict.fromkeys((*each.sources, *more))))
        )

    def remove_source(self, id: int, source: str) -> None:
        """Take a folder or file out of a collection."""
        self._change(
            id, lambda each: replace(each, sources=tuple(s for s in each.sources if s != source))
        )

    def delete(self, id: int) -> None:
        """Delete a collection, which can be restored until the next one is deleted."""
        gone = self.state.collection(id)
        if gone is not None:
            self._store_queue.write(lambda store: store.delete_collection(id))
            self._set([each for each in self.state.collections if each is not gone], gone)

    def restore(self) -> None:
        """Restore the collection that was deleted last."""
        if (gone := self.state.deleted) is not None:
            self._write(gone)
            self._set([*self.state.collections, gone])

    def let_go(self, id: int, path: str) -> None:
        """Forget the files in a folder that cannot be read, or is empty now."""
        files, found = self._of.get(id, frozenset()), self._scans.get(id)
        if found is None:
            return
        gone = {each for each in files if is_in(each, path) and each not in found.files}
        self._of[id] = files - gone
        self._hidden[id] = Counter({k: n for k, n in self._hidden[id].items() if k != path})
        found.emptied[:] = (each for each in found.emptied if each != path)
        self._keep_devices(id, found)
        self._drop_unused()
        self._advance()
        self._show()

    def look_now(self, id: int) -> None:
        """Look through the folders of a collection now, and read again what had no text."""
        for path in self._of.get(id, frozenset()).intersection(self._failed):
            if (file := self._file(path)) is not None:
                self._put(replace(file, state=FileState.WAITING))
        self._scan(id)
        self._advance()

    # --- documents of a chat --------------------------------------------------------------------

    def keys(self, conversation: int, branch: Sequence[Message]) -> Iterable[str]:
        """The keys of the files that a chat is answered from."""
        del branch
        return dict.fromkeys(file.sha256 for file in self._searched(conversation))

    def reader(self, conversation: int, branch: Sequence[Message]) -> Read:
        """What makes passages of what was found in these files."""
        del branch
        files = {file.sha256: file for file in self._searched(conversation)}
        names = Counter(os.path.basename(file.path) for file in files.values())

        def read(found: FoundPassage) -> Passage | None:
            file = files.get(found.key)
            if file is None:
                return None
            path = Path(file.path)
            several = names[path.name] > 1  # of the same name in other folders
            name = f"{path.parent.name}/{path.name}" if several else path.name
            made = passage_of(found, found.text, name, found.page, file.unit)
            return replace(made, path=file.path)

        return read

    def unread(self, conversation: int) -> int:
        """How many files that a chat is to be answered from are not read yet; 1: not known."""
        return self._unread(self._used(conversation))

    def _unread(self, ids: Sequence[int]) -> int:
        if any(self._is_unknown(id) for id in ids):
            return 1
        files = frozenset[str]().union(*(self._of.get(id, frozenset()) for id in ids))
        waiting = map(self._file, self._unread_of(files))
        return sum(file is not None and not file.version for file in waiting)

    def _unread_of(self, files: frozenset[str]) -> frozenset[str]:
        """The paths of those that are not read yet."""
        return files.intersection((*self._waiting, self._reads.path, *self._reads.stuck))

    def when_read(self, conversation: int, then: Callable[[], None]) -> None:
        """Call `then` when they are read, or at once if there are many; later if it takes long."""
        done = False

        def go_on() -> None:
            nonlocal done
            if not done:
                done = True
                self._waits.remove(look)
                then()

        def look() -> None:
            ids = [id for id in self._used(conversation) if not self._hangs(id)]
            unread = self._unread(ids)
            if not unread or unread > _MOST_WAITED_FOR:
                go_on()

        self._waits.append(look)
        look()
        if not done:
            QTimer.singleShot(round(_RESPONSE_SECONDS * 1000) + 1, self, look)
            QTimer.singleShot(_WAIT_MILLISECONDS, self, go_on)

    def _look_at_waits(self) -> None:
        for look in list(self._waits):
            look()

    def named(self) -> set[str] | None:
        """The keys of the files of all collections; None: they are not known yet."""
        if not self._has_read or (self._files is None and self.state.collections):
            return None
        # Also texts of files that were renamed, which are not read again: they are known by `_texts`.
        files = (*(self._files or {}).values(), *self._texts.values())
        return {file.sha256 for file in files if file.sha256}

    def _searched(self, conversation: int) -> Iterable[CollectionFile]:
        for id in self._used(conversation):
            files = map(self._file, self._of.get(id, frozenset()))
            yield from (file for file in files if file is not None and file.version)

    def _used(self, conversation: int) -> list[int]:
        """The collections that a chat is answered from."""
        ids = self._state.settings(conversation).collections
        return [id for id in ids if not self._has_read or self.state.collection(id) is not None]

    def _is_unknown(self, id: int) -> bool:
        """Whether it is not known yet which files a collection has."""
        looked = id in self._scans or bool(self._of.get(id))
        return not self._has_read or self._files is None or not looked

    def _hangs(self, id: int) -> bool:
        """Whether the drive of a collection does not respond."""
        if not self._reads.stuck.isdisjoint(self._of.get(id, ())):
            return True
        last = self._seen_alive.get(id, math.inf)
        is_late = id in self._scanning and time.monotonic() - last >= _RESPONSE_SECONDS
        return is_late and self._is_unknown(id)

    # --- looking --------------------------------------------------------------------------------

    def _set(self, collections: Sequence[Collection], deleted: Collection | None = None) -> None:
        before = self.state.deleted
        self.state.set(collections, deleted)
        if collections or self._path.exists():  # else nothing was read for one that was deleted
            self._load()
        if collections:
            self._look_again.start()
            for each in collections:
                if each.id not in self._of and self._files is not None:
                    self._take_known(each)
                    self._scan(each.id)
        if before is not None and before is not deleted:
            self._drop_unused()
        self._advance()
        self._show()

    def _load(self) -> None:
        """Learn which files were read before, and what of them is in the index."""
        if self._files is not None or self._loading:
            return
        self._loading = True

        def load() -> tuple[dict[str, CollectionFile], dict[str, int]]:
            from app.documents.known_files import KnownFiles  # after the first paint

            self._known = KnownFiles(self._path, READER)
            return self._known.read(), self._known.devices()

        def loaded(found: tuple[dict[str, CollectionFile], dict[str, int]]) -> None:
            files, self._devices = found
            ready = {f.sha256: f.version for f in files.values() if f.version}
            self._indexing.find_known(ready, partial(checked, files))

        def checked(files: dict[str, CollectionFile], known: set[str]) -> None:
            self._files = {}
            for file in files.values():
                lost = bool(file.version) and file.sha256 not in known
                self._put(replace(file, state=FileState.WAITING, version="") if lost else file)
            self._unsaved.clear()
            for each in self.state.collections:
                self._take_known(each)
                self._scan(each.id)
            self._drop_unused()
            self._untidy = True
            self._advance()
            self._show()

        self._worker.run(load, loaded)

    def _take_known(self, collection: Collection) -> None:
        """Files that were read before are searched before the folders are looked through."""
        starts = tuple(map(inside, collection.sources))
        whole = set(collection.sources)
        self._of[collection.id] = frozenset(
            path for path in self._files or () if path in whole or path.startswith(starts)
        )

    def _look(self, *_: object) -> None:
        """Look through the folders again whose time has come."""
        shown = self._state.settings(self._state.current).collections
        for each in self.state.collections:
            last, took = self._looked.get(each.id, (0.0, 0.0))
            wait = max(SHOWN_SECONDS if each.id in shown else OTHER_SECONDS, took * _SHARE)
            if time.monotonic() - last >= wait:
                self._scan(each.id)

    def _scan(self, id: int) -> None:
        collection = self.state.collection(id)
        if collection is None or self._files is None or id in self._scanning or self._closed:
            return
        self._scanning.add(id)
        self._seen_alive[id] = time.monotonic()
        known, before = dict(self._files), self._of.get(id, frozenset())
        folders = {e: d for e, d in self._devices.items() if _is_in_any(e, collection.sources)}

        def is_closed() -> bool:
            self._seen_alive[id] = time.monotonic()
            return self._closed

        def look() -> tuple[Scan, Difference, float]:
            begun = time.monotonic()
            try:
                found = scan(collection.sources, is_closed, without=self._own)
            except Exception:  # noqa: BLE001  (as if nothing could be reached)
                _log.exception("the folders of a collection cannot be looked through")
                found = Scan(missing=list(collection.sources))
            changes = difference(found, known, before, folders)
            return found, changes, time.monotonic() - begun

        def looked(result: tuple[Scan, Difference, float]) -> None:
            found, changes, took = result
            self._looked[id] = time.monotonic(), took
            now = self.state.collection(id)
            if now is not None and now.sources == collection.sources:
                self._of[id] = before | changes.paths
                self._on_scanned(id, found, changes)
            else:
                self._scanning.discard(id)
                self._scan(id)

        if id not in self._lookers:
            self._lookers[id] = BackgroundWorker("folders", self)
        self._lookers[id].run(look, looked)

    def _on_scanned(self, id: int, found: Scan, changes: Difference) -> None:
        """Read what is new or has changed, some of it at once, and then forget what is gone."""
        some, rest = changes.changed[:_AT_ONCE], changes.changed[_AT_ONCE:]
        for seen in some:
            file = self._file(seen.path)
            if file is None:
                self._put(CollectionFile(seen.path, seen.size, seen.modified))
            elif (file.size, file.modified) != (seen.size, seen.modified):
                changed = replace(file, size=seen.size, modified=seen.modified)
                self._put(replace(changed, state=FileState.WAITING))  # its old text is kept so far
        if rest:
            more = replace(changes, changed=rest)
            QTimer.singleShot(0, self, lambda: self._on_scanned(id, found, more))
            return
        self._scanning.discard(id)
        for path in changes.waiting:
            if (file := self._file(path)) is not None and file.state is FileState.WAITING:
                self._waiting[path] = None
        kept = self._of.get(id, frozenset()).intersection(changes.kept)
        self._of[id] = changes.paths | kept
        self._hidden[id] = Counter(changes.kept[path] for path in kept)
        said, collection = self._gone.setdefault(id, {}), self.state.collection(id)
        sources = collection.sources if collection is not None else ()
        said |= {path: file.sha256 for path in changes.gone if (file := self._file(path))}
        for path in [each for each in said if not _is_in_any(each, sources)]:
            del said[path]  # the user took it out
        for path in said.keys() & changes.paths:
            del said[path]
        self._keep_devices(id, found)
        self._scans[id] = found
        self._drop_unused()
        self._advance()
        self._show_later.start()

    def _keep_devices(self, id: int, found: Scan) -> None:
        """Learn the devices of folders from a scan, but not of those whose files may be there."""
        collection = self.state.collection(id)
        sources = collection.sources if collection is not None else ()
        new = dict(self._devices)
        other = [e for e in new if e not in found.devices and _is_in_any(e, sources)]
        for each in set(other) - found.may_have(other).keys():
            del new[each]
        new |= {each: on for each, on in found.devices.items() if each not in found.emptied}
        if new != self._devices:
            self._devices = new
            self._worker.run(lambda: self._known and self._known.write_devices(new))

    def _drop_unused(self) -> None:
        """Forget the files that are in no collection any more, but for one that can be restored."""
        if self._files is None or not self._has_read:
            return
        ids = {each.id for each in (*self.state.collections, self.state.deleted) if each}
        for id in self._of.keys() - ids:
            del self._of[id]
        for id in self._lookers.keys() - ids - self._scanning:
            self._lookers.pop(id).end()
        used = frozenset[str]().union(*self._of.values())
        for path in self._files.keys() - used:
            del self._files[path]
            self._unsaved[path] = None
            self._waiting.pop(path, None)
            self._failed.pop(path, None)
            self._untidy = True
        if self._unsaved and not self._save.isActive():
            self._save.start()

    # --- reading --------------------------------------------------------------------------------

    def _file(self, path: str) -> CollectionFile | None:
        return (self._files or {}).get(path)

    def _put(self, file: CollectionFile) -> None:
        """Set what is known of a file."""
        assert self._files is not None
        self._files[file.path] = file
        self._unsaved[file.path] = file
        self._failed.pop(file.path, None)
        if file.state is FileState.WAITING:
            self._waiting[file.path] = None
        elif file.state is FileState.FAILED:
            self._failed[file.path] = None
        elif file.version:
            self._texts[file.sha256] = file
        if not self._save.isActive():
            self._save.start()

    def _advance(self) -> None:
        """Read the next file, unless too many wait to be indexed, or an answer is written and no
        question waits.
        """
        self._look_at_waits()
        if self._reads.path or self._closed or self._files is None:
            return
        if self._state.generations and not self._waits:
            return
        view = self._indexing.state.view
        if not self._waiting:
            settled = not self._scanning and view.documents == view.documents_done
            if self._untidy and settled:
                self._untidy = False
                self._tidy(self._files.values())
            return
        if view.documents - view.documents_done >= _MOST_INDEXING:
            return
        stuck, sources = self._reads.stuck, [s for e in self.state.collections for s in e.sources]
        hung = [each for each in sources if any(is_in(path, each) for path in stuck)]
        path = next((each for each in self._waiting if not _is_in_any(each, hung)), None)
        if path is not None:
            del self._waiting[path]
            file = self._files[path]
            self._reads.read(file, self._texts, partial(self._on_read, file))

    def _tidy(self, files: Iterable[CollectionFile]) -> None:
        """Let the index forget what is not used any more, and read again what it lacks."""
        self._texts = {f.sha256: f for f in files if f.version and f.state is FileState.READY}
        texts = dict(self._texts)
        self._forget()

        def checked(known: set[str]) -> None:
            for file in texts.values() if len(known) < len(texts) else ():
                if file.sha256 not in known and self._file(file.path) is file:
                    self._read_again(file)
            self._advance()

        self._indexing.find_known(dict.fromkeys(texts), checked)

    def _read_again(self, file: CollectionFile) -> None:
        """Read a file whose text is not in the index, but once only if it cannot be indexed."""
        self._texts.pop(file.sha256, None)
        if file.sha256 in self._missed:
            fault = ExtractionFault.CRASHED
            self._put(replace(file, state=FileState.FAILED, version="", fault=fault))
        else:
            self._missed.add(file.sha256)
            self._put(replace(file, state=FileState.WAITING, version=""))

    def _on_read(self, wanted: CollectionFile, read: ReadFile) -> None:
        now = self._file(wanted.path)
        if now is not None and not read.cancelled:
            self._untidy = True
            known = read.text is None and bool(read.file.version)
            if known and read.file.sha256 not in self._texts:  # the index was lost meanwhile
                self._put(wanted)
            else:
                self._put(read.file)
            if read.text is not None:
                self._indexing.want(read.file.sha256, read.text, read.file.version)
        if not self._show_later.isActive():
            self._show_later.start()
        self._advance()

    def _on_hung(self) -> None:
        """Go on with files of other drives."""
        self._show()
        self._advance()

    def _read_all_again(self) -> None:
        """The index was lost."""
        self._texts.clear()
        for file in list((self._files or {}).values()):
            if file.version:
                self._put(replace(file, state=FileState.WAITING, version=""))
        self._advance()

    def _write_known(self) -> None:
        """Keep what was learnt, in one transaction."""
        unsaved, self._unsaved = self._unsaved, {}
        if unsaved:
            changed = (file for file in unsaved.values() if file is not None)
            gone = (path for path, file in unsaved.items() if file is None)
            self._worker.run(lambda: self._known and self._known.write(changed, gone))

    # --- steps ----------------------------------------------------------------------------------

    def _change(self, id: int, change: Callable[[Collection], Collection]) -> None:
        old = self.state.collection(id)
        if old is not None and (new := change(old)) != old:
            self._write(new)
            rest = [each for each in self.state.collections if each is not old]
            self._set([*rest, new], self.state.deleted)
            if new.sources != old.sources:
                self._scan(id)

    def _write(self, collection: Collection) -> None:
        self._store_queue.write(lambda store: store.write_collection(collection))

    def _on_store_fault(self, error: StoreError | None) -> None:
        if error is None and not self._has_read:
            self.read()

    def _show(self) -> None:
        """Bring the state up to date."""
        self.state.set_views({each.id: self._view(each) for each in self.state.collections})

    def _view(self, collection: Collection) -> CollectionView:
        id = collection.id
        found, files = self._scans.get(id), self._of.get(id, frozenset())
        waiting = len(self._unread_of(files))
        failed = [each for path in self._failed if path in files and (each := self._file(path))]
        said = [problem for each in failed if (problem := problem_of(each)) is not None]
        problems = self._scan_problems(id, found) if found is not None else []
        late = os.strerror(ETIMEDOUT)
        problems += [source_problem(path, late) for path in files & self._reads.stuck]
        problems += said[:_MOST_SAID]
        if len(said) > _MOST_SAID:
            problems.append(more_problem(said[-1].path, len(said) - _MOST_SAID))
        if not waiting:  # else it may be read under another name
            problems += self._gone_problems(id, files)
        left_out = (found.left_out if found else 0) + len(failed) - len(said)
        return CollectionView(
            len(files), len(files) - waiting, left_out, tuple(problems), found is not None,
            found is not None and found.cut,
        )  # fmt: skip

    def _scan_problems(self, id: int, found: Scan) -> list[Problem]:
        """What could not be read, and how many files are known to be in it."""
        hidden = self._hidden.get(id, Counter[str]())
        made = [source_problem(path, kept=hidden[path]) for path in found.missing]
        made += [emptied_problem(path, hidden[path]) for path in found.emptied]
        unreadable = list(found.unreadable.items())
        made += [source_problem(p, why, hidden[p]) for p, why in unreadable[:_MOST_SAID]]
        if len(unreadable) > _MOST_SAID:
            made.append(more_problem(unreadable[-1][0], len(unreadable) - _MOST_SAID))
        return made

    def _gone_problems(self, id: int, files: Iterable[str]) -> list[Problem]:
        """The files that disappeared, and are not there under other names."""
        gone = self._gone.get(id)
        if not gone:
            return []
        there = {file.sha256 for path in files if (file := self._file(path))} - {""}
        for path in [path for path, key in gone.items() if key in there]:
            del gone[path]
        paths = list(gone)
        said = [gone_problem(path) for path in paths[:_MOST_SAID]]
        if len(paths) > _MOST_SAID:
            said.append(more_gone_problem(paths[-1], len(paths) - _MOST_SAID))
        return said


def _paths(sources: Iterable[Path]) -> tuple[str, ...]:
    """Absolute paths, each once."""
    return tuple(dict.fromkeys(os.path.abspath(each) for each in sources))


def _one_line(name: str) -> str:
    return " ".join(name.split())[:200].rstrip()


def _is_in_any(path: str, folders: Iterable[str]) -> bool:
    return any(is_in(path, each) for each in folders)
