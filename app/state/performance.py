"""Observable state of performance: the figures of the last answers, and the engine's metrics.

Only `app.chat.requests.performance` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Signal

from app.state.observable import Observable, ReadOnly
from engine import MetricsRead

MOST_ANSWERS = 60  # that are kept
_LEAST_SECONDS = 0.02  # of an answer whose speed is measured


def tokens_per_second(tokens: int, seconds: float) -> float:
    """Speed of an answer that took so long after its first token; 0: too short to measure.

    The first token comes with the prompt. The tokens of one pass, such as those that a format leaves
    no choice about, take no time.
    """
    return (tokens - 1) / seconds if seconds >= _LEAST_SECONDS and tokens > 1 else 0.0


@dataclass(frozen=True, slots=True)
class AnswerFigures:
    """What one answer took."""

    model: str  # displayed name
    generated_tokens: int
    tokens_per_second: float  # 0: too short to measure
    first_token_seconds: float
    token_seconds_p50: float
    token_seconds_p95: float
    prompt_tokens: int
    reused_tokens: int  # of these, cached before
    draft_gain: float = 0.0  # 0: no drafts
    drafted_tokens: int = 0
    accepted_tokens: int = 0  # of these


class PerformanceState(Observable):
    """Observable; every signal is sent after the values have changed."""

    answers_changed = Signal()
    metrics_changed = Signal()

    answers = ReadOnly[tuple[AnswerFigures, ...]](())  # the last one last
    metrics = ReadOnly[MetricsRead | None](None)  # as read last; None: not yet

    def add(self, figures: AnswerFigures) -> None:
        """Add an answer that has ended."""
        self._answers = (*self.answers, figures)[-MOST_ANSWERS:]
        self.answers_changed.emit()

    def set_earlier(self, earlier: Sequence[AnswerFigures]) -> None:
        """Add answers of earlier runs before those of this one."""
        self._set(self.answers_changed, answers=(*earlier, *self.answers)[-MOST_ANSWERS:])

    def set_metrics(self, metrics: MetricsRead | None) -> None:
        """Set the engine's metrics."""
        self._set(self.metrics_changed, metrics=metrics)
