"""Launches of kernels that read weights: products of few and of many tokens, and embeddings.

Activations are contiguous f32 [tokens, columns]; a buffer may have more rows than tokens. Nothing
here waits for the device. A step that is run again and again keeps the `Launch`es: they look up
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernels.gpu.layout import LAYOUTS, UNIT
from kernels.metal.compile import library
from kernels.metal.weights import Operand, shader_format
from kernels.ops import Activation

# Tokens of a step of a program.
FEW = 4
# Tokens that one pass over the weights multiplies.
MOST = 8
# Tokens from which weights are decoded to float32 and multiplied by torch.
MANY = 32

Launch = Callable[[], None]

_MANY_ROWS = 2048  # of a product whose SIMD groups compute 4 rows each, else 2
_SIMDGROUPS = 2  # of a thread group, as in multiply.metal
_LANES = 32
_ALIGNMENT = 4  # floats
_DECODED = 4 << 20  # weights decoded at once: 16 MB, about the cache of the system
_GROUP = 64  # threads of a group that decodes

_ACTIVATIONS = {Activation.SILU: 0, Activation.GELU: 1, Activation.GELU_TANH: 2}


def linear(x: Tensor, weights: Sequence[Operand], outs: Sequence[Tensor], tokens: int) -> None:
    """Products of one x of at most `MOST` tokens with up to three weights."""
    linear_launch(x, weights, outs, tokens)()


def linear_launch(
    x: Tensor, weights: Sequence[Operand], outs: Sequence[Tensor], tokens: int
) -> Launch:
    """`linear`, to be run later, perhaps many times."""
    first, count = weights[0], len(weights)
    every = [*weights, *[first] * (3 - count)]
    made = [*outs, *[outs[0]] * (3 - count)]
    rows = _rows(sum(one.rows for one in weights), tokens)
    kernels = _few("products", tokens, rows, every, COUNT=count)
    blocks = sum(-(-one.rows // rows) for one in weights)
    fields = [number for one in every for number in one.fields]
    return _launch(
        kernels.products, blocks, _checked(x), *(one.data for one in every), *made, fields
    )


def linear_added(
    x: Tensor, weight: Operand, residual: Tensor, tokens: int, scale: float = 1.0
) -> None:
    """residual += scale * product, of at most `MOST` tokens."""
    added_launch(x, weight, residual, tokens, scale)()


def added_launch(
    x: Tensor, weight: Operand, residual: Tensor, tokens: int, scale: float = 1.0
) -> Launch:
    """`linear_added`, to be run later."""
    rows = _rows(weight.rows, tokens)
    kernels = _few("product_added", tokens, rows, [weight])
    blocks, fields = -(-weight.rows // rows), list(weight.fields)
    operands = _checked(x), weight.data, residual, float(scale), fields
    return _launch(kernels.product_added, blocks, *operands)


def linear_gated(
    x: Tensor, gate: Operand, up: Operand, activation: Activation, tokens: int, out: Tensor
) -> None:
    """out = activation(gate) * up, of at most `MOST` tokens; both weights have the same rows."""
    gated_launch(x, gate, up, activation, tokens, out)()


def gated_launch(
    x: Tensor, gate: Operand, up: Operand, activation: Activation, tokens: int, out: Tensor
) -> Launch:
    """`linear_gated`, to be run later."""
    rows = _rows(gate.rows, 2 * tokens)  # the sums of both are in registers
    number = _ACTIVATIONS[activation]
    kernels = _few("products_gated", tokens, rows, [gate, up], ACTIVATION=number)
    blocks, fields = -(-gate.rows // rows), [*gate.fields, *up.fields]
    return _launch(kernels.products_gated, blocks, _checked(x), gate.data, up.data, out, fields)


def linear_many(x: Tensor, weight: Operand, out: Tensor, tokens: int) -> None:
    """Product of any number of tokens."""
    if tokens >= MANY:
        _linear_decoded(x, weight, out, tokens)
        return
    for first in range(0, tokens, MOST):
        some = min(MOST, tokens - first)
        linear(x[first : first + some], [weight], [out[first : first + some]], some)


def _linear_decoded(x: Tensor, weight: Operand, out: Tensor, tokens: int) -> None:
    """Rows are decoded in pieces, and multiplied by torch."""
    step = max(_DECODED // weight.columns, 1)
    rows = torch.empty(min(step, weight.rows), weight.columns, device=x.device)
    for first in range(0, weight.rows, step):
        end = min(first + step, weight.rows)
        some = rows[: end - first]
        decode_rows(weight, first, some)
        out[:tokens, first:end] = x[:tokens] @ some.T


def decode_rows(weight: Operand, first: int, out: Tensor) -> None:
    """out [N, D] f32 = the rows of a weight from `first` on."""
    kernels, parts = _decoding(weight)
    kernels.decoded_rows(
        weight.data,
        out,
        first,
        list(weight.fields),
        threads=(parts, len(out)),
        group_size=(min(parts, _GROUP), 1),
    )


def embed(ids: Tensor, table: Operand, out: Tensor, scale: float = 1.0) -> None:
    """out [T, D] f32 = scale * rows `ids` [T] i64; with scale 1 the bits of the decoder."""
    embed_launch(ids, table, out, scale)()


def embed_launch(ids: Tensor, table: Operand, out: Tensor, scale: float = 1.0) -> Launch:
    """`embed`, to be run later."""
    kernels, parts = _decoding(table)
    return partial(
        kernels.embedded,
        ids,
        table.data,
        out,
        float(scale),
        list(table.fields),
        threads=(parts, len(ids)),
        group_size=(min(parts, _GROUP), 1),
    )


def _decoding(weight: Operand) -> tuple[Any, int]:
    """The kernels that decode a weight, and the threads of a row."""
    kernels = library("embed", ("W0", shader_format(weight.format)))
    return kernels, weight.columns // 4 if weight.format in LAYOUTS else weight.columns


def _few(file: str, tokens: int, rows: int, weights: Sequence[Operand], **macros: int) -> Any:
    """The kernels of one number of tokens, compiled for the formats of weights."""
    assert 0 < tokens <= MOST
    types = ((f"W{index}", shader_format(one.format)) for index, one in enumerate(weights))
    sizes = ("TOKENS", tokens), ("ROWS", rows), ("SPLIT", _split(weights[0].columns))
    return library(file, *sizes, *macros.items(), *types)


def _rows(rows: int, tokens: int) -> int:
    """Rows of a SIMD group, by registers, and by whether there are SIMD groups for all cores."""
    return 4 if rows >= _MANY_ROWS and tokens <= FEW else 2


def _split(columns: int) -> int:
    """1: a lane reads units of a row, 2: halves of units, where fewer lanes have nothing to do."""
    parts = columns // UNIT

    def used(count: int) -> float:
        return count / (-(-count // _LANES) * _LANES)

    return 2 if parts and used(2 * parts) > 1.1 * used(parts) else 1


def _launch(kernel: Any, blocks: int, *operands: object) -> Launch:
    """A kernel on so many SIMD groups."""
    size = _LANES * _SIMDGROUPS
    groups = -(-blocks // _SIMDGROUPS)
    return partial(kernel, *operands, threads=groups * size, group_size=size)


def _checked(x: Tensor) -> Tensor:
    """Activations, which kernels read 16 bytes at once."""
    assert x.is_contiguous()
    assert x.storage_offset() % _ALIGNMENT == 0 or x.shape[-1] % _ALIGNMENT
    return x
