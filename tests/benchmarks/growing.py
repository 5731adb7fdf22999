"""What it costs to add a text to an answer: to its parts, the state and the queue of the window.

A row is an answer of so many characters, to which words are added; its time is the median of one
addition. The aim: an answer of a million characters costs what one of a thousand costs.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).parents[2]))

from PySide6.QtCore import QCoreApplication

from app.chat.requests.planner import Branch
from app.chat.requests.running_answer import QueuedAnswer, RunningAnswer
from app.domain.deltas import TextDelta
from app.domain.message import Message, MessageState
from app.engines.local import LocalAnswer
from app.engines.run import Run
from app.state.chat import State
from engine import Chat, Role

WORDS = 2000
LINE = "A word, `code`, a <b>tag</b> and 5 < 6 in a line.\n"
BEGINNINGS = {"text": "", "thought": "<think>\n", "after thoughts": "<think>\nHm.\n</think>\n\n"}


class _Handle:
    """The handle of a request that no engine has."""

    id = 1

    def cancel(self) -> None:
        """Nothing is to be cancelled."""


def microseconds(beginning: str, characters: int) -> float:
    """Median time of adding a word."""
    state = State()
    message = Message(
        2, 1, None, Role.ASSISTANT, (), MessageState.STREAMING, 0.0, "", "", 0, 0, 0.0, 1, 1
    )
    state.show(1, [message])
    job = QueuedAnswer(Branch(1), 1, 2, (), lambda: Chat(()), request=None, adapters=None)
    asked = Chat(())
    running = RunningAnswer(LocalAnswer(Run(asked, _Handle())), job, asked, (), "Model", None, ())
    times: list[float] = []
    text = beginning + LINE * (characters // len(LINE))
    for word in (text, *[" word"] * WORDS):
        began = time.perf_counter()
        added = running.add(TextDelta(word))
        state.add_text(1, 2, added, running.parts)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e6


def main() -> None:
    """Print the table."""
    application = QCoreApplication([])
    print(
        f"{'an answer of':20}" + "".join(f"{count:>14,}" for count in (1_000, 100_000, 1_000_000))
    )
    for name, beginning in BEGINNINGS.items():
        costs = (microseconds(beginning, count) for count in (1_000, 100_000, 1_000_000))
        print(f"{name:20}" + "".join(f"{cost:11.1f} µs" for cost in costs))
    del application


if __name__ == "__main__":
    main()
