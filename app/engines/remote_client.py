"""Remote client: engines elsewhere on a thread of their own, whose deltas come to the GUI thread."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future

from PySide6.QtCore import QObject

from app.domain.answer_request import AnswerRequest
from app.domain.deltas import (
    AnswerEnd,
    Delta,
    EndReason,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
    joined_calls,
)
from app.domain.model_ref import Remote
from app.domain.remote_fault import RemoteFaultKind
from app.engines.handover import Handover
from app.engines.loop_thread import LoopThread
from app.engines.remote.engines import RemoteEngines
from app.engines.remote.errors import RemoteError
from app.engines.run import Waiting
from engine import ConstraintKind

_log = logging.getLogger(__name__)
_ids = itertools.count(-1, -1)  # below 0: those of the engine in this process are above

Told = Delta | RemoteError
Deliver = Callable[[Told], None]


class RemoteHandle:
    """A submitted request for an answer."""

    def __init__(self, client: RemoteClient, deliver: Deliver) -> None:
        self.id = next(_ids)  # unique in the process
        self.is_over = False  # the end or the error was queued
        self.deliver = deliver
        self._client = client
        self.work: Future[None] | None = None

    def cancel(self) -> None:
        """End it now: its last delta comes with the next batch, and its socket is closed."""
        self._client.put(self, AnswerEnd(EndReason.CANCELLED))
        if self.work is not None:
            self.work.cancel()


class RemoteClient(QObject):
    """Runs answers of engines elsewhere; all its methods are called on the GUI thread."""

    def __init__(self, engines: RemoteEngines, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engines = engines
        self._queue = Handover[tuple[RemoteHandle, Told]](self._deliver, self)
        self._guard = threading.Lock()  # guards `is_over` of handles
        self._thread = LoopThread("remote engines")
        self._handles: set[RemoteHandle] = set()

    def place(self, ref: Remote) -> tuple[str, str]:
        """The name of a model's connection, and its host and port; "" if it was deleted."""
        return self._engines.place(ref)

    def formats(self, ref: Remote) -> frozenset[ConstraintKind]:
        """The formats that answers of a model can be held to; none if its connection was deleted."""
        return self._engines.formats(ref)

    def submit(self, ref: Remote, request: AnswerRequest, deliver: Deliver) -> RemoteHandle:
        """Ask for an answer; returns at once, before anything of it is delivered.

        `deliver` is called on the GUI thread with each delta, texts that came together as one. The
        last one is `AnswerEnd` or a RemoteError.
        """
        handle = RemoteHandle(self, deliver)
        self._handles.add(handle)
        handle.work = asyncio.run_coroutine_threadsafe(
            self._answer(handle, ref, request), self._thread.loop
        )
        return handle

    def drain(self) -> None:
        """Deliver what has come so far."""
        self._queue.drain()

    def _deliver(self, batch: list[tuple[RemoteHandle, Told]]) -> None:
        for handle, told in _joined(batch):
            if isinstance(told, AnswerEnd | RemoteError):
                self._handles.discard(handle)
            try:
                handle.deliver(told)
            except Exception:  # noqa: BLE001  (the next ones are delivered all the same)
                _log.exception("%s could not be handled", type(told).__name__)

    def stop(self) -> None:
        """Cancel all answers, and end the thread; the last deltas come by the next `drain`."""
        for handle in list(self._handles):
            handle.cancel()
        self._thread.stop()

    def put(self, handle: RemoteHandle, told: Told) -> None:
        """Queue something for the GUI thread, on any thread; nothing follows an answer's last one."""
        with self._guard:
            if not handle.is_over:
                handle.is_over = isinstance(told, AnswerEnd | RemoteError)
                self._queue.put((handle, told))

    # --- steps ----------------------------------------------------------------------------------

    async def _answer(self, handle: RemoteHandle, ref: Remote, request: AnswerRequest) -> None:
        """One answer, on the thread."""
        try:
            async with contextlib.aclosing(self._engines.generate(ref, request)) as deltas:
                async for delta in deltas:
                    self.put(handle, delta)
        except RemoteError as error:
            self.put(handle, error)
        except Exception as error:  # noqa: BLE001  (the answer ends, and the window goes on)
            _log.exception("an answer of an engine elsewhere failed")
            about = f"{type(error).__name__}: {error}"
            self.put(handle, RemoteError(RemoteFaultKind.SERVER, model=ref.id, about=about))


class RemoteAnswer:
    """An answer that an engine elsewhere writes: `AnswerRun`."""

    def __init__(self, client: RemoteClient, model: Remote, request: AnswerRequest) -> None:
        self._came = Waiting[Told]()
        self._handle = client.submit(model, request, self._came.put)

    @property
    def id(self) -> int:
        """Unique in the process."""
        return self._handle.id

    def cancel(self) -> None:
        """End it now."""
        self._handle.cancel()

    async def deltas(self) -> AsyncIterator[Delta]:
        """What is written; raises RemoteError."""
        while True:
            told = await self._came
            if isinstance(told, RemoteError):
                raise told
            yield told
            if isinstance(told, AnswerEnd):
                return


def _joined(batch: list[tuple[RemoteHandle, Told]]) -> Iterator[tuple[RemoteHandle, Told]]:
    """The batch with texts of one answer that follow each other joined, as pieces of a call are."""
    for (handle, kind), group in itertools.groupby(batch, lambda each: (each[0], type(each[1]))):
        told = [each[1] for each in group]
        if kind in (TextDelta, ThoughtDelta):
            text = "".join(each.text for each in told if isinstance(each, TextDelta | ThoughtDelta))
            yield handle, kind(text)  # type: ignore[call-arg]
        elif kind is ToolCallDelta:
            calls = (each for each in told if isinstance(each, ToolCallDelta))
            yield from ((handle, each) for each in joined_calls(calls))
        else:
            yield from ((handle, each) for each in told)
