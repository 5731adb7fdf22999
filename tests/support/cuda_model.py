"""Synthetic models of real shapes for the CUDA benchmark: random weights, and pages of sequences.

No file is read. Weights are made in device memory in the layout of the kernels, each in memory of
its own, so that no cache holds what a real model would have to read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cuda import weights
from kernels.gpu.layout import FORMATS, arrays, layout_of, weight_bytes
from kernels.ops import Activation, Add, Attend, Embed, Gate, Instruction, Linear, Norm, Segment
from kernels.programs.program import Program
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PageTable
from kernels.states.layer_state import LayerShape
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

EPSILON = 1e-6
ROPE_BASE = 1e6

MakeWeight = Callable[[int, int], Weight]  # of rows and columns


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model of the qwen3 family."""

    name: str
    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int

    @property
    def parameters(self) -> int:
        """Weights that a token is multiplied with: layers and head."""
        attention = self.width * self.head_width * 2 * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.width * self.inner) + self._head

    @property
    def _head(self) -> int:
        return self.width * self.vocabulary


QWEN3_8B = Shape("Qwen3-8B", 36, 4096, 12288, 32, 8, 128, 151_936)
QWEN3_4B = Shape("Qwen3-4B", 36, 2560, 9728, 32, 8, 128, 151_936)
QWEN3_1_7B = Shape("Qwen3-1.7B", 28, 2048, 6144, 16, 8, 128, 151_936)
TOY = Shape("toy", 1, 128, 128, 4, 2, 32, 160)  # for Triton's interpreter


def random_weight(format: str, device: torch.device) -> MakeWeight:
    """Makes weights of a format whose values are random and small."""

    def make(rows: int, columns: int) -> Weight:
        kind, shape = by_name(format), (rows, columns)
        size = weight_bytes(kind, shape)
        made = weights.STORE.empty(kind, shape, torch.empty(size, dtype=torch.uint8, device=device))
        layout = layout_of(kind)
        if layout is None:
            values = made.data.view(torch.float32 if format == "F32" else torch.float16)
            values.normal_(std=columns**-0.5)
            return made
        parts = arrays(layout, made.data, rows, columns)
        for words in (parts.codes, parts.high):
            if words.numel():
                words.random_(-(1 << 31), 1 << 31)
        spread = 2 ** (layout.bits + layout.high_bits) / 12**0.5 * layout.multiplier
        for numbers in (parts.scales, parts.minimums):
            if numbers.numel():
                numbers.random_(16, 48)
        two_levels = parts.scales.numel() > 0
        scale = columns**-0.5 / spread / (32 if two_levels else 1)
        parts.d.fill_(scale)
        if parts.m.numel():
            parts.m.fill_(scale * 2 ** (layout.bits + layout.high_bits - 1))
        return made

    return make


def program(shape: Shape, weight: MakeWeight, device: torch.device, dtype: torch.dtype) -> Program:
    """The program of a model; `weight` makes its matrices, in the order in which it reads them."""

    def vector(count: int) -> Tensor:
        return torch.ones(count, device=device)

    pairs = torch.arange(shape.head_width // 2, device=device) * 2 / shape.head_width
    frequencies = ROPE_BASE**-pairs
    width, query = shape.width, shape.heads * shape.head_width
    key = shape.kv_heads * shape.head_width
    body: list[Instruction] = [Embed(weight(shape.vocabulary, width), "x")]
    layers: list[int] = []
    for layer in range(shape.layers):
        layers.append(len(body))
        qkv = weight(query, width), weight(key, width), weight(key, width)
        heads = shape.head_width, vector(shape.head_width), vector(shape.head_width), EPSILON
        rope = frequencies, False, 1.0, shape.head_width**-0.5
        gate_up = weight(shape.inner, width), weight(shape.inner, width)
        body += [
            Norm("x", vector(width), EPSILON, "n"),
            Linear("n", qkv, ("q", "k", "v")),
            Attend("q", "k", "v", "a", layer, *heads, *rope),
            Linear("a", (weight(width, query),), ("y",)),
            Add("x", "y"),
            Norm("x", vector(width), EPSILON, "n"),
            Linear("n", gate_up, ("g", "u")),
            Gate("g", "u", Activation.SILU, "g"),
            Linear("g", (weight(width, shape.inner),), ("y",)),
            Add("x", "y"),
        ]
    head = (
        Norm("x", vector(width), EPSILON, "n"),
        Linear("n", (weight(shape.vocabulary, width),), ("logits",)),
    )
    sizes = {"x": width, "n": width, "y": width, "q": query, "k": key, "v": key, "a": query}
    widths = sizes | {"g": shape.inner, "u": shape.inner, "logits": shape.vocabulary}
    kv = KVLayout([LayerShape(shape.kv_heads, shape.head_width)] * shape.layers, dtype)
    return Program(tuple(body), tuple(layers), head, "x", "logits", widths, kv)


def sequence(kv: KVLayout, tokens: int, device: torch.device) -> list[PageTable]:
    """Page tables of a sequence with room for so many tokens, all keys and values zero."""
    tables: list[PageTable] = []
    for size in kv.page_bytes:
        table = PageTable()
        for _ in range(-(-tokens // PAGE_TOKENS)):
            table.append(torch.zeros(size, dtype=torch.uint8, device=device))
        tables.append(table)
    return tables


def segment(token: int, position: int, tables: list[PageTable]) -> Segment:
    """One token of a sequence."""
    return Segment([token], position, tables)


def read_bytes(made: Program) -> int:
    """Bytes of weights that a token reads: all but the embedding."""
    linears = (one for one in (*made.body, *made.head) if isinstance(one, Linear))
    return sum(weight.size_bytes for one in linears for weight in one.weights)


assert {"Q1_0", "Q4_0", "Q4_K", "Q8_0"} <= set(FORMATS)
