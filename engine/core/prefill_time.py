"""Prefill time estimate: a linear model of the work in a prompt, fitted to measured prefills.

Time grows faster than the prompt: attention costs more per token the more tokens precede it. The
model is a sum of four costs: per prompt (the output head), per chunk, per token (linear layers),
and per token attended to. The costs come from a short calibration of one layer; measured prefills
then correct them, so that other load on the machine and slower memory are accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from statistics import median

import numpy as np

_MAX_RUNS = 48  # measured prefills kept: the last dozen prompts
_PARTS_OF_PROMPT = 4  # a prompt of many chunks counts as at most so many prefills
MIN_TOKENS = 16  # shorter prefills are mostly noise, and too fast to announce
_PRIOR_WEIGHT = 0.5  # of the calibration, in measured prefills
_OUTLIER = 0.15  # relative error from which a prefill weighs less
_MAX_CORRECTION = 4.0  # of one cost, beside the common factor


@dataclass(frozen=True, slots=True)
class PrefillWork:
    """What a prefill has to compute, in the units that `PrefillCosts` has a time for."""

    prompts: float
    chunks: float
    tokens: float
    attended: float  # pairs of a token and one before it, averaged over the layers

    def __add__(self, other: PrefillWork) -> PrefillWork:
        pairs = zip(astuple(self), astuple(other), strict=True)
        return PrefillWork(*(a + b for a, b in pairs))


@dataclass(frozen=True, slots=True)
class PrefillCosts:
    """Seconds per unit of `PrefillWork`."""

    prompt: float
    chunk: float
    token: float
    attended: float

    def seconds(self, work: PrefillWork) -> float:
        """Duration of this work."""
        return sum(a * b for a, b in zip(astuple(self), astuple(work), strict=True))


@dataclass(frozen=True, slots=True)
class MeasuredPrefill:
    """Work done and the time it took."""

    work: PrefillWork
    seconds: float


@dataclass(frozen=True, slots=True)
class PrefillShape:
    """The sizes of a model that determine the work of a prompt."""

    chunk: int  # tokens processed at once
    windows: tuple[int, ...]  # of each layer, in tokens; 0: unlimited

    def work(self, start: int, end: int, *, complete: bool = True) -> PrefillWork:
        """The work of processing positions `start` to `end`; `complete`: up to the first logits."""
        attended = sum(_attended(start, end, window) for window in self.windows)
        return PrefillWork(
            float(complete),
            float(-(-(end - start) // self.chunk)),
            float(end - start),
            attended / max(len(self.windows), 1),
        )


class PrefillTimes:
    """Running estimate for one model: calibrated costs, corrected by the last measured prefills."""

    def __init__(
        self, costs: PrefillCosts | None = None, runs: Iterable[MeasuredPrefill] = ()
    ) -> None:
        """`costs` None: not calibrated yet; `runs` may have been measured before."""
        self.costs = costs
        self.runs = [*runs][-_MAX_RUNS:]

    def add(self, runs: Sequence[MeasuredPrefill]) -> bool:
        """Add the prefills of one prompt, chunk by chunk; False if all are too short."""
        size = -(-len(runs) // _PARTS_OF_PROMPT) or 1
        groups = (_sum(runs[at : at + size]) for at in range(0, len(runs), size))
        kept = [run for run in groups if run.work.tokens >= MIN_TOKENS and run.seconds > 0]
        self.runs = [*self.runs, *kept][-_MAX_RUNS:]
        return bool(kept)

    def seconds(self, work: PrefillWork) -> float:
        """Estimated duration of this work; 0 before a calibration."""
        return 0.0 if self.costs is None else fitted(self.costs, self.runs).seconds(work)


def fitted(prior: PrefillCosts, runs: Sequence[MeasuredPrefill]) -> PrefillCosts:
    """The costs that explain `runs`, near `prior` times a common factor where they tell nothing.

    Least squares of the relative error, in which outliers weigh less. Costs stay positive.
    """
    if not runs:
        return prior
    costs = np.array(astuple(prior))
    # [runs, costs]: the share of the measured time that the prior gives to each cost.
    shares = np.array([np.array(astuple(run.work)) * costs / run.seconds for run in runs])
    common = 1 / max(median(shares.sum(1).tolist()), 1e-9)
    factors = np.full(len(costs), common)
    for _ in range(8):
        error = np.abs(shares @ factors - 1)
        weights = np.sqrt(np.minimum(1.0, _OUTLIER / np.maximum(error, 1e-9)))
        ridge = np.eye(len(costs)) * np.sqrt(_PRIOR_WEIGHT) / common
        left = np.vstack([shares * weights[:, None], ridge])
        right = np.concatenate([weights, ridge.sum(1) * common])
        factors = np.linalg.lstsq(left, right, rcond=None)[0]
        factors = factors.clip(common / _MAX_CORRECTION, common * _MAX_CORRECTION)
    return PrefillCosts(*(costs * factors).tolist())


def _attended(start: int, end: int, window: int) -> float:
    """The sum over positions of the tokens each attends to: itself and those before it."""
    full = min(end, max(window, start)) if window else end  # from here on the window is full
    return (full - start) * (start + 1 + full) / 2 + (end - full) * window


def _sum(runs: Sequence[MeasuredPrefill]) -> MeasuredPrefill:
    first, *others = runs
    work, seconds = first.work, first.seconds
    for run in others:
        work, seconds = work + run.work, seconds + run.seconds
    return MeasuredPrefill(work, seconds)
