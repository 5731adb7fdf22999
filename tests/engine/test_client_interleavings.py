"""The engine's door under random clients: what each is promised holds in any interleaving.

Several clients submit answers, embeddings and scores to two models, cancel them, go away, wait with
deadlines, and load and unload models meanwhile. Each request ends with exactly one final event, the
last one given to its `deliver`; its results are those of the request alone; and nothing is left: no
request, no sequence, no KV page. In most examples the test turns the engine's loop itself, so that a
failing one is found again; in others clients and engine run on threads of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
from engine import (
    Busy,
    Chat,
    Complete,
    CountTokens,
    Embed,
    Embedded,
    Engine,
    Event,
    Failed,
    Finished,
    FinishReason,
    Limits,
    Load,
    LoadProgress,
    Metrics,
    MetricsRead,
    ModelLoaded,
    ModelUnloaded,
    Priority,
    PromptProgress,
    Request,
    RequestHandle,
    Score,
    Scored,
    Text,
    TokensCounted,
    Unload,
)
from engine.core.residents import Residents
from engine.core.scheduler import Scheduler
from engine.machine import background
from engine_bench import (
    GREEDY,
    SEEDED,
    TIMEOUT_SECONDS,
    answer_text,
    turns_of,
    with_printable_output,
)

LIMITS = Limits(requests=6, per_client=2)
CLIENTS = ("", "a", "b", "c")  # "": the program itself, which is not refused
TEXTS = ("hello", "a longer question about the same thing", "one two three four")
MOST_TURNS = 20_000
FINAL: dict[type, type] = {
    Embed: Embedded,
    Score: Scored,
    CountTokens: TokensCounted,
    Metrics: MetricsRead,
    Load: ModelLoaded,
    Unload: ModelUnloaded,
}
_QUICK = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


@dataclass(frozen=True)
class Submit:
    """A client submits a request."""

    kind: str
    text: int
    most: int
    answers: int
    beside: bool  # to the second model
    client: str
    priority: Priority
    deadline: float | None

    def request(self, models: tuple[Path, Path]) -> Request:
        text, model = TEXTS[self.text], models[1] if self.beside else None
        options: dict[str, Any] = {"max_tokens": self.most, "stop_loops": False, "model": model}
        match self.kind:
            case "greedy":
                return Chat(turns_of(text), GREEDY, answers=self.answers, **options)
            case "seeded":
                return Chat(turns_of(text), SEEDED, answers=self.answers, **options)
            case "complete":
                return Complete(text, GREEDY, **options)
            case "embed":
                return Embed((text,) * (1 + self.most), model=model)
            case "score":
                return Score(text, 1, model=model)
            case "count":
                return CountTokens(text, model)
            case "metrics":
                return Metrics(model)
            case "load":
                return Load(models[1], beside=True)
            case _:
                return Unload(models[1])


@dataclass(frozen=True)
class Cancel:
    """The request submitted as this one is cancelled."""

    number: int


@dataclass(frozen=True)
class Leave:
    """A client goes away."""

    client: str


@dataclass(frozen=True)
class Turn:
    """The engine goes on for a while."""

    count: int


@dataclass(frozen=True)
class InPass:
    """During the next pass of a prompt or a text, requests are cancelled or a client goes away."""

    actions: tuple[Cancel | Leave, ...]


ANSWERS = ("greedy", "seeded", "complete")
OTHERS = ("embed", "score", "count", "metrics", "load", "unload")
SUBMIT = st.builds(
    Submit,
    kind=st.sampled_from([*ANSWERS, *ANSWERS, *OTHERS]),
    text=st.integers(0, len(TEXTS) - 1),
    most=st.sampled_from([1, 3, 30]),
    answers=st.sampled_from([1, 1, 2]),
    beside=st.booleans(),
    client=st.sampled_from(CLIENTS),
    priority=st.sampled_from(Priority),
    deadline=st.sampled_from([None, None, None, 1e3, 0.0]),
)
CANCEL, LEAVE = (
    st.builds(Cancel, st.integers(0, 12)),
    st.builds(Leave, st.sampled_from(CLIENTS[1:])),
)
TURN = st.builds(Turn, st.integers(1, 6))
IN_PASS = st.builds(InPass, st.lists(CANCEL | LEAVE, min_size=1, max_size=3).map(tuple))
ACTIONS = st.lists(
    st.one_of(SUBMIT, SUBMIT, SUBMIT, SUBMIT, TURN, TURN, CANCEL, LEAVE, IN_PASS),
    min_size=6,
    max_size=40,
)
OF_THREADS = st.lists(
    st.lists(st.one_of(SUBMIT, SUBMIT, SUBMIT, TURN, CANCEL, LEAVE), min_size=1, max_size=10),
    min_size=2,
    max_size=5,
)


@dataclass
class Asked:
    """A submitted request and its events."""

    submit: Submit
    request: Request
    events: list[Event] = field(default_factory=list)
    handle: RequestHandle | None = None
    ended: threading.Event = field(default_factory=threading.Event)

    def deliver(self, event: Event) -> None:
        self.events.append(event)
        if is_final(self, event):
            self.ended.set()


def is_final(asked: Asked, event: Event) -> bool:
    """Whether a request is over with an event, as `Engine` says."""
    if isinstance(event, Finished):
        return event.last
    return not isinstance(event, Text | PromptProgress | LoadProgress)


class NeverIdle(threading.Condition):
    """What a loop without a thread waits for: for ever it must not."""

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None, "the loop waits, and nobody can wake it"
        return super().wait(timeout)


class Door:
    """An engine with one main model, and its clients."""

    def __init__(self, models: tuple[Path, Path], *, has_thread: bool) -> None:
        self.models, self.has_thread = models, has_thread
        self.engine = Engine(limits=LIMITS)
        self.loop = self.engine._loop
        self.in_pass: list[Cancel | Leave] = []  # done between the layers of the next pass
        self.end_cancelled = self.loop._end_cancelled
        self.loop._end_cancelled = self.between_layers  # type: ignore[method-assign]
        if has_thread:
            self.engine.start()
        else:  # the test turns the loop, also during a load
            self.loop._thread = threading.current_thread()
            self.loop._changed = NeverIdle()
        self.asked: list[Asked] = []
        self.lock = threading.Lock()
        self.known: dict[Submit, list[Event]] = {}  # results alone
        self.one(Load(models[0]))

    def close(self) -> None:
        if self.has_thread:
            self.engine.stop()
            return
        self.loop._thread = None
        self.engine.stop()
        self.loop._shut_down()

    def between_layers(self, answering: Scheduler | None) -> None:
        """Called on the engine's thread during a pass."""
        actions, self.in_pass = self.in_pass, []
        for action in actions:
            self.act(action)
        self.end_cancelled(answering)

    def begin(self, *, both: bool) -> None:
        """The main model is loaded, or `both`, and nothing is cached or asked for."""
        self.asked, self.in_pass = [], []
        second = self.models[1]
        self.one(Load(second, beside=True) if both else Unload(second))
        self.settle()
        for one in self.loop._residents:
            one.session._scheduler.tree.clear()

    def submit(self, submit: Submit) -> Asked | None:
        """Submit a request; None: the engine was busy."""
        asked = Asked(submit, submit.request(self.models))
        options = {"priority": submit.priority, "client": submit.client}
        try:
            asked.handle = self.engine.submit(
                asked.request, asked.deliver, deadline=submit.deadline, **options
            )
        except Busy:
            return None
        with self.lock:
            self.asked.append(asked)
        return asked

    def one(self, request: Request) -> list[Event]:
        """The events of a request alone."""
        asked = Asked(Submit("", 0, 1, 1, False, "", Priority.NORMAL, None), request)
        asked.handle = self.engine.submit(request, asked.deliver)
        self.wait([asked])
        return asked.events

    def turn(self, count: int = 1) -> None:
        """Let the engine go on."""
        if self.has_thread:
            time.sleep(0.002 * count)
            return
        for _ in range(count):
            if self.loop._open or self.loop._queue.items:
                self.loop._turn()

    def wait(self, asked: list[Asked]) -> None:
        """Wait until requests have ended."""
        if self.has_thread:
            for one in asked:
                assert one.ended.wait(TIMEOUT_SECONDS), one
            return
        for _ in range(MOST_TURNS):
            if all(one.ended.is_set() for one in asked):
                return
            self.turn()
        raise AssertionError("requests wait for each other")

    def act(self, action: Submit | Cancel | Leave | Turn | InPass) -> None:
        """What a client does, or the engine."""
        match action:
            case Submit():
                is_full = self.is_full(action.client)
                made = self.submit(action)
                assert self.has_thread or (made is None) is is_full
            case Cancel(number):
                if number < len(self.asked) and (handle := self.asked[number].handle):
                    handle.cancel()
            case Leave(client):
                left = [one for one in self.asked if one.submit.client == client]
                open_then = [one.handle for one in left if not one.ended.is_set()]
                self.engine.leave(client)
                assert all(handle.is_cancelled for handle in open_then if handle)
            case Turn(count):
                self.turn(count)
            case InPass(actions):
                self.in_pass += actions

    def is_full(self, client: str) -> bool:
        """Whether a request of a client must be refused."""
        left = [one.submit.client for one in self.asked if not one.ended.is_set()]
        named = [one for one in left if one]
        full = len(named) >= LIMITS.requests or named.count(client) >= LIMITS.per_client
        return bool(client) and full

    def settle(self) -> None:
        """Wait for the end of the turn in which the last request ended."""
        last = time.monotonic() + TIMEOUT_SECONDS
        while self.has_thread and self.loop._open:
            assert time.monotonic() < last, self.loop._open
            time.sleep(0.001)

    def alone(self, asked: Asked) -> list[Event]:
        """The events of the same request while there is no other."""
        submit = asked.submit
        key = replace(submit, client="", priority=Priority.NORMAL, deadline=None)
        if key not in self.known:
            if submit.beside:
                self.one(Load(self.models[1], beside=True))
            self.known[key] = self.one(asked.request)
        return self.known[key]

    # --- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        """Let everything end, and compare it with what clients may rely on."""
        self.wait(self.asked)
        self.settle()
        handles = [one.handle for one in self.asked]
        assert len({handle.id for handle in handles if handle}) == len(handles)
        for asked in self.asked:
            self.check_events(asked)
        self.check_nothing_left()
        for asked in self.asked:
            self.check_result(asked)

    def check_events(self, asked: Asked) -> None:
        """Its own events, of which the last one alone ends it."""
        handle, events = asked.handle, asked.events
        assert handle is not None
        assert {event.request for event in events} == {handle.id}
        finals = [is_final(asked, event) for event in events]
        assert finals == [False] * (len(events) - 1) + [True]
        last = events[-1]
        if isinstance(last, Failed):
            is_late = "waited too long" in last.message and asked.submit.deadline == 0.0
            assert is_late or "is not loaded" in last.message, last
        elif isinstance(asked.request, Load) and handle.is_cancelled:
            assert isinstance(last, ModelLoaded | ModelUnloaded)
        elif not isinstance(asked.request, Chat | Complete):
            assert isinstance(last, FINAL[type(asked.request)])

    def check_result(self, asked: Asked) -> None:
        """The same as alone, bit for bit; of a cancelled answer the beginning."""
        handle, last = asked.handle, asked.events[-1]
        assert handle is not None
        if isinstance(last, Failed) or isinstance(asked.request, Load | Unload | Metrics):
            return
        wanted = self.alone(asked)
        if not isinstance(last, Finished):
            is_whole = replace(last, request=0) == replace(wanted[-1], request=0)
            assert is_whole or handle.is_cancelled
            return
        ends = {one.answer: one for one in asked.events if isinstance(one, Finished)}
        for answer in range(asked.submit.answers if isinstance(asked.request, Chat) else 1):
            found, whole = (
                answer_text(of_answer(events, answer)) for events in (asked.events, wanted)
            )
            end = ends.get(answer)
            if end is None or end.reason is FinishReason.CANCELLED:
                assert handle.is_cancelled
                assert whole.startswith(found)
            else:
                assert end.reason is FinishReason.LENGTH
                assert found == whole != ""

    def check_nothing_left(self) -> None:
        loop = self.loop
        assert not loop._open
        assert not loop._jobs
        assert not loop._awaited
        assert not loop._queue.items
        assert not loop._queue._open
        for one in loop._residents:
            scheduler = one.session._scheduler
            assert not scheduler.is_busy
            assert not one.session.is_busy
            assert not scheduler.sequences
            scheduler.tree.clear()
            assert scheduler.pool.used_bytes == scheduler.pool.lent_bytes == 0


