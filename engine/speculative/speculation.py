"""Speculation of one answer: how long its drafts are, whether they pay, and what they gained.

The length of a draft is the one with the most expected tokens for the time of a pass, from measured
acceptance and measured step costs. No draft is made where none pays; whether one would pay again is
seen from drafts that are compared with the text without being verified, or tried after a pause.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine.speculative.costs import StepCosts
from engine.speculative.drafter import NO_DRAFT, Draft, Drafter

log = logging.getLogger(__name__)
MOST_ROWS = 16  # of a pass with drafts: the few-token products of the kernels
_WORTH = 1.02  # expected gain from which a draft is verified
_PRIOR_WEIGHT = 4.0  # of the expected acceptance, in tokens
_MEMORY = 0.97  # what remains of a measured token's weight after the next one
_COMPARED = 4  # tokens of a draft that is made to be measured only
_TRIED = 2  # tokens of a draft after a pause
_FIRST_PAUSE, _LONGEST_PAUSE = 32, 1024  # tokens without a draft that costs time


@dataclass(slots=True)
class _Acceptance:
    """Accepted tokens of one class of evidence, and tokens that were decided on."""

    hits: float
    trials: float

    def learn(self, accepted: int, *, rejected: bool) -> None:
        for hit in [1.0] * accepted + [0.0] * rejected:
            self.hits = self.hits * _MEMORY + hit
            self.trials = self.trials * _MEMORY + 1.0

    @property
    def probability(self) -> float:
        return self.hits / self.trials


class Speculation:
    """Proposes drafts for one answer and learns from what was accepted."""

    def __init__(self, drafter: Drafter, costs: StepCosts) -> None:
        """`costs` of passes are shared by all answers of a model."""
        self.drafter = drafter
        self.drafted = 0  # tokens
        self.accepted = 0  # of these
        self._costs = costs
        self._classes = [
            _Acceptance(prior * _PRIOR_WEIGHT, _PRIOR_WEIGHT) for prior in drafter.priors
        ]
        self._failed = False  # the drafter raised an error
        self._draft = NO_DRAFT  # the last one
        self._start = 0  # length of the text that it continues
        self._verified = 0  # tokens of it that are being verified
        self._rows = 1  # of the pass, without the draft
        self._pause, self._resume_at = _FIRST_PAUSE, 0
        self._token_seconds = 0.0  # of drafting, running mean
        self._seconds = self._plain_seconds = 0.0  # of the passes, and without drafts

    @property
    def gain(self) -> float:
        """Estimated speed of the answer relative to one without drafts; 0: no pass was measured."""
        return self._plain_seconds / self._seconds if self._seconds else 0.0

    def propose(self, text: Sequence[int], rows: int, most: int) -> Sequence[int]:
        """The tokens to verify after `text`, at most `most`; empty where no draft pays.

        `rows` is the number of rows of the next pass without them.
        """
        self._compare(text)
        self._rows = rows
        self._draft, self._start, self._verified = NO_DRAFT, len(text), 0
        most = min(most, MOST_ROWS - rows)
        if most < 1 or self._costs.is_stale(rows):
            return ()
        free = self.drafter.costs_nothing
        wanted = most if free else self._length(0, most) or self._trial(len(text), most)
        if not wanted:
            return ()
        started = time.perf_counter()
        self._draft = self._drafted(text, wanted)
        drafted = len(self._draft.tokens)
        if free:
            self._verified = self._length(self._draft.evidence, drafted)
        else:
            self._verified = drafted
            seconds = time.perf_counter() - started
            self._seconds += seconds
            if self._draft.is_behind:
                self._pause, self._resume_at = _FIRST_PAUSE, 0
            else:
                self._token_seconds += (seconds / max(drafted, 1) - self._token_seconds) / 4
        return self._draft.tokens[: self._verified]

    def shorten(self, length: int) -> None:
        """Only so many of the proposed tokens are verified: there is no room or use for others."""
        self._verified = min(self._verified, length)

    def learn(self, accepted: int, emitted: int, seconds: float) -> None:
        """After a pass: of the proposed tokens so many were accepted, in an answer `emitted` longer.

        A token counts as rejected where the model drew another one, not where the answer ended.
        """
        self._seconds += seconds
        self._plain_seconds += emitted * self._costs.seconds(self._rows)
        self.drafted += self._verified
        self.accepted += accepted
        if not self._verified:
            return
        known = self._classes[self._draft.evidence]
        known.learn(accepted, rejected=accepted < self._verified and emitted > accepted)
        if accepted:
            self._pause = _FIRST_PAUSE

    def close(self) -> None:
        """Free what the drafter holds."""
        try:
            self.drafter.close()
        except Exception:
            log.exception("a drafter could not be closed")

    def rewind(self, length: int) -> None:
        """The text was cut to `length` tokens."""
        self._draft = NO_DRAFT
        self.drafter.rewind(length)

    def _drafted(self, text: Sequence[int], most: int) -> Draft:
        """The drafter's proposal; after an error it is not asked again: the answer goes on."""
        if self._failed:
            return NO_DRAFT
        try:
            return self.drafter.draft(text, most)
        except Exception:
            log.exception("drafts are switched off for this answer")
            self._failed = True
            return NO_DRAFT

    def _compare(self, text: Sequence[int]) -> None:
        """Learn from a draft that was not verified: the text has gone on since."""
        tokens = () if self._verified else self._draft.tokens[:_COMPARED]
        if not tokens or len(text) <= self._start:
            return
        known = self._classes[self._draft.evidence]
        known.learn(int(text[self._start] == tokens[0]), rejected=text[self._start] != tokens[0])

    def _trial(self, length: int, most: int) -> int:
        """Length of a draft that does not promise to pay, after a pause: it is seen whether it does."""
        if length < self._resume_at:
            return 0
        self._resume_at = length + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return min(_TRIED, most)

    def _length(self, evidence: int, most: int) -> int:
        """The length of a draft that promises most; 0: none is worth its time."""
        probability = self._classes[evidence].probability
        step = self._costs.seconds(self._rows)
        share = self._token_seconds / step if step else 0.0  # of drafting a token
        best, length = _WORTH, 0
        tokens = power = 1.0  # expected, of a pass
        for count in range(1, most + 1):
            power *= probability
            tokens += power
            cost = self._costs.ratio(self._rows + count, self._rows) + count * share
            gain = tokens / cost
            if gain > best:
                best, length = gain, count
        return length
