"""Several answers at once for a long time: memory must stay flat, and none may starve.

Requests of random lengths, some sharing prefixes, some cancelled at random, keep four answers in
progress through the engine thread. Prints the memory of the process over time, the longest wait for
a first token and between two tokens, and whether every request ended.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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
    ModelLoaded,
    PromptProgress,
    Request,
    RequestHandle,
    Role,
    Sampling,
    Text,
    Turn,
)
from engine.loading.library import find_model
from engine.machine.device import resident_memory

TOGETHER = 4  # answers in progress
CANCELLED_SHARE = 0.2
CONTEXT = 2_048  # tokens


@dataclass
class Asked:
    """One request and when its events came."""

    cancel_after: int  # tokens; 0: never
    started: float
    last: float
    first: float = 0.0  # seconds to the first token
    widest: float = 0.0  # seconds between two tokens
    tokens: int = 0
    ended: str = ""


@dataclass
class Soak:
    """Keeps some answers in progress until the time is up."""

    seed: int
    engine: Engine = field(init=False)
    asked: dict[int, Asked] = field(default_factory=dict)
    open: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    loaded: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.engine = Engine()
        self.handles: dict[int, RequestHandle] = {}

    def _deliver(self, event: Event) -> None:
        now = time.monotonic()
        if isinstance(event, ModelLoaded):
            self.loaded.set()
        one = self.asked.get(event.request)
        if one is None:
            return
        if isinstance(event, Text):
            if one.tokens:
                one.widest = max(one.widest, now - one.last)
            else:
                one.first = now - one.started
            one.tokens, one.last = event.generated_tokens, now
            if one.cancel_after and one.tokens >= one.cancel_after:
                self.handles[event.request].cancel()
        elif isinstance(event, Finished | Failed):
            with self.changed:
                one.ended = event.reason.value if isinstance(event, Finished) else event.message
                self.open -= 1
                self.changed.notify()
        elif isinstance(event, PromptProgress):
            one.last = now

    def send(self, number: int, request: Request) -> None:
        """Submit a request, whose events have this number."""
        self.handles[number] = self.engine.submit(
            request, lambda event: self._deliver(replace(event, request=number))
        )

    def ask(self, request: int) -> None:
        """Send a request of a random length."""
        words = self.random.choice(("forest", "harbour", "kitchen", "mountain", "library"))
        sentences = self.random.choice((5, 20, 80, 200))  # at most about 1,400 tokens
        text = f"Tell me about the {words}. "
        text += f"It has {self.random.randint(1, 99)} things. " * sentences
        turns = (Turn(Role.SYSTEM, "You answer briefly. " * 20), Turn(Role.USER, text))
        cancel = self.random.random() < CANCELLED_SHARE
        now = time.monotonic()
        self.asked[request] = Asked(self.random.randint(1, 40) if cancel else 0, now, now)
        self.open += 1
        self.send(request, Chat(turns, Sampling(seed=request), self.random.randint(1, 160)))

    def run(self, model: Path, seconds: float, report: Callable[[float, int], None]) -> None:
        """Keep answers in progress; `report` gets the minutes and the bytes of memory."""
        self.engine.start()
        self.send(1, Load(model, CONTEXT))
        assert self.loaded.wait(600), "the model did not load"
        begun = reported = time.monotonic()
        request = 1
        while time.monotonic() - begun < seconds:
            with self.changed:
                while self.open < TOGETHER:
                    request += 1
                    self.ask(request)
                self.changed.wait(1.0)
            if time.monotonic() - reported > seconds / 30:
                reported = time.monotonic()
                report((reported - begun) / 60, resident_memory())
        with self.changed:
            assert self.changed.wait_for(lambda: not self.open, 600), "a request did not end"
        self.engine.stop()


def main() -> int:
    """Run and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", default="starter")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    soak = Soak(options.seed)
    sizes: list[int] = []

    def report(minutes: float, size: int) -> None:
        sizes.append(size)
        print(f"{minutes:6.1f} min  {size / 1e6:8.1f} MB  {len(soak.asked)} requests", flush=True)

    soak.run(find_model(options.model), 60 * options.minutes, report)
    done = list(soak.asked.values())
    reasons = {
        reason: sum(one.ended == reason for one in done)
        for reason in sorted({one.ended for one in done})
    }
    firsts = [one.first for one in done if one.tokens]
    gaps = [one.widest for one in done if one.tokens > 1]
    print(f"{len(done)} requests, {sum(one.tokens for one in done):,} tokens: {reasons}")
    print(f"first token: median {statistics.median(firsts):.2f} s, most {max(firsts):.2f} s")
    print(
        f"between tokens: median of the widest {statistics.median(gaps):.3f} s, "
        f"most {max(gaps):.3f} s"
    )
    third = len(sizes) // 3
    if third:
        grown = max(sizes[-third:]) - max(sizes[third : 2 * third])
        print(f"memory, last third against the second: {grown / 1e6:+.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
