"""Time to the first token after the last message of a long chat is edited, against reading it all.

    python tests/benchmarks/edits.py MODEL.gguf --tokens 8192

Hybrid models cannot drop the end of their recurrent state: without checkpoints of it an edit reads
the whole chat again. The chat is read once as a whole (the figure of an engine without checkpoints),
then its last message is edited several times, regenerated, and continued.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parents[1] / "support"), str(Path(__file__).parents[2])]

import engine_bench  # noqa: E402
from engine import Event, Load, ModelLoaded  # noqa: E402
from engine_bench import Bench, finished  # noqa: E402

engine_bench.TIMEOUT_SECONDS = 600  # a slow model reads for minutes
TEXT = "the river bends slowly where old trees lean over dark water and small birds wait"
WORDS = TEXT.split()
LAST_WORDS = 30


@dataclass(frozen=True, slots=True)
class Reading:
    """What one answer read, and when it began."""

    prompt_tokens: int
    read_tokens: int
    seconds: float  # to the first token

    @classmethod
    def of(cls, events: list[Event]) -> Reading:
        end = finished(events)
        read = end.prompt_tokens - end.reused_tokens
        return cls(end.prompt_tokens, read, end.first_token_seconds)


def text(words: int, start: int) -> str:
    """Some words of a message; other ones for another `start`."""
    return " ".join(WORDS[(start + at * (1 + start % 5)) % len(WORDS)] for at in range(words))


def chat(bench: Bench, tokens: int) -> list[str]:
    """Messages of about so many tokens, the last one short and the user's."""
    one = text(200, 0)
    begun = finished(bench.generate(2, one, max_tokens=1)).prompt_tokens
    words = max(int(200 * 500 / begun), 1)  # messages of about 500 tokens
    pairs = max(round(tokens / 1000), 1)
    return [text(words, 1 + at) for at in range(2 * pairs)] + [text(LAST_WORDS, 3)]


def measure(path: Path, tokens: int, edits: int) -> str:
    """The row of one model."""
    bench = Bench()
    bench.expect(1, Load(path, context=tokens + 2048), ModelLoaded)
    texts = chat(bench, tokens)

    def answer(request: int, *some: str) -> Reading:
        return Reading.of(bench.generate(request, *some, max_tokens=2))

    whole = answer(3, *texts)
    found = [answer(10 + at, *texts[:-1], text(LAST_WORDS, 40 + at)) for at in range(edits)]
    again = answer(30, *texts)
    bench.engine.stop()
    edited = median(one.seconds for one in found)
    return (
        f"| {path.stem} | {whole.prompt_tokens:,} | {whole.seconds:.2f} s | {found[-1].read_tokens} | "
        f"{edited:.2f} s | {whole.seconds / edited:.0f} x | {again.read_tokens} |"
    )


def main() -> int:
    """Measure the models of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--edits", type=int, default=3)
    options = parser.parse_args()
    print(
        "| Model | Tokens | Read whole | Tokens read after an edit | Edit | Sooner | Regenerated |"
    )
    print("|:--|--:|--:|--:|--:|--:|--:|")
    for path in options.models:
        print(measure(path, options.tokens, options.edits), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
