"""Indexing: documents are indexed in the background, and searched.

A background thread works in steps of a few milliseconds, at the lowest priority: it pauses while
an answer is written, except for a question that waits for its documents. Passages get
vectors when an embedding model is installed. What is begun when the app ends is continued when the
document is wanted again; vectors and erasing go on at the next start.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QObject, QTimer, Signal

from app.chat.documents.encoder import TextKind, Vectors
from app.domain.documents import DocumentKind, FoundPassage, PageStart
from app.state.chat import State
from app.state.encoder import EncoderState
from app.state.indexing import IndexingState, IndexingView
from app.system.worker import BackgroundWorker

if TYPE_CHECKING:
    from app.documents.index import DocumentIndex

_log = logging.getLogger(__name__)
_STEP_SECONDS = 0.02  # of the worker, after which a question or a pause gets its turn
_REST_SECONDS = 0.001  # after each batch, at least
_TIDY_MILLISECONDS = 5_000  # after the last change: erasing rewrites a part of the file
_TEXTS = 32  # passages that the encoder gets at once,
_WITH_PARTS = 8  # or of which it gets the parts
_MOST_WAITED_FOR = 32  # documents; a question does not wait for more
_WAIT_MILLISECONDS = 20_000  # how long a question waits for its documents
_MOST_VECTORS = 400  # passages; a question does not wait for the vectors of more
_MOST_TRIES = 20  # to index a document, which is begun anew when a question needs another one
_VECTOR_MILLISECONDS = 4_000  # and for its vector: the model may have to be loaded


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document to index."""

    text: str
    starts: tuple[PageStart, ...] = ()
    kind: DocumentKind = DocumentKind.TEXT


Reader = Callable[[], DocumentText | None]  # called on the worker; None: there is no text


@dataclass(frozen=True, slots=True)
class Offered:
    """A document that can be indexed, and the version of its text."""

    text: DocumentText | Reader
    version: str = ""


# What is known of the documents with these keys, at once, on the GUI thread.
Source = Callable[[Collection[str]], Mapping[str, Offered]]


