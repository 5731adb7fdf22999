"""Launches of norms and gates of heads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from kernels.cuda.jit import heads as jit
from kernels.cuda.jit.activations import NUMBERS
from kernels.cuda.jit.heads import AFTER, BEFORE, BY_HEAD, ITSELF, NONE
from kernels.cuda.launch import Quantized, run
from kernels.ops import Activation

__all__ = ["AFTER", "BEFORE", "BY_HEAD", "ITSELF", "NONE", "HeadGates", "HeadNorms", "launch"]

_BLOCK = 512  # channels of a program where heads have nothing in common


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Norm of each head of a row."""

    weight: Tensor  # f32 [H, C]
    epsilon: float
    centred: bool


@dataclass(frozen=True, slots=True)
class HeadGates:
    """Gate of a row: `kind` is one of this module's constants."""

    kind: int
    gate: Tensor | None  # f32 [T, D], BY_HEAD [T, H]; ITSELF: None
    activation: Activation
    limit: float = 0.0


def launch(
    x: Tensor,
    norms: HeadNorms | None,
    gates: HeadGates | None,
    tokens: int,
    out: Tensor,
    then: Quantized | None = None,
) -> None:
    """Norms and gates of rows x [tokens, D] f32, to `out` or quantized to `then`."""
    width = x.shape[1]
    count, channels = -(-width // _BLOCK), _BLOCK
    if norms is not None:
        count, channels = norms.weight.shape
    elif gates is not None and gates.kind == BY_HEAD and gates.gate is not None:
        count = gates.gate.shape[1]
        channels = width // count
    assert then is None or channels % 32 == 0, channels
    gate = None if gates is None else gates.gate
    padded = max(triton.next_power_of_2(channels), 32)
    run(
        jit.heads,
        (count, tokens),
        x,
        x if gate is None else gate,
        x if norms is None else norms.weight,
        out,
        x.view(torch.int32) if then is None else then.words,
        0.0 if norms is None else norms.epsilon,
        0.0 if gates is None else float(gates.limit),
        D=width,
        H=count,
        C=channels,
        CP=padded,
        NORM=0 if norms is None else 2 if norms.centred else 1,
        GATE=NONE if gates is None else gates.kind,
        ACTIVATION=NUMBERS[Activation.SILU if gates is None else gates.activation],
        LIMIT=gates is not None and gates.limit > 0,
        UNITS=1 if then is None else then.words.shape[2],
        QUANTIZE=then is not None,
        num_warps=1 if padded <= 256 else 4,
    )


def can_quantize(norms: HeadNorms | None, gates: HeadGates | None, width: int) -> bool:
    """Whether the heads of a row of `width` channels are whole units."""
    if norms is not None:
        return norms.weight.shape[1] % 32 == 0
    if gates is not None and gates.kind == BY_HEAD and gates.gate is not None:
        return width // gates.gate.shape[1] % 32 == 0
    return True