def of_answer(events: list[Event], answer: int) -> list[Event]:
    return [event for event in events if getattr(event, "answer", answer) == answer]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    one, other = (
        with_printable_output(
            tiny.write(folder / f"{name}.gguf", architecture=name, context=1024, seed=seed)
        )
        for seed, name in enumerate(("llama", "qwen3"))
    )
    return one, other


@pytest.fixture(scope="module")
def steady() -> Iterator[None]:
    """Nothing depends on how long anything takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "_BRIEF_SECONDS", 30.0)
        charge = Residents.charge
        patch.setattr(Residents, "charge", lambda self, one, _: charge(self, one, 1.0))
        yield


@pytest.fixture(scope="module")
def turned(models: tuple[Path, Path], steady: None) -> Iterator[Door]:
    """An engine whose loop the test turns."""
    made = Door(models, has_thread=False)
    yield made
    made.close()


@pytest.fixture(scope="module")
def running(models: tuple[Path, Path]) -> Iterator[Door]:
    """An engine with its thread."""
    made = Door(models, has_thread=True)
    yield made
    made.close()


def check_turned(door: Door, both: bool, actions: list[Any]) -> None:
    door.begin(both=both)
    for action in actions:
        door.act(action)
    door.check()


def check_running(door: Door, both: bool, of_threads: list[list[Any]]) -> None:
    door.begin(both=both)
    faults: list[BaseException] = []

    def client(actions: list[Any]) -> None:
        try:
            for action in actions:
                door.act(action)
        except BaseException as fault:  # noqa: BLE001  raised again below
            faults.append(fault)

    threads = [threading.Thread(target=client, args=(actions,)) for actions in of_threads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    door.check()


@settings(max_examples=150, deadline=None, suppress_health_check=_QUICK)
@given(both=st.booleans(), actions=ACTIONS)
def test_what_clients_rely_on_holds_in_any_order(
    turned: Door, both: bool, actions: list[Any]
) -> None:
    check_turned(turned, both, actions)


@settings(max_examples=30, deadline=None, suppress_health_check=_QUICK)
@given(both=st.booleans(), of_threads=OF_THREADS)
def test_what_clients_rely_on_holds_with_many_threads(
    running: Door, both: bool, of_threads: list[list[Any]]
) -> None:
    check_running(running, both, of_threads)


@pytest.mark.sweep
@settings(max_examples=400, deadline=None, suppress_health_check=_QUICK)
@given(both=st.booleans(), actions=ACTIONS)
def test_what_clients_rely_on_holds_in_many_orders(
    turned: Door, both: bool, actions: list[Any]
) -> None:
    check_turned(turned, both, actions)


@pytest.mark.sweep
@settings(max_examples=80, deadline=None, suppress_health_check=_QUICK)
@given(both=st.booleans(), of_threads=OF_THREADS)
def test_what_clients_rely_on_holds_with_many_threads_and_runs(
    running: Door, both: bool, of_threads: list[list[Any]]
) -> None:
    check_running(running, both, of_threads)
