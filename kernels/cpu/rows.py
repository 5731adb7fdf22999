"""Ops of residual streams, sparse activations and rotations: programs of one native operation."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from kernels import reference
from kernels.cpu import library
from kernels.cpu.schema import MAX_STREAMS, NativeOp, NativeProgram, OpKind


def hadamard(x: Tensor, block: int) -> Tensor:
    """Hadamard transform of every block of columns: sums and differences, log2(block) times."""
    y = x.new_empty(x.shape)
    fields = {"width": x.shape[1], "pairs": block, "heads": 1, "kv_heads": 1}
    _run(OpKind.ROTATE, len(x), x=x.contiguous(), out=y, **fields)
    return y


def mix_streams(x: Tensor, coefficients: Tensor) -> Tensor:
    """Each stream plus a combination of all."""
    count = round(coefficients.shape[1] ** 0.5)
    if count > MAX_STREAMS:
        return reference.mix_streams(x, coefficients)
    y, shape = _copy(x), {"heads": count, "head_width": x.shape[1] // count}
    _run(OpKind.MIX_STREAMS, len(x), x=y, y=coefficients.contiguous(), **shape)
    return y


def add_to_streams(x: Tensor, y: Tensor, coefficients: Tensor | None, first: int) -> Tensor:
    """Streams from `first` on plus y, times coefficients."""
    result, width = _copy(x), y.shape[1]
    shape = {"heads": x.shape[1] // width, "head_width": width, "start": first}
    more = {} if coefficients is None else {"z": coefficients.contiguous()}
    _run(OpKind.ADD_TO_STREAMS, len(x), x=result, y=y.contiguous(), **more, **shape)
    return result


def match_magnitude(x: Tensor, like: Tensor, epsilon: float) -> Tensor:
    """x with the root mean square of `like`, by row."""
    y, options = _copy(x), {"width": x.shape[1], "epsilon": epsilon}
    _run(OpKind.MATCH_MAGNITUDE, len(x), x=y, y=like.contiguous(), **options)
    return y


def gaussian_top_k(x: Tensor, deviations: float) -> Tensor:
    """What lies above so many deviations from the mean of a row."""
    y = _copy(x)
    _run(OpKind.GAUSSIAN_TOP_K, len(x), x=y, width=x.shape[1], strength=deviations)
    return y


def _copy(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _run(kind: OpKind, rows: int, **fields: Tensor | float) -> None:
    """Run one operation over so many rows; the contiguous tensors are its buffers."""
    if not rows:
        return
    op = NativeOp(kind=kind, activation=-1, add_to=-1, x=-1, y=-1, z=-1, out=-1)
    buffers: list[int] = []
    for name, value in fields.items():
        if isinstance(value, Tensor):
            setattr(op, name, len(buffers))
            buffers.append(value.data_ptr())
        else:
            setattr(op, name, value)
    pointers = (ctypes.c_void_p * len(buffers))(*buffers)
    program = NativeProgram(
        ops=ctypes.pointer(op),
        buffers=ctypes.addressof(pointers),
        op_bytes=ctypes.sizeof(NativeOp),
    )
    batch = library.NativeBatch([(rows, 0, ())]).structs
    library.run_program(ctypes.byref(program), 0, 1, batch, 1, None)
