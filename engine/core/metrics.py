"""Metrics of a loaded model: histograms of waiting and speed, and counters, over all its answers.

Values are counted in fixed buckets, sixteen in each power of two: a value is known within a
sixteenth, and a token allocates nothing that is kept. A fault in here is logged once and ends no
answer.
"""

from __future__ import annotations

import logging
import math
import time
from itertools import pairwise
from operator import add

from engine.messages import Finished, FinishReason, Histogram

log = logging.getLogger(__name__)

_PARTS = 16  # buckets of equal width in each power of two
# Powers of two of the largest value of the first bucket and of the last but one: 8 microseconds and
# 36 hours, or as many tokens per second.
_LOWEST, _HIGHEST = -17, 17
_BUCKETS = (_HIGHEST - _LOWEST) * _PARTS + 2  # with one for what is smaller and one for the rest
_SMALLEST = 2.0**_LOWEST
_OFFSET = -(_LOWEST + 1) * _PARTS

# Powers of two that are bounds of the histograms in `MetricsRead`.
FIRST_TOKEN_SECONDS = range(-9, 9)  # 2 ms to 256 s
TOKEN_SECONDS = range(-13, 4)  # 0.1 ms to 8 s
TOKENS_PER_SECOND = range(-2, 15)


class Counts:
    """A histogram that grows."""

    __slots__ = ("_counts", "count", "sum")

    def __init__(self) -> None:
        self._counts = [0] * _BUCKETS
        self.count = 0
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a finite value; one below 0, which no clock should give, counts as 0."""
        # As `bounds` has them; a value is in the bucket whose upper bound it is.
        at = 0
        if value > _SMALLEST:
            fraction, power = math.frexp(value)  # fraction in [0.5, 1)
            at = power * _PARTS + math.ceil((2 * fraction - 1) * _PARTS) + _OFFSET
            at = at if at < _BUCKETS else _BUCKETS - 1
        self._counts[at] += times
        self.count += times
        self.sum += value * times if value > 0 else 0.0

    def merge(self, other: Counts) -> None:
        """Count the values of another histogram."""
        self._counts = list(map(add, self._counts, other._counts))
        self.count += other.count
        self.sum += other.sum

    def quantile(self, share: float) -> float:
        """The value that this share of the values does not exceed, within a sixteenth; 0 for none.

        The nearest rank, interpolated between the bounds of its bucket.
        """
        rank = max(math.ceil(share * self.count), 1)
        before = 0
        for bucket, count in enumerate(self._counts if self.count else ()):
            if before + count >= rank:
                low, high = bounds(bucket)
                return low + (high - low) * (rank - before) / count if high < math.inf else low
            before += count
        return 0.0

    def read(self, powers: range) -> Histogram:
        """The counts so far, between these powers of two."""
        ends = [0, *((power - _LOWEST) * _PARTS + 1 for power in powers), _BUCKETS]
        return Histogram(
            tuple(2.0**power for power in powers),
            tuple(sum(self._counts[low:high]) for low, high in pairwise(ends)),
            self.sum,
            self.quantile(0.5),
            self.quantile(0.95),
        )


def bounds(bucket: int) -> tuple[float, float]:
    """Values of a bucket: above the first of these, and at most the second."""
    if bucket == 0:
        return 0.0, _SMALLEST
    power, part = divmod(bucket - 1, _PARTS)
    low = 2.0 ** (_LOWEST + power)
    if bucket == _BUCKETS - 1:
        return low, math.inf
    return low * (1 + part / _PARTS), low * (1 + (part + 1) / _PARTS)


class TokenTimes:
    """When the tokens of one answer came.

    The tokens of a pass come together, be they drafted, forced or drawn: each is counted with an
    equal share of the time since the tokens before, so that all shares are the time from the first
    tokens to the last. Tokens that were taken back are not counted again.
    """

    __slots__ = ("_arrived", "_known", "_last", "between", "first_token_seconds")

    def __init__(self, arrived: float) -> None:
        """`arrived` is the `perf_counter` time of the request."""
        self._arrived = arrived
        self._known = 0  # tokens
        self._last = 0.0  # when the last of these came
        self.first_token_seconds = 0.0  # after the request; 0: there is none yet
        self.between = Counts()  # of each token after those of the first pass

    def on_tokens(self, generated: int) -> None:
        """So many tokens have come in all, the last of them now."""
        if generated <= self._known:
            return
        try:
            now = time.perf_counter()
            if self._known:
                new = generated - self._known
                self.between.add((now - self._last) / new, new)
            else:
                self.first_token_seconds = now - self._arrived
            self._last, self._known = now, generated
        except Exception:  # an answer is worth more than its figures
            log.exception("the times of an answer are not measured any more")
            self._known = 1 << 62

    def quantile(self, share: float) -> float:
        """Of the times between tokens; 0 if they are not known."""
        try:
            return self.between.quantile(share)
        except Exception:  # as above
            log.exception("the times of an answer are lost")
            return 0.0


class Metrics:
    """What the answers of a model took, since it was loaded; see `MetricsRead`."""

    def __init__(self) -> None:
        self.first_token = Counts()
        self.token = Counts()
        self.prefill = Counts()
        self.decode = Counts()
        self.answers = dict.fromkeys(FinishReason, 0)
        self.prompt_tokens = 0
        self.reused_tokens = 0
        self.generated_tokens = 0
        self.drafted_tokens = 0
        self.accepted_tokens = 0
        self.prefill_seconds = 0.0
        self.decode_seconds = 0.0
        self.longest_context = 0
        self.passes = 0
        self.pass_rows = 0
        self.drafts = 0
        self.embedded_tokens = 0
        self._is_broken = False

    def on_pass(self, rows: int, drafts: int = 0) -> None:
        """The model read tokens of so many answers or texts, with drafts of so many."""
        self.passes += 1
        self.pass_rows += rows
        self.drafts += drafts

    def add(self, ended: Finished, times: TokenTimes) -> None:
        """Count an answer that has ended; of several to one prompt, the prompt once."""
        if self._is_broken:
            return
        try:
            self._add(ended, times)
        except Exception:  # as in `TokenTimes`
            log.exception("answers are not measured any more")
            self._is_broken = True

    def _add(self, ended: Finished, times: TokenTimes) -> None:
        self.answers[ended.reason] += 1
        self.generated_tokens += ended.generated_tokens
        self.drafted_tokens += ended.drafted_tokens
        self.accepted_tokens += ended.accepted_tokens
        self.decode_seconds += ended.decode_seconds
        self.longest_context = max(self.longest_context, ended.context_used)
        if ended.answer == 0 and ended.prefill_seconds > 0:  # not if it was cancelled in the queue
            self.prompt_tokens += ended.prompt_tokens
            self.reused_tokens += ended.reused_tokens
            self.prefill_seconds += ended.prefill_seconds
            processed = ended.prompt_tokens - ended.reused_tokens
            if processed > 0 and ended.first_token_seconds > 0:  # the whole prompt was processed
                self.prefill.add(processed / ended.prefill_seconds)
        if ended.first_token_seconds > 0:
            self.first_token.add(ended.first_token_seconds)
        self.token.merge(times.between)
        if times.between.sum > 0:
            self.decode.add(times.between.count / times.between.sum)
