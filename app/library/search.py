"""Hub requests: search, pasted links, files of a repository; only the latest result is shown.

Each request runs on a separate thread, so that neither the next request nor quitting waits for a
server that does not respond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QObject

from app.library.offers import in_words, layout_of, offers
from app.net import hub
from app.net.hub import HUB, HubError, HubFile, Repository, Source
from app.state.library import Hub, HubPhase, LibraryState, Offer
from app.system.worker import BackgroundWorker
from engine import available_memory, model_name

T = TypeVar("T")
Where = Callable[[Source], Path | None]


class HubPages(QObject):
    """Keeps `LibraryState.hub` up to date."""

    def __init__(
        self,
        library: LibraryState,
        here: Where,
        coming: Callable[[Source], bool],
        reclaimable: Callable[[], int],
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._library = library
        self._here, self._coming, self._reclaimable = here, coming, reclaimable
        self.endpoint, self.proxy = HUB, ""
        self._request = 0  # number of the latest one
        self._workers: list[BackgroundWorker] = []
        self._files: tuple[HubFile, ...] = ()  # of the open repository
        self._wanted = ""  # the file a link named

    def search(self, query: str) -> None:
        """Search for repositories; called only when the user submits a query."""
        endpoint, proxy = self.endpoint, self.proxy
        self._set(Hub(HubPhase.ASKING, query))
        self._send(lambda: hub.search(query, endpoint, proxy), self._on_found)

    def submit_link(self, text: str) -> None:
        """Show the repository or file of a link, or of a name of the form owner/name."""
        try:
            target = hub.parse_link(text, self.endpoint)
        except HubError as error:
            self._request += 1
            self._set(Hub(HubPhase.FAILED, text, error=str(error), remedy=error.remedy))
            return
        if isinstance(target, Source) and target.url:
            self._request += 1
            self._set(Hub(HubPhase.ANSWERED, text, files=(self._offer(target),)))
            return
        name = target.repository if isinstance(target, Source) else target
        shown = repository_named(name)
        self._set(Hub(HubPhase.ANSWERED, text, (shown,)))
        if isinstance(target, Source):
            self.open(name, target.file, target.revision)
        else:
            self.open(name)

    def open(self, repository: str, wanted: str = "", revision: str = "main") -> None:
        """Show the files of a repository; an empty name closes the one that is open."""
        self._request += 1
        self._files, self._wanted = (), wanted
        phase = HubPhase.ASKING if repository else HubPhase.IDLE
        self._set(
            replace(
                self._library.hub,
                open=repository, open_phase=phase, files=(), open_error="", open_remedy="",
            )
        )  # fmt: skip
        if repository:
            endpoint, proxy = self.endpoint, self.proxy
            self._send(lambda: hub.files(repository, endpoint, proxy, revision), self._on_opened)

    def refresh(self) -> None:
        """Rebuild the offers after installed files or downloads have changed."""
        shown = self._library.hub
        if shown.open and self._files:
            self._set(replace(shown, files=self._offers()))
        elif shown.files:
            self._set(replace(shown, files=tuple(self._offer(each.source) for each in shown.files)))

    def close(self) -> None:
        """Abandon open requests without waiting for their threads."""
        self._request += 1
        for worker in self._workers:
            worker.close(timeout_seconds=0.0)

    # --- requests -------------------------------------------------------------------------------

    def _send(self, call: Callable[[], T], then: Callable[[T | HubError], None]) -> None:
        self._request += 1
        number = self._request
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
            if number == self._request:
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
            self._set(replace(shown, open_phase=HubPhase.ANSWERED, files=self._offers()))

    def _offers(self) -> tuple[Offer, ...]:
        available = available_memory() + self._reclaimable()
        return offers(self._files, available, self._here, self._coming, self._wanted)

    def _offer(self, source: Source) -> Offer:
        """The offer of a direct link; its size is known once the download has started."""
        layout = layout_of(source.file)
        return Offer(
            source,
            model_name(Path(source.file)),
            in_words(layout),
            layout,
            here=self._here(source),
            coming=self._coming(source),
        )

    def _set(self, shown: Hub) -> None:
        self._library.set_hub(shown)


def repository_named(name: str) -> Repository:
    """A repository of which only the name is known, before the hub has responded."""
    return Repository(id=name, downloads=0, likes=0, gated=False, licence="", files=0, updated="")
