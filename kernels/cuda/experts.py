"""Launches of mixtures of experts, for a few tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
import triton
from torch import Tensor

from kernels.cuda import launch, weights
from kernels.cuda.jit import experts as jit
from kernels.cuda.jit.activations import NUMBERS
from kernels.cuda.launch import Quantized, run
from kernels.cuda.weights import Operand
from kernels.gpu.layout import UNIT, units
from kernels.ops import Activation, Experts
from kernels.ops.routing import Gating, Routing
from kernels.weights.weight import Weight

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


@dataclass(frozen=True, slots=True)
class Options:
    """What the experts of few models have; see the instruction Experts."""

    gate_scale: Tensor | None = None  # f32 [E]
    up_scale: Tensor | None = None
    down_scale: Tensor | None = None
    gate_bias: Tensor | None = None  # f32 [E, rows]
    up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    limit: float = 0.0
    weighs_input: bool = False

    @classmethod
    def of(cls, one: Experts) -> Self:
        """Those of an instruction."""
        parts = one.gate_scale, one.up_scale, one.down_scale
        parts = (*parts, one.gate_bias, one.up_bias, one.down_bias)
        kept = (None if part is None else part.contiguous() for part in parts)
        return cls(*kept, limit=one.limit, weighs_input=one.weighs_input)


_NO_OPTIONS = Options()


def route(scores: Tensor, tokens: int, into: Routes, routing: Routing | None = None) -> None:
    """Choose the experts of tokens by their scores f32 [tokens, E]; see the op route.

    Without a `routing` the shares are the softmax of the highest scores.
    """
    experts, chosen = scores.shape[1], into.chosen.shape[1]
    if routing is None or routing.is_plain:
        routing = Routing(chosen, Gating.SOFTMAX_OF_CHOSEN)
    assert routing.chosen == chosen, (routing.chosen, chosen)
    run(
        jit.routed,
        (tokens,),
        scores,
        scores if routing.bias is None else routing.bias,
        into.chosen,
        into.shares,
        float(routing.scale),
        E=experts,
        EP=triton.next_power_of_2(experts),
        CHOSEN=chosen,
        GATING=jit.GATINGS[routing.gating],
        BIAS=routing.bias is not None,
        GROUPS=routing.groups,
        GP=triton.next_power_of_2(routing.groups),
        CHOSEN_GROUPS=routing.chosen_groups,
        NORMALIZED=routing.normalized,
        num_warps=1 if experts <= 128 else 4,
    )


def gated(
    x: Tensor,
    quantized: Quantized | None,
    routes: Routes,
    gates: Table,
    ups: Table | None,
    activation: Activation,
    tokens: int,
    out: Tensor | None = None,
    then: Quantized | None = None,
    options: Options = _NO_OPTIONS,
) -> None:
    """activation(gate) * up, or activation(gate) without `ups`, of the experts chosen, to rows tokens * chosen of `out` or `then`.

    The activations must be those of no deferred norm.
    """
    assert quantized is None or quantized.squares is None
    one, words = gates.like, x.view(torch.int32) if quantized is None else quantized.words
    second = gates if ups is None else ups
    scales, biases = (
        (options.gate_scale, options.up_scale),
        (options.gate_bias, options.up_bias),
    )
    chosen = routes.chosen.shape[1]
    rows = UNIT if then is not None else _ROWS // 2 if one.reads_floats else _ROWS
    run(
        jit.experts_gated,
        (-(-one.rows // rows), tokens * chosen),
        x,
        words,
        routes.chosen,
        routes.shares,
        gates.addresses,
        second.addresses,
        one.arrays,
        second.like.arrays,
        *launch.given((*scales, *biases), 4, x),
        x if out is None else out,
        words if then is None else then.words,
        one.rows,
        float(options.limit),
        U=one.units,
        D=one.columns,
        BN=rows,
        BU=launch.unit_block(one.units, 1),
        KIND0=one.kind,
        KIND1=second.like.kind,
        CHOSEN=chosen,
        UNITS=units(one.rows),
        ACTIVATION=NUMBERS[activation],
        LIMIT=options.limit > 0,
        UP=ups is not None,
        WEIGHED=options.weighs_input,
        SCALES=launch.which(scales),
        BIASES=launch.which(biases),
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
    options: Options = _NO_OPTIONS,
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
        *launch.given((options.down_scale, options.down_bias), 2, residual),
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
        SCALE=options.down_scale is not None,
        BIAS=options.down_bias is not None,
        WEIGHED=options.weighs_input,
        QUANTIZE=quantize,
        EMULATED=launch.interpreted(),
        num_warps=_WARPS,
        maxnreg=255,
    )
