"""How soon cancelling takes effect in a load, a prefill and a decode, on the real models.

Each row cancels at random moments and prints the time from it to the event that ends the
request. The aim is 100 ms at the most on a quiet machine.
"""

from __future__ import annotations

import argparse
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
    Engine,
    Event,
    Failed,
    Finished,
    Load,
    LoadProgress,
    ModelLoaded,
    ModelUnloaded,
    PromptProgress,
    Role,
    Sampling,
    Text,
    Turn,
    starter_path,
)

WORDS = "The quick brown fox jumps over the lazy dog and goes on to the next hill. " * 150
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
    short = (Turn(Role.USER, "Count to a thousand."),)
    greedy = Sampling(temperature=0)
    stages: dict[str, tuple[Callable[[], Load | Chat], type, float]] = {
        "load": (lambda: Load(path), LoadProgress, 0.4),
        "prefill": (lambda: Chat(question, greedy), PromptProgress, 1.5),
        "decode": (lambda: Chat(short, greedy), Text, 1.0),
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


def main() -> int:
    """Measure the models given, or the starter model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    for path in options.models or [starter_path()]:
        measure(path, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
