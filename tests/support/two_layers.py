"""A program of two layers of different windows, with rotation, head norms and learned positions."""

from __future__ import annotations

import pytest
import torch

import blocks
from kernels.cpu import library, weights
from kernels.ops import Add, Attend, Embed, Instruction, Linear, Norm
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout, LayerShape
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

WIDTH, HEADS, KV_HEADS, HEAD, VOCABULARY, CONTEXT = 192, 6, 2, 32, 40, 1200
TYPES = pytest.mark.parametrize("dtype", library.CACHES, ids=str)


def matrix(rows: int, columns: int, random: torch.Generator, name: str = "F32") -> Weight:
    format = by_name(name)
    data = blocks.similar_scale_blocks(format, rows * columns // format.block, random)
    return weights.prepare(Weight(data.view(rows, -1), format, (rows, columns)))


def model(dtype: torch.dtype, random: torch.Generator) -> Program:
    windows = (0, 300)
    positions = matrix(CONTEXT, WIDTH, random)
    body: list[Instruction] = [Embed(matrix(VOCABULARY, WIDTH, random), "x", positions=positions)]
    for layer, window in enumerate(windows):
        products = tuple(
            matrix(rows, WIDTH, random) for rows in (HEADS * HEAD, KV_HEADS * HEAD, KV_HEADS * HEAD)
        )
        query, key = (torch.rand(HEAD, generator=random) for _ in "qk")
        body += [
            Norm("x", torch.rand(WIDTH, generator=random), 1e-5, "n"),
            Linear("n", products, ("q", "k", "v")),
            Attend(
                *("q", "k", "v", "a"),
                layer=layer,
                head_width=HEAD,
                query_norm=query,
                key_norm=key,
                epsilon=1e-5,
                frequencies=torch.rand(HEAD // 2, generator=random),
                interleaved=False,
                rope_scale=1.0,
                scale=HEAD**-0.5,
                window=window,
            ),
            Linear("a", (matrix(WIDTH, HEADS * HEAD, random),), ("d",)),
            Add("x", "d"),
        ]
    head = Linear("x", (matrix(VOCABULARY, WIDTH, random),), ("logits",))
    heads = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS, "a": HEADS}
    widths = dict.fromkeys(("x", "n", "d"), WIDTH) | {"logits": VOCABULARY}
    widths |= {name: count * HEAD for name, count in heads.items()}
    layout = KVLayout([LayerShape(KV_HEADS, HEAD, window) for window in windows], dtype)
    return Program(tuple(body), (0,), (head,), "x", "logits", widths, layout)


def some_tokens(count: int, random: torch.Generator) -> list[int]:
    return torch.randint(VOCABULARY, (count,), generator=random).tolist()
