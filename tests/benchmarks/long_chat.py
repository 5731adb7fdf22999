"""A long greedy chat that outgrows its context several times: failures, and obeyed instructions.

The instructions ask for a marker word in every answer. The table says how many answers have it
before the first turn is left out and after, and how often the memory's beginning moved.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from starter_sampling import QUESTIONS

from engine import (
    DEFAULT_CACHE,
    Chat,
    ContextPolicy,
    Failed,
    Finished,
    Load,
    ModelLoaded,
    PromptProgress,
    Role,
    Turn,
    starter_path,
)
from engine_bench import GREEDY, Bench, answer_text

TABLE = Path(__file__).with_suffix(".md")
MARKER = "OWL"
SYSTEM = f"You are a helpful assistant. Begin every answer with the word {MARKER}."
# An example of the format first: small models follow it better than the instruction alone.
OPENING = (
    Turn(Role.USER, "What color is grass?"),
    Turn(Role.ASSISTANT, f"{MARKER}. Grass is green."),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, default=[starter_path()])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--context", type=int, default=2_048)
    options = parser.parse_args()
    lines = [
        "# A long greedy chat past a full context",
        "",
        f"{date.today().isoformat()}. Written by `packaging/dev.py bench long_chat`. Greedy, "
        f"{options.context:,} tokens of context, answers of at most 200 tokens; the instructions "
        f'ask for "{MARKER}" at the beginning of every answer. Moves: how often the first message '
        "the model reads changed.",
        "",
        "| Model | Minutes | Answers | Tokens of the chat | Failures | Turns left out | Moves | "
        f"{MARKER} before | {MARKER} after |",
        "|:--|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for path in options.models:
        lines.append(measured(path, options.context, options.minutes))
        print(lines[-1], flush=True)
    TABLE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def measured(path: Path, context: int, minutes: float) -> str:
    """The row of one model."""
    bench = Bench()
    bench.send(1, Load(path, context, 0, DEFAULT_CACHE))
    bench.until(ModelLoaded, Failed)
    turns = [Turn(Role.SYSTEM, SYSTEM), *OPENING]
    marked: dict[bool, list[bool]] = {False: [], True: []}
    starts, tokens, failures = [0], 0, 0
    began = time.monotonic()
    number = 0
    while time.monotonic() - began < 60 * minutes:
        question, _ = QUESTIONS[number % len(QUESTIONS)]
        turns.append(Turn(Role.USER, f"{question} Explain it."))
        command = Chat(tuple(turns), GREEDY, 200, policy=ContextPolicy.DROP_OLDEST)
        bench.send(10 + number, command)
        events = bench.until(Finished, Failed)
        if isinstance(events[-1], Failed):
            failures += 1
            print(events[-1].message, file=sys.stderr)
            turns.pop()
        else:
            dropped = next(e.dropped_turns for e in events if isinstance(e, PromptProgress))
            assert turns[1 + dropped].role is Role.USER
            assert turns[1 + dropped] is not turns[-1]
            assert events[-1].context_used <= context
            answer = answer_text(events)
            tokens += events[-1].generated_tokens
            marked[dropped > 0].append(MARKER in answer[:24].upper())
            starts.append(dropped)
            turns.append(Turn(Role.ASSISTANT, answer))
        number += 1
    bench.engine.stop()
    assert starts == sorted(starts)
    moves = len(set(starts)) - 1
    before, after = (_share(marked[key]) for key in (False, True))
    taken = (time.monotonic() - began) / 60
    return (
        f"| {path.stem} | {taken:.0f} | {number} | {tokens:,} | {failures} | {starts[-1]} | {moves} "
        f"| {before} | {after} |"
    )


def _share(found: list[bool]) -> str:
    return f"{sum(found)} of {len(found)}"


if __name__ == "__main__":
    sys.exit(main())