class Encoding(Protocol):
    """What is used of `Encoder`."""

    @property
    def model_id(self) -> str: ...

    @property
    def state(self) -> EncoderState: ...

    def look(self) -> None: ...

    def embed(
        self, texts: Sequence[str], then: Callable[[Vectors | None], None], kind: TextKind = ...
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was found for a question."""

    found: tuple[FoundPassage, ...]
    by_meaning: bool = False  # not only by words
    missing: int = 0  # documents that are not indexed yet, or only a part of each
    fault: str = ""  # why nothing could be found, technical; "": nothing went wrong


@dataclass(slots=True, eq=False)
class _Task:
    """A document to index."""

    key: str
    text: DocumentText | Reader
    version: str
    steps: Iterator[int] | None = None  # on the worker
    length: int = 0
    done: int = 0  # characters
    tries: int = 0


@dataclass(slots=True, eq=False)
class _Search:
    """A question that waits for its documents and its vector."""

    question: str
    keys: list[str] | None
    offered: Mapping[str, Offered]  # by the sources
    limit: int
    then: Callable[[SearchResult], None]
    waits_for: set[str] = field(default_factory=set[str])
    checked: bool = False  # whether it is known what is missing
    missing: int = 0
    vector: tuple[float, ...] | None = None
    model: str = ""
    embedding: bool = False
    waits_for_vectors: bool = False
    waited: bool = False  # for vectors, once


class Indexing(QObject):
    """The document index as a service; every method returns at once, on the GUI thread."""

    lost = Signal()  # the index was made anew: what should be in it has to be wanted again

    def __init__(
        self,
        state: State,
        own: IndexingState,
        path: Path | None,
        encoder: Encoding | None = None,
        parent: QObject | None = None,
    ) -> None:
        """`path` is that of the index; None: in memory."""
        super().__init__(parent)
        self._state, self.state, self._encoder = state, own, encoder
        self._worker = BackgroundWorker("document index", self)
        self._path = path
        self._made: DocumentIndex | None = None  # on the worker
        self._losses = 0
        self.sources: list[Source] = []  # of documents that a question needs and nobody wanted
        self._unchecked: dict[str, _Task] = {}
        self._tasks: dict[str, _Task] = {}  # to index, the next one first
        self._current: _Task | None = None
        self._searches: list[_Search] = []
        self._jobs: list[Callable[[DocumentIndex], None]] = []  # removals and vectors to write
        self._working = self._closed = False
        self._used = False  # there is an index, or a document for it
        self._untidy = True  # there may be something to erase
        self._rest = QTimer(self, singleShot=True, interval=_TIDY_MILLISECONDS)
        self._rest.timeout.connect(self._advance)
        self._embedding = False  # the encoder has passages
        self._embedded = ""  # id of the model of which all passages have vectors,
        self._refined = ""  # and all their parts
        self._vectorless = ""  # id of the model that gave none
        self._uncounted = True  # the passages that need vectors
        self._documents = self._documents_done = self._passages = self._passages_left = 0
        self._was_paused = False
        state.generations_changed.connect(self._on_generations)
        if encoder is not None:
            encoder.state.changed.connect(self._on_encoder)

    # --- what callers use -----------------------------------------------------------------------

    def start(self) -> None:
        """Continue what the last run has left: vectors and erasing; after the first paint."""
        self._used = self.is_used
        self._advance()

    @property
    def is_used(self) -> bool:
        """Whether there is an index, or a document for it."""
        return self._used or (self._path is not None and self._path.exists())

    def want(self, key: str, text: DocumentText | Reader, version: str = "") -> None:
        """Index a document, unless its key is known with this version of what extracted it."""
        if self._closed:
            return
        self._used = True
        if key not in self._unchecked and key not in self._tasks:
            self._documents += 1
        self._tasks.pop(key, None)
        self._unchecked[key] = _Task(key, text, version)
        self._advance()

    def forget(self, keys: Iterable[str]) -> None:
        """Remove documents from the index, also those that are being indexed."""
        gone = set(keys)
        for key in gone & (self._unchecked.keys() | self._tasks.keys()):
            self._unchecked.pop(key, None)
            self._tasks.pop(key, None)
            self._documents -= 1
        if self._current is not None and self._current.key in gone:
            self._current = None
        self._remove(lambda index: index.remove(gone))
        self._release(gone)

    def keep_only(self, keys: Iterable[str]) -> None:
        """Remove the documents with other keys that nobody wants now, such as of purged chats."""
        kept = {*keys, *self._unchecked, *self._tasks}
        self._remove(lambda index: index.remove(index.keys() - kept))

    def search(
        self,
        question: str,
        keys: Iterable[str] | None,
        then: Callable[[SearchResult], None],
        limit: int = 8,
    ) -> None:
        """Search documents, None: all; `then` is called later, once.

        A few documents that are not indexed yet are first, before all others, and so are the vectors
        of a few passages. Where the embedding model is busy for too long, only words count.
        """
        wanted = None if keys is None else list(dict.fromkeys(keys))
        offered: dict[str, Offered] = {}
        for source in self.sources if wanted else ():
            offered |= source(wanted or ())
        search = _Search(question, wanted, offered, limit, then)
        self._searches.append(search)
        if self._encoder is not None:
            self._encoder.look()
            if self._encoder.model_id or not self._encoder.state.view.searched:
                self._embed_question(search, self._encoder)
        if wanted is None:
            search.checked = True
            self._go(search)
            return

        def checked(known: set[str]) -> None:
            self._check(search, [key for key in wanted if key not in known])

        versions = {key: offered[key].version if key in offered else None for key in wanted}
        self._worker.run(lambda: self._known(versions), checked)

    def find_known(
        self, versions: Mapping[str, str | None], then: Callable[[set[str]], None]
    ) -> None:
        """Call `then` with the keys of the documents that are indexed in these versions; None: in
        any.
        """
        self._used = self.is_used
        if not self._used or not versions:
            QTimer.singleShot(0, self, lambda: then(set()))
            return
        self._worker.run(lambda: self._known({**versions}), then)

    def read_text(self, key: str, then: Callable[[DocumentText | None], None]) -> None:
        """Call `then` with the text of a document as it is in the index; None: it is not there."""

        def read() -> DocumentText | None:
            try:
                found = self._index().text(key) if self.is_used else None
            except Exception:  # noqa: BLE001  (logged; None: not in the index)
                _log.exception("a text of the index cannot be read")
                found = None
            return DocumentText(*found) if found else None

        self._worker.run(read, then)

    def close(self) -> None:
        """End after the step in progress; what waits is not done."""
        self._closed = True
        self._searches.clear()
        self._rest.stop()
        self._worker.close(lambda: self._made.close() if self._made is not None else None)

    # --- a question -----------------------------------------------------------------------------

    def _embed_question(self, search: _Search, encoder: Encoding) -> None:
        def embedded(vectors: Vectors | None) -> None:
            if search.embedding:
                search.embedding = False
                if vectors is not None and vectors.rows:
                    search.vector, search.model = vectors.rows[0], vectors.model
                self._go(search)

        search.embedding = True
        QTimer.singleShot(_VECTOR_MILLISECONDS, self, lambda: embedded(None))
        encoder.embed([search.question], embedded, TextKind.QUERY)

    def _check(self, search: _Search, missing: list[str]) -> None:
        """Put the documents that a question needs and that are not indexed before all others."""
        search.checked, search.missing = True, len(missing)
        if len(missing) <= _MOST_WAITED_FOR:
            for key in missing:
                if key in search.offered:
                    self.want(key, search.offered[key].text, search.offered[key].version)
                elif key not in self._unchecked and key not in self._tasks:
                    continue
                search.waits_for.add(key)
        if search.waits_for:

            def waited() -> None:
                search.waits_for.clear()
                self._go(search)

            QTimer.singleShot(_WAIT_MILLISECONDS, self, waited)
        self._go(search)
        self._advance()

    def _release(self, keys: set[str]) -> None:
        """These documents are indexed, or will not be: questions do not wait for them any more."""
        for search in list(self._searches):
            if search.waits_for & keys:
                search.missing -= len(search.waits_for & keys)
                search.waits_for -= keys
                self._go(search)

    def _go(self, search: _Search) -> None:
        """Search, if the question waits for nothing."""
        if search not in self._searches or not search.checked:
            return
        if search.waits_for or search.embedding or search.waits_for_vectors:
            return
        if self._lacks_vectors(search):
            search.waits_for_vectors = search.waited = True
            QTimer.singleShot(_WAIT_MILLISECONDS, self, self._stop_waiting)
            self._advance()
            return
        self._searches.remove(search)

        def look() -> SearchResult:
            try:
                found = self._index().search(
                    search.question, search.keys, search.vector, search.model, search.limit
                )
            except Exception as error:  # noqa: BLE001  (the question must not wait forever)
                _log.exception("documents could not be searched")
                return SearchResult((), fault=str(error) or type(error).__name__)
            return SearchResult(tuple(found), search.vector is not None, search.missing)

        self._worker.run(look, search.then)

    def _lacks_vectors(self, search: _Search) -> bool:
        """Whether passages may have no vectors yet, which come soon."""
        comes = self._used and not self._paused and not search.waited
        known = (self._embedded, self._vectorless)
        return comes and search.vector is not None and search.model not in known

    def _stop_waiting(self) -> None:
        """The passages have their vectors, or will not have them soon: questions go on."""
        for search in list(self._searches):
            if search.waits_for_vectors:
                search.waits_for_vectors = False
                self._go(search)

    # --- steps ----------------------------------------------------------------------------------

    @property
    def _paused(self) -> bool:
        return bool(self._state.generations)

    def _on_generations(self) -> None:
        if self._paused != self._was_paused:
            self._was_paused = self._paused
            if self._paused:
                self._stop_waiting()
            self._advance()

    def _remove(self, job: Callable[[DocumentIndex], None]) -> None:
        """Remove documents, and erase them later."""
        self._untidy = self._uncounted = True
        self._rest.start()
        if self.is_used:
            self._do(job)

    def _do(self, job: Callable[[DocumentIndex], None]) -> None:
        """Do something with the index before the next step."""
        self._jobs.append(job)
        self._advance()

    def _advance(self) -> None:
        """Let the worker do the next step, if there is one."""
        if self._working or self._closed:
            return
        step = self._next()
        if step is not None:
            self._working = True
            self._worker.run(lambda: self._safely(*step), self._stepped)
        self._show()

    def _next(self) -> tuple[Callable[[], Callable[[], None]], Callable[[], None]] | None:
        """The next step of the worker, which returns what to do then, and what to do if it fails."""
        if self._jobs:
            jobs, self._jobs = self._jobs, []
            return lambda: self._run_jobs(jobs), _nothing
        if self._unchecked:
            unchecked, self._unchecked = self._unchecked, {}
            self._tasks |= unchecked
            return lambda: self._find_known(unchecked), _nothing
        urgent = {key for search in self._searches for key in search.waits_for}
        waiting = iter(self._tasks) if not self._paused else iter(())
        first = next((key for key in self._tasks if key in urgent), None) or next(waiting, None)
        if first is not None:
            task = self._current = self._tasks[first]
            return lambda: self._index_some(task), lambda: self._indexed(task)
        if self._paused or not self._used:
            return None
        if self._encoder is not None and not self._embedding and not self._tasks:
            self._encoder.look()
            model = self._encoder.model_id
            if model and model != self._vectorless:
                if model != self._embedded:
                    return lambda: self._find_vectorless(model), _nothing
                if model != self._refined:
                    return lambda: self._find_unrefined(model), _nothing
        if self._untidy and not self._rest.isActive():
            self._untidy = False
            return self._tidy, _nothing
        return None

    def _safely(
        self, step: Callable[[], Callable[[], None]], failed: Callable[[], None]
    ) -> Callable[[], None]:
        """Do a step on the worker; a fault of a reader ends its document only."""
        try:
            return step()
        except Exception:  # noqa: BLE001  (of a reader; the other documents are indexed)
            _log.exception("a document could not be indexed")
            return failed

    def _stepped(self, then: Callable[[], None]) -> None:
        self._working = False
        then()
        if self._made is not None and self._made.lost != self._losses:
            self._losses = self._made.lost
            self._embedded = self._refined = ""
            self.lost.emit()
        self._advance()

    def _index(self) -> DocumentIndex:
        """The index; on the worker."""
        if self._made is None:
            from app.documents.index import DocumentIndex  # after the first paint

            self._made = DocumentIndex(self._path)
        return self._made

    def _known(self, versions: Mapping[str, str | None]) -> set[str]:
        try:
            return self._index().known(versions)
        except Exception:  # noqa: BLE001  (the search says what it is)
            _log.exception("the index of documents cannot be used")
            return set(versions)

    def _run_jobs(self, jobs: list[Callable[[DocumentIndex], None]]) -> Callable[[], None]:
        for job in jobs:
            job(self._index())
        return _nothing

    def _find_known(self, tasks: dict[str, _Task]) -> Callable[[], None]:
        """Leave out the documents that are indexed."""
        known = self._index().known({key: task.version for key, task in tasks.items()})

        def then() -> None:
            for key in known:
                if self._tasks.get(key) is tasks[key]:
                    self._indexed(tasks[key])

        return then

    def _index_some(self, task: _Task) -> Callable[[], None]:
        """Index a part of a document."""
        until = time.monotonic() + _STEP_SECONDS
        if task.steps is None:
            text = task.text() if callable(task.text) else task.text
            if text is None:
                return lambda: self._indexed(task)
            task.length = len(text.text)
            task.steps = self._index().adding(
                task.key, text.text, text.starts, text.kind, task.version
            )
            task.tries += 1
        begun = time.monotonic()
        for done in task.steps:
            task.done = done
            # As long as it worked, so that the window's thread need not wait for Python.
            time.sleep(max(_REST_SECONDS, time.monotonic() - begun))
            begun = time.monotonic()
            if time.monotonic() > until:
                return _nothing
        if task.tries < _MOST_TRIES and not self._index().known({task.key: task.version}):
            task.steps = None  # another one, which a question needed, was written in between
            return _nothing
        return lambda: self._indexed(task)

    def _indexed(self, task: _Task) -> None:
        """A document is done, or has no text."""
        if self._current is task:
            self._current = None
        if self._tasks.get(task.key) is task:
            del self._tasks[task.key]
            self._documents_done += 1
            self._embedded = self._refined = ""
            self._uncounted = self._untidy = True
            self._rest.start()
            self._release({task.key})

    def _find_vectorless(self, model: str) -> Callable[[], None]:
        """The next passages that need a vector."""
        index = self._index()
        passages = index.without_vectors(model, _TEXTS)
        counted, self._uncounted = self._uncounted, False
        left = index.count_without_vectors(model) if counted else self._passages_left

        def embedded(vectors: Vectors) -> None:
            self._passages_left = max(0, self._passages_left - len(passages))
            rows = [(each.id, row) for each, row in zip(passages, vectors.rows, strict=True)]
            self._do(lambda index: index.set_vectors(vectors.model, rows))

        def then() -> None:
            self._passages += max(0, left - self._passages_left)
            self._passages_left = left
            if passages:
                self._embed(model, [each.text for each in passages], embedded)
            else:
                self._embedded = model
            if not passages or left > _MOST_VECTORS:
                self._stop_waiting()

        return then

    def _find_unrefined(self, model: str) -> Callable[[], None]:
        """The next passages of whose parts vectors are made, after those of all whole passages."""
        passages = self._index().without_parts(model, _WITH_PARTS)
        texts = [part for each in passages for part in each.parts]

        def embedded(vectors: Vectors) -> None:
            given = iter(vectors.rows)
            parts = {each.id: list(islice(given, len(each.parts))) for each in passages}
            self._do(lambda index: index.set_parts(vectors.model, parts))

        def then() -> None:
            if not passages:
                self._refined = model
            elif texts:
                self._embed(model, texts, embedded)
            else:
                embedded(Vectors(model, ()))

        return then

    def _embed(self, model: str, texts: list[str], then: Callable[[Vectors], None]) -> None:
        def embedded(vectors: Vectors | None) -> None:
            self._embedding = False
            if vectors is None or len(vectors.rows) != len(texts):
                self._vectorless = model  # until the encoder changes
                self._stop_waiting()
                self._advance()
            else:
                then(vectors)

        if self._encoder is not None and not self._closed:
            self._embedding = True
            self._encoder.embed(texts, embedded, TextKind.DOCUMENT)

    def _on_encoder(self) -> None:
        """The embedding model may have changed, or may be used again after a fault."""
        if self._encoder is not None and not self._encoder.state.view.problem:
            self._vectorless = ""
            self._advance()

    def _tidy(self) -> Callable[[], None]:
        until = time.monotonic() + _STEP_SECONDS
        more = True
        while more and time.monotonic() < until:
            more = self._index().tidy()
            time.sleep(_REST_SECONDS)

        def then() -> None:
            self._untidy = self._untidy or more

        return then

    def _show(self) -> None:
        """Bring the state up to date."""
        if not (self._working or self._tasks or self._unchecked or self._embedding):
            self._documents = self._documents_done = self._passages = self._passages_left = 0
        task = self._current
        self.state.set_view(
            replace(
                IndexingView(),
                documents=self._documents,
                documents_done=self._documents_done,
                fraction=task.done / max(task.length, 1) if task is not None else 0.0,
                passages=self._passages,
                passages_done=self._passages - self._passages_left,
                paused=self._paused and bool(self._tasks),
            )
        )


def _nothing() -> None:
    pass
