"""Many sequences at once: cost of a step, total speed beside llama.cpp, shared prefixes, saving.

Every pair is one short run of ours and one of llama.cpp's llama-batched-bench, A B A B, so that a
noisy machine favours neither; figures are medians, and ratios are medians of the ratios of pairs.
The models are files in a folder: the starter model, and others of real shapes with random weights.
A file or program that is missing is named and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from engine.core.request import AnswerRequest
from engine.core.runner import Rows, Runner
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Sampling
from engine.state.sequence import Sequence as CachedSequence

TABLE = Path(__file__).with_suffix(".md")
ROOT = Path(__file__).parents[2]
PEER = ROOT / "build" / "peer" / "bin" / "llama-batched-bench"
COUNTS = (1, 2, 4, 8)  # sequences
DEPTH = 64  # tokens of each sequence before the measured steps
STEPS = 32
PREFIX = 2_048  # tokens shared by two branches
VERIFIED = 5  # tokens: a draft of four and the token before it


@dataclass(frozen=True, slots=True)
class Row:
    """A model file with the wanted figures."""

    words: str
    file: str
    costs: tuple[float, float, float]  # of a step of 2, 4 and 8 sequences, against one; 0: none
    totals: float  # total speed of 4 and 8 sequences beside llama.cpp's
    verify: float = 0.0  # cost of five tokens of one sequence against one; 0: none


ROWS = (
    Row("Qwen3-1.7B shape, Q4_0", "qwen3-1.7b-Q4_0.gguf", (1.15, 1.35, 1.9), 1.8, 1.5),
    Row("Qwen3-1.7B shape, Q8_0", "qwen3-1.7b-Q8_0.gguf", (1.15, 1.35, 1.9), 1.8),
    Row("Qwen3-1.7B shape, Q1_0", "qwen3-1.7b-Q1_0.gguf", (1.4, 2.2, 4.0), 4.0),
    Row("SmolLM2-135M Q4_1 (real)", "SmolLM2-135M-Instruct.Q4_1.gguf", (0, 0, 0), 1.8),
)


class Stepper:
    """Decodes several sequences together."""

    def __init__(self, model: LoadedModel, count: int) -> None:
        self._runner: Runner = model.new_runner()
        pool = self._runner.new_pool()
        self._sequences = [CachedSequence(pool, model.plan.context) for _ in range(count)]
        for number, sequence in enumerate(self._sequences):
            self._runner.hidden([Rows(sequence, _ids(model, DEPTH, number))])

    def seconds(self, tokens: int = 1) -> float:
        """Duration of one step that appends `tokens` to each sequence."""
        batch = [Rows(sequence, [7] * tokens, wanted=tokens) for sequence in self._sequences]
        started = time.perf_counter()
        self._runner.step(batch)
        spent = time.perf_counter() - started
        for sequence in self._sequences:
            sequence.rewind(DEPTH)
        return spent


def _ids(model: LoadedModel, count: int, seed: int) -> list[int]:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocabulary, (count,), generator=random).tolist()


def step_costs(model: LoadedModel, repetitions: int) -> tuple[dict[int, float], float]:
    """Median seconds of a step by number of sequences, and of a verification; all in turn."""
    steppers = {count: Stepper(model, count) for count in COUNTS}
    found: dict[int, list[float]] = {count: [] for count in COUNTS}
    verified: list[float] = []
    for _ in range(repetitions):
        for count, stepper in steppers.items():
            found[count].append(stepper.seconds())
        verified.append(steppers[1].seconds(VERIFIED))
    medians = {count: statistics.median(seconds) for count, seconds in found.items()}
    return medians, statistics.median(verified)


def our_total(steppers: dict[int, Stepper], count: int) -> float:
    """Tokens per second of `count` sequences together."""
    spent = sum(steppers[count].seconds() for _ in range(STEPS))
    return count * STEPS / spent


def peer_totals(peer: Path, file: Path, threads: int) -> dict[int, float]:
    """Tokens per second of llama.cpp by number of sequences."""
    line = [str(peer), "-m", str(file), "-t", str(threads), "-c", "4096"]
    line += ["-npp", str(DEPTH), "-ntg", str(STEPS), "-npl", ",".join(map(str, COUNTS))]
    line += ["--output-format", "jsonl"]
    run = subprocess.run(line, capture_output=True, text=True, check=True)
    rows = [json.loads(text) for text in run.stdout.splitlines() if text.startswith("{")]
    return {int(row["pl"]): float(row["speed_tg"]) for row in rows}


def shared_prefix(model: LoadedModel) -> tuple[float, float]:
    """Seconds to the first token of a prompt: read whole, and with a cached prefix of 2,048."""
    scheduler = model.new_scheduler()
    prefix = _ids(model, PREFIX, 1)

    def first_token(last: int) -> float:
        request = AnswerRequest([*prefix, last], Sampling(temperature=0), max_tokens=1)
        started = time.perf_counter()
        scheduler.run(request)
        return time.perf_counter() - started

    whole = first_token(5)
    return whole, min(first_token(6 + number) for number in range(3))


def measure(row: Row, file: Path, peer: Path | None, pairs: int, threads: int) -> list[str]:
    """The table lines of one model."""
    model = load(file, context=4096, threads=threads, cache=CacheType.F16)
    costs, verified = step_costs(model, 3 * pairs)
    lines = []
    wanted = dict(zip(COUNTS[1:], row.costs, strict=True))
    for count in COUNTS[1:]:
        ratio = costs[count] / costs[1]
        lines.append(_line(row, f"step of {count}, against one", ratio, wanted[count], most=True))
    lines.append(
        _line(row, "five tokens verified, against one", verified / costs[1], row.verify, most=True)
    )
    if peer is not None:
        steppers = {count: Stepper(model, count) for count in COUNTS}
        ratios: dict[int, list[float]] = {count: [] for count in COUNTS}
        speeds: dict[int, list[tuple[float, float]]] = {count: [] for count in COUNTS}
        for _ in range(pairs):
            ours = {count: our_total(steppers, count) for count in COUNTS}
            theirs = peer_totals(peer, file, threads)
            for count in COUNTS:
                ratios[count].append(ours[count] / theirs[count])
                speeds[count].append((ours[count], theirs[count]))
        for count in COUNTS:
            mine, other = (statistics.median(side) for side in zip(*speeds[count], strict=True))
            words = f"{count} together: {mine:,.1f} beside {other:,.1f} tokens/s"
            aim = row.totals if count >= 4 else 0.0
            lines.append(_line(row, words, statistics.median(ratios[count]), aim))
    whole, second = shared_prefix(model)
    words = f"first token with 2,048 cached: {second:.3f} s, read whole {whole:.2f} s"
    lines.append(_line(row, words, whole / second, 20.0))
    return lines


def _line(row: Row, of: str, ratio: float, wanted: float, *, most: bool = False) -> str:
    missed = wanted and (ratio > wanted if most else ratio < wanted)
    aim = f"{'≤' if most else '≥'} {wanted:g}{' **missed**' if missed else ''}" if wanted else ""
    line = f"| {row.words} | {of} | {ratio:.2f} | {aim} |"
    print(line, flush=True)
    return line


def main() -> int:
    """Measure every model file that is there and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "models")
    parser.add_argument("--peer", type=Path, default=PEER)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="", help="part of a file name")
    options = parser.parse_args()
    peer = options.peer if options.peer.exists() else None
    if peer is None:
        print(f"{options.peer} is missing: llama.cpp is left out.")
    lines: list[str] = []
    for row in ROWS:
        file = options.models / row.file
        if options.only not in row.file:
            continue
        if not file.exists():
            print(f"{file} is missing and left out.")
            continue
        lines += measure(row, file, peer, options.pairs, options.threads)
    head = [
        "# Many sequences at once",
        "",
        f"{platform.machine()}, {options.threads} threads, {options.pairs} pairs, "
        f"torch {torch.__version__}, {date.today()}. Made by `packaging/dev.py bench batch`.",
        "",
        "| Model | Of | Ratio | Wanted |",
        "|---|---|---:|---|",
    ]
    if lines:
        TABLE.write_text("\n".join([*head, *lines]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
