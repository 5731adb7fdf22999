"""Commands in any order: each gets exactly one final event, and memory does not grow."""

from __future__ import annotations

import gc
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
import tiny_lora
from engine import (
    AdaptersSet,
    AdapterUse,
    Chat,
    Engine,
    Event,
    Failed,
    Finished,
    FinishReason,
    Load,
    ModelLoaded,
    ModelUnloaded,
    Request,
    RequestHandle,
    Restore,
    Role,
    Sampling,
    Save,
    SetAdapters,
    SnapshotLoaded,
    SnapshotSaved,
    Turn,
    Unload,
)

TIMEOUT_SECONDS = 60  # for any one event, on a busy machine
HELLO = (Turn(Role.USER, "hello"),)


class Record:
    """An engine, the requests sent to it, and the events of each."""

    def __init__(self) -> None:
        self.events: defaultdict[int, list[Event]] = defaultdict(list)
        self.sent: dict[int, RequestHandle] = {}
        self.engine = Engine()

    def send(self, request: Request) -> int:
        number = len(self.sent) + 1
        self.sent[number] = self.engine.submit(request, self.events[number].append)
        return number

    def cancel(self, number: int) -> None:
        if number in self.sent:
            self.sent[number].cancel()

    def stopped(self) -> Record:
        """Stop the engine and check that each request has exactly one final event, its last."""
        self.engine.stop()
        assert set(self.events) == set(self.sent)
        for number, handle in self.sent.items():
            events, command = self.events[number], handle.request
            assert {event.request for event in events} == {handle.id}
            assert _is_last(command, events[-1]), (command, events)
            early = [event for event in events[:-1] if _is_last(command, event)]
            if isinstance(command, Load) and isinstance(events[-1], Failed):
                early = [event for event in early if not isinstance(event, ModelUnloaded)]
            assert early == [], (command, events)
        return self


def _is_last(command: Request, event: Event) -> bool:
    """Whether `Engine` documents the event as final for the command."""
    match command:
        case Load():
            return isinstance(event, ModelLoaded | ModelUnloaded | Failed)
        case Unload():
            return isinstance(event, ModelUnloaded)
        case SetAdapters():
            return isinstance(event, AdaptersSet | Failed)
        case Restore():
            return isinstance(event, SnapshotLoaded | Failed)
        case Save():
            return isinstance(event, SnapshotSaved | Failed)
        case _:
            return isinstance(event, Finished | Failed)


def _generate(limit: int = 3) -> Chat:
    return Chat(HELLO, Sampling(temperature=0), max_tokens=limit)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Two models, one that fails while weights load, one with an invalid file, an adapter."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "none.gguf").write_bytes(b"GGUF nonsense")
    late = tiny.write(folder / "late.gguf")
    late.write_bytes(late.read_bytes().replace(b"output_norm", b"output_Norm"))
    return (
        tiny.write(folder / "llama.gguf"),
        tiny.write(folder / "gemma.gguf", architecture="gemma3"),
        late,
        folder / "none.gguf",
        tiny_lora.write(folder / "leaf.gguf", folder / "llama.gguf"),
    )


