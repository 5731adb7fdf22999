"""Speculative decoding beside plain decoding: an edit, and prose that repeats nothing.

Lookup drafts, on models that real shapes and random weights, so that their own words would mean nothing: the tokens of
a recorded text take the place of those that the model would draw, and each pass is real. Then a
draft model, the starter's 4-bit weights for the same in float32, which writes its own words; and
llama-server's lookup decoding beside ours, on the starter model's own answers. A pair is one plain answer and one with drafts, P D P D, so that a noisy machine favours neither;
figures are medians, and ratios are medians of the ratios of pairs.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from torch import Tensor

from engine.cli import drafts as lookup_bench
from engine.cli.quantize import quantize
from engine.core import sequence
from engine.core.request import AnswerRequest
from engine.core.scheduler import Scheduler
from engine.frontend.template import prompt_ids
from engine.loading.library import starter_path
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, DraftKind, Finished, Role, Sampling, Turn
from engine.sampling import Sampler
from engine.speculative.draft_model import DraftModel
from engine.speculative.draft_registry import maker
from engine.speculative.drafter import Drafter
from engine.speculative.lookup import LookupDrafter
from engine.speculative.vocabulary import VocabularyMap
from llama_server import ask, serving

TABLE = Path(__file__).with_suffix(".md")
FILES = ("qwen3-1.7b-Q4_0.gguf", "qwen3-1.7b-Q8_0.gguf", "qwen3-1.7b-Q1_0.gguf")
WANTED = {"edit": 2.0, "prose": 0.98}
PREDICTED_WITHIN = 0.1
PEERS = ("none", "ngram-simple", "ngram-map-k", "ngram-mod")  # ways to draft of llama-server
STORY = "Write a short story about somebody who learned to read late."

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


class Recorded(Sampler):
    """Takes the place of the sampler: draws the tokens of a recorded text."""

    def __init__(self, text: Sequence[int]) -> None:
        super().__init__(Sampling(temperature=0))
        self._text = text

    def draw(self, logits: Tensor, tokens: Sequence[int], *_: object) -> int:
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
    request = AnswerRequest(prompt, Sampling(), max_tokens=len(text) - len(prompt), drafter=drafter)
    sequence.Sampler = lambda *_: Recorded(text)  # pyright: ignore[reportAttributeAccessIssue]
    try:
        ticket = scheduler.run(request)
    finally:
        sequence.Sampler = Sampler
    assert ticket.tokens == text, "another text than the recorded one"
    (finished,) = (event for event in ticket.request.events if isinstance(event, Finished))
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


def measure_model(target: Path, draft: Path, pairs: int) -> list[str]:
    """Rows of a table: a draft model, on an answer that the target writes."""
    model = load(target, cache=CacheType.Q8_0, context=1024)
    small = load(draft, cache=CacheType.Q8_0, context=1024, threads=None)
    vocabulary = VocabularyMap(model.tokenizer, small.tokenizer)
    drafts = DraftModel(small.new_runner(), 1024, vocabulary)
    scheduler, rows = model.new_scheduler(), list[str]()
    prompt = _prompt(model, "Explain how a lighthouse works, and why ships still need it.")

    def run(kind: DraftKind) -> tuple[Finished, list[int]]:
        drafter = maker(kind, drafts)
        request = AnswerRequest(prompt, Sampling(temperature=0), max_tokens=250, drafter=drafter)
        ticket = scheduler.run(request)
        (finished,) = (event for event in ticket.request.events if isinstance(event, Finished))
        return finished, ticket.answers[0]

    run(DraftKind.MODEL)
    found = [(run(DraftKind.NONE), run(DraftKind.MODEL)) for _ in range(pairs)]
    assert all(plain[1] == drafted[1] for plain, drafted in found), "another answer"
    ratios = [plain[0].decode_seconds / drafted[0].decode_seconds for plain, drafted in found]
    ends = [drafted[0] for _, drafted in found]
    estimated = statistics.median(one.draft_gain for one in ends)
    ratio = statistics.median(ratios)
    apart = "" if abs(estimated / ratio - 1) <= PREDICTED_WITHIN else " **missed**"
    accepted = statistics.median(one.accepted_tokens / one.drafted_tokens for one in ends)
    rows.append(
        f"| model | {statistics.median(map(_speed, (one[0][0] for one in found))):.1f} | "
        f"{statistics.median(map(_speed, ends)):.1f} | {ratio:.2f} | "
        f"{min(ratios):.2f} to {max(ratios):.2f} | {estimated:.2f}{apart} | {accepted:.0%} |"
    )
    print(rows[-1], flush=True)
    return rows


def measure_peer(server: str, path: Path, pairs: int) -> list[str]:
    """Rows of a table: lookup decoding of llama-server and ours, on answers of one real model."""
    model = load(path, cache=CacheType.F16, context=2048)
    scheduler = model.new_scheduler()
    rows: list[str] = []

    def ours(prompt: list[int], kind: DraftKind) -> float:
        request = AnswerRequest(
            prompt, Sampling(temperature=0), max_tokens=300, drafter=maker(kind, None)
        )
        ticket = scheduler.run(request)
        return _speed(*(event for event in ticket.request.events if isinstance(event, Finished)))

    def theirs(address: str, prompt: list[int]) -> float:
        asked = {"prompt": prompt, "n_predict": 300, "temperature": 0, "cache_prompt": True}
        timings = ask(address, "completion", asked)["timings"]
        return timings["predicted_n"] / timings["predicted_ms"] * 1000

    # One server at a time: idle ones would wait for work on the same cores.
    texts = {"edit": lookup_bench.TASK + lookup_bench.TEXT, "prose": STORY}
    prompts = {name: _prompt(model, text) for name, text in texts.items()}
    speeds: dict[tuple[str, str], list[float]] = {}
    for kind in PEERS:
        options = ("-c", "2048", "--no-webui", "-np", "1", "--spec-type", kind)
        with serving(server, path, *options) as address:
            for name, prompt in prompts.items():
                theirs(address, prompt)
                label = f"llama-server, {kind}"
                speeds[name, label] = [theirs(address, prompt) for _ in range(pairs)]
    for name, prompt in prompts.items():
        ours(prompt, DraftKind.LOOKUP)
        for _ in range(pairs):
            speeds.setdefault((name, "ours"), []).append(ours(prompt, DraftKind.NONE))
            speeds.setdefault((name, "ours, lookup"), []).append(ours(prompt, DraftKind.LOOKUP))
    for (name, label), found in speeds.items():
        plain = speeds[name, "ours" if label.startswith("ours") else f"llama-server, {PEERS[0]}"]
        gain = statistics.median(found) / statistics.median(plain)
        rows.append(f"| {name} | {label} | {statistics.median(found):.0f} | {gain:.2f} |")
        print(rows[-1], flush=True)
    return rows


def _prompt(model: LoadedModel, text: str) -> list[int]:
    return prompt_ids(model.tokenizer, model.template.render((Turn(Role.USER, text),)))


def _speed(finished: Finished) -> float:
    return finished.generated_tokens / finished.decode_seconds


def main() -> None:
    """Print the table, and write it with --write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, required=True, help="a folder with the model files")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--server", help="llama-server, for its lookup decoding beside ours")
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
    with tempfile.TemporaryDirectory() as folder:
        wide = Path(folder) / "wide.gguf"
        quantize(starter_path(), wide, "F32", lambda done, total: None)
        models = measure_model(wide, starter_path(), options.pairs)
    peer = measure_peer(options.server, starter_path(), options.pairs) if options.server else []
    text = "\n".join(
        [
            f"# Drafts\n\n{platform.machine()}, {options.pairs} pairs, {date.today()}. Made by "
            "`tests/benchmarks/drafts.py`.\n\n## Lookup\n\nq8_0 cache.\n",
            *lines,
            "\n## A draft model\n\nThe starter model in float32, drafted for by its 4-bit file.\n",
            "| Drafts | Plain, tokens/s | Drafted | Ratio | Range | Estimated | Accepted |",
            "|---|---|---|---|---|---|---|",
            *models,
            "\n## Lookup beside llama-server\n\nThe starter model's own greedy answers, f16 cache; gain "
            "over plain decoding by the same program.\n",
            "| Text | Program | Tokens/s | Gain |",
            "|---|---|---|---|",
            *peer,
        ]
    )
    print(text)
    if options.write:
        TABLE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
