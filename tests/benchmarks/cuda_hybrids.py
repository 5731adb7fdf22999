"""Hybrid models and mixtures on a GPU: kernels against the reference, recorded steps, speeds.

    python3 tests/benchmarks/cuda_hybrids.py

Every part runs in a process of its own, so that one that fails or hangs does not end the others,
and kernels are compiled by all processors at once; speeds are measured when the other parts are
done, one at a time. The table comes last, in about two minutes. It needs torch with CUDA, Triton
and numpy, and the packages gguf, yaml, safetensors and platformdirs, also from the folder
build/device_packages. Without a GPU the same path runs in Triton's interpreter with small shapes.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "build" / "device_packages"
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "benchmarks")]
if PACKAGES.exists():
    sys.path.append(str(PACKAGES))

import torch

HAS_GPU = torch.cuda.is_available()
if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined

BUDGET_SECONDS = 150.0 if HAS_GPU else 1500.0
FAMILIES = (
    "qwen35-dense",
    "qwen35moe-moe",
    "lfm2-dense",
    "gpt-oss-moe",
    "granitehybrid-dense",
    "gemma4",
)
SPEEDS = (("qwen3.5-0.8b", "Q4_0"), ("qwen3.5-4b", "Q4_0"), ("lfm2-1.2b", "Q4_0"))
CHECKS = ("recurrences", "convolutions", "head_norms", "sinks", "routes", "clamped_experts")
STEPS, PROMPT = 64, 512
# Of logits: of float32 weights, and of quantized ones, whose activations are quantized too.
MOST_ERROR = {"": 1e-5, "Q8_0": 2e-2}


def fewer_programs() -> None:
    """The interpreter runs the programs of a launch one after the other: fewer, larger ones."""
    from kernels.cuda import attention, experts, launch

    attention.MOST_SPLITS, launch._ROWS, experts._ROWS = 2, 128, 128


def note(*cells: object) -> None:
    """A row of the table, for the process that prints it."""
    print("ROW", *cells, sep="\t", flush=True)


def device() -> torch.device:
    """The GPU, or the processor for the interpreter."""
    return torch.device("cuda", 0) if HAS_GPU else torch.device("cpu")


# --- parts --------------------------------------------------------------------------------------


def check(name: str) -> None:
    """One group of kernels against the reference."""
    from cuda_kernels import SMALL, Sizes

    from hybrid_checks import HybridChecks

    seed = int.from_bytes(os.urandom(4))
    sizes = Sizes() if HAS_GPU else SMALL
    checks = HybridChecks(device(), sizes, torch.Generator().manual_seed(seed))
    checks.is_small = not HAS_GPU
    checks.attempt(getattr(checks, name))
    for group, error in checks.worst.items():
        bad = any(line.startswith(f"{group},") for line in checks.failed)
        note("check", group, f"worst {error:.2g}", f"FAILED, seed {seed}" if bad else "ok")
    for line in checks.failed:
        note("failure", name, line[:200], f"seed {seed}")


def family(name: str) -> None:
    """A small model, recorded, against the reference on the processor."""
    for quantization in ("", "Q8_0"):
        try:
            _family(name, quantization)
        except Exception as error:  # noqa: BLE001  the other weights are tried
            traceback.print_exc()
            words = f"{type(error).__name__}: {error}".splitlines()[0][:160]
            note("model", f"{name} {quantization or 'F32'}", words, "FAILED")


def _family(name: str, quantization: str) -> None:
    import family_models
    from kernels import cuda
    from kernels.backends import KNOWN
    from kernels.cuda.program import Recorded
    from kernels.ops import Segment
    from kernels.programs.interpreter import Interpreter

    backend, host = cuda.backend_on(device()), KNOWN["reference"]
    right = family_models.small(name, host, quantization, torch.float16)
    made = family_models.small(name, backend, quantization, torch.float16)
    expected = Interpreter(right.program, host.ops)
    run = backend.record(made.program)
    kind = "recorded" if isinstance(run, Recorded) else "OP BY OP"
    prompt = [(7 * at + 3) % right.vocabulary for at in range(17 if HAS_GPU else 4)]
    room = len(prompt) + 8
    tables = family_models.tables(right.program.kv, room, host.device)
    copies = family_models.tables(made.program.kv, room, backend.device)
    errors, tops = list[float](), list[bool]()

    def compare(found: torch.Tensor, wanted: torch.Tensor) -> None:
        difference = found.cpu().double() - wanted.double()
        error = float(difference.square().sum() / wanted.double().square().sum())
        errors.append(error if bool(found.isfinite().all()) else float("inf"))
        tops.append(bool((found.cpu().argmax(-1) == wanted.argmax(-1)).all()))

    wanted = expected.step([Segment(prompt, 0, tables)])
    compare(run.step([Segment(prompt, 0, copies)]), wanted)
    token = int(wanted[-1].argmax())
    prompts, errors, tops = errors[0], [], []
    for position in range(len(prompt), len(prompt) + (6 if HAS_GPU else 1)):
        # States move on: the page that a step wrote takes the place of the one that it read.
        wanted = expected.step([Segment([token], position, tables)])
        compare(run.step([Segment([token], position, copies)]), wanted)
        for each in (tables, copies):
            _commit(right.program, each, position)
        token = int(wanted[-1].argmax())
    worst, most = max(errors), MOST_ERROR[quantization]
    words = f"steps {worst:.1e}, prompt {prompts:.1e}, tops {sum(tops)}/{len(tops)}, {kind}"
    ok = worst <= most and prompts <= most and kind == "recorded"
    note("model", f"{name} {quantization or 'F32'}", words, "ok" if ok else "FAILED")


def _commit(program: object, tables: Iterable[object], position: int) -> None:
    """As `Sequence.commit`: the state before a step inside a page is dropped."""
    from kernels.states.layer_state import AT_END, PAGE_TOKENS

    if position % PAGE_TOKENS == 0:
        return
    for window, table in zip(program.kv.windows, tables, strict=True):  # type: ignore[attr-defined]
        if window == AT_END:
            index = -(-position // PAGE_TOKENS)
            before, after = table.pages[index - 1], table.pages[index]  # type: ignore[attr-defined]
            table.set(index - 1, after)  # type: ignore[attr-defined]
            table.set(index, before)  # type: ignore[attr-defined]


def speed(name: str, lock: str) -> None:
    """Tokens per second of a model of real shapes: recorded, op by op, and of a prompt."""
    import real_shapes

    import family_models
    from cuda_clock import clock
    from kernels import cuda
    from kernels.cuda.program import Recorded
    from kernels.ops import Segment
    from kernels.programs.interpreter import Interpreter

    model, format = name.split()
    backend, timer = cuda.backend_on(device()), clock()
    shape, layers, prompt, steps = real_shapes.SHAPES[model], 0, PROMPT, STEPS
    if not HAS_GPU:
        is_lfm2 = shape.architecture == "lfm2"
        shape = (
            real_shapes.lfm2(512, 8, 128) if is_lfm2 else real_shapes.qwen35(4, 128, 2, 1, 128, 16)
        )
        shape = replace(shape, vocabulary=160)
        layers, prompt, steps = 4, 2, 1
    made = family_models.of_real_shape(shape, name, format, backend, layers)
    run = backend.record(made.program)
    eager = Interpreter(made.program, backend.ops)
    plain = Interpreter(made.program, backend.ops.without(("recurrence", "short_conv")))
    depth = 100
    tables = family_models.tables(made.program.kv, max(prompt, depth) + 1, backend.device)
    one = Segment([1 + at % 100 for at in range(prompt)], 0, tables)

    def step(how: object) -> Callable[[], object]:
        segments = [Segment([7], depth, tables)]
        return lambda: how.step(segments).argmax(-1).tolist()  # type: ignore[attr-defined]

    def read(how: object) -> Callable[[], object]:
        def call() -> object:
            hidden = how.hidden([one])  # type: ignore[attr-defined]
            return how.logits(hidden[-1:]).argmax(-1).tolist()  # type: ignore[attr-defined]

        return call

    for call in (step(run), step(eager), read(run)):  # compile and capture
        call()
    kind = "recorded" if isinstance(run, Recorded) else "OP BY OP"
    bucket = next(iter(run._buckets.values())) if isinstance(run, Recorded) else None
    captured = bucket is not None and bucket.both.is_captured
    with Path(lock).open(encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # alone on the device
        warm = timer.seconds(step(run), steps)
        slow = timer.seconds(step(eager), max(steps // 8, 1))
        state = f"{kind}, {'captured' if captured else 'NOT CAPTURED'}"
        note(
            "speed", f"{name} decode", f"{1 / warm:,.1f} tokens/s; op by op {1 / slow:,.1f}", state
        )
        whole = timer.seconds(read(run), max(steps // 12, 1))
        note(
            "speed", f"{name} prompt of {prompt}", f"{prompt / whole:,.0f} tokens/s", "new kernels"
        )
        found = timer.kernels(step(run))
        longest = sorted(found.seconds.items(), key=lambda each: -each[1])[:9]
        shown = ", ".join(f"{key[:30]} {1e6 * value:,.0f} µs" for key, value in longest)
        note("kernels", f"{name} step", f"{found.count} launches: {shown}", "")
        found = timer.kernels(read(run))
        longest = sorted(found.seconds.items(), key=lambda each: -each[1])[:9]
        shown = ", ".join(f"{key[:30]} {1e6 * value:,.0f} µs" for key, value in longest)
        note("kernels", f"{name} prompt", f"{found.count} launches: {shown}", "")
        started = time.perf_counter()
        read(plain)()
        timer.finish()
        taken = time.perf_counter() - started
        note(
            "speed", f"{name} prompt of {prompt}", f"{prompt / taken:,.0f} tokens/s", "torch states"
        )


# --- all parts ----------------------------------------------------------------------------------


def main() -> int:
    """Run all parts, or the one that is named; 1 if one failed."""
    if len(sys.argv) > 2 and sys.argv[1] == "--part":
        kind, name = sys.argv[2], sys.argv[3]
        torch.set_grad_enabled(False)
        if not HAS_GPU:
            fewer_programs()
        {"check": check, "family": family}.get(kind, lambda one: speed(one, sys.argv[4]))(name)
        return 0
    started = time.perf_counter()
    lock = Path(tempfile.mkdtemp()) / "lock"
    lock.touch()
    parts = [("check", name) for name in CHECKS] + [("family", name) for name in FAMILIES]
    speeds = [("speed", f"{model} {format}") for model, format in SPEEDS]
    chosen = sys.argv[1:]
    if chosen:
        parts, speeds = (
            [one for one in some if any(word in one[1] for word in chosen)]
            for some in (parts, speeds)
        )
    rows: list[list[str]] = []
    held = lock.open()
    fcntl.flock(held, fcntl.LOCK_EX)  # until the other parts are done
    if HAS_GPU:
        running = [(one, _started(one, lock)) for one in (*parts, *speeds)]
        for one, process in running[: len(parts)]:
            rows += _finished(one, process, started + 0.6 * BUDGET_SECONDS)
        fcntl.flock(held, fcntl.LOCK_UN)
        for one, process in running[len(parts) :]:
            rows += _finished(one, process, started + BUDGET_SECONDS)
    else:
        fcntl.flock(held, fcntl.LOCK_UN)
        for one in (*parts, *speeds):
            rows += _finished(one, _started(one, lock), started + BUDGET_SECONDS)
    name = torch.cuda.get_device_name() if HAS_GPU else "Triton's interpreter: no times of a GPU"
    print(f"\n{name}, torch {torch.__version__}, {time.perf_counter() - started:.0f} s\n")
    print("| Part | What | Result | |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join([*row, "", ""][:4]) + " |")
    failed = [row for row in rows if any(word in " ".join(row) for word in ("FAILED", "failure"))]
    print(f"\n{len(failed)} of {len(rows)} rows failed.", flush=True)
    return 1 if failed else 0


def _started(one: tuple[str, str], lock: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--part", *one, str(lock)]
    file = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  read when the process has ended
    made = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, text=True)
    _outputs[made.pid] = file
    return made


_outputs: dict[int, object] = {}


def _finished(
    one: tuple[str, str], process: subprocess.Popen[str], until: float
) -> list[list[str]]:
    """The rows of a part; what it printed otherwise is shown if it failed."""
    words = ""
    try:
        code = process.wait(max(until - time.perf_counter(), 1.0))
        words = "" if code == 0 else f"ended with {code}"
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        words = "no time was left"
    file = _outputs.pop(process.pid)
    file.seek(0)  # type: ignore[attr-defined]
    lines = file.read().splitlines()  # type: ignore[attr-defined]
    rows = [line.split("\t")[1:] for line in lines if line.startswith("ROW\t")]
    if words:
        rows.append(["failure", " ".join(one), words, "FAILED"])
    if words or any("FAILED" in row[-1] for row in rows):
        print(
            f"--- {' '.join(one)}", *[x for x in lines if not x.startswith("ROW")][-25:], sep="\n"
        )
    print(f"{' '.join(one)}: {len(rows)} rows", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
