"""Launches of product kernels: grids, block sizes and padded buffers.

Buffers of activations are padded to whole blocks of tokens. On the processor the kernels run in
Triton's interpreter, if that is on: slow, for tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.knobs
from torch import Tensor

from kernels.cuda.jit import dense, norms, products
from kernels.cuda.jit.activations import NUMBERS
from kernels.cuda.jit.products import X_WORDS
from kernels.cuda.weights import Operand
from kernels.gpu.layout import FORMATS, LAYOUTS, UNIT, units
from kernels.ops import Activation

# Tokens that one pass over the weights multiplies.
FEW = 4
# Tokens from which weights are decoded to bfloat16 and multiplied by the vendor's library.
MANY = 64
_HALVES = 1024  # rows of x whose two halves are multiplied at once
_LARGE, _SMALL = 32768.0, 1e-30  # the largest value of a scaled row, and the least divisor

_ROWS = 16  # of a program whose result is not quantized
_WARPS = 8
_TILE_ROWS = 32  # of a program on tensor cores
# Tokens times units of a program's tile of x: four stages of it, 64 KB, fit in the shared memory of
# any GPU that copies ahead. On an H100 twice as fast for 16 tokens as a quarter of it, but for codes
# of one bit, whose decoding sets the pace: there a quarter is faster by a fifth.
_TILE_UNITS = 128
_ONE_BIT = {FORMATS.index(name) for name, one in LAYOUTS.items() if one.bits == 1}
# Weights decoded at once: 128 MB. Larger pieces than the L2 cache holds take fewer launches and
# larger matrix products: on an H100 half the time of pieces of 24 MB.
_DECODED = 64 << 20
# Units times tokens of a program's tile of x. With fewer of them than threads the compiler loads x
# again where a layout needs it, instead of moving it through shared memory.
_UNITS = 128


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return bool(triton.knobs.runtime.interpret)


def run(kernel: Any, grid: tuple[int, ...], *operands: object, **constants: object) -> None:
    """Launch a kernel on the device of its first operand, a tensor or the arrays of a weight."""
    first: Any = operands[0]
    with on_device((first[0] if isinstance(first, tuple) else first).device):
        kernel[grid](*operands, **constants)


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """While entered, a GPU is the one that kernels are launched on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@dataclass(frozen=True, slots=True)
class Quantized:
    """Quantized activations [tokens, columns], and the squares that a norm is deferred with."""

    words: Tensor  # i32 [padded tokens, 11, units]
    squares: Tensor | None = None  # f32 [padded tokens, columns / 32]
    epsilon: float = 0.0


