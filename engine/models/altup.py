"""Residual streams of Gemma 3n: alternating updates (AltUp) of several, and a low-rank side path.

One stream runs through a layer. Before it, a router predicts all streams by each other; after it,
all are corrected by what the layer changed. What they compute is in `engine.models.forward_altup`.
S is the number of streams; the other shape letters are those of `engine.models.layers`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.models.parts import Norm, Projection


@dataclass(frozen=True, slots=True)
class AltUp:
    """The streams of a decoder: made of the embedding, and one again before the final norm."""

    inputs: tuple[Projection, ...]  # S - 1 of [D, D], of the embedding
    outputs: tuple[Projection, ...]  # S - 1 of [D, D], of all streams but the first
    epsilon: float  # the least mean square of their results, which are scaled like the first stream

    @property
    def count(self) -> int:
        """S."""
        return len(self.inputs) + 1


@dataclass(frozen=True, slots=True)
class AltUpLayer:
    """What a layer does with the streams; the first one runs through attention and MLP."""

    norm: Norm  # of the router
    router: Projection  # [S, D]
    predict: Projection  # [S*S, S]
    correct: Projection  # [S, S]
    scale: Tensor  # [D] f32, of the first stream as the input of `LayerInput`
    low: Projection  # [R, D], of the side path (LAuReL) of attention: x + norm(high(low(x)))
    high: Projection  # [D, R]
    side_norm: Norm
    side_scale: float  # of the stream with attention and the side path

    @property
    def projections(self) -> tuple[Projection, ...]:
        """Its linear layers."""
        return (self.router, self.predict, self.correct, self.low, self.high)
