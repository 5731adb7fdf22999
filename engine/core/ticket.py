"""Ticket: a request that was submitted to the scheduler, with its events and how it ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.core.generate import Request
from engine.frontend.constraints.matcher import Matcher
from engine.messages import Finished, PromptProgress, Text, Thought


@dataclass(slots=True, eq=False)
class Ticket:
    """A submitted request: its events so far and how it ended."""

    request: Request
    matcher: Matcher | None = None  # of the constraint, where the prompt ends
    events: deque[PromptProgress | Text | Thought | Finished] = field(default_factory=deque)
    error: BaseException | None = None
    open_answers: int = 1  # answers without a final event
    tokens: list[int] = field(default_factory=list)  # prompt and answer that ended last
    answers: dict[int, list[int]] = field(default_factory=dict)  # generated ids, once ended
    was_alone: bool = True  # no other answer ran while the prompt was processed
    forked: bool = False  # the prompt is processed and all answers have begun

    @property
    def done(self) -> bool:
        """Whether the last event was added."""
        return self.error is not None or self.open_answers == 0
