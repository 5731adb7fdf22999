"""Prefill estimator of a loaded model: calibrates at first use, learns from every answer.

What it has learned is remembered per model file, threads, cache type, kernels and adapters, so that
the first estimate of the next start is right too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import astuple, replace

import torch

from engine.adapters.stack import Stack
from engine.core.prefill_calibration import calibrate, shape
from engine.core.prefill_time import (
    MIN_TOKENS,
    MeasuredPrefill,
    PrefillCosts,
    PrefillShape,
    PrefillTimes,
    PrefillWork,
)
from engine.core.runner import Runner
from engine.loading.identity import Stamp
from engine.loading.loader import LoadedModel
from engine.loading.measured import MeasuredFigures, key
from engine.loading.memory import NO_OFFLOADING

_KIND = "prefill"
_COLUMNS = 5  # the four amounts of `PrefillWork` or `PrefillCosts`, then seconds


class PrefillTimer:
    """Times the chunks of one prompt from its progress events."""

    def __init__(self, shape: PrefillShape) -> None:
        self._shape = shape
        self._done: int | None = None  # tokens at the last event; None: before the first one
        self._at = 0.0
        self.runs: list[MeasuredPrefill] = []

    def on_progress(self, done: int, total: int) -> None:
        """The prompt is processed up to `done` of `total` tokens now; the first call starts."""
        now = time.perf_counter()
        if self._done is not None and done > self._done:
            work = self._shape.work(self._done, done, complete=done == total)
            self.runs.append(MeasuredPrefill(work, now - self._at))
        self._done, self._at = done, now


class PrefillEstimator:
    """Estimates how long prompts take with one loaded model; used by the engine thread only."""

    def __init__(
        self,
        model: LoadedModel,
        runner: Runner,
        files: tuple[Stamp, ...],
        figures: MeasuredFigures,
    ) -> None:
        """`files` are the stamps of the model's files, taken before they were read."""
        self._model = model
        self._offloading = model.plan.offloading or NO_OFFLOADING
        self._shape = shape(runner)
        self._files = files
        self._figures = figures
        self._key = ""
        self._times = PrefillTimes()

    def seconds(self, stack: Stack, start: int, end: int, checkpoint: Callable[[], None]) -> float:
        """Estimated time to process positions `start` to `end`; 0 for a few tokens.

        The first estimate for a model takes some milliseconds, for a large one up to half a second.
        """
        if end - start < MIN_TOKENS:
            return 0.0
        times = self._times_for(stack)
        if times.costs is None:
            model = self._model
            costs = calibrate(model.decoder, model.cache, model.plan.context, stack, checkpoint)
            # The layer measured stays in memory; all that is offloaded is read for every chunk.
            times.costs = replace(costs, chunk=max(costs.chunk, self._offloading.chunk_seconds))
            self._store()
        return times.seconds(self._shape.work(start, end))

    def timer(self) -> PrefillTimer:
        """A timer of one prompt."""
        return PrefillTimer(self._shape)

    def learn(self, stack: Stack, timer: PrefillTimer) -> None:
        """Correct the estimates by a timed prompt, and remember it."""
        if self._times_for(stack).add(timer.runs):
            self._store()

    def _times_for(self, stack: Stack) -> PrefillTimes:
        """What is known for these adapters: they make every token slower."""
        adapters = sorted(adapter.sha256 for adapter, _ in stack.entries)
        model = self._model
        offloaded = (
            [len(self._offloading.layers), self._offloading.expert_slots]
            if self._offloading.layers
            else []
        )
        conditions = (
            torch.get_num_threads(),
            model.cache.value,
            model.backends,
            *offloaded,
            *adapters,
        )
        wanted = key(self._files, *conditions) if self._files else ""
        if wanted != self._key:
            self._key, self._times = wanted, self._read(wanted)
        return self._times

    def _read(self, wanted: str) -> PrefillTimes:
        rows = self._figures.read(_KIND, wanted, _COLUMNS) if wanted else []
        if not rows:
            return PrefillTimes()
        costs, *runs = rows  # costs of zero: measured prefills, and no calibration yet
        known = PrefillCosts(*costs[:4]) if any(costs) else None
        return PrefillTimes(known, (MeasuredPrefill(PrefillWork(*run[:4]), run[4]) for run in runs))

    def _store(self) -> None:
        if not self._key:
            return
        costs, runs = self._times.costs, self._times.runs
        rows = [[0.0] * _COLUMNS if costs is None else [*astuple(costs), 0.0]]
        rows += [[*astuple(run.work), run.seconds] for run in runs]
        self._figures.write(_KIND, self._key, rows)
