"""Performance: collects the figures of the last answers, and reads the engine's metrics."""

from __future__ import annotations

import time
from collections.abc import Callable

from app.domain.answer_details import AnswerRecord
from app.domain.deltas import AnswerUsage
from app.engines.client import EngineClient
from app.engines.run import RequestFailed, start
from app.state.chat import State
from app.state.performance import (
    MOST_ANSWERS,
    AnswerFigures,
    PerformanceState,
    tokens_per_second,
)
from app.store.store import Store
from app.store.writer import StoreQueue
from engine import Metrics, MetricsRead


class Performance:
    """Fills the performance state.

    Answers of earlier runs and the engine's metrics are read when the page asks for them.
    """

    def __init__(
        self,
        state: State,
        performance: PerformanceState,
        store_queue: StoreQueue,
        engine: EngineClient,
        report: Callable[[Exception], None],
    ) -> None:
        """`report` is called with an unexpected exception."""
        self._state, self._performance, self._report = state, performance, report
        self._store_queue, self._engine = store_queue, engine
        self._reading = False  # the metrics are being read
        self._began = time.time()  # of this run
        self._has_earlier = False  # answers of earlier runs were read, or are being read

    def refresh(self) -> None:
        """Read the answers of earlier runs, once, and the metrics, unless that is under way."""
        if not self._has_earlier:
            self._has_earlier = True
            self._store_queue.read(self._earlier, self._performance.set_earlier)
        if not self._reading and self._engine.capabilities.metrics:
            self._reading = True
            start(self._read_metrics(), self._on_fault)

    def on_answered(self, used: AnswerUsage, model: str) -> None:
        """An answer of a model has ended; one without text is left out."""
        if used.generated_tokens < 1:
            return
        self._performance.add(
            AnswerFigures(
                model=model,
                generated_tokens=used.generated_tokens,
                tokens_per_second=tokens_per_second(used.generated_tokens, used.decode_seconds),
                first_token_seconds=used.first_token_seconds,
                token_seconds_p50=used.token_seconds_p50,
                token_seconds_p95=used.token_seconds_p95,
                prompt_tokens=used.prompt_tokens,
                reused_tokens=used.cached_tokens,
                draft_gain=used.draft_gain,
                drafted_tokens=used.drafted_tokens,
                accepted_tokens=used.accepted_tokens,
            )
        )

    async def _read_metrics(self) -> None:
        try:
            read = await self._engine.submit(Metrics()).result(MetricsRead)
        except RequestFailed:
            self._reading = False
            return
        self._reading = False
        self._performance.set_metrics(read)

    def _on_fault(self, error: Exception) -> None:
        self._reading = False
        self._report(error)

    def _earlier(self, store: Store) -> list[AnswerFigures]:
        """Answers of earlier runs: those of this run are known, though they may be stored too."""
        found = store.last_answers(MOST_ANSWERS)
        return [_figures(one) for one in found if 0 < one.details.ended < self._began]


def _figures(record: AnswerRecord) -> AnswerFigures:
    made = record.details
    return AnswerFigures(
        model=made.model,
        generated_tokens=record.generated_tokens,
        tokens_per_second=tokens_per_second(record.generated_tokens, made.decode_seconds),
        first_token_seconds=made.first_token_seconds,
        token_seconds_p50=made.token_seconds_p50,
        token_seconds_p95=made.token_seconds_p95,
        prompt_tokens=record.prompt_tokens,
        reused_tokens=made.reused_tokens,
        draft_gain=made.draft_gain,
        drafted_tokens=made.drafted_tokens,
        accepted_tokens=made.accepted_tokens,
    )
