"""Performance: keeps the figures of the last answers, and reads the engine's metrics."""

from __future__ import annotations

from app.engines.requests import EngineRequests
from app.state.chat import State
from app.state.performance import AnswerFigures, PerformanceState
from engine import Failed, Finished, MetricsRead, ReadMetrics


class Performance:
    """Fills the performance state; metrics are read when the page asks for them."""

    def __init__(self, state: State, performance: PerformanceState, link: EngineRequests) -> None:
        self._state, self._performance, self._link = state, performance, link
        self._request = 0  # that reads the metrics; 0: none

    def refresh(self) -> None:
        """Read the engine's metrics, unless that is under way."""
        if not self._request:
            self._request = self._link.send(ReadMetrics)

    def on_finished(self, event: Finished) -> None:
        """An answer has ended; one without text is left out."""
        if event.generated_tokens < 1:
            return
        loaded, tokens = self._state.model.loaded, event.generated_tokens
        timed = event.decode_seconds > 0 and tokens > 1
        self._performance.add(
            AnswerFigures(
                model=loaded.name if loaded else "",
                generated_tokens=tokens,
                tokens_per_second=tokens / event.decode_seconds if timed else 0.0,
                first_token_seconds=event.first_token_seconds,
                token_seconds_p50=event.token_seconds_p50,
                token_seconds_p95=event.token_seconds_p95,
                prompt_tokens=event.prompt_tokens,
                reused_tokens=event.reused_tokens,
                draft_gain=event.draft_gain,
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
