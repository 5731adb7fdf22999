"""Speed of the CUDA backend over synthetic models of real shapes: `cuda.md`.

Runs unattended in under eight minutes on a machine with torch, numpy and Triton, without network and
model files. Rows come in order of importance; what the time does not allow, and what fails, is named
in the table. Without a GPU the same path runs in Triton's interpreter with toy shapes, and its
table, which has no meaning, is written to build/.

Columns: tokens/s warm (median step, captured, with its most likely token on the host) and cold (the
caches emptied and half a second of rest before each step); GB/s of weights, keys and values read;
its share of the copy bandwidth (read and written bytes) measured in the same run.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
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
TABLE = Path(__file__).with_name("cuda.md")
BUDGET_SECONDS = 440.0
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


@dataclass
class Report:
    """The lines of the table, and what was not measured."""

    clock: Clock
    bandwidth: float
    rate: float
    started: float = field(default_factory=time.perf_counter)
    rows: list[str] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)

    @property
    def has_time(self) -> bool:
        """Whether another row may be started."""
        return time.perf_counter() - self.started < BUDGET_SECONDS

    def attempt(self, words: str, measure: Callable[[], None]) -> None:
        """Measure a row; one that fails, or for which there is no time, is named."""
        if not self.has_time:
            self.missing.append(f"{words}: no time was left")
            return
        try:
            measure()
        except Exception as error:  # noqa: BLE001  a row that fails does not end the run
            traceback.print_exc()
            self.missing.append(f"{words}: {type(error).__name__}: {str(error).splitlines()[0]}")

    def add(self, words: str, tokens: int, warm: float, cold: float, size: int) -> None:
        """A row of decode steps of so many tokens, which read `size` bytes."""
        speed = size / warm
        slow = f"{tokens / cold:,.0f}" if cold else "–"
        self.rows.append(
            f"| {words} | {tokens / warm:,.0f} | {slow} | {speed / 1e9:,.0f} | "
            f"{100 * speed / self.bandwidth:.0f} % |"
        )
        print(self.rows[-1], flush=True)

    def text(self) -> str:
        """The whole table."""
        minutes = (time.perf_counter() - self.started) / 60
        return "\n".join(
            [
                "# Speed of the CUDA backend\n",
                "Written by `python3 packaging/dev.py bench cuda`; the models are synthetic, of real",
                "shapes, with f16 keys and values. tests/benchmarks/cuda_speed.py says what the columns are.\n",
                f"- Device: {self.clock.name}",
                f"- torch {torch.__version__}, Triton {triton.__version__}, {minutes:.1f} minutes",
                f"- Copy bandwidth: {self.bandwidth / 1e9:,.0f} GB/s",
                f"- bf16 matrix rate: {self.rate / 1e12:,.1f} TFLOP/s",
                *(f"- {line}" for line in self.checks),
                "\n| Model | tokens/s warm | tokens/s cold | GB/s | Of the copy bandwidth |",
                "|---|---:|---:|---:|---:|",
                *self.rows,
                "\nKernels of a step of one sequence, with their share of its time:\n",
                "| Model | Kernels | Time per kernel |",
                "|---|---:|---|",
                *self.kernels,
                *(["\nNot measured:\n", *(f"- {line}" for line in self.missing)] if self.missing else []),
                "",
            ]
        )  # fmt: skip


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


def measure(row: Row, backend: Backend, report: Report) -> None:
    """All rows of one model."""
    model, sizes, timer = Model(row, backend), row.sizes, report.clock
    name = f"{row.shape.name} {row.format}"
    steps = [(1, depth) for depth in sizes.depths] + [(batch, 0) for batch in sizes.batches]
    for batch, depth in steps:
        words = f"{name}, {batch} sequence{'s' * (batch > 1)}, depth {depth:,}"

        def decode(batch: int = batch, depth: int = depth, words: str = words) -> None:
            run = model.step(batch, depth)
            warm = timer.seconds(run, sizes.steps)
            cold = timer.cold_seconds(run, sizes.cold_steps) if batch == 1 else 0.0
            report.add(words, batch, warm, cold, model.read_bytes(batch, depth))
            if (batch, depth) == (1, 0):
                report.kernels.append(_kernel_row(name, timer.kernels(run)))

        report.attempt(words, decode)

    def prefill() -> None:
        seconds = timer.seconds(model.prefill(sizes.prompt), max(sizes.steps // 8, 1))
        rate = 2 * row.shape.parameters * sizes.prompt / seconds
        share = 100 * rate / report.rate
        report.rows.append(
            f"| {name}, prompt of {sizes.prompt} | {sizes.prompt / seconds:,.0f} | – | – | "
            f"{share:.0f} % of the matrix rate |"
        )
        print(report.rows[-1], flush=True)

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


def check_tokens(backend: Backend, tokens: int, report: Report) -> None:
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
        report.checks.append(words)
        print(words, flush=True)


def main() -> int:
    """Measure all rows and write the table; 1 if none could be measured."""
    timer = clock()
    is_toy = timer.device.type == "cpu"
    backend = cuda.backend_on(timer.device)
    if is_toy:  # fewer programs to interpret
        attention.MOST_SPLITS, launch._ROWS = 2, 128
    report = Report(timer, timer.copy_bandwidth(), timer.matrix_rate())
    report.attempt(
        "greedy tokens", lambda: check_tokens(backend, 2 if is_toy else GREEDY_TOKENS, report)
    )
    for row in TOY_ROWS if is_toy else ROWS:
        name = f"{row.shape.name} {row.format}"
        report.attempt(name, lambda row=row: measure(row, backend, report))
        if not is_toy:
            torch.cuda.empty_cache()
    named = [Path(one) for one in sys.argv[2:] if sys.argv[1] == "--table"]
    target = named[0] if named else ROOT / "build" / TABLE.name if is_toy else TABLE
    target.parent.mkdir(exist_ok=True)
    target.write_text(report.text(), encoding="utf-8")
    print(f"{target}: {len(report.rows)} rows, {len(report.missing)} not measured.")
    return 0 if report.rows else 1


if __name__ == "__main__":
    sys.exit(main())
