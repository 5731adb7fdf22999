"""Engine requests: submits requests, and passes on the events of each one.

Several requests may be outstanding, and their events may be interleaved. Progress and text of one
request are handled as one batch, whatever events of other requests come in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import assert_never

from PySide6.QtCore import QObject

from app.engines.client import Capabilities, ClientMaker, Handle
from app.engines.tagged_answers import TaggedAnswers
from engine import (
    AdaptersSet,
    Chat,
    ConstraintChecked,
    DevicesFound,
    DraftSet,
    Embedded,
    Event,
    Failed,
    Finished,
    Load,
    LoadProgress,
    MetricsRead,
    ModelLoaded,
    ModelMoved,
    ModelUnloaded,
    PromptProgress,
    Request,
    Reranked,
    Scored,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
    Thought,
    TokensCounted,
    ToolCallDelta,
    Unload,
)

_log = logging.getLogger(__name__)


class RequestRouter(QObject):
    """Sends requests to a client; passes on its events in batches, in order."""

    def __init__(
        self,
        client: ClientMaker,
        receive: Callable[[Sequence[Event]], None],
        unhandled: Callable[[int, Exception], None],
        parent: QObject | None = None,
    ) -> None:
        """`receive` is called with events of one kind and request. If it raises, `unhandled` is
        called with the request and the error, and delivery continues with the next events.
        """
        super().__init__(parent)
        self._receive, self._unhandled = receive, unhandled
        self._outstanding: dict[int, tuple[Handle, Request]] = {}
        self._cancelled: set[int] = set()
        self._answers = TaggedAnswers()
        self._client = client(self._deliver, self)

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""
        return self._client.capabilities

    def start(self) -> None:
        """Start the engine; call it after the first paint."""
        self._client.start()

    def stop(self) -> None:
        """Stop the engine and wait for it; may block."""
        self._client.stop()

    def drain(self) -> None:
        """Pass on the events that have come so far."""
        self._client.drain()

    def send(self, request: Request) -> int:
        """Send a request; returns its id."""
        handle = self._client.submit(request)
        self._outstanding[handle.id] = handle, request
        if isinstance(request, Chat):
            self._answers.begin(handle.id, request.turns)
        return handle.id

    def cancel(self, request: int) -> None:
        """Stop a request; its last event still comes."""
        if (found := self._outstanding.get(request)) is not None:
            self._cancelled.add(request)
            found[0].cancel()

    def is_outstanding(self, request: int) -> bool:
        """Whether the last event of this request has not come yet."""
        return request in self._outstanding

    def is_cancelled(self, request: int) -> bool:
        """Whether this request was cancelled."""
        return request in self._cancelled

    # --- steps ----------------------------------------------------------------------------------

    def _deliver(self, events: Sequence[Event]) -> None:
        for batch in batches(self._answers.tagged(events)):
            request = batch[0].request
            try:
                self._receive(batch)
            except Exception as error:  # noqa: BLE001  (the next events are delivered all the same)
                _log.exception("%s could not be handled", type(batch[0]).__name__)
                self._end_unhandled(request, error)
            if any(self._is_last(event) for event in batch):
                self._outstanding.pop(request, None)
                self._cancelled.discard(request)
                self._answers.end(request)

    def _end_unhandled(self, request: int, error: Exception) -> None:
        try:
            self._unhandled(request, error)
        except Exception:  # noqa: BLE001  (as above)
            _log.exception("request %d could not be ended after its handler failed", request)

    def _is_last(self, event: Event) -> bool:
        """Whether the request is over with this event."""
        match event:
            case Finished():
                return event.last
            case ModelLoaded() | DevicesFound() | Failed():
                return True
            case AdaptersSet() | DraftSet() | SnapshotLoaded() | SnapshotSaved():
                return True
            case TokensCounted() | Embedded() | Reranked() | MetricsRead() | ConstraintChecked():
                return True
            case Scored():
                return True
            case ModelUnloaded():
                # A failing load first reports that the model before it was unloaded.
                _, request = self._outstanding.get(event.request, (None, None))
                failing = isinstance(request, Load) and event.request not in self._cancelled
                return isinstance(request, Unload) or not failing
            case LoadProgress() | PromptProgress() | ModelMoved():
                return False
            case Text() | Thought() | ToolCallDelta():
                return False
            case _:
                assert_never(event)


def batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Events in batches of one kind and request, in order.

    Progress and text of different requests may be exchanged, since they do not depend on each
    other; no event is moved across one of another kind, and none of a request across another of it.
    """
    open_batches: dict[int, list[Event]] = {}  # of progress and text, by request
    for event in events:
        if not isinstance(event, PromptProgress | Text):
            yield from open_batches.values()
            open_batches.clear()
            yield [event]
            continue
        batch = open_batches.get(event.request)
        if batch is not None and type(batch[0]) is type(event):
            batch.append(event)
        else:
            if batch is not None:
                yield open_batches.pop(event.request)
            open_batches[event.request] = [event]
    yield from open_batches.values()
