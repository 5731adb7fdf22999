"""Instructions shared by all layers: products with their LoRA deltas, norms, convolutions."""

from __future__ import annotations

from collections.abc import Callable

from engine.adapters.delta import Part
from engine.models.parts import Convolution, Norm, Projection
from kernels import ops
from kernels.ops import LoraDelta

# Buffer names. SUBLAYER_OUT holds an output of attention or MLP before it is added to the stream.
STREAM, NORMED, SUBLAYER_OUT = "stream", "normed", "sublayer out"
# LoRA delta of a tensor, or of the rows of a fused one; None if no adapter changes it.
# The LoRA deltas of a tensor or a part of it: one; one of each expert or head; or none.
Deltas = Callable[[str, Part | None], tuple[LoraDelta, ...]]


def sized(name: str, one: Projection, *, columns: bool = False) -> str:
    """The buffer of a projection's results, or of its input: layers may differ in their widths."""
    return f"{name} {one.weight.shape[columns]}"


def norm(one: Norm, x: str, out: str) -> ops.Norm:
    """A norm from one buffer to another, or in place."""
    return ops.Norm(x, one.weight, one.epsilon, out, one.centred, one.bias)


def convolution(one: Convolution, x: str, layer: int) -> ops.ShortConv:
    """A convolution in place; `layer` is the index of its state."""
    return ops.ShortConv(x, one.weight, layer, one.bias, one.activation, one.causal)


def products(x: str, outs: tuple[tuple[Projection, str], ...], deltas: Deltas) -> ops.Linear:
    """Products of one buffer, each with its LoRA delta, scale and bias."""
    found = (deltas(one.name, one.part) for one, _ in outs)
    lora = tuple(some[0] if some else None for some in found)
    biases = tuple(one.bias for one, _ in outs)
    scales = tuple(one.scale for one, _ in outs)
    rotations = tuple(one.rotation for one, _ in outs)
    return ops.Linear(
        x,
        weights=tuple(projection.weight for projection, _ in outs),
        outs=tuple(out for _, out in outs),
        deltas=lora if any(lora) else (),
        biases=biases if any(bias is not None for bias in biases) else (),
        scales=scales if any(scale != 1.0 for scale in scales) else (),
        rotations=rotations if any(rotations) else (),
    )
