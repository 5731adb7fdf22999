"""Cost of a product of a few tokens beside that of one: a ratio near 1 is bound by reading weights.

The matrices of a format are larger than the caches together, and products take turns over them, so
that weights come from memory. Counts of tokens are interleaved, and the best of several rounds
counts, because other programs only slow a round down.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch

import blocks
from kernels.cpu import library, weights
from kernels.weights.formats import FORMATS, Format
from kernels.weights.weight import Weight

NAMES = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "TQ2_0", "Q1_0", "F16")
TOKENS = (1, 2, 3, 4, 5, 8, 12, 16)
ROWS, COLUMNS = 8192, 2048
READ = 96 << 20  # bytes of weights that products take turns over: more than the caches hold


def matrices(format: Format, random: torch.Generator) -> list[Weight]:
    """Packed random weights, READ bytes of them; the blocks of all are the same."""
    made = blocks.similar_scale_blocks(format, ROWS * COLUMNS // format.block, random)
    weight = Weight.from_bytes(made.numpy().data.cast("B"), format, (ROWS, COLUMNS))
    count = -(-READ // weights.held_bytes(format, weight.shape))
    return [weights.prepare(weight) for _ in range(count)]


def measure(packed: Sequence[Weight], tokens: Sequence[int], rounds: int) -> list[float]:
    """Seconds of one product for each count of tokens: the best round's mean over all matrices."""
    x = torch.randn(max(tokens), COLUMNS)
    y = torch.empty(max(tokens), ROWS)
    native = [weights.native(weight) for weight in packed]
    best = torch.full((len(tokens), len(native)), float("inf"), dtype=torch.float64)
    for _ in range(rounds):
        for at, count in enumerate(tokens):
            for number, weight in enumerate(native):
                start = time.perf_counter()
                library.call("linear", ctypes.byref(weight), x.data_ptr(), count, y.data_ptr())
                seconds = time.perf_counter() - start
                best[at, number] = min(float(best[at, number]), seconds)
    return best.mean(1).tolist()


def main() -> int:
    """Print the table of ratios of the chosen formats."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", default=NAMES, help="names of formats")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help="counts of tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--isa", default="", help="instruction set (default: the fastest)")
    parser.add_argument("-r", dest="rounds", type=int, default=7, help="rounds")
    how = parser.parse_args()
    if not library.available():
        print(library.reason())
        return 1
    if how.isa:
        library.use(how.isa)
    library.set_threads(how.threads)
    random = torch.Generator().manual_seed(1)
    tokens = [1, *(count for count in how.tokens if count > 1)]
    print(f"{library.instruction_set()}, {library.threads()} threads; cost beside one token")
    print(f"| {'Format':8} | GB/s of one |" + "".join(f" {count:4} |" for count in tokens[1:]))
    print("|---|---:|" + "---:|" * (len(tokens) - 1))
    for name in how.formats:
        format = next(row for row in FORMATS.values() if row.name == name)
        packed = matrices(format, random)
        seconds = measure(packed, tokens, how.rounds)
        speed = packed[0].data.numel() * packed[0].data.element_size() / seconds[0] / 1e9
        ratios = "".join(f" {other / seconds[0]:4.2f} |" for other in seconds[1:])
        print(f"| {name:8} | {speed:11.1f} |{ratios}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
