"""Predicted memory beside measured: loading, a full context, and what an unload gives back.

A process of its own loads each model, reads its whole context and answers for a moment. Measured
is the most it held of what it keeps from others (`resident_memory`, every 2 ms), less what it held
with torch imported and no model: pages of a mapped file are left out because the system can take
them back, and a reset of the kernel's own high-water mark would count them. Up to 2,048 tokens are
truly read; of longer contexts all but the last two chunks are written into the cache as they would
have been, which `--true` checks. The aims: predictions within 10 %, and within 60 MB of before
after an unload.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[2] / "packaging"))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

import fetch
import tiny
from engine import CacheType, resident_memory, starter_path

TABLE = Path(__file__).with_suffix(".md")
CONTEXTS = (2_048, 16_384)
TRULY_READ = 2_048  # tokens; the reference takes minutes for more
MB = 1e6

# Shapes with what the real models lack: a wide group of queries, a large byte-level vocabulary,
# windows narrower than the context. Small enough that float32 fits any machine.
SYNTHETIC: dict[str, dict[str, Any]] = {
    "llama-250M": {
        "architecture": "llama", "layers": 16, "hidden": 1_024, "heads": 16, "kv_heads": 4,
        "head_dim": 64, "ffn": 2_816, "vocabulary": 32_000, "context": 16_384,
    },
    "qwen3-280M": {
        "architecture": "qwen3", "layers": 8, "hidden": 1_024, "heads": 16, "kv_heads": 8,
        "head_dim": 128, "ffn": 3_072, "vocabulary": 151_936, "context": 40_960, "tied": True,
    },
    "gemma3-160M": {
        "architecture": "gemma3", "layers": 12, "hidden": 768, "heads": 4, "kv_heads": 1,
        "head_dim": 256, "ffn": 3_072, "vocabulary": 65_536, "context": 32_768,
        "metadata": {"gemma3.attention.sliding_window": 512},
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One process's figures, in bytes."""

    model: str
    context: int
    cache: CacheType
    predicted: int  # before the load
    shown: int  # after the load
    measured: int

    @property
    def difference(self) -> float:
        """By how much of the measured peak the prediction is above it."""
        return self.predicted / self.measured - 1

    @property
    def shown_difference(self) -> float:
        """By how much of the measured peak the figure after the load is above it."""
        return self.shown / self.measured - 1


# --- one model, in a process of its own ---------------------------------------------------------


