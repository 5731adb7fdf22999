"""Performance: collects the figures of the last answers, and reads the engine's metrics."""

from __future__ import annotations

import time

from app.domain.answer_details import AnswerRecord
from app.engines.requests import RequestRouter
from app.state.chat import State
from app.state.performance import (
    MOST_ANSWERS,
    AnswerFigures,
    PerformanceState,
    tokens_per_second,
)
from app.store.store import Store
from app.store.writer import StoreQueue
from engine import Failed, Finished, Metrics, MetricsRead


class Performance:
    """Fills the performance state.

    Answers of earlier runs and the engine's metrics are read when the page asks for them.
    """

    def __init__(
        self,
        state: State,
        performance: PerformanceState,
        store_queue: StoreQueue,
        router: RequestRouter,
    ) -> None:
        self._state, self._performance = state, performance
        self._store_queue, self._engine = store_queue, router
        self._request = 0  # that reads the metrics; 0: none
        self._began = time.time()  # of this run
        self._has_earlier = False  # answers of earlier runs were read, or are being read

    def refresh(self) -> None:
        """Read the answers of earlier runs, once, and the metrics, unless that is under way."""
        if not self._has_earlier:
            self._has_earlier = True
            self._store_queue.read(self._earlier, self._performance.set_earlier)
        if not self._request and self._engine.capabilities.metrics:
            self._request = self._engine.send(Metrics())

    def on_finished(self, event: Finished) -> None:
        """An answer has ended; one without text is left out."""
        if event.generated_tokens < 1:
            return
        loaded = self._state.model.loaded
        self._performance.add(
            AnswerFigures(
                model=loaded.name if loaded else "",
                generated_tokens=event.generated_tokens,
                tokens_per_second=tokens_per_second(event.generated_tokens, event.decode_seconds),
                first_token_seconds=event.first_token_seconds,
                token_seconds_p50=event.token_seconds_p50,
                token_seconds_p95=event.token_seconds_p95,
                prompt_tokens=event.prompt_tokens,
                reused_tokens=event.reused_tokens,
                draft_gain=event.draft_gain,
                drafted_tokens=event.drafted_tokens,
                accepted_tokens=event.accepted_tokens,
            )
        )

    def on_metrics(self, event: MetricsRead) -> None:
        """The metrics were read."""
        self._request = 0
        self._performance.set_metrics(event)

    def on_failed(self, event: Failed) -> bool:
        """The metrics could not be read; False for other requests."""
        if event.request != self._request:
            return False
        self._request = 0
        return True

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
