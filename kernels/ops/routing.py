"""Routing of a mixture: how experts are chosen and weighed; the op route computes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor


class Gating(Enum):
    """How a router's scores of all experts become their shares."""

    SOFTMAX = "softmax"  # of all experts
    SIGMOID = "sigmoid"  # of each score
    SOFTMAX_OF_CHOSEN = "softmax_of_chosen"  # of the scores of the chosen experts alone
    SIGMOID_OF_CHOSEN = "sigmoid_of_chosen"  # chosen by score, then the sigmoid of each


@dataclass(frozen=True, slots=True, eq=False)
class Routing:
    """How a mixture chooses the experts of a token and weighs their outputs; see the op route."""

    chosen: int  # experts of a token
    gating: Gating = Gating.SOFTMAX
    bias: Tensor | None = None  # f32 [E], added for the choice alone
    groups: int = 1  # of experts; only those of the best `chosen_groups` can be chosen
    chosen_groups: int = 1
    normalized: bool = True  # the shares of the chosen experts are divided by their sum
    scale: float = 1.0  # of the shares

    @property
    def is_plain(self) -> bool:
        """Whether the shares are the softmax of the highest scores."""
        plain = self.groups == 1 and self.bias is None and self.scale == 1.0
        normalized = self.gating is Gating.SOFTMAX_OF_CHOSEN
        return plain and (normalized or (self.gating is Gating.SOFTMAX and self.normalized))
