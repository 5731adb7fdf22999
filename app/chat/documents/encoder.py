"""Encoder: the service that turns texts into vectors with an installed embedding model.

The model is loaded beside the chat model when texts come, and unloaded when it was idle for long.
Passages are read in the background, in small batches, and none begins while an answer runs or a
model is being loaded; a question is read at once. No fault ends more than the texts it concerns:
`EncoderState` says in a sentence why they get no vectors.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from PySide6.QtCore import QObject, QTimer

from app.chat.documents.embedding_prompts import preference, prompts_of, vectors_id
from app.downloads.queue import Download, Phase
from app.engines.client import EngineClient
from app.engines.run import RequestFailed, Run, start
from app.state.chat import ModelPhase, State
from app.state.encoder import EncoderState, EncoderView
from app.state.faults import explain
from app.state.library import FileState, LibraryState, Offer
from app.system.translation import tr
from app.system.worker import BackgroundWorker
from engine import (
    Embed,
    Embedded,
    EmbedderFacts,
    FaultKind,
    Load,
    ModelLoaded,
    ModelUnloaded,
    Priority,
    Unload,
    inspect_embedder,
)

MOST_TOKENS = 2048  # of a text; the beginning of a longer one is read
_BATCH = 16  # texts of a request: an answer that begins waits for one at most
_IDLE_MILLISECONDS = 5 * 60_000  # after which the model is unloaded
_PAUSE_SECONDS = 30.0  # after a fault, until passages are tried again


class TextKind(Enum):
    """What a text is: a model may want other words before each."""

    DOCUMENT = "document"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of length 1 of some texts, in their order."""

    model: str  # id of the vectors: only those of one id are comparable
    rows: tuple[tuple[float, ...], ...]


Then = Callable[[Vectors | None], None]


@dataclass(slots=True, eq=False)
class _Job:
    texts: Sequence[str]
    then: Then
    kind: TextKind
    model: EmbedderFacts | None = None  # that read the first of them
    rows: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])


@dataclass(slots=True, eq=False)
class _Lane:
    """Texts of one kind, read one batch after the other. Questions do not wait for passages."""

    jobs: deque[_Job] = field(default_factory=deque[_Job])
    is_working: bool = False
    run: Run | None = None  # in progress


