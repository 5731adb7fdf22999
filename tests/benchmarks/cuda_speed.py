"""Speed of the CUDA backend over synthetic models of real shapes: `cuda.md`.

    python3 tests/benchmarks/cuda_speed.py [--minutes 8] [--table FILE]

Runs unattended on a machine with torch, numpy and Triton, without network and model files: first the
same tokens and the kernels against the reference, then speeds, in order of importance. After each
row the table is written, and what it was made of beside it or to build/, where a later run goes on;
what the time does not allow, what fails, and rows that are slower than in the committed table of the
same device are named in it. Without a GPU the same path runs in Triton's interpreter with toy shapes,
and its table, which has no meaning, is written to build/.

Columns: tokens/s warm (median step, captured, with its most likely token on the host) and cold (the
caches emptied and half a second of rest before each step); GB/s of weights, keys and values read;
its share of the copy bandwidth (read and written bytes) measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

import triton

from cuda_clock import Clock, Kernels, clock
from cuda_model import (
    QWEN3_1_7B,
    QWEN3_4B,
    QWEN3_8B,
    TOY,
    Shape,
    program,
    random_weight,
    read_bytes,
    segment,
    sequence,
)
from cuda_report import NotPossible, Report, Step, code_digest
from kernels import cuda
from kernels.backend.backend import Backend
from kernels.backends import KNOWN
from kernels.cuda import attention, launch
from kernels.cuda.program import Recorded
from kernels.ops import Segment
from kernels.programs.interpreter import Interpreter
from kernels.weights.formats import by_name
from kernels.weights.quantizers import q8_0
from kernels.weights.weight import Weight

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
TABLE = HERE / "cuda.md"
KERNELS, HYBRIDS = "cuda_kernels.py", "cuda_hybrids.py"
HYBRID_CHECKS = ("recurrences", "convolutions", "head_norms", "sinks", "routes", "clamped", "dense", "moe", "gemma4")  # fmt: skip
HYBRID_MODELS = ("qwen3.5-4b",)
PROMPT = 512
STEPS, COLD_STEPS = 48, 5
SHOWN_KERNELS = 8
GREEDY_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is measured of a model; fewer things in the interpreter."""

    depths: tuple[int, ...] = (0, 4096)
    batches: tuple[int, ...] = (4, 16)
    prompt: int = PROMPT
    steps: int = STEPS
    cold_steps: int = COLD_STEPS


@dataclass(frozen=True, slots=True)
class Row:
    """A model to measure."""

    shape: Shape
    format: str
    sizes: Sizes = Sizes()


DEEP = Sizes(depths=(0, 4096, 16_384))
ROWS = (
    Row(QWEN3_8B, "Q1_0"),
    Row(QWEN3_8B, "Q4_K", DEEP),
    Row(QWEN3_8B, "Q8_0"),
    Row(QWEN3_8B, "Q4_0"),
    Row(QWEN3_4B, "Q1_0", Sizes(batches=())),
    Row(QWEN3_1_7B, "Q1_0", Sizes(batches=())),
)
TOY_SIZES = Sizes(depths=(0, 300), batches=(5,), prompt=6, steps=1, cold_steps=1)
TOY_ROWS = (Row(TOY, "Q1_0", TOY_SIZES),)


class Model:
    """A synthetic model on the device, recorded."""

    def __init__(self, row: Row, backend: Backend) -> None:
        self.row, self.backend = row, backend
        weight = random_weight(row.format, backend.device)
        self.program = program(row.shape, weight, backend.device, torch.float16)
        self.recorded = backend.record(self.program)
        assert isinstance(self.recorded, Recorded)
        self.weights_bytes = read_bytes(self.program)

    def step(self, batch: int, depth: int) -> Callable[[], object]:
        """A decode step of some sequences at a depth, up to the tokens on the host."""
        kv = self.program.kv
        tables = [sequence(kv, depth + 1, self.backend.device) for _ in range(batch)]
        segments = [segment(1 + at, depth, table) for at, table in enumerate(tables)]

        def run() -> object:
            return self.recorded.step(segments).argmax(-1).tolist()

        run()  # compiles and captures
        return run

    def read_bytes(self, batch: int, depth: int) -> int:
        """Bytes of weights, keys and values that such a step reads."""
        shape = self.row.shape
        position = 2 * 2 * shape.kv_heads * shape.head_width * shape.layers  # f16
        return self.weights_bytes + batch * (depth + 1) * position

    def prefill(self, tokens: int) -> Callable[[], object]:
        """A prompt, up to its first token on the host."""
        tables = sequence(self.program.kv, tokens, self.backend.device)
        one = Segment([1 + at % 100 for at in range(tokens)], 0, tables)

        def run() -> object:
            hidden = self.recorded.hidden([one])
            return self.recorded.logits(hidden[-1:]).argmax(-1).tolist()

        run()
        return run


