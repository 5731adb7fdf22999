"""Small decoders of hybrid architectures, from seeded weights, by default on a backend that is exact.

Short convolutions with attention between them, as in LFM2; gated delta nets with attention in every
third layer, as in Qwen3-Next; and layers that read the keys and values of earlier ones, as in
Gemma 3n, some of them with a window.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.adapters.delta import BaseModel
from engine.models.feed_forward import GatedMLP
from engine.models.layers import Block, Decoder
from engine.models.mixers import Attention, DeltaNet, ShortConvolution
from engine.models.parts import Convolution, Norm, Projection, Rope
from kernels.backend import reference
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement
from kernels.ops import Activation
from kernels.states.kv_pages import PagedKV
from kernels.states.quantized_kv import QuantizedKV
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

D, F = 24, 32  # model width, feed-forward width
HEADS, KV_HEADS, HEAD_WIDTH = 4, 2, 8
RECURRENT_HEADS, KEY_WIDTH, VALUE_WIDTH = 4, 6, 10
WINDOW = 300  # tokens


def _linear(x: Tensor, weight: Weight) -> Tensor:
    """Each output is a sum over the last dimension, whose order does not depend on the rows."""
    return (x[:, None] * weight.dense()).sum(-1)


def _gated(gate: Tensor, up: Tensor | None, activation: Activation) -> Tensor:
    rows = [
        reference.gated(gate[at : at + 1], None if up is None else up[at : at + 1], activation)
        for at in range(len(gate))
    ]
    return torch.cat(rows)


def _attention(
    q: Tensor, kv: PagedKV, position: int, scale: float, window: int, cap: float
) -> Tensor:
    """One query at a time, over the same copies of the rows; no cap."""
    assert not cap
    heads = q.shape[1]
    first = max(position - window + 1, 0) if window else 0
    rows = kv.rows(first, position + len(q))
    k, v = (
        (each.dense() if isinstance(each, QuantizedKV) else each.float())
        .repeat_interleave(heads // kv.layer.shape.kv_heads, 1)
        .transpose(0, 1)
        .contiguous()
        for each in rows
    )  # [H, S, C] each
    y = torch.empty_like(q)
    for at in range(len(q)):
        end = position + at + 1 - first
        seen = slice(max(end - window, 0) if window else 0, end)
        scores = (k[:, seen] * q[at, :, None]).sum(-1) * scale  # [H, s]
        y[at] = (v[:, seen] * scores.softmax(-1)[..., None]).sum(1)
    return y.flatten(1)


# The reference one token at a time: its bits do not depend on how tokens are cut into passes.
EXACT = Backend(
    "exact",
    {
        **reference.KERNELS,
        ("linear", "F32"): _linear,
        ("gated", "F32"): _gated,
        ("attention", "F32"): _attention,
    },
)


class _Weights:
    """Seeded random weights, prepared by a backend."""

    def __init__(self, seed: int, backend: Backend) -> None:
        self._random = torch.Generator().manual_seed(seed)
        self._backend = backend

    def values(self, *shape: int, spread: float = 1.0) -> Tensor:
        return torch.randn(shape, generator=self._random) * spread

    def matrix(self, rows: int, columns: int) -> Weight:
        data = self.values(rows, columns, spread=columns**-0.5)
        return self._backend.prepare(Weight(data, by_name("F32"), (rows, columns)))

    def linear(self, rows: int, columns: int = D) -> Projection:
        return Projection("", self.matrix(rows, columns))

    def norm(self, width: int = D) -> Norm:
        return Norm(1 + self.values(width, spread=0.1), 1e-5)

    def attention(self, window: int = 0, shared: int | None = None) -> Attention:
        own = shared is None
        return Attention(
            query=self.linear(HEADS * HEAD_WIDTH),
            key=self.linear(KV_HEADS * HEAD_WIDTH) if own else None,
            value=self.linear(KV_HEADS * HEAD_WIDTH) if own else None,
            output=self.linear(D, HEADS * HEAD_WIDTH),
            rope=Rope(torch.logspace(0, -3, HEAD_WIDTH // 2), interleaved=False),
            head_width=HEAD_WIDTH,
            scale=1.0,
            query_norm=self.norm(HEAD_WIDTH),
            key_norm=self.norm(HEAD_WIDTH) if own else None,
            window=window,
            shared=shared,
        )

    def short_convolution(self) -> ShortConvolution:
        inputs = [self.linear(D) for _ in range(3)]
        return ShortConvolution(*inputs, Convolution(self.values(D, 3)), self.linear(D))

    def delta_net(self, corrected: bool = True) -> DeltaNet:
        keys, values = 2 * KEY_WIDTH, RECURRENT_HEADS * VALUE_WIDTH

        def convolution(channels: int) -> Convolution:
            bias = self.values(channels, spread=0.1)
            return Convolution(self.values(channels, 4), bias, Activation.SILU)

        return DeltaNet(
            query=self.linear(keys),
            key=self.linear(keys),
            value=self.linear(values),
            convolutions=(convolution(keys), convolution(keys), convolution(values)),
            decay=self.linear(RECURRENT_HEADS),
            strength=self.linear(RECURRENT_HEADS),
            rate=-self.values(RECURRENT_HEADS).abs() * 0.05,  # it remembers for many pages
            decay_bias=self.values(RECURRENT_HEADS),
            key_width=KEY_WIDTH,
            value_width=VALUE_WIDTH,
            epsilon=1e-6,
            norm=self.norm(values),
            gate=self.linear(values),
            activation=Activation.SILU,
            output=self.linear(D, values),
            corrected=corrected,
        )

    def decoder(
        self, vocabulary: int, mixers: Sequence[Attention | ShortConvolution | DeltaNet]
    ) -> Decoder:
        def mlp() -> GatedMLP:
            inner = self.linear(F), self.linear(F)
            return GatedMLP(*inner, self.linear(D, F), Activation.SILU)

        return Decoder(
            embedding=self.matrix(vocabulary, D),
            blocks=tuple(Block(self.norm(), mixer, self.norm(), mlp()) for mixer in mixers),
            norm=self.norm(),
            head=self.linear(vocabulary),
            base=BaseModel("hybrid", HEADS, KV_HEADS, {}),
            placement=Placement.on(self._backend, len(mixers)),
        )


def convolutional(vocabulary: int, backend: Backend = EXACT) -> Decoder:
    """Short convolutions, and attention in every third layer."""
    w = _Weights(1, backend)
    mixers = w.short_convolution(), w.short_convolution(), w.attention()
    return w.decoder(vocabulary, (*mixers, w.short_convolution()))


def recurrent(vocabulary: int, backend: Backend = EXACT) -> Decoder:
    """Gated delta nets, one of them without the correction, and attention in every third layer."""
    w = _Weights(2, backend)
    return w.decoder(vocabulary, (w.delta_net(), w.delta_net(corrected=False), w.attention()))


def shared(vocabulary: int, backend: Backend = EXACT) -> Decoder:
    """Attention with and without a window, then two layers that read the first two's keys."""
    w = _Weights(3, backend)
    own = w.attention(WINDOW), w.attention()
    read = w.attention(WINDOW, shared=0), w.attention(shared=1)
    return w.decoder(vocabulary, (*own, *read))


def mixed(vocabulary: int, backend: Backend = EXACT) -> Decoder:
    """Every kind of layer state in one model."""
    w = _Weights(4, backend)
    some = w.attention(WINDOW), w.delta_net(), w.attention(), w.short_convolution()
    return w.decoder(vocabulary, (*some, w.attention(WINDOW, shared=0), w.attention(shared=2)))


HYBRIDS = {each.__name__: each for each in (convolutional, recurrent, shared, mixed)}
FIXED = [name for name in HYBRIDS if name != "shared"]  # with states of fixed size
