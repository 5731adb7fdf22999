"""Residual streams: the instructions of models with several of them (AltUp), and their definitions.

A buffer [T, S*D] has S streams side by side. Source: https://arxiv.org/abs/2301.13310
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class MixStreams:
    """Of every token, each stream j of x = itself + sum over k of coefficients[j*S + k] * stream k."""

    x: str  # [T, S*D]
    coefficients: str  # [T, S*S]


@dataclass(frozen=True, slots=True, eq=False)
class AddToStreams:
    """Each stream j of x, from the stream `first` on, = itself + y * coefficients[j]."""

    x: str  # [T, S*D]
    y: str  # [T, D]
    coefficients: str = ""  # [T, S]; "": 1 each
    first: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class MatchMagnitude:
    """x = x times the root mean square of `like`, over that of x, by token.

    The mean square of x counts as at least `epsilon`.
    """

    x: str
    like: str
    epsilon: float


@dataclass(frozen=True, slots=True, eq=False)
class ScaleChannels:
    """x = x * weight, by channel."""

    x: str
    weight: Tensor  # f32 [width of x]


@dataclass(frozen=True, slots=True, eq=False)
class GaussianTopK:
    """x = max(x - (mean + deviations * standard deviation), 0), of the channels of a token.

    It keeps about the share of a normal distribution that lies above so many deviations.
    """

    x: str
    deviations: float


def mix_streams(x: Tensor, coefficients: Tensor) -> Tensor:
    """MixStreams of x [T, S*D] with coefficients [T, S*S]."""
    count = round(coefficients.shape[1] ** 0.5)
    streams = x.unflatten(1, (count, -1))
    mixed = torch.bmm(coefficients.unflatten(1, (count, count)), streams)
    return (streams + mixed).flatten(1)


def add_to_streams(x: Tensor, y: Tensor, coefficients: Tensor | None, first: int) -> Tensor:
    """AddToStreams of x [T, S*D] and y [T, D] with coefficients [T, S]."""
    streams = x.unflatten(1, (-1, y.shape[1])).clone()
    added = y[:, None] if coefficients is None else y[:, None] * coefficients[:, first:, None]
    streams[:, first:] += added
    return streams.flatten(1)


def match_magnitude(x: Tensor, like: Tensor, epsilon: float) -> Tensor:
    """MatchMagnitude of x [T, D] and like [T, D]."""
    own = x.square().mean(1, keepdim=True).clamp(min=epsilon)
    return x * (like.square().mean(1, keepdim=True).sqrt() / own.sqrt())


def gaussian_top_k(x: Tensor, deviations: float) -> Tensor:
    """GaussianTopK of x [T, F]; the variance is that of a sample."""
    cutoff = x.mean(1, keepdim=True) + deviations * x.std(1, keepdim=True)
    return (x - cutoff).relu()
