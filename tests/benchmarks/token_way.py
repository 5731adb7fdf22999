"""The way of a token: Python calls and files from one event of a running answer to the next.

One answer of a tiny model on the processor's kernels decodes alone. A profile hook on the engine's
thread counts the calls of this program's functions, comprehensions included, the files they are in,
and how often a call is in another file than the one before. A token is one in the middle of the
answer: its pass, its draw, its text and its delivery. Run it with the repository on the path:

    python tests/benchmarks/token_way.py [--calls]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(1, str(Path(__file__).parents[1] / "support"))

import thinkers
import tiny
from engine import (
    Chat,
    Engine,
    Failed,
    Finished,
    Load,
    ModelLoaded,
    Role,
    Sampling,
    Text,
    Thought,
    Turn,
)

ROOT = Path(__file__).parents[2]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("engine", "kernels"))
FIRST, TOKENS = 20, 32  # tokens before the counted ones, and these
SAMPLED = Sampling(seed=1, ignore_end=True)


@dataclass(slots=True)
class Way:
    """What a profile hook counted."""

    tokens: int = 0
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)  # by file and function
    changes: int = 0  # of file
    _file: str = ""

    def hook(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call, as `sys.setprofile` passes it."""
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(PACKAGES):
            return
        self.calls[name.removeprefix(f"{ROOT}/"), frame.f_code.co_qualname] += 1
        self.changes += name != self._file
        self._file = name

    @property
    def words(self) -> str:
        """Calls, files and changes of file for one token."""
        tokens = self.tokens or 1
        files = len({name for name, _ in self.calls})
        calls = sum(self.calls.values())
        return f"{calls / tokens:.1f} calls in {files} files, {self.changes / tokens:.1f} changes of file"


class Counting:
    """Delivers the events of an engine, and counts the way of the tokens in the middle."""

    def __init__(self) -> None:
        self.way = Way()
        self.ended = threading.Event()
        self._texts = 0

    def deliver(self, event: object) -> None:
        """Called on the engine's thread."""
        if isinstance(event, ModelLoaded | Failed | Finished):
            assert not isinstance(event, Failed), event
            self.ended.set()
        self._texts += isinstance(event, Text | Thought)
        if self._texts == FIRST:
            sys.setprofile(self.way.hook)
        elif self._texts == FIRST + TOKENS:
            sys.setprofile(None)
            self.way.tokens = TOKENS


def counted(model: Path, **options: Any) -> Way:
    """The way of a token of an answer with these options."""
    counting = Counting()
    engine = Engine()
    engine.start()
    engine.submit(Load(model), counting.deliver)
    counting.ended.wait()
    counting.ended.clear()
    turns = (Turn(Role.USER, "hello"),)
    chat = Chat(turns, max_tokens=FIRST + TOKENS + 10, stop_loops=True, **options)
    engine.submit(chat, counting.deliver)
    counting.ended.wait()
    engine.stop()
    return counting.way


def main() -> None:
    """Print one line for each kind of answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", action="store_true", help="every function with its calls")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = tiny.write(Path(folder) / "plain.gguf", context=512)
        thinking = thinkers.write(Path(folder) / "thinks.gguf", thinkers.FAMILIES["Qwen3"])
        cases: dict[str, tuple[Path, dict[str, Any]]] = {
            "sampled": (plain, {"sampling": SAMPLED}),
            "greedy": (plain, {"sampling": Sampling(temperature=0, ignore_end=True)}),
            "with a stop string": (plain, {"sampling": SAMPLED, "stop": ("</answer>",)}),
            "in thoughts": (thinking, {"sampling": Sampling(temperature=0), "thinking": True}),
        }
        for name, (model, values) in cases.items():
            way = counted(model, **values)
            print(f"{name}: {way.words}")
            if options.calls:
                for (file, function), count in sorted(way.calls.items()):
                    print(f"    {count / way.tokens:5.2f}  {file}  {function}")


if __name__ == "__main__":
    main()
