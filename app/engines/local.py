"""Local client: the engine in this process, whose thread hands its events to the GUI thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Protocol

from PySide6.QtCore import QObject

from app.domain.deltas import (
    AnswerEnd,
    AnswerFailed,
    AnswerUsage,
    Delta,
    EndReason,
    PromptProgressDelta,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
    joined_calls,
)
from app.domain.parts import ErrorPart
from app.engines.capabilities import Capabilities
from app.engines.client import ClientMaker
from app.engines.handover import Handover
from app.engines.run import Handle, Run
from engine import (
    ConstraintKind,
    Engine,
    Event,
    Failed,
    Finished,
    Priority,
    PromptProgress,
    Request,
    Text,
    Thought,
)
from engine import ToolCallDelta as ToolCallEvent

_CAPABILITIES = Capabilities(
    adapters=True,
    snapshots=True,
    metrics=True,
    counts=True,
    forgetting=True,
    budgets=True,
    formats=frozenset(ConstraintKind),
)


class ThreadedEngine(Protocol):
    """Interface of `engine.Engine`; it is made with a callback for events of no request."""

    def start(self) -> None:
        """Start the thread; returns at once."""
        ...

    def submit(
        self, request: Request, deliver: Callable[[Event], None], priority: Priority
    ) -> Handle:
        """Queue a request; `deliver` is called on any thread. Returns at once."""
        ...

    def stop(self) -> None:
        """Stop for good, and wait until it has stopped."""
        ...


EngineMaker = Callable[[Callable[[Event], None]], ThreadedEngine]


class LocalClient(QObject):
    """`EngineClient` of an engine in this process."""

    def __init__(
        self,
        engine: EngineMaker,
        notify: Callable[[Event], None],
        parent: QObject | None = None,
    ) -> None:
        """`notify` is called with each event that belongs to no request."""
        super().__init__(parent)
        self._notify = notify
        self._runs: dict[int, Run] = {}  # that are not over, by id
        self._events = Handover[Event](self._deliver, self)
        self._engine = engine(self._events.put)

    @property
    def capabilities(self) -> Capabilities:
        """What the engine in this process does beside answering."""
        return _CAPABILITIES

    def start(self) -> None:
        """Start the engine's thread, which imports torch; call it after the first paint."""
        self._engine.start()

    def submit(self, request: Request, priority: Priority = Priority.WINDOW) -> Run:
        """Queue a request."""
        run = Run(request, self._engine.submit(request, self._events.put, priority))
        self._runs[run.id] = run
        return run

    def drain(self) -> None:
        """Deliver the queued events."""
        self._events.drain()

    def stop(self) -> None:
        """Stop the engine and wait for it; may block."""
        self._engine.stop()

    def _deliver(self, events: list[Event]) -> None:
        for batch in batches(events):
            if (run := self._runs.get(batch[0].request)) is not None:
                if run.receive(batch):
                    del self._runs[run.id]
            elif not batch[0].request:
                self._notify(batch[0])


def local(engine: EngineMaker = Engine) -> ClientMaker:
    """Maker of the client of an engine in this process."""
    return partial(LocalClient, engine)


class LocalAnswer:
    """An answer that the engine in this process writes: `AnswerRun`."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def id(self) -> int:
        """That of its request."""
        return self._run.id

    def cancel(self) -> None:
        """End it soon."""
        self._run.cancel()

    async def deltas(self) -> AsyncIterator[Delta]:
        """What is written."""
        async for batch in self._run:
            match batch[-1]:
                case PromptProgress() as event:
                    yield PromptProgressDelta(
                        event.done_tokens, event.total_tokens, event.dropped_turns
                    )
                case Text() | Thought() as event:
                    text = "".join(each.text for each in batch if isinstance(each, Text | Thought))
                    made = ThoughtDelta if isinstance(event, Thought) else TextDelta
                    yield made(text, event.generated_tokens, event.context_used)
                case ToolCallEvent():
                    pieces = (
                        ToolCallDelta(
                            each.index, each.id, each.name, each.arguments,
                            each.generated_tokens, each.context_used,
                        )
                        for each in batch if isinstance(each, ToolCallEvent)
                    )  # fmt: skip
                    for delta in joined_calls(pieces):
                        yield delta
                case Finished() as event:
                    yield _usage(event)
                    reason = EndReason.__members__.get(event.reason.name, EndReason.END)
                    yield AnswerEnd(reason, "", event.seed, event.incomplete)
                case Failed() as event:
                    error = ErrorPart(event.fault, "", event.message, event.remedy)
                    raise AnswerFailed(error, full=event.full)
                case _:
                    pass


def _usage(event: Finished) -> AnswerUsage:
    return AnswerUsage(
        prompt_tokens=event.prompt_tokens,
        cached_tokens=event.reused_tokens,
        generated_tokens=event.generated_tokens,
        thought_tokens=event.thought_tokens,
        prompt_seconds=event.prefill_seconds,
        first_token_seconds=event.first_token_seconds,
        decode_seconds=event.decode_seconds,
        thought_seconds=event.thought_seconds,
        thought_budget_reached=event.thought_budget_reached,
        token_seconds_p50=event.token_seconds_p50,
        token_seconds_p95=event.token_seconds_p95,
        drafted_tokens=event.drafted_tokens,
        accepted_tokens=event.accepted_tokens,
        draft_gain=event.draft_gain,
    )


def batches(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Events in batches of one kind and request, in order.

    Progress, text and calls of different requests may be exchanged, since they do not depend on each
    other; no event is moved across one of another kind, and none of a request across another of it.
    """
    open_batches: dict[int, list[Event]] = {}  # of these, by request
    for event in events:
        if not isinstance(event, PromptProgress | Text | Thought | ToolCallEvent):
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
