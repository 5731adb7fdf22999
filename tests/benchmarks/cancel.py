"""How soon cancelling takes effect in a load, a prefill and a decode, on the real models.

Each row cancels at random moments and prints the time from it to the event that ends the
request. The aim is 100 ms at the most on a quiet machine. With `--beside MODEL` that model is
resident too, and works meanwhile for others: it makes embeddings, reads long prompts or answers; or
the model itself does. What is cancelled is then one request, or all of a client that goes away; the
time is that to the last of the events, with which sequences and pages are free.
"""

from __future__ import annotations

import argparse
import itertools
import os
import queue
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))

from engine import (
    Chat,
    Embed,
    Embedded,
    Engine,
    Event,
    Failed,
    Finished,
    Load,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Request,
    RequestHandle,
    Role,
    Sampling,
    Text,
    Turn,
    starter_path,
)

WORDS = "The quick brown fox jumps over the lazy dog and goes on to the next hill. " * 150
SHORT = (Turn(Role.USER, "Count to a thousand."),)
ENDS = (ModelLoaded, ModelUnloaded, Finished, Failed)


def cancelled_after(
    engine: Engine,
    events: queue.Queue[Event],
    command: Load | Chat,
    begun: type,
    wait: float,
) -> float | None:
    """Milliseconds from cancelling, `wait` seconds after the first `begun`, to the end; None if too late."""
    handle = engine.submit(command, events.put)
    while not isinstance(event := events.get(timeout=120), begun):
        if isinstance(event, ENDS):
            return None
    time.sleep(wait)
    if any(isinstance(event, ENDS) for event in _drained(events)):
        return None
    started = time.perf_counter()
    handle.cancel()
    while not isinstance(event := events.get(timeout=120), ENDS):
        pass
    return (time.perf_counter() - started) * 1e3


def _drained(events: queue.Queue[Event]) -> list[Event]:
    found: list[Event] = []
    while not events.empty():
        found.append(events.get())
    return found


def measure(path: Path, rounds: int) -> None:
    """Print one row per stage for one model."""
    events: queue.Queue[Event] = queue.Queue()
    engine = Engine()
    engine.start()
    question = (Turn(Role.USER, WORDS),)
    greedy = Sampling(temperature=0)
    stages: dict[str, tuple[Callable[[], Load | Chat], type, float]] = {
        "load": (lambda: Load(path), LoadProgress, 0.4),
        "prefill": (lambda: Chat(question, greedy), PromptProgress, 1.5),
        "decode": (lambda: Chat(SHORT, greedy), Text, 1.0),
    }
    for stage, (command, begun, longest) in stages.items():
        if stage != "load":
            engine.submit(Load(path), events.put)
            while not isinstance(events.get(timeout=120), ModelLoaded):
                pass
        times = [
            cancelled_after(engine, events, command(), begun, random.uniform(0, longest))
            for _ in range(rounds)
        ]
        found = [value for value in times if value is not None]
        if found:
            print(
                f"{path.stem[:32]:<34}{stage:<9}{len(found):>3} times   "
                f"median {statistics.median(found):6.1f} ms   worst {max(found):6.1f} ms"
            )
    engine.stop()


class Busy:
    """Work that another client asks for again and again, until it is stopped."""

    def __init__(self, engine: Engine, make: Callable[[int], Request]) -> None:
        self._engine, self._make = engine, make
        self._number, self._running = 0, True
        self._handle = self._next()

    def _next(self) -> RequestHandle:
        self._number += 1
        return self._engine.submit(self._make(self._number), self._deliver, client="busy")

    def _deliver(self, event: Event) -> None:
        ends = Embedded, Finished, Failed
        assert not isinstance(event, Failed), event
        if isinstance(event, ends) and self._running:
            self._handle = self._next()

    def stop(self) -> None:
        """End the work that goes on."""
        self._running = False
        self._handle.cancel()


def left_after(engine: Engine, asked: list[Request], wait: float) -> float | None:
    """Milliseconds from a client that goes away `wait` seconds after it asked, to the last event;
    None if a request ended before.
    """
    events: queue.Queue[Event] = queue.Queue()
    for request in asked:
        engine.submit(request, events.put, client="gone")
    time.sleep(wait)
    if any(isinstance(event, Embedded | Finished | Failed) for event in _drained(events)):
        return None
    started, left = time.perf_counter(), len(asked)
    engine.leave("gone")
    while left:
        event = events.get(timeout=120)
        assert not isinstance(event, Failed), event
        left -= isinstance(event, Embedded | Finished)
    return (time.perf_counter() - started) * 1e3


def measure_beside(path: Path, beside: Path, rounds: int) -> None:
    """Print one row for each kind of work and of what a client leaves behind."""
    events: queue.Queue[Event] = queue.Queue()
    engine = Engine()
    engine.start()
    for load in (Load(path), Load(beside, beside=True)):
        engine.submit(load, events.put)
        while not isinstance(event := events.get(timeout=120), ModelLoaded):
            assert not isinstance(event, Failed), event

    def long(number: int) -> tuple[Turn, ...]:
        return (Turn(Role.USER, f"{number}. {WORDS}"),)

    greedy, texts = Sampling(temperature=0), tuple(f"{at} {WORDS[:1500]}" for at in range(64))
    number = itertools.count(1)
    works: dict[str, Callable[[Path], Callable[[int], Request]]] = {
        "embeddings": lambda model: lambda at: Embed(texts, model=model),
        "prompts": lambda model: lambda at: Chat(long(at), greedy, 1, model=model),
        "answers": lambda model: lambda at: Chat(SHORT, greedy, 400, model=model),
    }
    asked: dict[str, Callable[[], list[Request]]] = {
        "answer": lambda: [Chat(SHORT, greedy, stop_loops=False)],
        "prompt": lambda: [Chat(long(-next(number)), greedy)],
        "embedding": lambda: [Embed(texts)],
        "all of these": lambda: [
            Chat(SHORT, greedy, stop_loops=False),
            Chat(long(-next(number)), greedy),
            Embed(texts),
        ],
    }
    for work, make in works.items():
        for place, model in (("another", beside), ("the same", path)):
            busy = Busy(engine, make(model))
            for name, requests in asked.items():
                times = [
                    left_after(engine, requests(), random.uniform(0.1, 1.0)) for _ in range(rounds)
                ]
                found = [value for value in times if value is not None]
                if found:
                    print(
                        f"{work + ' of ' + place:<26}{name:<14}{len(found):>3} times   "
                        f"median {statistics.median(found):6.1f} ms   worst {max(found):6.1f} ms",
                        flush=True,
                    )
            busy.stop()
    engine.stop()


def main() -> int:
    """Measure the models given, or the starter model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--beside", type=Path, help="a second model, which works meanwhile")
    options = parser.parse_args()
    for path in options.models or [starter_path()]:
        if options.beside:
            measure_beside(path, options.beside, options.rounds)
            continue
        measure(path, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
