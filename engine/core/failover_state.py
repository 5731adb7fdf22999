"""FailoverState: the requests of a scheduler whose device failed, which another one continues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.adapters.stack import Stack
from engine.core.metrics import Metrics
from engine.core.request import SamplerState, SequenceGroup
from engine.core.sequence import RunningSequence
from engine.errors import OutOfMemory
from engine.state.sequence import Sequence as CachedSequence

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FailoverState:
    """Requests and what is known of them, without pages."""

    items: Sequence[SequenceGroup | RunningSequence]  # those that ran first
    metrics: Metrics
    interrupted: dict[tuple[str, tuple[int, ...]], SamplerState]

    def left(self) -> FailoverState:
        """The same, once pages and drafts on the device are given up."""
        for item in self.items:
            item.request.drafter = None  # which has a draft model, perhaps there too
            if isinstance(item, RunningSequence):
                item.leave_device()
        return self

    def move(
        self,
        item: SequenceGroup | RunningSequence,
        sequence: CachedSequence,
        moved: Callable[[Stack], Stack],
    ) -> None:
        """Prepare an item to begin again with an empty sequence; raises EngineError if it cannot."""
        request = item.request
        request.stack = moved(request.stack)
        length = len(request.prompt)
        if isinstance(item, RunningSequence):
            item.restart(sequence)
            length = len(item.text)
        if length >= sequence.context:
            raise OutOfMemory(
                "The text is longer than the context that fits in the processor's memory.",
                "Close other programs and load the model again.",
            )

    def fail(self, error: BaseException) -> None:
        """End every request with an error."""
        for item in self.items:
            item.group.fail(error)


def without_frames(fault: BaseException) -> BaseException:
    """A fault of a device without its frames, whose tensors would stay in memory; it is logged."""
    log.warning("a device failed", exc_info=fault)
    fault.__context__ = fault.__cause__ = None
    return fault.with_traceback(None)
