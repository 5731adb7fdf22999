"""Hub requests: search, pasted links, files of a repository; only the latest result is shown.

Of the files whose rows are visible the beginning is read, one after another, to tell what each is.
Each request runs on a separate thread, so that neither the next request nor quitting waits for a
server that does not respond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject

from app.library.offers import file_of, linked_file, needs_formats, offers
from app.library.pictures import PictureChoices
from app.net import hub
from app.net.hub import HUB, HubError, HubFile, Piece, Repository, Source
from app.net.hub_links import Quantized, parse_link
from app.state.library import Hub, HubPhase, LibraryState, Offer
from app.system.worker import BackgroundWorker
from engine import BeginningFacts, available_memory, inspect_beginning

T = TypeVar("T")
Where = Callable[[Source], Path | None]
_START_BYTES = 256 << 10  # enough for the keys that say what a file is
_HEADER_BYTES = 16 << 20  # holds the table of tensors after the largest vocabularies
_UNKNOWN = BeginningFacts()


class HubBrowser(QObject):
    """Keeps `LibraryState.hub` up to date."""

    def __init__(
        self,
        library: LibraryState,
        here: Where,
        coming: Callable[[Source], bool],
        reclaimable: Callable[[], int],
        choices: PictureChoices,
        sees: Callable[[Path, Sequence[Piece]], bool],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._library = library
        self._choices, self._sees = choices, sees
        self._here, self._coming, self._reclaimable = here, coming, reclaimable
        self.endpoint, self.proxy = HUB, ""
        self._request = 0  # number of the latest one
        self._workers: list[BackgroundWorker] = []
        self._files: tuple[HubFile, ...] = ()  # of the open repository, or that of a link
        self._wanted = ""  # the file that a link named
        self._quantization = ""  # that a link named
        self._read: dict[Source, BeginningFacts] = {}
        self._to_read: list[Source] = []  # the most urgent last
        self._reading: Source | None = None

    def search(self, query: str) -> None:
        """Search for repositories; called only when the user submits a query."""
        endpoint, proxy = self.endpoint, self.proxy
        self._set(Hub(HubPhase.ASKING, query))
        self._send(lambda: hub.search(query, endpoint, proxy), self._on_found)

    def submit_link(self, text: str) -> None:
        """Show the repository or file of a link, or of a name of the form owner/name."""
        try:
            target = parse_link(text, self.endpoint)
        except HubError as error:
            self._request += 1
            self._set(Hub(HubPhase.FAILED, text, error=str(error), remedy=error.remedy))
            return
        if isinstance(target, Source) and target.url:
            self._request += 1
            self._files, self._wanted = (linked_file(target),), ""
            self._set(Hub(HubPhase.ANSWERED, text, files=self._offers()))
            return
        name = target if isinstance(target, str) else target.repository
        self._set(Hub(HubPhase.ANSWERED, text, (repository_named(name),)))
        if isinstance(target, Source):
            self.open(name, target.file, target.revision)
        else:
            self.open(name)
        self._quantization = target.quantization if isinstance(target, Quantized) else ""

    def open(self, repository: str, wanted: str = "", revision: str = "main") -> None:
        """Show the files of a repository; an empty name closes the one that is open."""
        self._request += 1
        self._files, self._wanted, self._quantization = (), wanted, ""
        self._to_read = []
        self._read = {source: each for source, each in self._read.items() if each != _UNKNOWN}
        phase = HubPhase.ASKING if repository else HubPhase.IDLE
        self._set(
            replace(
                self._library.hub,
                open=repository, open_phase=phase, files=(), open_error="", open_remedy="",
                missing="",
            )
        )  # fmt: skip
        if repository:
            endpoint, proxy = self.endpoint, self.proxy
            self._send(lambda: hub.files(repository, endpoint, proxy, revision), self._on_opened)

    def read_beginnings(self, sources: Sequence[Source]) -> None:
        """Read how these files begin, the first one first, unless it is known; drops older wishes."""
        known = {*self._read, self._reading}
        names = {source.encoder.file for source in sources if source.encoder is not None}
        encoders = [file.source for file in self._files if file.file in names]
        wanted = dict.fromkeys((*(replace(each, encoder=None) for each in sources), *encoders))
        fresh = [each for each in wanted if each not in known and not self._here(each)]
        self._to_read = fresh[::-1]
        self._read_next()

    def refresh(self) -> None:
        """Rebuild the offers after installed files or downloads have changed."""
        shown = self._library.hub
        if self._files and shown.files:
            self._set(replace(shown, files=self._offers()))

    def close(self) -> None:
        """Abandon open requests without waiting for their threads."""
        self._request += 1
        self._to_read = []
        for worker in self._workers:
            worker.close(timeout_seconds=0.0)

    # --- requests -------------------------------------------------------------------------------

    def _send(self, call: Callable[[], T], then: Callable[[T | HubError], None]) -> None:
        """Send a request; its result is dropped once another one is sent."""
        self._request += 1
        number = self._request

        def answered(result: T | HubError) -> None:
            if number == self._request:
                then(result)

        self._run(call, answered)

    def _run(self, call: Callable[[], T], then: Callable[[T | HubError], None]) -> None:
        worker = BackgroundWorker("hub", self)
        self._workers.append(worker)

        def call_hub() -> T | HubError:
            try:
                return call()
            except HubError as error:
                return error

        def answered(result: T | HubError) -> None:
            self._workers.remove(worker)
            worker.close(timeout_seconds=0.0)
            worker.deleteLater()
            then(result)

        worker.run(call_hub, answered)

    def _on_found(self, result: tuple[Repository, ...] | HubError) -> None:
        query = self._library.hub.query
        if isinstance(result, HubError):
            self._set(Hub(HubPhase.FAILED, query, error=str(result), remedy=result.remedy))
        else:
            self._set(Hub(HubPhase.ANSWERED, query, result))

    def _on_opened(self, result: tuple[HubFile, ...] | HubError) -> None:
        shown = self._library.hub
        if isinstance(result, HubError):
            self._set(
                replace(
                    shown, open_phase=HubPhase.FAILED,
                    open_error=str(result), open_remedy=result.remedy,
                )
            )  # fmt: skip
        else:
            self._files = result
            missing = self._find_wanted()
            answered = HubPhase.ANSWERED
            self._set(replace(shown, open_phase=answered, files=self._offers(), missing=missing))

    def _find_wanted(self) -> str:
        """Find the file that a link named; returns what the repository does not have."""
        named = self._quantization or self._wanted.rpartition("/")[2]
        if self._quantization:
            self._wanted = file_of(self._files, self._quantization)
        else:
            wanted = self._wanted
            self._wanted = next((file.file for file in self._files if wanted in file.names), "")
        # "latest" leaves the choice to the program.
        return "" if self._wanted or named.lower() == "latest" else named

    def _read_next(self) -> None:
        if self._reading is not None or not self._to_read:
            return
        source = self._to_read.pop()
        endpoint, proxy = self.endpoint, self.proxy
        self._reading = source

        def read() -> BeginningFacts:
            facts = _facts(source, _START_BYTES, endpoint, proxy)
            if facts.is_model and not facts.formats_run and needs_formats(source.file):
                return _facts(source, _HEADER_BYTES, endpoint, proxy)
            return facts

        def done(result: BeginningFacts | HubError) -> None:
            self._reading = None
            # A file that cannot be read keeps what its name says; opening the list asks again.
            self._read[source] = _UNKNOWN if isinstance(result, HubError) else result
            self.refresh()
            self._read_next()

        self._run(read, done)

    def _offers(self) -> tuple[Offer, ...]:
        available = available_memory() + self._reclaimable()
        made = offers(
            self._files, available, self._here, self._coming, self._wanted, self._read,
            self._choices,
        )  # fmt: skip
        return tuple(
            replace(offer, sees=self._sees(offer.here, offer.encoders)) if offer.here else offer
            for offer in made
        )

    def _set(self, shown: Hub) -> None:
        self._library.set_hub(shown)


def repository_named(name: str) -> Repository:
    """A repository of which only the name is known, before the hub has responded."""
    return Repository(id=name, downloads=0, likes=0, gated=False, licence="", files=0, updated="")


def _facts(source: Source, length: int, endpoint: str, proxy: str) -> BeginningFacts:
    """What the first bytes of a file say. Raises HubError."""
    start = hub.read_start(source, length, endpoint, proxy)
    return inspect_beginning(start, source.file.rpartition("/")[2])