def measure(row: Row, backend: Backend, timer: Clock, report: Report) -> None:
    """All rows of one model, which is made for the first of them that is not known."""
    sizes = row.sizes
    name = f"{row.shape.name} {row.format}"
    made = cache(lambda: Model(row, backend))

    def decode(step: Step, words: str, batch: int, depth: int) -> None:
        run = made().step(batch, depth)
        warm = timer.seconds(run, sizes.steps)
        cold = timer.cold_seconds(run, sizes.cold_steps) if batch == 1 else 0.0
        speed = made().read_bytes(batch, depth) / warm
        slow = f"{batch / cold:,.0f}" if cold else "–"
        share = f"{100 * speed / timer.bandwidth:.0f} %"
        step.rows.append(
            f"| {words} | {batch / warm:,.0f} | {slow} | {speed / 1e9:,.0f} | {share} |"
        )
        if (batch, depth) == (1, 0):
            step.kernels.append(_kernel_row(name, timer.kernels(run)))

    def prefill(step: Step) -> None:
        seconds = timer.seconds(made().prefill(sizes.prompt), max(sizes.steps // 8, 1))
        share = 100 * 2 * row.shape.parameters * sizes.prompt / seconds / timer.rate
        step.rows.append(
            f"| {name}, prompt of {sizes.prompt} | {sizes.prompt / seconds:,.0f} | – | – | "
            f"{share:.0f} % of the matrix rate |"
        )

    steps = [(1, depth) for depth in sizes.depths] + [(batch, 0) for batch in sizes.batches]
    for batch, depth in steps:
        words = f"{name}, {batch} sequence{'s' * (batch > 1)}, depth {depth:,}"
        report.attempt(words, partial(decode, words=words, batch=batch, depth=depth))
    report.attempt(f"{name}, prompt", prefill)


def _kernel_row(name: str, found: Kernels) -> str:
    longest = sorted(found.seconds.items(), key=lambda one: -one[1])[:SHOWN_KERNELS]
    total = sum(found.seconds.values())
    shown = ", ".join(
        f"{kernel[:40]} {1e6 * seconds:,.0f} µs ({100 * seconds / total:.0f} %)"
        if total
        else kernel
        for kernel, seconds in longest
    )
    return f"| {name} | {found.count} | {shown} |"


# --- the same tokens ----------------------------------------------------------------------------


def check_tokens(backend: Backend, tokens: int, step: Step) -> None:
    """Greedy tokens of a small model, op by op, captured, and by the reference on the processor."""
    shape = Shape("small", 2, 128, 256, 2, 1, 64, 320) if tokens > 8 else TOY
    reference = KNOWN["reference"]
    answers: list[list[int]] = []
    gaps: list[float] = []
    for kind in ("reference", "eager", "graph"):
        place = reference if kind == "reference" else backend
        random = torch.Generator().manual_seed(7)

        def weight(
            rows: int, columns: int, place: Backend = place, random: torch.Generator = random
        ) -> Weight:
            format = by_name("Q8_0")
            values = torch.randn(rows, columns, generator=random) * columns**-0.5
            data = q8_0(values.view(-1, format.block))
            made = Weight.from_bytes(data.numpy().tobytes(), format, (rows, columns))
            return place.prepare(made)

        made = program(shape, weight, place.device, torch.float16)
        run = place.record(made) if kind == "graph" else Interpreter(made, place.ops)
        answer, token = list[int](), 3
        tables = sequence(made.kv, tokens + 1, place.device)
        for position in range(tokens):
            logits = run.step([segment(token, position, tables)])[0].cpu()
            best = logits.topk(2)
            token = int(best.indices[0])
            answer.append(token)
            if kind == "reference":
                gaps.append(float(best.values[0] - best.values[1]))
            elif answer[position] != answers[0][position]:  # the texts differ from here on
                token = answers[0][position]
        answers.append(answer)
    for kind, answer in zip(("op by op", "captured"), answers[1:], strict=True):
        others = [at for at in range(tokens) if answer[at] != answers[0][at]]
        words = f"{tokens - len(others)} of {tokens} greedy tokens {kind} are the reference's"
        if others:
            words += (
                f"; the others are ties, within {max(gaps[at] for at in others):.2g} of a logit"
            )
        step.checks.append(words)


# --- other scripts ------------------------------------------------------------------------------


def run(report: Report, *command: str) -> str:
    """The output of a script of this folder, or of a program that runs one; raises RuntimeError."""
    line = [str(HERE / each) if each.endswith(".py") else each for each in command]
    done = subprocess.run(
        line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=report.left + 30
    )
    if done.returncode:
        print(done.stdout[-3000:], flush=True)
        raise RuntimeError(f"{' '.join(command[-2:])} ended with {done.returncode}")
    return done.stdout


def check_kernels(step: Step, report: Report, names: Sequence[str]) -> None:
    """Every kernel, or those of some checks, against the reference, with small shapes."""
    output = run(report, sys.executable, KERNELS, "--small", *names)
    found = re.findall(r"^(\w+): worst (\S+)$", output, re.MULTILINE)
    errors = ", ".join(f"{name} {error}" for name, error in found)
    step.checks.append(f"Kernels agree with the reference: {errors}")


def check_hybrids(step: Step, report: Report) -> None:
    """Kernels of hybrid models and mixtures, and small models of them."""
    output = run(report, sys.executable, HYBRIDS, *HYBRID_CHECKS)
    found = re.search(r"^0 of (\d+) rows failed", output, re.MULTILINE)
    step.checks.append(f"Hybrids and mixtures: {found[1] if found else 0} checks, none failed")


def hybrid(step: Step, report: Report, model: str) -> None:
    """The speeds of a hybrid model."""
    for line in run(report, sys.executable, HYBRIDS, model).splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if cells[0] == "speed" and (speed := re.match(r"([\d,.]+) tokens/s", cells[2])):
            tokens = float(speed[1].replace(",", ""))
            words = "; ".join(cells[2].split("; ")[1:])
            step.rows.append(f"| {cells[1]}, {cells[3]} | {tokens:,.0f} | – | – | {words} |")


def sanitize(step: Step, report: Report, tool: str) -> None:
    """The small shapes of products and attention under a tool of the CUDA toolkit."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        raise NotPossible("compute-sanitizer is not installed")
    under = (program, "--tool", tool, "--error-exitcode", "9", sys.executable, KERNELS)
    lines = run(report, *under, "--small", "products", "attend").strip().splitlines()
    step.checks.append(f"{tool}: {lines[-1].lstrip('= ')}")


def main() -> int:
    """Do all steps and write the table; 1 if nothing could be measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    started = time.perf_counter()
    timer = clock()
    is_toy = timer.device.type == "cpu"
    backend = cuda.backend_on(timer.device)
    if is_toy:  # fewer programs to interpret
        attention.MOST_SPLITS, launch._ROWS = 2, 128
    build = ROOT / "build" / "cuda.md"
    table = options.table or (build if is_toy else TABLE)
    machine = {
        "device": timer.name,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "kernels": code_digest(),
    }
    figures = [
        f"Copy bandwidth: {timer.bandwidth / 1e9:,.0f} GB/s",
        f"bf16 matrix rate: {timer.rate / 1e12:,.1f} TFLOP/s",
    ]
    kept = (options.table or build).with_suffix(".json")
    report = Report(machine, figures, kept, table, started + 60 * options.minutes)
    report.resume(TABLE)
    tokens = 2 if is_toy else GREEDY_TOKENS
    report.attempt("greedy tokens", lambda step: check_tokens(backend, tokens, step))
    kernels = ("draws",) if is_toy else ()
    report.attempt("kernels", partial(check_kernels, report=report, names=kernels))
    if not is_toy:
        report.attempt("hybrids", partial(check_hybrids, report=report))
    for at, row in enumerate(TOY_ROWS if is_toy else ROWS):
        measure(row, backend, timer, report)
        if not is_toy:
            torch.cuda.empty_cache()
        for model in HYBRID_MODELS if at == 1 else ():
            report.attempt(model, partial(hybrid, report=report, model=model))
    for tool in () if is_toy else ("memcheck", "racecheck"):
        report.attempt(tool, partial(sanitize, report=report, tool=tool))
    report.write()
    print(f"{table}: {len(report.steps)} steps, {len(report.missing)} not done.")
    print(*report.slower(), sep="\n")
    return 0 if report.steps else 1


if __name__ == "__main__":
    sys.exit(main())
