"""Engine: the front door of inference. Every client submits its requests here, from any thread.

The window, the command line, the server and the tests are clients alike. Importing it loads neither
torch nor the GGUF reader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core.handle import Deliver, RequestHandle
from engine.core.queue import Limits
from engine.messages import Event, ModelLoaded, Priority, Request

if TYPE_CHECKING:
    from engine.core.loop import Loop

__all__ = ["Deliver", "Engine", "Limits", "RequestHandle"]


def _ignore(event: Event) -> None:
    """The listener of an engine whose owner listens to its requests alone."""


class Engine:
    """An engine with a thread of its own, which runs requests together.

    Several models are resident: the main one, and others beside it; each request says which one it
    is for. Answers of a model are generated together, and models take turns of equal time.

    Each request ends with exactly one final event, the last one given to its `deliver`:

    - Load: ModelLoaded, or Failed; ModelUnloaded precedes Failed when the main model was unloaded
      for it. When cancelled: ModelUnloaded, or ModelLoaded for the main model if it is still there.
    - Unload: ModelUnloaded.
    - FindDevices: DevicesFound, without devices if they cannot be found.
    - Chat, Complete: Finished, or Failed. Of several answers each has a Finished event when it ends;
      the final event is the one with `last`, and Failed ends those that have not ended.
    - SetAdapters: AdaptersSet, or Failed; then the stack is unchanged. When cancelled: AdaptersSet
      for the unchanged stack.
    - SetDraft: DraftSet, or Failed; then there is no draft model. When cancelled: DraftSet.
    - Restore: SnapshotLoaded, or Failed. When cancelled: SnapshotLoaded with 0 tokens.
    - Save: SnapshotSaved, or Failed; events of later requests may come first. With nothing new to
      save, and when cancelled before it starts: SnapshotSaved with 0 tokens.
    - Forget: TextForgotten, or Failed. When cancelled: TextForgotten with 0 tokens.
    - CountTokens: TokensCounted, or Failed. When cancelled: TokensCounted with 0 tokens.
    - Tokenize, Detokenize, ApplyTemplate: Tokenized, Detokenized, TemplateApplied, or Failed. When
      cancelled: the same, empty.
    - Metrics: MetricsRead, or Failed.
    - Embed: Embedded, or Failed. When cancelled: Embedded without vectors.
    - Rerank: Reranked, or Failed. When cancelled: Reranked without scores.
    - Score: Scored, or Failed. When cancelled: Scored without tokens.
    - ComputeLogits: LogitsComputed, or Failed. When cancelled: LogitsComputed without rows.
    - MeasureSpeed: SpeedMeasured, or Failed. When cancelled: SpeedMeasured with zeros.
    - CheckConstraint: ConstraintChecked, or Failed. When cancelled: without a fault.
    """

    def __init__(
        self,
        notify: Callable[[Event], None] = _ignore,
        *,
        limits: Limits | None = None,
        snapshots: Path | None = None,
    ) -> None:
        """`notify` is given the events that belong to no request, whose `request` is 0.

        ModelMoved: a model's device failed, the model was loaded again on the processor, and running
        answers continue. ModelUnloaded: that failed too, or another model needed the memory of one
        beside the main one. It is called as `deliver` is. `snapshots` is the folder of saved
        conversations; None: that of the program's data.
        """
        self._making = threading.Lock()  # guards `_made`
        self._made: Loop | None = None
        self._options = notify, limits or Limits(), snapshots

    @property
    def _loop(self) -> Loop:
        """Made when it is first used, so that the window opens sooner."""
        if (made := self._made) is not None:
            return made
        from engine.core.loop import Loop

        with self._making:
            if self._made is None:
                self._made = Loop(*self._options)
            return self._made

    @property
    def resident(self) -> tuple[ModelLoaded, ...]:
        """The loaded models, the main one first; from any thread."""
        return self._loop.resident if self._made is not None else ()

    def start(self) -> None:
        """Start the thread and return at once; it first runs the requests submitted before."""
        self._loop.start()

    def submit(
        self,
        request: Request,
        deliver: Deliver,
        priority: Priority = Priority.NORMAL,
        client: str = "",
        deadline: float | None = None,
    ) -> RequestHandle:
        """Queue a request, from any thread; raises Busy if too many of `client` have not ended, or of
        all clients. "" is the program itself, which is not refused.

        `deliver` is given the events of this request alone, in order, on the engine's thread; only
        the event that ends Save comes on the thread that writes the file. It must neither block nor
        raise. A request that has not begun `deadline` seconds from now fails. What is submitted
        after `stop` is dropped without an event.
        """
        handle = RequestHandle(
            request,
            deliver,
            priority=priority,
            client=client,
            deadline=deadline,
            wake=self._loop.wake,
        )
        self._loop.add(handle)
        return handle

    def in_the_way(self) -> list[RequestHandle]:
        """Answers for clients with a name that a queued change of the main model waits for; from
        any thread.
        """
        return self._loop.in_the_way()

    def leave(self, client: str) -> None:
        """Cancel all requests of a client that has gone away, from any thread."""
        self._loop.leave(client)

    def stop(self) -> None:
        """Cancel running and queued requests and join the thread; it cannot be restarted.

        Save requests are still carried out and waited for. May be called more than once, and
        before `start`, but not from `deliver`.
        """
        self._loop.stop()
