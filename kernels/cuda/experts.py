"""Launches of mixtures of experts, for a few tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from kernels.cuda import launch, weights
from kernels.cuda.jit import experts as jit
from kernels.cuda.jit.activations import NUMBERS
from kernels.cuda.launch import Quantized, run
from kernels.cuda.weights import Operand
from kernels.gpu.layout import UNIT, units
from kernels.program import Activation
from kernels.weight import Weight

_ROWS = 16  # of a program whose result is not quantized
_WARPS = 8


@dataclass(frozen=True, slots=True)
class Table:
    """Weights of one shape and format, one for each expert."""

    like: Operand  # the first
    addresses: Tensor  # i64 [experts, 6] of their arrays


@dataclass(frozen=True, slots=True)
class Routes:
    """The experts of some tokens."""

    chosen: Tensor  # i32 [tokens, chosen]
    shares: Tensor  # f32 [tokens, chosen]


def table(every: Sequence[Weight], device: torch.device) -> Table:
    """The table of the experts' weights, which must stay where they are."""
    operands = [weights.operand(one) for one in every]
    rows = [[array.data_ptr() for array in one.arrays] for one in operands]
    return Table(operands[0], torch.tensor(rows, dtype=torch.int64).to(device))


def new_routes(tokens: int, chosen: int, device: torch.device) -> Routes:
    """Routes to be written."""
    return Routes(
        torch.zeros(tokens, chosen, dtype=torch.int32, device=device),
        torch.zeros(tokens, chosen, device=device),
    )


def route(scores: Tensor, tokens: int, into: Routes) -> None:
    """Choose the experts of tokens by their scores f32 [tokens, E]; see the op route."""
    experts = scores.shape[1]
    run(
        jit.routed,
        (tokens,),
        scores,
        into.chosen,
        into.shares,
        E=experts,
        EP=triton.next_power_of_2(experts),
        CHOSEN=into.chosen.shape[1],
        num_warps=1 if experts <= 128 else 4,
    )


def gated(
    x: Tensor,
    quantized: Quantized | None,
    routes: Routes,
    gates: Table,
    ups: Table,
    activation: Activation,
    tokens: int,
    out: Tensor | None = None,
    then: Quantized | None = None,
) -> None:
    """activation(gate) * up of the experts chosen, to rows tokens * chosen of `out` or `then`.

    The activations must be those of no deferred norm.
    """
    assert quantized is None or quantized.squares is None
    one, words = gates.like, x.view(torch.int32) if quantized is None else quantized.words
    chosen = routes.chosen.shape[1]
    rows = UNIT if then is not None else _ROWS // 2 if one.reads_floats else _ROWS
    run(
        jit.experts_gated,
        (-(-one.rows // rows), tokens * chosen),
        x,
        words,
        routes.chosen,
        gates.addresses,
        ups.addresses,
        one.arrays,
        ups.like.arrays,
        x if out is None else out,
        words if then is None else then.words,
        one.rows,
        U=one.units,
        D=one.columns,
        BN=rows,
        BU=launch.unit_block(one.units, 1),
        KIND0=one.kind,
        KIND1=ups.like.kind,
        CHOSEN=chosen,
        UNITS=units(one.rows),
        ACTIVATION=NUMBERS[activation],
        QUANTIZE=then is not None,
        EMULATED=launch.interpreted(),
        num_warps=_WARPS,
    )


def added(
    x: Tensor,
    quantized: Quantized | None,
    routes: Routes,
    downs: Table,
    residual: Tensor,
    tokens: int,
    scale: float = 1.0,
    norm: Tensor | None = None,
    then: Quantized | None = None,
) -> None:
    """residual += scale * the sum of shares times products; x has rows tokens * chosen.

    With `norm` and `then` it prepares the product after that norm, as `launch.linear_added`.
    """
    one, words = downs.like, x.view(torch.int32) if quantized is None else quantized.words
    quantize = then is not None and then.squares is not None and norm is not None
    rows = UNIT if quantize else _ROWS
    run(
        jit.experts_added,
        (-(-one.rows // rows), tokens),
        x,
        words,
        routes.chosen,
        routes.shares,
        downs.addresses,
        one.arrays,
        residual,
        norm if norm is not None else residual,
        then.words if then is not None else words,
        then.squares if quantize and then is not None else residual,
        one.rows,
        scale,
        U=one.units,
        D=one.columns,
        BN=rows,
        BU=launch.unit_block(one.units, 1),
        KIND=one.kind,
        CHOSEN=routes.chosen.shape[1],
        UNITS=units(one.rows),
        QUANTIZE=quantize,
        EMULATED=launch.interpreted(),
        num_warps=_WARPS,
        maxnreg=255,
    )
