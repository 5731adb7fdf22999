"""How much sooner a saved conversation answers than one that is read again, on the starter model.

One run: a conversation of about 2,048 tokens is read and saved by one engine. New engines then bring
it back from its snapshot, or read it again, and the time until the first new token is taken each
way, the restoring included. The aim is a ratio of 20.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))

from engine import (
    CacheType,
    Chat,
    Engine,
    Event,
    Failed,
    Finished,
    Load,
    ModelLoaded,
    Restore,
    Role,
    Sampling,
    Save,
    SnapshotLoaded,
    SnapshotSaved,
    Text,
    Turn,
    delete_snapshots,
    starter_path,
)

PATIENCE = 300  # seconds for any one event
GREEDY = Sampling(temperature=0)
WORDS = "The quick brown fox jumps over the lazy dog and goes on to the next hill. "


class Run:
    """An engine with a model, whose events are waited for."""

    def __init__(self, model: Path, cache: CacheType) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        self._engine = Engine()
        self._engine.start()
        self._engine.submit(Load(model, context=4096, cache=cache), self._events.put)
        self.wait(ModelLoaded)

    def wait(self, *kinds: type) -> Event:
        """The next event of these kinds."""
        while not isinstance(event := self._events.get(timeout=PATIENCE), kinds):
            if isinstance(event, Failed):
                sys.exit(f"{event.message} {event.remedy}")
        return event

    def first_token(
        self, turns: tuple[Turn, ...], saved: tuple[Turn, ...] = ()
    ) -> tuple[float, int]:
        """Seconds until the first piece of an answer, and how many tokens had to be read.

        The turns that were `saved` are brought back first.
        """
        started = time.perf_counter()
        if saved:
            self._engine.submit(Restore(saved, "benchmark"), self._events.put)
            loaded = self.wait(SnapshotLoaded)
            assert isinstance(loaded, SnapshotLoaded)
            assert loaded.restored_tokens, loaded
        self._engine.submit(Chat(turns, GREEDY, max_tokens=1), self._events.put)
        finished = self.wait(Text, Finished)  # a first token may also end the answer
        seconds = time.perf_counter() - started
        if isinstance(finished, Text):
            finished = self.wait(Finished)
        assert isinstance(finished, Finished)
        return seconds, finished.prompt_tokens - finished.reused_tokens

    def save(self) -> SnapshotSaved:
        """Write the session to the disk."""
        self._engine.submit(Save("benchmark", 1 << 40), self._events.put)
        saved = self.wait(SnapshotSaved)
        assert isinstance(saved, SnapshotSaved)
        return saved

    def stop(self) -> None:
        """End the engine."""
        self._engine.stop()


def conversation(tokens: int) -> tuple[Turn, ...]:
    """About so many tokens of turns, and a short question."""
    turns: list[Turn] = []
    for number in range(-(-tokens // 120)):
        turns.append(Turn(Role.USER, f"{number}. {WORDS * 3}"))
        turns.append(Turn(Role.ASSISTANT, f"{number}: {WORDS * 3}"))
    return (*turns, Turn(Role.USER, "And then?"))


def measure(model: Path, cache: CacheType, tokens: int, repetitions: int) -> dict[str, object]:
    """Both ways in turn, medians of the repetitions: going on as it is, and with a new message."""
    asked = conversation(tokens)
    held = asked[:-1]
    delete_snapshots()
    first = Run(model, cache)
    first.first_token(held)
    saved = first.save()
    first.stop()

    def median(turns: tuple[Turn, ...], bring: tuple[Turn, ...] = ()) -> tuple[float, int]:
        seconds: list[float] = []
        read = 0
        for _ in range(repetitions):
            run = Run(model, cache)
            taken, read = run.first_token(turns, bring)
            run.stop()
            seconds.append(taken)
        return statistics.median(seconds), read

    (going_on, _), (message, read) = median(held, held), median(asked, held)
    delete_snapshots()
    again, _ = median(asked)
    return {
        "cache": cache.value,
        "tokens": saved.tokens,
        "file megabytes": round(saved.size_bytes / 1e6, 1),
        "save seconds": round(saved.seconds, 3),
        "read again, seconds": round(again, 3),
        "going on, seconds": round(going_on, 3),
        "going on, ratio": round(again / going_on, 1),
        f"after a message of {read} tokens, seconds": round(message, 3),
        f"after a message of {read} tokens, ratio": round(again / message, 1),
    }


def main() -> None:
    """Print one JSON object per type of cache."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=starter_path())
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--cache", choices=[kind.value for kind in CacheType], default="")
    options = parser.parse_args()
    kinds = [CacheType(options.cache)] if options.cache else list(CacheType)
    with tempfile.TemporaryDirectory() as home:
        os.environ["TOKONOMA_HOME"] = home  # leaves the user's snapshots alone
        for kind in kinds:
            print(json.dumps(measure(options.model, kind, options.tokens, options.repetitions)))


if __name__ == "__main__":
    main()
