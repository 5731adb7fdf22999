"""Metrics of a loaded model: histograms of waiting and speed, and counters, over all its answers.

Answers are added when they end, so that a token costs no more than a number in a list.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

from engine.messages import Finished, FinishReason, Histogram

# Upper bounds in seconds, and in tokens per second: 1, 2, 5 and so on.
_DIGITS = (1.0, 2.0, 5.0)
FIRST_TOKEN_SECONDS = tuple(digit * 10.0**power for power in range(-3, 3) for digit in _DIGITS)
TOKEN_SECONDS = tuple(digit * 10.0**power for power in range(-4, 1) for digit in _DIGITS)
TOKENS_PER_SECOND = tuple(digit * 10.0**power for power in range(-1, 5) for digit in _DIGITS)


class Counts:
    """A histogram that grows."""

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` are ascending; a value above the last is counted beyond it."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a finite value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self) -> Histogram:
        """The counts so far."""
        return Histogram(self._bounds, tuple(self._counts), self._sum)


class Metrics:
    """What the answers of a model took, since it was loaded; see `MetricsRead`."""

    def __init__(self) -> None:
        self.first_token = Counts(FIRST_TOKEN_SECONDS)
        self.token = Counts(TOKEN_SECONDS)
        self.prefill = Counts(TOKENS_PER_SECOND)
        self.decode = Counts(TOKENS_PER_SECOND)
        self.answers = dict.fromkeys(FinishReason, 0)
        self.prompt_tokens = 0
        self.reused_tokens = 0
        self.generated_tokens = 0
        self.drafted_tokens = 0
        self.accepted_tokens = 0

    def add(self, ended: Finished, token_seconds: Sequence[float]) -> None:
        """Count an answer that has ended; of several to one prompt, the prompt once."""
        self.answers[ended.reason] += 1
        self.generated_tokens += ended.generated_tokens
        self.drafted_tokens += ended.drafted_tokens
        self.accepted_tokens += ended.accepted_tokens
        if ended.answer == 0:
            self.prompt_tokens += ended.prompt_tokens
            self.reused_tokens += ended.reused_tokens
            processed = ended.prompt_tokens - ended.reused_tokens
            if processed > 0 and ended.prefill_seconds > 0:
                self.prefill.add(processed / ended.prefill_seconds)
        if ended.first_token_seconds > 0:
            self.first_token.add(ended.first_token_seconds)
        for seconds in token_seconds:
            self.token.add(seconds)
        if token_seconds and (total := math.fsum(token_seconds)) > 0:
            self.decode.add(len(token_seconds) / total)


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of the values does not exceed: the nearest rank; 0 without any."""
    if not values:
        return 0.0
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]
