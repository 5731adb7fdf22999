"""What adapters cost: seconds to load and to switch, speed of an answer, and memory after fifty.

Random adapters of every matrix of the starter model. Each speed is of the median token of one run,
with and without the stack in turn, so that a busy machine is busy for both. Memory is what the
process keeps from others after fifty loads and toggles, beside the same after the first.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

import tiny_lora
from engine import resident_memory, starter_path
from engine.adapters.stack import NO_ADAPTERS, Adapter, Stack, load_adapter
from engine.core.session import Session
from sessions import open_session

RANKS = (4, 16, 64)
PROMPT = list(range(1_000, 1_128))
TOGGLES = 50


def main() -> int:
    """Measure one model with adapters of three ranks, alone and stacked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=starter_path())
    parser.add_argument("--tokens", type=int, default=24)
    options = parser.parse_args()
    session = open_session(options.model, context=512)
    with tempfile.TemporaryDirectory() as folder:
        files = {
            rank: tiny_lora.write(Path(folder, f"rank-{rank}.gguf"), options.model, rank=rank)
            for rank in RANKS
        }
        adapters = {rank: _load(session, rank, file) for rank, file in files.items()}
        for rank, adapter in adapters.items():
            _compare(session, f"rank {rank}", Stack([(adapter, 1.0)]), options.tokens)
        stack = Stack([(adapter, 1.0) for adapter in adapters.values()])
        _compare(session, "all three", stack, options.tokens)
        _toggle(session, files[16])
    return 0


def _load(session: Session, rank: int, file: Path) -> Adapter:
    started = time.perf_counter()
    adapter = load_adapter(file, session.runner.model.base)
    loaded = time.perf_counter()
    Stack([(adapter, 0.7)])
    print(
        f"rank {rank:<10}{file.stat().st_size / 1e6:7.1f} MB   load {loaded - started:6.3f} s   "
        f"switch {1e3 * (time.perf_counter() - loaded):6.2f} ms"
    )
    return adapter


def _compare(session: Session, name: str, stack: Stack, tokens: int) -> None:
    """Median milliseconds of a token and of the prompt, with a stack and without."""
    with_stack, without = [], []
    prompts: dict[bool, float] = {}
    for used in (True, False):
        session.set_stack(stack if used else NO_ADAPTERS)
        started = time.perf_counter()
        for _ in session.prefill(PROMPT):
            pass
        prompts[used] = time.perf_counter() - started
    for index in range(2 * tokens):
        # Switched without forgetting: only the time of a token is wanted here, not the token.
        session.stack = NO_ADAPTERS if index % 2 else stack
        started = time.perf_counter()
        session.step(PROMPT[index % len(PROMPT)])
        (without if index % 2 else with_stack).append(1e3 * (time.perf_counter() - started))
    session.rewind(0)
    session.stack = NO_ADAPTERS
    one, other = statistics.median(with_stack), statistics.median(without)
    print(
        f"{name:<15}{one:7.1f} ms a token beside {other:.1f}: {100 * (one / other - 1):+.0f} %   "
        f"prompt of {len(PROMPT)}: {100 * (prompts[True] / prompts[False] - 1):+.0f} %"
    )


def _toggle(session: Session, file: Path) -> None:
    """Load, use and drop an adapter again and again."""
    held: list[int] = []
    for index in range(TOGGLES):
        session.set_stack(
            Stack([(load_adapter(file, session.runner.model.base), 0.1 * (index % 20))])
        )
        for _ in session.prefill(PROMPT[:8]):
            pass
        session.set_stack(NO_ADAPTERS)
        gc.collect()
        held.append(resident_memory())
    grown = (held[-1] - held[0]) / 1e6
    print(
        f"{TOGGLES} loads and toggles: {grown:+.1f} MB beside the first, of {held[0] / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
