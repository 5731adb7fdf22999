"""Speculative decoding beside plain decoding: an edit, and prose that repeats nothing.

The models have real shapes and random weights, so that their own words would mean nothing: the
tokens of a recorded text take the place of those that the model would draw, and each pass is real.
A pair is one plain answer and one with drafts, P D P D, so that a noisy machine favours neither;
figures are medians, and ratios are medians of the ratios of pairs.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))

from torch import Tensor

from engine.inference import generate
from engine.inference.generate import Request
from engine.inference.sampling import Sampler
from engine.inference.scheduler import Scheduler
from engine.inference.speculative.drafter import Drafter
from engine.inference.speculative.lookup import LookupDrafter
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Finished, Sampling

TABLE = Path(__file__).with_suffix(".md")
FILES = ("qwen3-1.7b-Q4_0.gguf", "qwen3-1.7b-Q8_0.gguf", "qwen3-1.7b-Q1_0.gguf")
WANTED = {"edit": 2.0, "prose": 0.98}

LETTER = """Dear Ms. Alvarez,

Thank you for your letter of 3 March about the heating in the community hall. Our technician came on
Tuesday and looked at the boiler, the pump and the two thermostats. The boiler itself is in good
order, and its last service was only five months ago. The pump, however, is worn: its bearing makes
the noise that the choir has complained about, and at low speed it stops altogether. The thermostat
in the large room hangs right above a radiator, so that it switches the heating off long before the
back of the room is warm.

We propose to replace the pump by a modern one that adjusts its speed by itself, and to move the
thermostat to the inner wall beside the door. The work takes one day. The hall can be used again in
the same evening, and nothing needs to be painted. The price is 640 euros for the pump, 85 euros for
the thermostat and its cable, and 310 euros for the work, all of it with tax. A new pump needs about
a fifth of the electricity of the old one, so that it pays for itself within four or five winters.

Our technician could come on Thursday 21 March or on Monday 25 March, from eight in the morning. If
one of these days suits you, please call us before the end of the week, so that we can order the pump
in time. Should you want to keep the old pump for another winter, we recommend at least to move the
thermostat, since that alone will make the evenings in the back of the room more comfortable.

With kind regards,
Jan Novak
"""
EDITED = LETTER.replace("Ms. Alvarez", "Mr. Tanaka")
PROSE = """The lighthouse keeper's daughter learned to read from tide tables. Her mother thought this funny
and a little sad, but numbers came before words on that rock, and by the age of six she could tell a
captain to the quarter hour when the bar would be safe. Letters followed slowly. A crate of novels
washed up one November, swollen with salt, and she dried every page between blankets beside the stove
until the whole tower smelled of glue. From those ruined books grew a habit of guessing: where a line
had dissolved she supplied her own, so that pirates married governesses and detectives drowned before
dinner. Years afterwards, in a city with trams and electric signs, people asked how anybody could
invent so freely. She never mentioned the crate. Instead she talked about weather, how fog teaches
patience, how lamps must be trimmed whether ships come or not, and how silence, if you keep it long
enough, begins to answer back in complete sentences.
"""
TASK = 'Change the name in the greeting to "Mr. Tanaka" and write the letter again.\n\n'


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt and the answer that is recorded."""

    name: str
    prompt: str
    answer: str


TEXTS = (
    Text("edit", TASK + LETTER, EDITED),
    Text("prose", "Write a short story about somebody who learned to read late.\n\n", PROSE),
)


class Recorded:
    """Takes the place of the sampler: draws the tokens of a recorded text."""

    seed = 0

    def __init__(self, text: Sequence[int]) -> None:
        self._text = text

    def draw(self, logits: Tensor, tokens: Sequence[int]) -> int:
        """The recorded token after `tokens`."""
        assert len(logits)
        return self._text[len(tokens)]


def answer(
    scheduler: Scheduler,
    prompt: list[int],
    text: list[int],
    drafter: Callable[[Sampler], Drafter] | None,
) -> Finished:
    """The statistics of one answer, which is the recorded text."""
    generate.Sampler = lambda sampling: Recorded(text)  # pyright: ignore[reportAttributeAccessIssue]
    request = Request(prompt, Sampling(), max_tokens=len(text) - len(prompt), drafter=drafter)
    ticket = scheduler.run(request)
    assert ticket.tokens == text, "another text than the recorded one"
    (finished,) = (event for event in ticket.events if isinstance(event, Finished))
    return finished


def measure(model: LoadedModel, text: Text, pairs: int) -> dict[str, float]:
    """Medians over pairs of a plain answer and one with lookup drafts."""
    prompt = model.tokenizer.encode(text.prompt)
    whole = [*prompt, *model.tokenizer.encode(text.answer, add_special=False)]
    scheduler = model.new_scheduler()
    answer(scheduler, prompt, whole, None)  # starts threads, fills the cache of prefixes
    found: list[tuple[float, float, float, float]] = []
    for _ in range(pairs):
        plain = answer(scheduler, prompt, whole, None)
        drafted = answer(scheduler, prompt, whole, lambda _: LookupDrafter())
        found.append(
            (
                plain.generated_tokens / plain.decode_seconds,
                drafted.generated_tokens / drafted.decode_seconds,
                drafted.accepted_tokens / max(drafted.drafted_tokens, 1),
                drafted.draft_gain,
            )
        )
    ratios = [fast / plain for plain, fast, _, _ in found]
    names = ("plain", "drafted", "accepted", "estimated")
    medians = [statistics.median(column) for column in zip(*found, strict=True)]
    return {
        **dict(zip(names, medians, strict=True)),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "tokens": len(whole) - len(prompt),
    }


def main() -> None:
    """Print the table, and write it with --write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="a folder with the model files")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    options = parser.parse_args()
    lines = [
        "| Model | Text | Tokens | Plain, tokens/s | Drafted | Ratio | Range | Accepted | Wanted |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in FILES:
        path = options.models / name
        if not path.exists():
            lines.append(f"| {name} | is missing | | | | | | | |")
            continue
        model = load(path, cache=CacheType.Q8_0, context=2048)
        for text in TEXTS:
            row = measure(model, text, options.pairs)
            wanted = WANTED[text.name]
            missed = "" if row["ratio"] >= wanted else " **missed**"
            lines.append(
                f"| {name} | {text.name} | {row['tokens']:.0f} | {row['plain']:.1f} | "
                f"{row['drafted']:.1f} | {row['ratio']:.2f} (estimated {row['estimated']:.2f}) | "
                f"{row['least']:.2f} to {row['most']:.2f} | {row['accepted']:.0%} | "
                f"{wanted}{missed} |"
            )
            print(lines[-1], flush=True)
    table = "\n".join(lines)
    print(table)
    if options.write:
        TABLE.write_text(
            f"# Lookup drafts\n\n{platform.machine()}, {options.pairs} pairs, {date.today()}, q8_0 "
            f"cache. Made by `tests/benchmarks/drafts.py`.\n\n{table}\n"
        )


if __name__ == "__main__":
    main()
