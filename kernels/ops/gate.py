"""Gated units, and the activation functions of feed-forward layers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor
from torch.nn import functional

from kernels.ops.running import Pass
from kernels.ops.table import Table, dtype_name


class Activation(Enum):
    """Activation function of a feed-forward layer: of its gate, or of all inner channels."""

    SILU = "silu"  # x * sigmoid(x)
    GELU = "gelu"  # x * normal distribution function
    GELU_TANH = "gelu_tanh"  # x * normal distribution function, by its tanh approximation
    RELU = "relu"  # max(x, 0)
    RELU_SQUARED = "relu_squared"  # max(x, 0) squared
    SILU_CUT = "silu_cut"  # x * sigmoid(x), of which a limit cuts the result, not x
    SIGMOID = "sigmoid"  # 1 / (1 + exp(-x))
    SOFTPLUS = "softplus"  # log(1 + exp(x))
    GPT_OSS = "gpt_oss"  # x * sigmoid(1.702 x), times up + 1 in place of up


# Those that the kernels of every backend compute.
COMMON_ACTIVATIONS = frozenset({Activation.SILU, Activation.GELU, Activation.GELU_TANH})


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """out = activation(gate) * up, or activation(gate) where `up` is ""; out may be either.

    With a `limit` above 0 the gate is first cut to at most that, and up to ± that; of SILU_CUT not
    the gate but its activation.
    """

    gate: str
    up: str
    activation: Activation
    out: str
    limit: float = 0.0

    def run(self, on: Pass) -> None:
        """A gate; GELU of encoders for each text alone: torch's bits depend on how many there are."""
        gate, up = on.buffers[self.gate], on.buffers[self.up] if self.up else None
        if self.activation is not Activation.GELU or len(on.batch) < 2:
            on.set(self.out, checked_gated(on.ops, gate, up, self.activation, self.limit))
            return
        sizes = [len(segment.tokens) for segment in on.batch]
        ups = up.split(sizes) if up is not None else (None,) * len(sizes)
        pairs = zip(gate.split(sizes), ups, strict=True)
        outs = [checked_gated(on.ops, *pair, self.activation, self.limit) for pair in pairs]
        on.set(self.out, torch.cat(outs))


def checked_gated(
    ops: Table, gate: Tensor, up: Tensor | None, activation: Activation, limit: float = 0.0
) -> Tensor:
    """Gated unit: gate and up, both [..., F] f32 → activation(gate) * up [..., F] f32.

    Without `up` it is the activation alone. With a `limit` above 0 the gate is first cut to at
    most that, and up to ± that; of SILU_CUT not the gate but its activation.
    Source: https://arxiv.org/abs/2002.05202 section 2
    """
    if up is not None and gate.shape != up.shape:
        raise ValueError(f"gated: gate {list(gate.shape)} and up {list(up.shape)} differ")
    if gate.dtype != torch.float32:
        raise ValueError(f"gated: gate is {dtype_name(gate)}, not float32")
    if up is not None and up.dtype != torch.float32:
        raise ValueError(f"gated: up is {dtype_name(up)}, not float32")
    if limit or activation not in COMMON_ACTIVATIONS:
        return ops.find_any("gated")(gate, up, activation, limit)
    return ops.find("gated")(gate, up, activation)


def gated(gate: Tensor, up: Tensor | None, activation: Activation, limit: float = 0.0) -> Tensor:
    """activation(gate) * up, both within `limit` if it is not 0; activation(gate) without `up`."""
    if limit:
        gate = gate if activation is Activation.SILU_CUT else gate.clamp(max=limit)
        up = None if up is None else up.clamp(-limit, limit)
    match activation:
        case Activation.SILU:
            y = functional.silu(gate)
        case Activation.GELU:
            y = functional.gelu(gate)
        case Activation.GELU_TANH:
            y = functional.gelu(gate, approximate="tanh")
        case Activation.RELU:
            y = gate.relu()
        case Activation.RELU_SQUARED:
            y = gate.relu().square()
        case Activation.SILU_CUT:
            y = functional.silu(gate)
            y = y.clamp(max=limit) if limit else y
        case Activation.SIGMOID:
            y = gate.sigmoid()
        case Activation.SOFTPLUS:
            y = functional.softplus(gate)
        case Activation.GPT_OSS:
            y = gate * (1.702 * gate).sigmoid()
            up = None if up is None else up + 1
    return y if up is None else y * up