@contextmanager
def watched() -> Iterator[list[int]]:
    """While open, the one number in the list is the most bytes held so far."""
    most = [resident_memory()]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            most[0] = max(most[0], resident_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()


def peak(path: Path, context: int, cache: CacheType, true: bool) -> dict[str, int]:
    """Load, fill the context, answer; what was predicted and what was the most held."""
    import torch

    from engine.loading.loader import load
    from engine.messages import Role, Sampling, Turn
    from engine.sampling import Sampler

    torch.set_grad_enabled(False)
    before = resident_memory()
    with watched() as most:
        model = load(path, context=context, cache=cache)
        shown = model.plan.with_weights(resident_memory() - before).total_bytes
        model.tokenizer.encode(model.template.render((Turn(Role.USER, "Hello there"),)))
        answer = 4
        tokens = [1 + 7 * at % (model.config.vocabulary - 1) for at in range(context - answer)]
        session = model.new_session() if true else _filled(model, context - answer)
        for hidden in session.prefill(tokens[len(session.tokens) :]):
            logits = session.logits(hidden[-1:])[0]
        sampler = Sampler(Sampling(seed=1))
        for _ in range(answer):
            logits = session.step(sampler.draw(logits, session.tokens))
        assert len(session.tokens) == context
    return {
        "predicted": model.plan.total_bytes,
        "shown": shown,
        "measured": most[0] - before,
    }


def _filled(model: Any, length: int) -> Any:
    """A session that holds all but the last two chunks of `length` tokens, written in chunks."""
    session = model.new_session()
    chunk = session.runner.chunk
    kept = max((length - TRULY_READ) // chunk, 0) * chunk
    session.sequence.reserve(kept)
    for page in (page for pages in session.sequence.pages for page in pages):
        page.data[:] = 1  # small finite numbers in every type
    session.sequence.commit([1] * kept)
    return session


def unload(path: Path) -> dict[str, int]:
    """Load, answer and let go; what was held before, with the model, and after."""
    import torch

    from engine.core.request import AnswerRequest
    from engine.loading.loader import load
    from engine.machine.device import trim_heap
    from engine.messages import Sampling

    torch.set_grad_enabled(False)
    before = resident_memory()
    model = load(path, context=TRULY_READ)
    scheduler = model.new_scheduler()
    prompt = model.tokenizer.encode("Tell me of the sea. " * 80)
    answer = scheduler.run(AnswerRequest(prompt, Sampling(seed=1), max_tokens=32))
    assert answer.events
    held = resident_memory()
    del model, scheduler, answer
    trim_heap()
    return {"before": before, "held": held, "after": resident_memory()}


def in_a_process(*arguments: object) -> dict[str, int]:
    """What this file prints when it is called with `arguments`."""
    done = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{arguments} failed:\n{done.stderr}")
    return json.loads(done.stdout)


# --- the table ----------------------------------------------------------------------------------


def real_models() -> list[Path]:
    """The two real models, where they are installed or the variable TOKONOMA_MODELS says."""
    places = [starter_path(), fetch.gemma().path]
    if shelf := os.environ.get("TOKONOMA_MODELS"):
        places = [Path(shelf) / place.name for place in places]
    return [place for place in places if place.is_file()]


def machine() -> str:
    """What the figures were measured with, without naming the machine."""
    import torch

    from kernels import backends

    return (
        f"{date.today().isoformat()}; {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores; Python {platform.python_version()}, torch {torch.__version__}; "
        f"kernels: {', '.join(sorted(set(backends.choose().in_use(['F32', 'Q4_K']).values())))}"
    )


def measure(paths: list[Path], contexts: tuple[int, ...], true: bool) -> list[Row]:
    """One row for each model, context and type of cache."""
    rows: list[Row] = []
    for path in paths:
        for context in contexts:
            for cache in CacheType:
                how = ("--true",) if true or context <= TRULY_READ else ()
                started = time.perf_counter()
                found = in_a_process("--peak", path, context, cache.value, *how)
                row = Row(path.stem, context, cache, **found)
                rows.append(row)
                print(f"{_line(row)}  {time.perf_counter() - started:.0f} s", flush=True)
    return rows


def _line(row: Row) -> str:
    return (
        f"| {row.model:<30} | {row.context:>7,} | {row.cache.value:<5} "
        f"| {row.predicted / MB:>9,.0f} | {row.shown / MB:>9,.0f} | {row.measured / MB:>9,.0f} "
        f"| {row.difference:>+7.1%} | {row.shown_difference:>+7.1%} |"
    )


def _unload_lines(paths: list[Path]) -> list[str]:
    lines: list[str] = []
    for path in paths:
        found = in_a_process("--unload", path)
        before, held, after = (found[name] / MB for name in ("before", "held", "after"))
        lines.append(
            f"| {path.stem:<30} | {before:>9,.0f} | {held:>9,.0f} | {after:>9,.0f} "
            f"| {after - before:>+8,.0f} |"
        )
        print(lines[-1], flush=True)
    return lines


def write(rows: list[Row], unloads: list[str]) -> None:
    """Keep the tables beside this file."""
    TABLE.write_text(
        "# Memory, predicted and measured\n\n"
        f"{machine()}. Written by `packaging/dev.py bench memory`; all figures in MB (10^6 bytes).\n\n"
        "## Peak of loading a model and filling its context\n\n"
        "| Model | Context | Cache | Predicted | After the load | Measured | Difference | Then |\n"
        "|---|---:|---|---:|---:|---:|---:|---:|\n"
        + "\n".join(" ".join(_line(row).split()) for row in rows)
        + "\n\n## The process before a load, after an answer, and after the unload\n\n"
        "| Model | Before | Loaded | Unloaded | Left |\n|---|---:|---:|---:|---:|\n"
        + "\n".join(" ".join(line.split()) for line in unloads)
        + "\n",
        encoding="utf-8",
    )


def main() -> int:
    """Measure the models given, or the real and the synthetic ones, and keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--true", action="store_true", help="read every token of every context")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--unload", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        path, context, cache = options.peak
        print(json.dumps(peak(Path(path), int(context), CacheType(cache), options.true)))
        return 0
    if options.unload:
        print(json.dumps(unload(options.unload)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        paths = options.models or [
            *real_models(),
            *(
                tiny.write(Path(folder) / f"{name}.gguf", format="F16", **sizes)
                for name, sizes in SYNTHETIC.items()
            ),
        ]
        rows = measure(paths, tuple(options.contexts), options.true)
        unloads = _unload_lines(options.models or real_models())
    if not options.models:
        write(rows, unloads)
    return 0 if all(abs(row.shown_difference) <= 0.1 for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