COMMANDS = st.lists(
    st.one_of(
        st.tuples(st.just("load"), st.integers(0, 3)),
        st.tuples(st.just("generate"), st.integers(0, 30)),
        st.tuples(st.just("unload"), st.just(0)),
        st.tuples(st.just("adapt"), st.integers(-3, 3)),
        st.tuples(st.just("save"), st.sampled_from([0, 100, 1 << 40])),
        st.tuples(st.just("restore"), st.just(0)),
        st.tuples(st.just("cancel"), st.integers(-3, 40)),
        st.tuples(st.just("start"), st.just(0)),
    ),
    max_size=20,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(COMMANDS)
def test_every_command_gets_exactly_one_final_event(
    paths: tuple[Path, ...], commands: list[tuple[str, int]]
) -> None:
    record, started = Record(), False
    for kind, number in commands:
        match kind:
            case "load":
                path = paths[number]
                record.send(Load(path))
            case "generate":
                record.send(_generate(number))
            case "unload":
                record.send(Unload())
            case "adapt":
                uses = (AdapterUse(paths[4 if number else 3], number),) * abs(number)
                record.send(SetAdapters(uses))
            case "save":
                record.send(Save("one", number, turns=HELLO))
            case "restore":
                record.send(Restore(HELLO, "one"))
            case "cancel":
                record.cancel(number)
            case _ if not started:
                record.engine.start()
                started = True
            case _:
                pass
    if not started:
        record.engine.start()
    record.stopped()


def test_cancel_without_a_matching_request_has_no_effect(paths: tuple[Path, ...]) -> None:
    record = Record()
    record.engine.start()
    for request in range(-1000, 1000):
        record.cancel(request)
    load = record.send(Load(paths[0]))
    ask = record.send(_generate())
    last = record.send(Unload())
    _wait(lambda: bool(record.events[last]))
    record.cancel(ask)
    record.stopped()
    assert isinstance(record.events[load][-1], ModelLoaded)
    finished = record.events[ask][-1]
    assert isinstance(finished, Finished)
    assert finished.reason is FinishReason.LENGTH


class SlowlyReadJobs(dict[int, Any]):
    """Jobs that take a while to look through, except for the engine."""

    def values(self) -> Any:
        for value in super().values():
            if threading.current_thread().name != "engine":
                threading.Event().wait(0.02)
            yield value


@pytest.mark.sweep
def test_cancel_is_safe_while_answers_begin_and_end(paths: tuple[Path, ...]) -> None:
    record = Record()
    record.engine._loop._open = SlowlyReadJobs()
    record.send(Load(paths[0]))
    asked = [record.send(_generate(5 * at)) for at in range(1, 9)]
    record.engine.start()
    while not all(any(isinstance(e, Finished) for e in record.events[r]) for r in asked):
        record.cancel(999)
    record.stopped()


def test_each_of_a_thousand_cancelled_loads_gets_a_final_event(paths: tuple[Path, ...]) -> None:
    record = Record()
    record.engine.start()
    for _ in range(1000):
        request = record.send(Load(paths[0]))
        record.cancel(request)
        record.cancel(request)
    last = record.send(Load(paths[0]))
    _wait(lambda: any(isinstance(event, ModelLoaded) for event in record.events[last]))
    assert len(record.stopped().events) == 1001


def test_stop_cancels_queued_commands_and_drops_later_ones(paths: tuple[Path, ...]) -> None:
    record = Record()
    record.send(Load(paths[0]))
    asked = [record.send(_generate(0)) for _ in range(20)]
    record.engine.start()
    record.stopped()
    reasons = [
        event.reason for r in asked for event in record.events[r] if isinstance(event, Finished)
    ]
    assert reasons[-1] is FinishReason.CANCELLED
    late = record.send(_generate())
    record.engine.stop()
    assert record.events[late] == []


def test_stop_may_come_twice_and_before_start() -> None:
    record = Record()
    record.engine.stop()
    record.engine.stop()
    record.engine.start()
    record.engine.stop()
    assert not any(thread.name == "engine" for thread in threading.enumerate())


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform != "linux", reason="reads resident memory from /proc")
def test_repeated_loads_and_answers_do_not_leak_memory(
    paths: tuple[Path, ...],
) -> None:
    record = Record()
    record.engine.start()
    sizes: list[int] = []
    for _ in range(5):
        for at in range(10):
            record.send(Load(paths[at % 2]))
            for _ in range(4):
                last = record.send(_generate())
        last = record.send(Unload())
        _wait(lambda last=last: bool(record.events[last]))
        gc.collect()
        sizes.append(int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]))
    record.stopped()
    assert sizes[-1] - sizes[1] < 4_000, sizes  # pages of memory


@pytest.mark.real
@pytest.mark.skipif(sys.platform != "linux", reason="reads resident memory from /proc")
def test_unloading_a_large_model_frees_its_memory(
    paths: tuple[Path, ...], gemma_model: Path
) -> None:
    record = Record()
    record.engine.start()
    resident: list[int] = []
    for path in (paths[0], gemma_model):
        load = record.send(Load(path))
        unload = record.send(Unload())
        _wait(lambda unload=unload: bool(record.events[unload]))
        resident.append(int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * 4096)
    record.stopped()
    loaded = record.events[load][-1]
    assert isinstance(loaded, ModelLoaded)
    assert resident[1] - resident[0] < 150_000_000, resident  # bytes


def _wait(condition: Callable[[], bool]) -> None:
    """Poll until the condition is true; the engine thread makes it so."""
    pause = threading.Event()
    for _ in range(TIMEOUT_SECONDS * 200):
        if condition():
            return
        pause.wait(0.005)
    pytest.fail("timed out")