def padded(tokens: int) -> int:
    """Rows of a buffer for so many tokens: blocks of a power of two, of at most `FEW`."""
    block = token_block(tokens)
    return -(-tokens // block) * block


def token_block(tokens: int) -> int:
    """Tokens of a program."""
    return min(triton.next_power_of_2(max(tokens, 1)), FEW)


def new_quantized(tokens: int, columns: int, device: torch.device) -> Quantized:
    """Quantized activations to be written."""
    shape = padded(tokens), X_WORDS, units(columns)
    # Zeros: units beyond the columns are read, and no kernel writes them.
    return Quantized(torch.zeros(shape, dtype=torch.int32, device=device))


def new_deferred(tokens: int, columns: int, epsilon: float, device: torch.device) -> Quantized:
    """Quantized activations of a norm that is completed by the products after it."""
    made = new_quantized(tokens, columns, device)
    squares = torch.zeros(padded(tokens), -(-columns // UNIT), device=device)
    return Quantized(made.words, squares, epsilon)


def quantized(x: Tensor, tokens: int, into: Quantized | None = None) -> Quantized:
    """x [padded tokens, columns] f32, quantized."""
    columns = x.shape[1]
    made = into or new_quantized(tokens, columns, x.device)
    normed(x, None, None, 0.0, False, tokens, None, made)
    return made


def normed(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
    centred: bool,
    tokens: int,
    out: Tensor | None,
    then: Quantized | None = None,
) -> None:
    """Norm of x [tokens, D], none without a weight, stored as floats to `out` and quantized."""
    columns = x.shape[1]
    run(
        norms.norm,
        (tokens,),
        x,
        x if weight is None else weight,
        x if bias is None else bias,
        x if out is None else out,
        x.view(torch.int32) if then is None else then.words,
        epsilon,
        D=columns,
        BD=max(triton.next_power_of_2(columns), UNIT),
        UNITS=units(columns),
        NORM=0 if weight is None else 2 if centred else 1,
        BIAS=bias is not None,
        STORE=out is not None,
        QUANTIZE=then is not None,
        num_warps=_WARPS,
    )


def linear(
    x: Tensor,
    quantized: Quantized | None,
    weights: Sequence[Operand],
    outs: Sequence[Tensor],
    tokens: int,
    biases: Sequence[Tensor | None] = (None, None, None),
    scales: Sequence[float] = (1.0, 1.0, 1.0),
) -> None:
    """Products of one x with up to three weights times scales, plus biases f32 [rows].

    All buffers are padded to blocks of tokens.
    """
    T, first = token_block(tokens), weights[0]
    every = [*weights, *[first] * (3 - len(weights))]
    made = [*outs, *[outs[0]] * (3 - len(outs))]
    blocks = sum(-(-one.rows // _ROWS) for one in weights)
    words, squares, epsilon = _operands(x, quantized)
    run(
        products.products,
        (blocks, padded(tokens) // T),
        x,
        words,
        squares,
        epsilon,
        *(one.arrays for one in every),
        *given(biases, 3, x),
        *(*map(float, scales), 1.0, 1.0)[:3],
        *made,
        *(one.rows for one in every),
        U=first.units,
        D=first.columns,
        T=T,
        BN=_ROWS,
        BU=unit_block(first.units, T),
        KIND0=every[0].kind,
        KIND1=every[1].kind,
        KIND2=every[2].kind,
        COUNT=len(weights),
        NORM=quantized is not None and quantized.squares is not None,
        BIASES=which(biases),
        EMULATED=interpreted(),
        num_warps=_WARPS,
    )


def linear_added(
    x: Tensor,
    quantized: Quantized | None,
    weight: Operand,
    residual: Tensor,
    tokens: int,
    scale: float = 1.0,
    norm: Tensor | None = None,
    then: Quantized | None = None,
    bias: Tensor | None = None,
) -> None:
    """residual += scale * (product + bias); with `norm` and `then` prepares the product after that norm.

    The activations must be those of no deferred norm.
    """
    assert quantized is None or quantized.squares is None
    T = token_block(tokens)
    words, _, _ = _operands(x, quantized)
    quantize = then is not None and then.squares is not None and norm is not None
    rows = UNIT if quantize else _ROWS
    run(
        products.product_added,
        (-(-weight.rows // rows), padded(tokens) // T),
        x,
        words,
        weight.arrays,
        residual if bias is None else bias,
        residual,
        norm if norm is not None else residual,
        then.words if then is not None else words,
        then.squares if quantize and then is not None else residual,
        weight.rows,
        scale,
        U=weight.units,
        D=weight.columns,
        T=T,
        BN=rows,
        BU=unit_block(weight.units, T),
        KIND=weight.kind,
        UNITS=units(weight.rows),
        BIAS=bias is not None,
        QUANTIZE=quantize,
        EMULATED=interpreted(),
        num_warps=_WARPS,
        maxnreg=255,  # one program for a processor, so registers cost nothing
    )


def linear_gated(
    x: Tensor,
    quantized: Quantized | None,
    gate: Operand,
    up: Operand,
    activation: Activation,
    tokens: int,
    out: Tensor | None = None,
    then: Quantized | None = None,
    biases: Sequence[Tensor | None] = (None, None),
    limit: float = 0.0,
) -> None:
    """activation(gate) * up, with biases f32 [rows] of both, as floats to `out` or quantized to `then`."""
    T = token_block(tokens)
    words, squares, epsilon = _operands(x, quantized)
    # Floats take more registers.
    rows = UNIT if then is not None else _ROWS // 2 if gate.reads_floats else _ROWS
    run(
        products.products_gated,
        (-(-gate.rows // rows), padded(tokens) // T),
        x,
        words,
        squares,
        epsilon,
        gate.arrays,
        up.arrays,
        *given(biases, 2, x),
        x if out is None else out,
        words if then is None else then.words,
        gate.rows,
        float(limit),
        U=gate.units,
        D=gate.columns,
        T=T,
        BN=rows,
        BU=unit_block(gate.units, T),
        KIND0=gate.kind,
        KIND1=up.kind,
        UNITS=units(gate.rows),
        ACTIVATION=NUMBERS[activation],
        LIMIT=limit > 0,
        NORM=quantized is not None and quantized.squares is not None,
        BIASES=which(biases),
        QUANTIZE=then is not None,
        EMULATED=interpreted(),
        num_warps=_WARPS,
    )


def unit_block(units: int, tokens: int) -> int:
    """Units of a row that are read at once; at least a group's."""
    return max(min(triton.next_power_of_2(units), _UNITS // tokens), 8)


def given(tensors: Sequence[Tensor | None], count: int, other: Tensor) -> list[Tensor]:
    """So many operands; `other`, which is not read, in place of those that there are not."""
    every = [*tensors, *[None] * (count - len(tensors))]
    return [other if one is None else one for one in every]


def which(tensors: Sequence[Tensor | None]) -> int:
    """Bit i: there is a tensor i."""
    return sum((one is not None) << at for at, one in enumerate(tensors))


def _operands(x: Tensor, quantized: Quantized | None) -> tuple[Tensor, Tensor, float]:
    if quantized is None:
        return x.view(torch.int32), x, 0.0
    squares = quantized.squares
    return quantized.words, x if squares is None else squares, quantized.epsilon


# --- weights decoded ----------------------------------------------------------------------------


def embed(ids: Tensor, table: Operand, out: Tensor, scale: float = 1.0) -> None:
    """out [T, D] f32 = scale * rows `ids` [T] i64; with scale 1 the bits of the decoder."""
    count = min(triton.next_power_of_2(table.units), 32)
    run(
        dense.embedded,
        (len(ids), -(-table.units // count)),
        ids,
        table.arrays,
        out,
        scale,
        U=table.units,
        D=table.columns,
        BU=count,
        KIND=table.kind,
        num_warps=4,
        enable_fp_fusion=False,
    )


def linear_tiles(x: Tensor, weight: Operand, out: Tensor, tokens: int) -> None:
    """Product of some tokens on tensor cores; x [T, D] and out [T, N] f32."""
    block = min(max(triton.next_power_of_2(tokens), 16), 64)
    most = _TILE_UNITS // block
    if weight.kind in _ONE_BIT:
        most = max(most // 4, 1)
    run(
        dense.product_tiles,
        (-(-weight.rows // _TILE_ROWS), -(-tokens // block)),
        x,
        weight.arrays,
        out,
        tokens,
        weight.rows,
        U=weight.units,
        D=weight.columns,
        BM=block,
        BN=_TILE_ROWS,
        BU=min(most, triton.next_power_of_2(weight.units)),
        KIND=weight.kind,
        EMULATED=interpreted(),
        num_warps=4,
        num_stages=4,
    )


def linear_decoded(x: Tensor, weight: Operand, tokens: int) -> Tensor:
    """Product [T, N] f32 of many tokens: rows are decoded to bfloat16 and multiplied by torch."""
    some = x[:tokens].to(torch.bfloat16)
    step = max(_DECODED // weight.columns, 1)
    rows = torch.empty(
        min(step, weight.rows), weight.columns, dtype=torch.bfloat16, device=x.device
    )
    units_at_once = min(triton.next_power_of_2(weight.units), 4)
    pieces: list[Tensor] = []
    for first in range(0, weight.rows, step):
        end = min(first + step, weight.rows)
        run(
            dense.decoded_rows,
            (-(-(end - first) // 16), -(-weight.units // units_at_once)),
            weight.arrays,
            rows,
            first,
            end,
            U=weight.units,
            D=weight.columns,
            BN=16,
            BU=units_at_once,
            KIND=weight.kind,
            num_warps=4,
        )
        pieces.append(_matrix_product(some, rows[: end - first]))
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)


def linear_halves(x: Tensor, matrix: Tensor, out: Tensor) -> None:
    """out [T, N] f32 = x [T, D] f32 times a matrix [N, D] of f16 or bf16, on tensor cores.

    x is the sum of two halves, of which each is multiplied: 22 bits of it count with f16, 16 with
    bf16. Before that a row is scaled, so that none of its values is too large for f16.
    """
    for first in range(0, len(x), _HALVES):
        some = x[first : first + _HALVES]
        factor = _LARGE / some.abs().amax(1, keepdim=True).clamp_min(_SMALL)
        scaled = some * factor
        high = scaled.to(matrix.dtype)
        low = (scaled - high).to(matrix.dtype)
        products = _matrix_product(torch.cat((high, low)), matrix)
        torch.add(products[: len(some)], products[len(some) :], out=out[first : first + _HALVES])
        out[first : first + _HALVES].div_(factor)


def _matrix_product(x: Tensor, rows: Tensor) -> Tensor:
    """x [T, D] times rows [N, D], both f16 or bf16: f32 [T, N]."""
    if x.is_cuda:
        return torch.mm(x, rows.T, out_dtype=torch.float32)
    return x.float() @ rows.T.float()


def gated(
    gate: Tensor, up: Tensor | None, activation: Activation, out: Tensor, limit: float = 0.0
) -> None:
    """out = activation(gate) * up within a limit, element by element; contiguous f32."""
    count = gate.numel()
    run(
        dense.gated,
        (-(-count // 1024),),
        gate,
        gate if up is None else up,
        out,
        count,
        float(limit),
        BLOCK=1024,
        ACTIVATION=NUMBERS[activation],
        UP=up is not None,
        LIMIT=limit > 0,
        num_warps=4,
    )
