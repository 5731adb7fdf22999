"""Machine code of the CUDA decode kernels, compiled for GPUs that are not here: `cuda_code.md`.

The launches of one layer of Qwen3-8B, one token at a time, on tensors without memory. A kernel
whose registers do not suffice spills them to memory, which makes it slow: none may.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path

os.environ.pop("TRITON_INTERPRET", None)  # read when a kernel is defined
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]
warnings.filterwarnings("ignore", message=".*FP_FUSION.*")

import torch

import cuda_ahead as ahead
from kernels.cuda import attention, launch, weights
from kernels.cuda.layout import FORMATS, weight_bytes
from kernels.formats import by_name
from kernels.kv_pages import KVLayout
from kernels.layer_state import LayerShape
from kernels.program import Activation
from kernels.weight import Weight

CAPABILITIES = (80, 89, 90)
TARGET = Path(__file__).with_suffix(".md")
NOWHERE = torch.device("meta")
WIDTH, INNER, HEADS, KV_HEADS, HEAD_WIDTH = 4096, 12288, 32, 8, 128
EPSILON = 1e-6


def matrix(name: str, rows: int, columns: int) -> weights.Operand:
    """A weight without memory."""
    format, shape = by_name(name), (rows, columns)
    data = torch.empty(weight_bytes(format, shape), dtype=torch.uint8, device=NOWHERE)
    return weights.operand(Weight(data, format, shape, weights.LAYOUT))


def products(name: str) -> list[ahead.Launch]:
    """The products of a layer: queries, keys and values; output; gate and up; down."""
    x = torch.empty(1, WIDTH, device=NOWHERE)
    inner = torch.empty(1, INNER, device=NOWHERE)
    floats = matrix(name, 1, WIDTH).reads_floats
    normed = None if floats else launch.new_deferred(1, WIDTH, EPSILON, NOWHERE)
    plain = None if floats else launch.new_quantized(1, WIDTH, NOWHERE)
    gated = None if floats else launch.new_quantized(1, INNER, NOWHERE)
    query, key = matrix(name, HEADS * HEAD_WIDTH, WIDTH), matrix(name, KV_HEADS * HEAD_WIDTH, WIDTH)
    gate, down = matrix(name, INNER, WIDTH), matrix(name, WIDTH, INNER)
    norm = None if floats else x[0]
    with ahead.recorded_launches() as found:
        launch.linear(x, normed, [query, key, key], [x, x, x], 1)
        launch.linear_added(x, plain, query, x, 1, 1.0, norm, normed)
        launch.linear_gated(
            x, normed, gate, gate, Activation.SILU, 1, inner if floats else None, gated
        )
        launch.linear_added(inner, gated, down, x, 1, 1.0, norm, normed)
    return found


def step(dtype: torch.dtype) -> list[ahead.Launch]:
    """The attention of one token."""
    layout = KVLayout([LayerShape(KV_HEADS, HEAD_WIDTH)], dtype)
    some = torch.empty(HEAD_WIDTH, device=NOWHERE)
    one = attention.Heads(
        layout.kv(0), HEADS, some, some, EPSILON, some[:64], False, 1.0, HEAD_WIDTH**-0.5
    )
    q = torch.empty(1, WIDTH, device=NOWHERE)
    k = torch.empty(1, KV_HEADS * HEAD_WIDTH, device=NOWHERE)
    numbers = torch.empty(1, 64, dtype=torch.int64, device=NOWHERE)
    scratch = attention.scratch_for(one, 1, attention.MOST_SPLITS, NOWHERE)
    then = launch.new_quantized(1, WIDTH, NOWHERE)
    with ahead.recorded_launches() as found:
        attention.attend_step(one, q, k, k, numbers[:, 0], numbers, scratch, q, then)
    return found


def loads(ptx: str) -> str:
    """Loads from global memory by size in bytes: "16 B × 15"."""
    found: dict[int, int] = {}
    for vector, bits in re.findall(r"\bld\.global(?:\.\w+)*?(?:\.v(\d))?\.[bus](\d+)", ptx):
        size = int(vector or 1) * int(bits) // 8
        found[size] = found.get(size, 0) + 1
    return ", ".join(f"{size} B × {found[size]}" for size in sorted(found, reverse=True))


def main() -> int:
    """Compile every kernel and write the table, or those of some formats; 1 if one spills."""
    named = [(name, one) for name in (sys.argv[1:] or FORMATS) for one in products(name)]
    for dtype in (torch.float32, torch.float16, torch.int8):
        named += [(f"{dtype}".removeprefix("torch."), one) for one in step(dtype)]
    lines = [
        "# Machine code of the CUDA decode kernels\n",
        "One layer of Qwen3-8B, one token. Written by `python3 packaging/dev.py bench cuda_code`; no",
        "GPU is needed. Registers are those of a thread; loads and byte products (dp4a) those in the",
        "code, loops counted once.\n",
        "| Kernel | Format | GPU | Grid | Registers | Shared | Spilled | Loads | dp4a |",
        "|---|---|---|---|---:|---:|---:|---|---:|",
    ]
    spilled = 0
    for name, one in named:
        for capability in CAPABILITIES:
            code = ahead.compiled(one, capability)
            spilled += code.spilled > 0
            grid = " × ".join(map(str, one.grid))
            dots = len(re.findall(r"\bdp4a\b", code.ptx))
            lines.append(
                f"| {one.name} | {name} | sm_{capability} | {grid} | {code.registers} | "
                f"{code.shared} B | {code.spilled} B | {loads(code.ptx)} | {dots} |"
            )
            print(lines[-1], flush=True)
    if len(sys.argv) == 1:
        TARGET.write_text("\n".join(lines) + "\n")
    print(f"{len(named)} kernels; {spilled} spill.")
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
