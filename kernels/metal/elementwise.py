"""Launches of norms, of activations and of sums; operands are contiguous f32."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from kernels.metal.compile import library
from kernels.metal.products import Launch
from kernels.ops import Activation

_FILE = "elementwise"
_GROUP = 256  # threads
_LANES = 32
_NARROW = 512  # columns of a row that one SIMD group norms

_ACTIVATIONS = {Activation.SILU: 0, Activation.GELU: 1, Activation.GELU_TANH: 2}


def norm_launch(
    x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float, centred: bool, out: Tensor
) -> Launch:
    """out = RMS norm, or layer norm if `centred`, of the rows of x [T, D]; `out` may be x."""
    rows, width = x.shape
    group = _LANES if width <= _NARROW else _GROUP
    operands = x, weight, weight if bias is None else bias, out, float(epsilon)
    flags = [width, int(centred), int(bias is not None)]
    return partial(library(_FILE).norm, *operands, flags, threads=rows * group, group_size=group)


def gated_launch(gate: Tensor, up: Tensor | None, activation: Activation, out: Tensor) -> Launch:
    """out = activation(gate) * up, element by element."""
    count = gate.numel()
    flags = [_ACTIVATIONS[activation], int(up is not None), count]
    operands = gate, gate if up is None else up, out, flags
    groups = -(-count // _GROUP)
    return partial(library(_FILE).gated, *operands, threads=groups * _GROUP, group_size=_GROUP)


def add_launch(x: Tensor, y: Tensor, scale: float) -> Launch:
    """x += scale * y."""
    return partial(library(_FILE).add, x, y, float(scale), threads=x.numel(), group_size=_LANES)


def softcap_launch(x: Tensor, cap: float) -> Launch:
    """x = cap * tanh(x / cap)."""
    return partial(library(_FILE).softcap, x, float(cap), threads=x.numel(), group_size=_LANES)
