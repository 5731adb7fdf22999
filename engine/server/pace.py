"""Pace: the timings of an answer that goes on, for clients that show its speed while it comes."""

from __future__ import annotations

import time
from typing import Any

from engine.messages import FinishReason
from engine.server.options import timings
from engine.server.values import Begun, Delta, Done, Progress, Timings, Usage


class Pace:
    """Follows the deltas of a request's first answer."""

    def __init__(self, *, is_shown: bool) -> None:
        """`is_shown`: the client wants timings with every part of a stream."""
        self._is_shown = is_shown
        self._began = 0.0  # when the prompt was first read
        self._first = 0.0  # when the first token came; 0: none has
        self._usage = Usage()

    def push(self, delta: Delta) -> dict[str, Any]:
        """The field `timings` of the part that a delta becomes; {} where none is wanted."""
        if not self._is_shown or isinstance(delta, Progress | Done):  # these have their own
            return {}
        now = time.perf_counter()
        if isinstance(delta, Begun):
            self._began, self._usage = now, Usage(delta.prompt, delta.cached)
            return {}
        self._first = self._first or now
        usage = Usage(self._usage.prompt, self._usage.cached, delta.generated)
        times = Timings(self._first - self._began, now - self._first)
        return {"timings": timings(Done(0, FinishReason.LENGTH, usage, times))}
