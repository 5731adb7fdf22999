"""Functions of kernels that compute activations and gated units, by the number of the activation."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.ops import Activation

# The number of an activation in kernels.
NUMBERS = {activation: number for number, activation in enumerate(Activation)}


# Those that compiled code names.
GELU: tl.constexpr = tl.constexpr(NUMBERS[Activation.GELU])
GELU_TANH: tl.constexpr = tl.constexpr(NUMBERS[Activation.GELU_TANH])
RELU: tl.constexpr = tl.constexpr(NUMBERS[Activation.RELU])
RELU_SQUARED: tl.constexpr = tl.constexpr(NUMBERS[Activation.RELU_SQUARED])
SILU_CUT: tl.constexpr = tl.constexpr(NUMBERS[Activation.SILU_CUT])
SIGMOID: tl.constexpr = tl.constexpr(NUMBERS[Activation.SIGMOID])
SOFTPLUS: tl.constexpr = tl.constexpr(NUMBERS[Activation.SOFTPLUS])
GPT_OSS: tl.constexpr = tl.constexpr(NUMBERS[Activation.GPT_OSS])


@triton.jit
def softplus(x):
    """log(1 + exp(x)), with the relative accuracy of float32 also where it is nearly 0."""
    e = tl.exp(-tl.abs(x))
    s = e / (2.0 + e)  # log(1 + e) is twice the inverse hyperbolic tangent of this
    z = s * s
    series = 1.0 / 9.0 + z * (1.0 / 11.0 + z * (1.0 / 13.0 + z * (1.0 / 15.0)))
    series = 1.0 + z * (1.0 / 3.0 + z * (0.2 + z * (1.0 / 7.0 + z * series)))
    return tl.where(x > 0.0, x, 0.0) + 2.0 * s * series


@triton.jit
def activated(x, ACTIVATION: tl.constexpr):
    """The activation of that number; see `kernels.ops.Activation`."""
    if ACTIVATION == GELU:
        y = x * 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == GELU_TANH:
        y = x * tl.sigmoid(2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x))
    elif ACTIVATION == RELU:
        y = tl.where(x < 0.0, 0.0, x)
    elif ACTIVATION == RELU_SQUARED:
        y = tl.where(x < 0.0, 0.0, x)
        y = y * y
    elif ACTIVATION == SIGMOID:
        y = tl.sigmoid(x)
    elif ACTIVATION == SOFTPLUS:
        y = softplus(x)
    elif ACTIVATION == GPT_OSS:
        y = x * tl.sigmoid(1.702 * x)
    else:  # SILU, SILU_CUT
        y = x * tl.sigmoid(x)
    return y


@triton.jit
def gated_unit(gate, up, limit, ACTIVATION: tl.constexpr, UP: tl.constexpr, LIMIT: tl.constexpr):
    """activation(gate) * up, or activation(gate) without UP; both within `limit` with LIMIT."""
    if LIMIT and ACTIVATION != SILU_CUT:
        gate = tl.where(gate > limit, limit, gate)
    y = activated(gate, ACTIVATION)
    if LIMIT and ACTIVATION == SILU_CUT:
        y = tl.where(y > limit, limit, y)
    if UP:
        if LIMIT:
            up = tl.where(up > limit, limit, tl.where(up < -limit, -limit, up))
        if ACTIVATION == GPT_OSS:
            up = up + 1.0
        y = y * up
    return y