class Encoder(QObject):
    """Turns texts into vectors; every method returns at once, on the GUI thread."""

    def __init__(
        self,
        state: State,
        library: LibraryState,
        own: EncoderState,
        engine: EngineClient,
        files: BackgroundWorker,
        chosen: Callable[[], str],
        download: Callable[[Offer], None],
        report: Callable[[Exception], None],
        parent: QObject | None = None,
    ) -> None:
        """`files` reads the user's files. `chosen` is the path of the model to use; "": the preferred
        one. `download` downloads a model. `report` is called with an unexpected exception.
        """
        super().__init__(parent)
        self._state, self._library, self.state, self._engine = state, library, own, engine
        self._files, self._chosen = files, chosen
        self._download, self._report = download, report
        self._looked: dict[Path, tuple[int, EmbedderFacts | None]] = {}  # with the size
        self._searched = self._looking = self._is_wanted = self._is_closed = False
        self._lanes = {kind: _Lane() for kind in TextKind}
        self._loaded: Path | None = None
        self._rests_until = 0.0  # monotonic time
        self._idle = QTimer(self, singleShot=True, interval=_IDLE_MILLISECONDS)
        self._idle.timeout.connect(self._unload)
        self._retry = QTimer(self, singleShot=True, interval=int(_PAUSE_SECONDS * 1000))
        self._retry.timeout.connect(self._recover)
        library.installed_changed.connect(self._on_installed)
        library.downloads_changed.connect(self._show)
        library.catalog_changed.connect(self._show)
        state.generations_changed.connect(self._work)
        state.model_changed.connect(self._work)

    # --- what callers use -----------------------------------------------------------------------

    @property
    def model_id(self) -> str:
        """Id of the vectors that the current model makes; "": there is none, or it is not known yet."""
        model = self.state.view.model
        return vectors_id(model, _most_tokens(model)) if model is not None else ""

    def look(self) -> None:
        """Find the installed embedding models, now and whenever files come or go."""
        if not self._is_wanted:
            self._is_wanted = True
            self._on_installed()

    def embed(self, texts: Sequence[str], then: Then, kind: TextKind = TextKind.DOCUMENT) -> None:
        """Call `then` once with the vectors of the texts, or with None: there are none, for the reason
        that the state has.
        """
        self.look()
        self._lanes[kind].jobs.append(_Job(tuple(texts), then, kind))
        self._show()
        self._work()

    def get(self) -> None:
        """Download the offered model; it is used when it is here."""
        if (offer := self.state.view.offer) is not None:
            self._download(offer)

    def choose_again(self) -> None:
        """Use the model that is chosen now; called when the setting has changed."""
        self._recover()

    def close(self) -> None:
        """End the request in progress; texts get no vectors any more: the app quits."""
        self._is_closed = True
        self._idle.stop()
        self._retry.stop()
        for lane in self._lanes.values():
            if lane.run is not None:
                lane.run.cancel()
        self._drop()

    # --- which model ----------------------------------------------------------------------------

    def _on_installed(self) -> None:
        """Look at the files that are new, on the worker."""
        if not self._is_wanted or self._looking or self._is_closed or not self._library.searched:
            return
        rows = [row for row in self._library.installed if row.state is not FileState.MISSING]
        sizes = {row.path: row.size_bytes for row in rows}
        self._looked = {at: one for at, one in self._looked.items() if sizes.get(at) == one[0]}
        fresh = [path for path in sizes if path not in self._looked]

        def looked(found: list[EmbedderFacts | None]) -> None:
            for path, one in zip(fresh, found, strict=True):
                self._looked[path] = sizes[path], one
            self._looking = False
            self._on_installed()  # more may have come meanwhile

        if fresh:
            self._looking = True
            self._files.run(lambda: [inspect_embedder(path) for path in fresh], looked)
            return
        self._searched = True
        self._recover()

    def _installed(self) -> tuple[EmbedderFacts, ...]:
        found = [one for _, one in self._looked.values() if one is not None]
        return tuple(sorted(found, key=preference))

    def _model(self, installed: Sequence[EmbedderFacts]) -> EmbedderFacts | None:
        chosen = self._chosen()
        wanted = next((one for one in installed if str(one.path) == chosen), None)
        return wanted or (installed[0] if installed else None)

    def _show(self) -> None:
        """Bring the state up to date."""
        installed = self._installed()
        model = self._model(installed)
        self._library.set_embedder(model.path if model is not None else None)
        offer = None
        if model is None:
            offers = (row.offer for row in self._library.embedders)
            offer = next((one for one in offers if not one.problem), None)
        download: Download | None = None
        if offer is not None:
            same = [one for one in self._library.downloads if one.is_of(offer.source)]
            live = [one for one in same if one.phase not in (Phase.DONE, Phase.CANCELLED)]
            download = live[-1] if live else None
        problem, remedy = self.state.view.problem, self.state.view.remedy
        if model is None and self._searched:
            problem = tr("No model for searching documents by meaning is installed.")
            remedy = tr("Documents are searched by their words.")
        self.state.set_view(
            EncoderView(
                model,
                installed,
                self._searched,
                offer,
                download,
                self._loaded is not None,
                sum(len(job.texts) - len(job.rows) for job in self._jobs()),
                problem,
                remedy,
            )
        )

    def _recover(self) -> None:
        """Something has changed: forget faults, and go on."""
        self._rests_until = 0.0
        self.state.set_view(replace(self.state.view, problem="", remedy=""))
        self._show()
        self._work()

    # --- reading texts --------------------------------------------------------------------------

    def _jobs(self) -> list[_Job]:
        return [job for lane in self._lanes.values() for job in lane.jobs]

    def _work(self) -> None:
        """Begin with the next texts, if they may begin now."""
        view = self.state.view
        if self._is_closed or not view.searched or not self._jobs():  # `_recover` follows a search
            return
        if view.model is None or time.monotonic() < self._rests_until:
            self._drop()
            return
        for lane in self._lanes.values():
            if not lane.is_working and self._may_read(lane):
                lane.is_working = True
                self._idle.stop()
                start(self._read(lane), lambda error, lane=lane: self._on_fault(lane, error))

    def _may_read(self, lane: _Lane) -> bool:
        state = self._state
        # Not one that is queued: its question may wait for these passages.
        is_busy = state.generations or state.model.phase is ModelPhase.LOADING
        return bool(lane.jobs) and (lane.jobs[0].kind is TextKind.QUERY or not is_busy)

    async def _read(self, lane: _Lane) -> None:
        """Read batches until none may begin."""
        while self._may_read(lane) and not self._is_closed:
            job, model = lane.jobs[0], self.state.view.model
            if model is None:
                break
            if job.model is not None and job.model.weights != model.weights:
                job.rows.clear()  # another model was chosen meanwhile
            job.model = model
            if not await self._read_batch(lane, job, model):
                break
            self._show()
        lane.is_working = False
        if self._loaded is not None and not self._is_closed:
            self._idle.start()
        self._show()

    async def _read_batch(self, lane: _Lane, job: _Job, model: EmbedderFacts) -> bool:
        """Read the next texts of a job; whether to go on with others."""
        prompts = prompts_of(model)
        words = prompts.query if job.kind is TextKind.QUERY else prompts.document
        texts = tuple(f"{words}{text}" or " " for text in job.texts[len(job.rows) :][:_BATCH])
        if texts:
            found = await self._vectors(lane, model, texts)
            if found is None or len(found.vectors) != len(texts):  # a fault, or cancelled
                self._drop()
                return False
            job.rows += found.vectors
        if job in lane.jobs and len(job.rows) == len(job.texts):  # else dropped, or not done
            lane.jobs.remove(job)
            id = vectors_id(model, _most_tokens(model))
            self._give(job, Vectors(id, tuple(job.rows)))
        return True

    async def _vectors(
        self, lane: _Lane, model: EmbedderFacts, texts: tuple[str, ...]
    ) -> Embedded | None:
        """The vectors of texts; None after a fault, which the state then has."""
        is_query = lane is self._lanes[TextKind.QUERY]
        priority = Priority.WINDOW if is_query else Priority.BACKGROUND
        load = Load(model.path, context=_most_tokens(model), embeddings=True, beside=True)
        for last in (False, True):
            try:
                lane.run = self._engine.submit(load, priority)
                await lane.run.result(ModelLoaded)
                self._loaded = model.path
                self._show()
                embed = Embed(texts, model=model.path, cuts=True)
                lane.run = self._engine.submit(embed, priority)
                return await lane.run.result(Embedded)
            except RequestFailed as failed:
                # It may have been unloaded in between: another model needed its memory.
                if last or failed.event.fault.kind is not FaultKind.NOT_LOADED:
                    self._fail(model, failed)
                    break
            finally:
                lane.run = None
        return None

    def _fail(self, model: EmbedderFacts, failed: RequestFailed) -> None:
        event = failed.event
        shown = explain(event.fault, model.path.name, event.message, event.remedy)
        self._rests_until = time.monotonic() + _PAUSE_SECONDS
        self._retry.start()
        self.state.set_view(replace(self.state.view, problem=shown.sentence, remedy=shown.remedy))

    def _on_fault(self, lane: _Lane, error: Exception) -> None:
        """An exception in the app: what waits gets no vectors, and later texts are tried again."""
        lane.is_working = False
        self._report(error)
        self._drop()

    def _drop(self) -> None:
        """Answer all that waits with None."""
        dropped = self._jobs()
        for lane in self._lanes.values():
            lane.jobs.clear()
        for job in dropped:
            self._give(job, None)
        self._show()

    def _give(self, job: _Job, found: Vectors | None) -> None:
        try:
            job.then(found)
        except Exception as error:  # noqa: BLE001  the texts of others go on
            self._report(error)

    # --- memory ---------------------------------------------------------------------------------

    def _unload(self) -> None:
        """Give the memory of the model back: it was idle for long."""
        if any(lane.is_working for lane in self._lanes.values()):
            return
        path, self._loaded = self._loaded, None
        if path is not None:
            start(self._unloaded(self._engine.submit(Unload(path))), self._report)
        self._show()

    async def _unloaded(self, run: Run) -> None:
        await run.result(ModelUnloaded)


def _most_tokens(model: EmbedderFacts) -> int:
    """Tokens of a text that are read."""
    return min(model.context, MOST_TOKENS)
