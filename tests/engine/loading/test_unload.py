"""Unload through the whole engine: freed memory, measured and reported."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import (
    Chat,
    Engine,
    Event,
    Failed,
    Finished,
    Load,
    ModelLoaded,
    ModelUnloaded,
    Request,
    Role,
    Sampling,
    Turn,
    Unload,
    inspect_model,
    resident_memory,
)

MB = 1_000_000
ENDS = (ModelLoaded, ModelUnloaded, Finished, Failed)


class Runner:
    """An engine that runs one request at a time."""

    def __init__(self) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        self.engine = Engine()
        self.engine.start()

    def __call__(self, command: Request) -> Event:
        """Submit a request; returns its final event."""
        self.engine.submit(command, self._events.put)
        while not isinstance(event := self._events.get(timeout=120), ENDS):
            pass
        return event


@pytest.fixture
def run() -> Iterator[Runner]:
    asked = Runner()
    yield asked
    asked.engine.stop()


@pytest.mark.real
def test_an_unload_frees_the_memory_of_the_model(run: Runner, starter_model: Path) -> None:
    question = (Turn(Role.USER, "Name three colours."),)
    before = run(Unload())
    assert isinstance(before, ModelUnloaded)
    loaded = run(Load(starter_model, context=1_024))
    assert isinstance(loaded, ModelLoaded)
    assert isinstance(run(Chat(question, Sampling(temperature=0), max_tokens=8)), Finished)
    after = run(Unload())
    assert isinstance(after, ModelUnloaded)
    size = starter_model.stat().st_size
    facts = inspect_model(starter_model, 1_024)  # as measured by the load
    assert facts.memory_bytes == loaded.memory_bytes
    assert facts.weights_bytes == pytest.approx(1.1 * size, rel=0.5)  # with the vocabulary
    most = resident_memory() - before.resident_bytes
    assert most < 1.1 * loaded.memory_bytes
    assert loaded.resident_bytes - before.resident_bytes > 0.9 * size
    assert after.resident_bytes - before.resident_bytes < 60 * MB
    assert after.freed_bytes > 0.9 * size
    assert resident_memory() - after.resident_bytes < 60 * MB


@pytest.mark.sweep
@pytest.mark.real
def test_repeated_loads_do_not_leak_memory(run: Runner, starter_model: Path) -> None:
    left: list[int] = []
    for _ in range(6):
        assert isinstance(run(Load(starter_model, context=512)), ModelLoaded)
        unloaded = run(Unload())
        assert isinstance(unloaded, ModelUnloaded)
        left.append(unloaded.resident_bytes)
    # Leaking one vocabulary per load would exceed 100 MB.
    assert left[-1] - left[0] < 60 * MB
