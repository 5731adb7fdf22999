"""Machine code of all CUDA kernels, compiled for GPUs that are not here: `cuda_code.md`.

The launches of one layer of Qwen3-8B, for one token and for a prompt, on tensors without memory. A
kernel whose registers do not suffice spills them to memory, which makes it slow: none of those that
decode may. None may take more shared memory than a GPU has.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.pop("TRITON_INTERPRET", None)  # read when a kernel is defined
sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]
warnings.filterwarnings("ignore", message=".*FP_FUSION.*")

import torch

import cuda_ahead as ahead
from kernels.cuda import adapters, attention, experts, heads, launch, sampling, states, weights
from kernels.cuda.heads import HeadGates, HeadNorms
from kernels.gpu.layout import FORMATS, weight_bytes
from kernels.ops import Activation, LoraDelta, Recurrence, ShortConv, Spans
from kernels.ops.routing import Gating, Routing
from kernels.states.kv_pages import KVLayout
from kernels.states.layer_state import ConvState, LayerShape, RecurrentState
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

CAPABILITIES = (80, 89, 90)
TARGET = Path(__file__).with_suffix(".md")
NOWHERE = torch.device("meta")
WIDTH, INNER, HEADS, KV_HEADS, HEAD_WIDTH = 4096, 12288, 32, 8, 128
WIDE_HEAD = 256  # of Gemma
PAGES = (torch.float32, torch.float16, torch.int8)
# A launch that takes more shared memory is refused.
MOST_SHARED = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10}
EPSILON = 1e-6
VOCABULARY = 151936
EXPERT_WIDTH, EXPERT_INNER, EXPERTS, CHOSEN = 2048, 768, 128, 8
PROMPT = 512  # tokens
# Heads, key heads and widths of the recurrences of Qwen3.5-4B and of Granite 4 hybrids.
DELTA_NET, STATE_SPACE = (32, 16, 128, 128), (48, 1, 128, 64)


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
        launch.linear(x, plain, [query, key, key], [x, x, x], 1, [x[0]] * 3)
        launch.linear_added(x, plain, query, x, 1, 1.0, norm, normed)
        launch.linear_gated(
            x, normed, gate, gate, Activation.SILU, 1, inner if floats else None, gated
        )
        launch.linear_added(inner, gated, down, x, 1, 1.0, norm, normed)
    return found


def attention_heads(dtype: torch.dtype, width: int) -> attention.CudaHeads:
    """The heads of a layer, of `width` channels, over pages of a type."""
    layout = KVLayout([LayerShape(KV_HEADS, width)], dtype)
    some = torch.empty(width, device=NOWHERE)
    rope = some[: width // 2]
    return attention.CudaHeads(
        layout.kv(0), HEADS, some, some, EPSILON, rope, False, 1.0, width**-0.5
    )


def rare(one: attention.CudaHeads) -> attention.CudaHeads:
    """The heads with sinks, chunks of positions, and norms after RoPE."""
    sinks = torch.empty(one.heads, device=NOWHERE)
    return replace(one, sinks=sinks, chunk=8192, norms_rotated=True)


def step(dtype: torch.dtype, width: int) -> list[ahead.Launch]:
    """The attention of one token."""
    one = attention_heads(dtype, width)
    q = torch.empty(1, HEADS * width, device=NOWHERE)
    k = torch.empty(1, KV_HEADS * width, device=NOWHERE)
    numbers = torch.empty(1, 64, dtype=torch.int64, device=NOWHERE)
    scratch = attention.scratch_for(one, 1, attention.MOST_SPLITS, NOWHERE)
    then = launch.new_quantized(1, HEADS * width, NOWHERE)
    with ahead.recorded_launches() as found:
        for each in (one, rare(one)):
            attention.attend_step(each, q, k, k, numbers[:, 0], numbers, scratch, q, then)
        turns = numbers[:, : width // 2]  # after a picture
        attention.attend_step(one, q, k, k, numbers[:, 0], numbers, scratch, q, then, turns)
    return found


def mixtures(name: str) -> list[ahead.Launch]:
    """The experts of a layer of Qwen3-30B-A3B."""
    x = torch.empty(1, EXPERT_WIDTH, device=NOWHERE)
    floats = matrix(name, 1, EXPERT_WIDTH).reads_floats
    plain = None if floats else launch.new_quantized(1, EXPERT_WIDTH, NOWHERE)
    hidden = torch.empty(CHOSEN, EXPERT_INNER, device=NOWHERE)
    inner = None if floats else launch.new_quantized(CHOSEN, EXPERT_INNER, NOWHERE)
    routes = experts.new_routes(1, CHOSEN, NOWHERE)
    addresses = torch.empty(EXPERTS, 6, dtype=torch.int64, device=NOWHERE)
    gates = experts.Table(matrix(name, EXPERT_INNER, EXPERT_WIDTH), addresses)
    downs = experts.Table(matrix(name, EXPERT_WIDTH, EXPERT_INNER), addresses)
    norm = None if floats else x[0]
    then = None if floats else launch.new_deferred(1, EXPERT_WIDTH, EPSILON, NOWHERE)
    with ahead.recorded_launches() as found:
        experts.gated(
            x, plain, routes, gates, gates, Activation.SILU, 1, hidden if floats else None, inner
        )
        experts.added(hidden, inner, routes, downs, x, 1, 1.0, norm, then)
        biases = torch.empty(EXPERTS, EXPERT_WIDTH, device=NOWHERE)
        options = experts.Options(None, None, x[0], biases, biases, biases, 7.0)
        act = Activation.GPT_OSS
        out = hidden if floats else None
        experts.gated(x, plain, routes, gates, gates, act, 1, out, inner, options)
        experts.added(hidden, inner, routes, downs, x, 1, 1.0, norm, then, options)
    return found


def terms() -> list[ahead.Launch]:
    """LoRA terms of rank 16 of queries, keys and values."""

    def factor(*shape: int) -> Weight:
        return Weight(torch.empty(shape, device=NOWHERE), by_name("F32"), shape)

    x, scales = torch.empty(1, WIDTH, device=NOWHERE), torch.empty(16, device=NOWHERE)
    delta = LoraDelta(factor(16, WIDTH), factor(WIDTH, 16), scales)
    with ahead.recorded_launches() as found:
        adapters.Terms([delta] * 3, 1, NOWHERE).add(x, [x] * 3)
    return found


def of_prompts(name: str) -> list[ahead.Launch]:
    """The kernels of embeddings and of more than a few tokens: tiles, and rows decoded."""
    one = matrix(name, INNER, WIDTH)
    x = torch.empty(PROMPT, WIDTH, device=NOWHERE)
    out = torch.empty(PROMPT, INNER, device=NOWHERE)
    ids = torch.empty(PROMPT, dtype=torch.int64, device=NOWHERE)
    with ahead.recorded_launches() as found:
        launch.embed(ids, matrix(name, VOCABULARY, WIDTH), x)
        launch.linear_tiles(x, one, out, launch.FEW + 1)
        launch.linear_tiles(x, one, out, launch.MANY - 1)
        launch.linear_decoded(x, one, PROMPT)
    return unique(found)


def rows(dtype: torch.dtype, width: int) -> list[ahead.Launch]:
    """The attention of a prompt."""
    one = attention_heads(dtype, width)
    q = torch.empty(PROMPT, HEADS * width, device=NOWHERE)
    k = torch.empty(PROMPT, KV_HEADS * width, device=NOWHERE)
    table = torch.empty(64, dtype=torch.int64, device=NOWHERE)
    with ahead.recorded_launches() as found:
        for each in (one, rare(one)):
            attention.append_rows(each, q, k, k, table, 256)
            attention.attend_rows(each, q, table, 256, q)
        turns = torch.empty(PROMPT, width // 2, dtype=torch.int64, device=NOWHERE)
        attention.append_rows(one, q, k, k, table, 256, turns)
        for spans in (Spans.WHOLE, Spans.WINDOWED):  # of pictures
            attention.attend_rows(one, q, table, 256, q, spans)
    return found


def element_by_element() -> list[ahead.Launch]:
    """Norms and activations that are not fused, of one token and of a prompt; routing."""
    scores = torch.empty(1, EXPERTS, device=NOWHERE)
    x = torch.empty(PROMPT, WIDTH, device=NOWHERE)
    inner = torch.empty(PROMPT, INNER, device=NOWHERE)
    with ahead.recorded_launches() as found:
        launch.normed(x, x[0], None, EPSILON, False, PROMPT, x)
        launch.normed(x, x[0], x[0], EPSILON, True, PROMPT, x)
        made = launch.new_quantized(1, WIDTH, NOWHERE)
        launch.normed(x[:1], x[0], None, EPSILON, False, 1, None, made)
        for activation in Activation:
            launch.gated(inner, inner, activation, inner)
        experts.route(scores, 1, experts.new_routes(1, CHOSEN, NOWHERE))
        grouped = Routing(CHOSEN, Gating.SIGMOID, scores[0], 8, 4, scale=2.5)
        experts.route(scores, 1, experts.new_routes(1, CHOSEN, NOWHERE), grouped)
        norms = HeadNorms(x[:HEADS, :HEAD_WIDTH], EPSILON, False)
        one = x[:1]
        heads.launch(one, norms, HeadGates(heads.AFTER, one, Activation.SILU), 1, one, made)
        heads.launch(one, norms, HeadGates(heads.BEFORE, one, Activation.SILU), 1, one)
        for kind in (heads.AFTER, heads.BY_HEAD):
            gate = one if kind == heads.AFTER else scores
            heads.launch(one, None, HeadGates(kind, gate, Activation.SIGMOID), 1, one, made)
        heads.launch(one, None, HeadGates(heads.ITSELF, None, Activation.RELU, 1.0), 1, one, made)
    return found


def recurrences(tokens: int) -> list[ahead.Launch]:
    """Recurrences and convolutions: the steps of a sequence, or those of a prompt."""

    def nowhere(*shape: int) -> torch.Tensor:
        return torch.empty(*shape, device=NOWHERE)

    numbers = torch.empty(1, 64, dtype=torch.int64, device=NOWHERE)
    steps = states.Steps(numbers[:, 0], numbers)
    with ahead.recorded_launches() as found:
        for heads, keys, width, inner in (DELTA_NET, STATE_SPACE):
            is_delta = (heads, keys, width, inner) == DELTA_NET
            layout = KVLayout(
                [ConvState(heads * inner, 4), RecurrentState(heads, width, inner)], torch.float16
            )
            one = Recurrence(
                "q", "k", "v", "d", "s" if is_delta else "", "o", 1, nowhere(heads),
                nowhere(heads), 1.0, EPSILON if is_delta else -1.0, is_delta, True,
                None if is_delta else nowhere(heads),
            )  # fmt: skip
            key, value, head = (
                nowhere(tokens, count) for count in (keys * width, heads * inner, heads)
            )
            rows = states.RecurrenceOperands(
                key, key, value, head, head if is_delta else None, value
            )
            weight = nowhere(heads * inner, 4)
            if tokens == 1:
                states.recurrence_step(one, layout.state(1), rows, steps)
                conv = ShortConv("x", weight, 0, None, Activation.SILU)
                three = [(conv, layout.state(0), value)] * 3
                states.convolution_step(three, steps)
                then = launch.new_quantized(1, heads * inner, NOWHERE)
                states.convolution_step(three[:1], steps, value, value, then)
            else:
                state = nowhere(heads, width, inner)
                states.recurrence_rows(one, rows, state, state)
                states.convolution_rows(value, weight, None, value, weight, weight)
    return unique(found)


def draws() -> list[ahead.Launch]:
    """The draw of a token, with a mask and penalties."""
    step = sampling.Step((1, True, True), VOCABULARY, NOWHERE, None)
    with ahead.recorded_launches() as found:
        step.launch()
    return found


def unique(found: list[ahead.Launch]) -> list[ahead.Launch]:
    """Launches without those that repeat a kernel with the same types and constants."""
    kept: dict[str, ahead.Launch] = {}
    for one in found:
        kept.setdefault(f"{one.name} {one.signature} {one.constants} {one.attributes}", one)
    return list(kept.values())


def loads(ptx: str) -> str:
    """Loads from global memory by size in bytes: "16 B × 15"."""
    found: dict[int, int] = {}
    for vector, bits in re.findall(r"\bld\.global(?:\.\w+)*?(?:\.v(\d))?\.[bus](\d+)", ptx):
        size = int(vector or 1) * int(bits) // 8
        found[size] = found.get(size, 0) + 1
    return ", ".join(f"{size} B × {found[size]}" for size in sorted(found, reverse=True))


@dataclass(frozen=True)
class Part:
    """Kernels of the table, whether they decode, and what their weights or pages are."""

    decodes: bool
    format: str
    launches: list[ahead.Launch]


def every(formats: Sequence[str]) -> list[Part]:
    """All kernels, those with weights in these formats."""
    found: list[Part] = []
    for name in formats:
        found += [Part(True, name, products(name)), Part(True, name, mixtures(name))]
        found.append(Part(False, name, of_prompts(name)))
    for dtype, width in itertools.product(PAGES, (HEAD_WIDTH, WIDE_HEAD)):
        name = f"{dtype} of {width}".removeprefix("torch.")
        found += [Part(True, name, step(dtype, width)), Part(False, name, rows(dtype, width))]
    found += [Part(True, "float32", recurrences(1)), Part(False, "float32", recurrences(PROMPT))]
    return [*found, Part(True, "float32", [*element_by_element(), *terms(), *draws()])]


def main() -> int:
    """Compile every kernel and write the table, or those of some formats; 1 if one fails."""
    parts = every(sys.argv[1:] or FORMATS)
    lines = [
        "# Machine code of the CUDA kernels\n",
        "One layer of Qwen3-8B (its experts: Qwen3-30B-A3B), one token, and a prompt of 512. Written by",
        "`python3 packaging/dev.py bench cuda_code`; no GPU is needed. Registers are those of a",
        "thread; loads and byte products (dp4a) those in the code, loops counted once.\n",
        "| Kernel | Format | Pass | GPU | Grid | Registers | Shared | Spilled | Loads | dp4a |",
        "|---|---|---|---|---|---:|---:|---:|---|---:|",
    ]
    spilled = refused = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [
            (part, one, capability, pool.submit(ahead.compiled, one, capability))
            for part in parts
            for one in part.launches
            for capability in CAPABILITIES
        ]
        for part, one, capability, job in jobs:
            code = job.result()
            spilled += part.decodes and code.spilled > 0
            refused += code.shared > MOST_SHARED[capability]
            lines.append(row(part, one, capability, code))
            print(lines[-1], flush=True)
    if len(sys.argv) == 1:
        TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(jobs)} kernels; {spilled} that decode spill; {refused} take too much memory.")
    return 1 if spilled or refused else 0


def row(part: Part, one: ahead.Launch, capability: int, code: ahead.Code) -> str:
    """A line of the table."""
    grid = " × ".join(map(str, one.grid))
    dots = len(re.findall(r"\bdp4a\b", code.ptx))
    name = "decode" if part.decodes else "prompt"
    return (
        f"| {one.name} | {part.format} | {name} | sm_{capability} | {grid} | {code.registers} | "
        f"{code.shared} B | {code.spilled} B | {loads(code.ptx)} | {dots} |"
    )


if __name__ == "__main__":
    sys.exit(main())
