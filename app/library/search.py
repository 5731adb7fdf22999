"""Questions to the hub: a search, a pasted link, the files of a repository; the newest one counts.

Each question has a thread of its own for as long as it takes, so that neither the next question nor
quitting waits for a server that does not answer.
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
    """Keeps `LibraryState.hub` true."""

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
        self._question = 0  # the newest one's number
        self._asking: list[BackgroundWorker] = []
        self._files: tuple[HubFile, ...] = ()  # of the open repository
        self._wanted = ""  # the file a link named

    def search(self, query: str) -> None:
        """Ask for repositories; only what a person sends off comes here."""
        endpoint, proxy = self.endpoint, self.proxy
        self._set(Hub(HubPhase.ASKING, query))
        self._ask(lambda: hub.search(query, endpoint, proxy), self._on_found)

    def submit_link(self, text: str) -> None:
        """Show what a link leads to, or a name of the form owner/name."""
        try:
            target = hub.parse_link(text, self.endpoint)
        except HubError as error:
            self._question += 1
            self._set(Hub(HubPhase.FAILED, text, error=str(error), remedy=error.remedy))
            return
        if isinstance(target, Source) and target.url:
            self._question += 1
            self._set(Hub(HubPhase.ANSWERED, text, files=(self._offer(target),)))
            return
        name = target.repository if isinstance(target, Source) else target
        shown = unasked(name)
        self._set(Hub(HubPhase.ANSWERED, text, (shown,)))
        if isinstance(target, Source):
            self.open(name, target.file, target.revision)
        else:
            self.open(name)

    def open(self, repository: str, wanted: str = "", revision: str = "main") -> None:
        """Show the files of a repository; an empty name closes the one that is open."""
        self._question += 1
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
            self._ask(lambda: hub.files(repository, endpoint, proxy, revision), self._on_opened)

    def refresh(self) -> None:
        """What is here or on its way has changed."""
        shown = self._library.hub
        if shown.open and self._files:
            self._set(replace(shown, files=self._offers()))
        elif shown.files:
            self._set(replace(shown, files=tuple(self._offer(each.source) for each in shown.files)))

    def close(self) -> None:
        """Wait for nobody."""
        self._question += 1
        for work in self._asking:
            work.close(timeout_seconds=0.0)

    # --- answers --------------------------------------------------------------------------------

    def _ask(self, call: Callable[[], T], then: Callable[[T | HubError], None]) -> None:
        self._question += 1
        number = self._question
        work = BackgroundWorker("hub", self)
        self._asking.append(work)

        def asked() -> T | HubError:
            try:
                return call()
            except HubError as error:
                return error

        def answered(result: T | HubError) -> None:
            self._asking.remove(work)
            work.close(timeout_seconds=0.0)
            work.deleteLater()
            if number == self._question:
                then(result)

        work.run(asked, answered)

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
        room = available_memory() + self._reclaimable()
        return offers(self._files, room, self._here, self._coming, self._wanted)

    def _offer(self, source: Source) -> Offer:
        """What a link to a file of its own offers; its size is known once it comes."""
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


def unasked(name: str) -> Repository:
    """A repository of which only the name is known."""
    return Repository(id=name, downloads=0, likes=0, gated=False, licence="", files=0, updated="")
