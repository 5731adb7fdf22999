"""Products of tokens with matrices, with the LoRA terms of adapters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels.ops.hadamard import transform_of
from kernels.ops.hadamard_rotation import HadamardRotation, rotated
from kernels.ops.running import Pass
from kernels.ops.table import Table, dtype_name
from kernels.weights.weight import Weight

# Weights decoded between two calls of a checkpoint, or at once in a product: about 5 ms.
PIECE = 1 << 21


@dataclass(frozen=True, slots=True, eq=False)
class LoraDelta:
    """LoRA term that is added to a product y of x: (x down^T * scales) up^T."""

    down: Weight  # F32 [R, in]; for an embedding the lookup table [V, R]
    up: Weight  # F32 [out, R]
    scales: Tensor  # f32 [R]


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """Products of one x with several matrices, one per buffer of `outs`, which excludes x.

    LoRA terms are those of x itself, also where the product is that of rotated x.
    """

    x: str
    weights: tuple[Weight, ...]  # [N, width of x] each
    outs: tuple[str, ...]
    deltas: tuple[LoraDelta | None, ...] = ()  # one for each of `outs`; empty: no LoRA
    biases: tuple[Tensor | None, ...] = ()  # f32 [N] each, added last; empty: no bias
    scales: tuple[float, ...] = ()  # of the products, before LoRA and bias; empty: 1 each
    rotations: tuple[HadamardRotation | None, ...] = ()  # of x, one for each of `outs`; empty: none

    def run(self, on: Pass) -> None:
        x = on.buffers[self.x]
        deltas = self.deltas or (None,) * len(self.outs)
        biases = self.biases or (None,) * len(self.outs)
        scales = self.scales or (1.0,) * len(self.outs)
        rotations = self.rotations or (None,) * len(self.outs)
        products = zip(self.weights, self.outs, deltas, biases, scales, rotations, strict=True)
        inputs: dict[HadamardRotation | None, Tensor] = {None: x}
        for weight, out, delta, bias, scale, rotation in products:
            if rotation is not None and rotation not in inputs:
                inputs[rotation] = rotated(x, rotation, transform_of(on.ops))
            y = checked_linear(on.ops, inputs[rotation], weight)
            if scale != 1.0:
                y = y * scale
            if delta is not None:
                y = y + lora_term(on.ops, checked_linear(on.ops, x, delta.down), delta)
            on.set(out, y if bias is None else y + bias)


def checked_linear(ops: Table, x: Tensor, weight: Weight) -> Tensor:
    """Matrix product: x [T, D] f32, weight [N, D] of any format → [T, N] f32.

    Source: https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.linear.html
    """
    shape = weight.shape
    if len(shape) != 2 or x.dim() != 2 or x.shape[1] != shape[1]:
        raise ValueError(f"linear: x {list(x.shape)} does not fit a weight {list(shape)}")
    if x.dtype != torch.float32:
        raise ValueError(f"linear: x is {dtype_name(x)}, not float32")
    return ops.find("linear", weight.format.name)(x, weight)


def lora_term(ops: Table, low: Tensor, delta: LoraDelta) -> Tensor:
    """The LoRA term of rows [T, R] that were multiplied by the first factor."""
    return checked_linear(ops, low * delta.scales, delta.up)


def linear(x: Tensor, weight: Weight) -> Tensor:
    """y[t, n] = sum over d of x[t, d] * weight[n, d]; a large weight is decoded in pieces."""
    rows, step = weight.shape[0], max(PIECE // weight.columns, 1)
    if rows <= step or weight.format.name == "F32":
        return functional.linear(x, weight.dense())
    y = x.new_empty(x.shape[0], rows)
    decoded = torch.empty(step, weight.columns, device=x.device)
    for start in range(0, rows, step):
        end = min(start + step, rows)
        weight.decode(start, end, decoded[: end - start])
        y[:, start:end] = functional.linear(x, decoded[: end - start])
    return y
