"""Sampler: the distribution of an answer's next token, and draws from it.

The order of the steps is in `engine.sampling`.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

from engine.errors import ModelFileError, RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Sampling
from engine.sampling.candidates import Candidates, Floats, everything, shortlist
from engine.sampling.checks import check
from engine.sampling.dry import Dry
from engine.sampling.filters import (
    GREEDY_BELOW,
    dynamic_temperature,
    min_p,
    temperature,
    top_n_sigma,
    top_p,
    typical,
    xtc,
)
from engine.sampling.mirostat import mirostat_1, mirostat_2, next_mu
from engine.sampling.penalties import Mask, mask, penalize, penalizes
from engine.sampling.random_stream import Purpose, draw_bits, uniform, waiting_times
from kernels.backend.device_sampling import DeviceSampling

Filter = Callable[[Candidates], Candidates]


class Sampler:
    """Draws tokens for one answer.

    A draw depends on the logits, the tokens before it, the seed and, with mirostat, `mu`, which
    each accepted token changes.
    """

    def __init__(self, sampling: Sampling, tokenizer: Tokenizer | None = None) -> None:
        """Raises RequestError for an option out of range.

        Without a tokenizer no text breaks DRY's repetitions, no token is suppressed, and there are
        no end tokens: these may be ignored, and no penalty counts them. Those of the turns before
        would make an answer less likely to end.
        """
        check(sampling)
        sampling = replace(sampling, top_k=max(sampling.top_k, 0))
        self.sampling = sampling
        self.seed = sampling.seed if sampling.seed >= 0 else secrets.randbits(32)
        self.mu = 2 * sampling.mirostat_tau
        self._is_greedy = (
            sampling.temperature < GREEDY_BELOW
            and sampling.temperature_range == 0
            and sampling.xtc_probability == 0
        )
        self._bias = sampling.logit_bias
        self._never = np.array(sorted(_never(sampling, tokenizer)), np.int64)
        self._ends = sorted(tokenizer.end_tokens) if tokenizer else []
        self._penalizes = penalizes(sampling)
        has_dry = sampling.dry_multiplier > 0 and sampling.dry_window != 0
        self._dry = Dry(sampling, tokenizer.piece if tokenizer else None) if has_dry else None
        self._changes_logits = bool(self._penalizes or self._dry or self._bias or self._never.size)
        self._filters = _filters(sampling)
        self._is_scaled = sampling.temperature != 1 or sampling.temperature_range != 0

    def resume(self, seed: int, mu: float) -> None:
        """Continue an answer that was drawn with this seed, up to this `mu`."""
        self.seed, self.mu = seed, mu

    def draw(
        self,
        logits: Tensor,
        tokens: Sequence[int],
        allowed: Mask | None = None,
        excluded: Collection[int] = (),
    ) -> int:
        """One token; see `distribution`."""
        if self._is_greedy and not self._changes_logits and allowed is None and not excluded:
            return _best(logits.numpy())
        candidates = self.distribution(logits, tokens, allowed, excluded)
        token = self.pick(candidates, len(tokens))
        if self.sampling.mirostat:
            self.accept(candidates, token)
        return token

    def device_sampling(
        self,
        tokens: Sequence[int],
        allowed: Mask | None = None,
        excluded: Collection[int] = (),
    ) -> DeviceSampling | None:
        """What a device must know to draw as `draw` does; None: it cannot, the host must draw."""
        sampling = self.sampling
        has_filter = sampling.top_k or sampling.top_p < 1 or sampling.min_p > 0 or self._is_greedy
        if (
            not has_filter
            or self._dry
            or sampling.mirostat
            or sampling.typical_p < 1
            or sampling.top_n_sigma > 0
            or sampling.xtc_probability > 0
            or sampling.temperature_range
        ):
            return None
        counts: Counter[int] = Counter()
        if self._penalizes:
            counts.update(self._recent(tokens))
            for token in self._ends:
                counts.pop(token, None)
        biases: dict[int, float] = {}
        for token, bias in self._bias:
            biases[token] = biases.get(token, 0.0) + bias
        biases.update(dict.fromkeys((*self._never.tolist(), *excluded), -math.inf))
        return DeviceSampling(
            draw_bits(self.seed, len(tokens)),
            0.0 if self._is_greedy else sampling.temperature,
            sampling.top_k,
            sampling.top_p,
            sampling.min_p,
            sampling.repeat_penalty,
            sampling.frequency_penalty,
            sampling.presence_penalty,
            counts,
            biases,
            allowed,
        )

    def distribution(
        self,
        logits: Tensor,
        tokens: Sequence[int],
        allowed: Mask | None = None,
        excluded: Collection[int] = (),
    ) -> Candidates:
        """The processed distribution after `tokens`, all tokens of the text, for logits [V] f32.

        `allowed` has the bit i % 32 of word i // 32 set for each token i that may be drawn.
        `excluded` are tokens that were drawn here and taken back. Raises ModelFileError for logits
        that are not finite, RequestError if no token is left.
        """
        sampling = self.sampling
        row = logits.numpy()
        best = _best(row)
        if allowed is not None or self._changes_logits or excluded:
            row = self._changed(row, tokens, allowed, excluded)
            best = int(row.argmax())
        if self._is_greedy:
            return Candidates(np.array([best]), row[best : best + 1])
        if sampling.mirostat:
            row = row / np.float32(max(self._temperature(everything(row)), GREEDY_BELOW))
            return (mirostat_1 if sampling.mirostat == 1 else mirostat_2)(row, self.mu)
        if sampling.top_n_sigma > 0:
            row = top_n_sigma(row, sampling.top_n_sigma)
        candidates = shortlist(row, sampling)
        for narrow in self._filters:
            candidates = narrow(candidates)
        if sampling.xtc_probability > 0:
            chance = uniform(self.seed, len(tokens), Purpose.XTC)
            if chance < sampling.xtc_probability:
                candidates = xtc(candidates, sampling.xtc_threshold)
        if not self._is_scaled:
            return candidates
        value = self._temperature(candidates)
        return candidates if value == 1 else temperature(candidates, value)

    def pick(self, candidates: Candidates, position: int) -> int:
        """The token drawn at a position of the text: the number of tokens before it.

        From similar candidates mostly the same token is drawn: so a draft model that draws with an
        answer's seed proposes what the model is about to draw, and no draw depends on what was
        proposed. That keeps the promise of a seed, which rejection sampling would break.

        Source: Daliri et al. 2024, Coupling without Communication and Drafter-Invariant Speculative
        Decoding.
        """
        if len(candidates.ids) == 1:
            return int(candidates.ids[0])
        return candidates.first(waiting_times(self.seed, position, candidates.ids))

    def accept(self, candidates: Candidates, token: int) -> None:
        """Note that this token was drawn from the candidates and the text goes on with it."""
        sampling = self.sampling
        if sampling.mirostat:
            tau, eta = sampling.mirostat_tau, sampling.mirostat_eta
            self.mu = next_mu(self.mu, candidates, token, tau, eta)

    def _changed(
        self,
        row: Floats,
        tokens: Sequence[int],
        allowed: Mask | None,
        excluded: Collection[int],
    ) -> Floats:
        """Logits [V] after mask, bias and penalties, -inf for tokens that may not be drawn."""
        row = row.copy() if allowed is None else mask(row, allowed)
        for token, bias in self._bias:
            if token < len(row):
                row[token] += np.float32(bias)
        row[self._never[self._never < len(row)]] = -np.inf
        if excluded:
            row[list(excluded)] = -np.inf
        ends = [token for token in self._ends if token < len(row)]
        unpenalized = row[ends]
        if self._penalizes:
            penalize(row, self._recent(tokens), self.sampling)
        if self._dry:
            self._dry.apply(row, tokens)
        row[ends] = unpenalized
        is_narrowed = allowed is not None or self._bias or self._never.size or excluded
        if is_narrowed and row.max() == -np.inf:
            raise RequestError(
                "No token is left to continue the text: all are excluded.",
                "Change the grammar, the logit bias or the banned texts.",
            )
        return row

    def _recent(self, tokens: Sequence[int]) -> Sequence[int]:
        """The last tokens, those that penalties count: `penalty_window` of them, all if negative."""
        window = self.sampling.penalty_window
        return tokens if window < 0 else tokens[max(len(tokens) - window, 0) :]

    def _temperature(self, candidates: Candidates) -> float:
        sampling = self.sampling
        if not sampling.temperature_range:
            return sampling.temperature
        span, exponent = sampling.temperature_range, sampling.temperature_exponent
        return dynamic_temperature(candidates, sampling.temperature, span, exponent)


def _best(row: Floats) -> int:
    """The most likely token of logits [V], the lowest id of a tie."""
    best = int(row.argmax())  # argmax takes NaN for the largest
    if not math.isfinite(row[best]):
        raise ModelFileError(
            "The model computed values that are not numbers.",
            "Its file is probably damaged; download it again.",
        )
    return best


def _never(sampling: Sampling, tokenizer: Tokenizer | None) -> frozenset[int]:
    """The tokens that are never drawn."""
    if tokenizer is None:
        return frozenset()
    ends = tokenizer.end_tokens if sampling.ignore_end else frozenset[int]()
    return tokenizer.suppressed | ends


def _filters(sampling: Sampling) -> list[Filter]:
    """The filters behind top-k that are switched on, in order."""
    filters: list[Filter] = []  # those of top-k are the ones that `shortlist` returns
    if sampling.typical_p < 1:
        filters.append(partial(typical, p=sampling.typical_p))
    if sampling.top_p < 1:
        filters.append(partial(top_p, p=sampling.top_p))
    if sampling.min_p > 0:
        filters.append(partial(min_p, p=sampling.min_p))
    return filters
