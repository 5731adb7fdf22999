"""Panics of Rust libraries, which are not `Exception`: every request fails, the thread survives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from engine import (
    Chat,
    CountTokens,
    Event,
    Failed,
    Finished,
    Load,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Save,
    SnapshotSaved,
    Text,
    TokensCounted,
    Unload,
)
from engine_bench import AMPLE_BYTES, GREEDY, Bench, turns_of, with_printable_output
from hostile_vocabulary import hostile


class Panic(BaseException):
    """Like the exception of a panic in a Rust library: not an `Exception`."""


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.react = lambda event: None
    made.engine.stop()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "tiny.gguf")


def test_vocabulary_that_makes_the_tokenizer_library_panic_is_refused(
    bench: Bench, model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "hostile.json"
    file.write_text(hostile(bytes(4)), encoding="utf-8")
    bench.send(1, Load(model, tokenizer=file))
    bench.send(2, Chat(turns_of("hello"), sampling=GREEDY))
    failed = bench.until(Failed, ModelLoaded)[-1]
    assert isinstance(failed, Failed)
    assert failed.request == 1
    assert "hostile.json" in failed.message
    assert failed.remedy
    waiting = bench.until(Failed, Finished)[-1]
    assert isinstance(waiting, Failed)
    assert waiting.request == 2
    bench.load(model, request=3)
    assert isinstance(bench.generate(4, "hello", max_tokens=2)[-1], Finished)


def test_a_panic_in_a_command_fails_that_command_alone(
    bench: Bench, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench.load(model)

    def react(event: Event) -> None:
        if isinstance(event, PromptProgress) and event.request == 2:
            raise Panic("index out of bounds")

    bench.react = react
    for request in (2, 3):
        bench.send(request, Chat(turns_of("hello"), sampling=GREEDY, max_tokens=request))
    failed = bench.until(Failed, Finished)[-1]
    assert isinstance(failed, Failed)
    assert failed.request == 2
    assert "index out of bounds" in failed.message
    assert "index out of bounds" in caplog.text
    finished = bench.until(Failed, Finished)[-1]
    assert isinstance(finished, Finished)
    assert (finished.request, finished.generated_tokens) == (3, 3)


def test_an_answer_whose_events_cannot_be_delivered_is_not_generated_further(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny.write(tmp_path / "endless.gguf", context=4096)
    bench.load(with_printable_output(path))

    def react(event: Event) -> None:
        if isinstance(event, Text) and event.request == 2 and event.generated_tokens == 3:
            raise Panic("the queue is full")

    bench.react = react
    bench.send(2, Chat(turns_of("hello"), sampling=GREEDY, answers=2))
    assert isinstance(bench.until(Failed, Finished)[-1], Failed)
    bench.react = lambda event: None
    assert isinstance(bench.generate(3, "hello", max_tokens=2)[-1], Finished)
    bench.expect(4, CountTokens("hello"), TokensCounted)
    host = bench.engine._loop._residents.main.session
    assert host is not None
    assert not host.is_busy, "nobody reads that answer"
    assert "the queue is full" in caplog.text


def test_panic_outside_a_command_fails_all_queued_commands(
    bench: Bench, model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench.load(model)
    faults = iter(range(2))  # delivering the event raises, and delivering `Failed` raises again

    def react(event: Event) -> None:
        if event.request == 2 and next(faults, None) is not None:
            raise Panic("the queue is full")

    bench.react = react
    for request in (2, 3):
        bench.send(request, Chat(turns_of("hello"), sampling=GREEDY, max_tokens=2))
    bench.send(4, Save("talk", AMPLE_BYTES, answer=3))
    bench.send(5, Unload())
    answers = [bench.until(Failed, Finished, SnapshotSaved, ModelUnloaded)[-1] for _ in range(4)]
    assert sorted(event.request for event in answers) == [2, 3, 4, 5]
    assert all(isinstance(event, Failed) for event in answers if event.request == 2)
    assert "the queue is full" in caplog.text
    if any(isinstance(event, ModelUnloaded) for event in answers):
        bench.load(model, request=6)
    assert isinstance(bench.generate(7, "hello", max_tokens=2)[-1], Finished)


def test_a_stop_after_a_panic_ends_the_thread(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = Bench()
    made.load(model)

    def react(event: Event) -> None:
        if isinstance(event, PromptProgress):
            raise Panic

    made.react = react
    assert isinstance(made.generate(2, "hello")[-1], Failed)
    made.engine.stop()
    assert not any(thread.name == "engine" for thread in threading.enumerate())
    assert "Panic" in caplog.text
