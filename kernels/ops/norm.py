"""RMS norm and layer norm of rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from kernels.ops.running import Pass
from kernels.ops.table import Table, dtype_name


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """out = RMS norm or layer norm of x; out may be x."""

    x: str
    weight: Tensor  # f32 [width]
    epsilon: float
    out: str
    centred: bool = False  # layer norm, which subtracts the mean
    bias: Tensor | None = None  # f32 [width], added last

    def run(self, on: Pass) -> None:
        x = on.buffers[self.x]
        if self.centred:
            y = checked_layer_norm(on.ops, x, self.weight, self.bias, self.epsilon)
        else:
            y = checked_rms_norm(on.ops, x, self.weight, self.epsilon)
            y = y if self.bias is None else y + self.bias
        on.set(self.out, y)


def checked_rms_norm(ops: Table, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Root-mean-square norm: x [..., D] f32, weight [D] f32 → [..., D] f32.

    y = x / sqrt(mean of x² + epsilon) * weight; GGUF stores gemma's weights with the 1 added.
    Source: https://arxiv.org/abs/1910.07467 equation 4
    """
    if weight.dim() != 1 or x.shape[-1:] != weight.shape:
        raise ValueError(f"rms_norm: x {list(x.shape)} does not fit a weight {list(weight.shape)}")
    if x.dtype != torch.float32 or weight.dtype != torch.float32:
        raise ValueError(
            f"rms_norm: x is {dtype_name(x)} and weight {dtype_name(weight)}, not float32"
        )
    return ops.find("rms_norm")(x, weight, epsilon)


def checked_layer_norm(
    ops: Table, x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float
) -> Tensor:
    """Layer norm: x [..., D] f32, weight and bias [D] f32 → [..., D] f32; without bias: None.

    y = (x - mean) / sqrt(variance + epsilon) * weight + bias; the variance is that of D values.
    Source: https://arxiv.org/abs/1607.06450 equation 4
    """
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None and (vector.dim() != 1 or x.shape[-1:] != vector.shape):
            shapes = f"x {list(x.shape)} does not fit a {name} {list(vector.shape)}"
            raise ValueError(f"layer_norm: {shapes}")
        if vector is not None and (x.dtype != torch.float32 or vector.dtype != torch.float32):
            raise ValueError(
                f"layer_norm: x is {dtype_name(x)} and {name} {dtype_name(vector)}, not float32"
            )
    return ops.find("layer_norm")(x, weight, bias, epsilon)


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """y = x / sqrt(mean of x² + epsilon) * weight, over the last dimension."""
    mean = x.square().mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + epsilon) * weight


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
    """y = (x - mean) / sqrt(variance + epsilon) * weight + bias, over the last dimension."""
    y = functional.layer_norm(x, x.shape[-1:], eps=epsilon) * weight
    return y if bias is None else y + bias
