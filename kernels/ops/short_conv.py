"""Causal depthwise convolution of a few tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.ops.gate import Activation, checked_gated
from kernels.ops.running import Pass
from kernels.ops.table import Table, dtype_name


@dataclass(frozen=True, slots=True, eq=False)
class ShortConv:
    """x = causal depthwise convolution of x, then `activation`; see the op short_conv.

    If it is not `causal`, the kernel is centred on each token of a segment, which is a whole text,
    with zeros around it, and no state is read.
    """

    x: str  # [T, D]
    weight: Tensor  # f32 [D, k]
    layer: int  # index in the program's KVLayout, of a ConvState
    bias: Tensor | None = None  # f32 [D]
    activation: Activation | None = None
    causal: bool = True

    def run(self, on: Pass) -> None:
        x = on.buffers[self.x]
        outs: list[Tensor] = []
        if not self.causal:
            taps = self.weight.shape[1]
            before, behind = x.new_zeros(taps - 1, x.shape[1]), (taps - 1) // 2
            for text in x.split([len(segment.tokens) for segment in on.batch]):
                padded = torch.cat((text, before[:behind]))
                y, _ = checked_short_conv(on.ops, padded, self.weight, self.bias, before)
                outs.append(y[behind:])
        for rows, state, index in on.states(self.layer) if self.causal else ():
            y, after = checked_short_conv(
                on.ops, x[rows], self.weight, self.bias, state.read(index - 1)
            )
            state.write(index, after)
            outs.append(y)
        y = torch.cat(outs)
        if self.activation is not None:
            y = checked_gated(on.ops, y, None, self.activation)
        on.set(self.x, y)


def checked_short_conv(
    ops: Table, x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Causal depthwise convolution: x [T, D] f32 → y [T, D] f32 and the state after x.

    y[t, d] = sum over j of weight[d, j] * x[t - k + 1 + j, d], plus bias[d]. weight [D, k] f32,
    bias [D] f32 or None. The state [k - 1, D] f32 has the inputs before x, the oldest first:
    zeros before the first token. The order of the sum does not depend on T.
    Source: https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.conv1d.html
    """
    D = x.shape[-1]
    if x.dim() != 2 or weight.dim() != 2 or len(weight) != D or not x.numel():
        raise ValueError(
            f"short_conv: x {list(x.shape)} does not fit a weight {list(weight.shape)}"
        )
    if state.shape != (weight.shape[1] - 1, D) or (bias is not None and bias.shape != (D,)):
        shapes = f"state {list(state.shape)} or bias"
        raise ValueError(f"short_conv: {shapes} does not fit a weight {list(weight.shape)}")
    for tensor in (x, weight, state):
        if tensor.dtype != torch.float32:
            raise ValueError(f"short_conv: an operand is {dtype_name(tensor)}, not float32")
    return ops.find("short_conv")(x, weight, bias, state)


def short_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Causal depthwise convolution over the inputs in the state and x; then the last inputs."""
    T, taps = len(x), weight.shape[1]
    inputs = torch.cat((state, x))  # [k - 1 + T, D]
    y = inputs[:T] * weight[:, 0]
    for tap in range(1, taps):
        y = y + inputs[tap : tap + T] * weight[:, tap]
    return y if bias is None else y + bias, inputs[T:].clone()
