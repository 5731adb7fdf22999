"""DeviceSampling: what a device must know to draw the next token of a sequence from its logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

UNDECIDED = -1  # in place of a token: the host draws it


@dataclass(frozen=True, slots=True)
class DeviceSampling:
    """Sampling of one token: mask, bias, penalties, top-k, top-p, min-p, temperature, one draw.

    The steps and their order are those of `engine.sampling`; 0 and 1 switch steps off as
    there. `random` are 64 bits for this position of the text, see `random_stream.waiting_times`.
    """

    random: int
    temperature: float = 1.0  # below 1e-6 the most likely token is taken
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    counts: Mapping[int, int] = field(default_factory=dict)  # of recent tokens, to be penalized
    biases: Mapping[int, float] = field(default_factory=dict)  # added to logits; -inf: never
    allowed: NDArray[np.uint32] | None = None  # bit i % 32 of word i // 32 for each token i

    @property
    def changes_logits(self) -> bool:
        """Whether single logits are changed."""
        return bool(self.counts or self.biases)


class DeviceSampler(Protocol):
    """Draws tokens on the device that computed the logits; used by one thread at a time."""

    def draw(self, logits: Tensor, draws: Sequence[DeviceSampling]) -> list[int]:
        """A token for each row of logits [B, V] f32, or UNDECIDED."""
        ...
