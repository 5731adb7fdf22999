"""Merges LoRA adapters into a decoder's weights: the reference for adapters applied at run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from engine.adapters.delta import EMBEDDING
from engine.models.layers import Block, Decoder
from engine.models.parts import Projection
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from tiny_lora import Pairs

Changes = Mapping[str, NDArray[np.float64]]  # GGUF tensor name to delta W, [out, in]


def change(*parts: tuple[Pairs, float]) -> dict[str, NDArray[np.float64]]:
    """Delta W: the sum of factor * b a over several adapters, in double precision."""
    total: dict[str, NDArray[np.float64]] = {}
    for pairs, factor in parts:
        for name, (a, b) in pairs.items():
            product = factor * (b.astype(np.float64) @ a.astype(np.float64))
            total[name] = total.get(name, 0.0) + product
    return total


def merge(decoder: Decoder, changes: Changes) -> Decoder:
    """A copy of the decoder with every changed W replaced by W + delta W, in float32."""
    used: set[str] = set()

    def matrix(name: str, weight: Weight) -> Weight:
        if name not in changes:
            return weight
        used.add(name)
        total = weight.dense().double().numpy() + changes[name]
        return Weight(torch.from_numpy(total.astype(np.float32)), by_name("F32"), weight.shape)

    def product(old: Projection) -> Projection:
        return replace(old, weight=matrix(old.name, old.weight))

    def block(old: Block) -> Block:
        a, m = old.attention, old.mlp
        return replace(
            old,
            attention=replace(
                a,
                query=product(a.query),
                key=product(a.key),
                value=product(a.value),
                output=product(a.output),
            ),
            mlp=replace(m, gate=product(m.gate), up=product(m.up), down=product(m.down)),
        )

    found = replace(
        decoder,
        embedding=matrix(EMBEDDING, decoder.embedding),
        blocks=tuple(block(old) for old in decoder.blocks),
        head=product(decoder.head),
    )
    assert used == set(changes), f"not merged: {set(changes) - used}"
    return found
