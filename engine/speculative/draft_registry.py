"""The drafters that a request may name."""

from __future__ import annotations

from collections.abc import Callable

from engine.core.runner import Runner
from engine.messages import DraftKind
from engine.sampling import Sampler
from engine.speculative.ahead import AheadWorker
from engine.speculative.draft_model import DraftModel
from engine.speculative.drafter import Drafter
from engine.speculative.lookup import LookupDrafter
from engine.speculative.vocabulary import VocabularyMap


class DraftRegistry:
    """A loaded draft model, which drafts in step with the target or ahead of it."""

    def __init__(
        self, new_runner: Callable[[], Runner], context: int, vocabulary: VocabularyMap
    ) -> None:
        """`new_runner` makes runners of the draft model, for texts of at most `context` tokens."""
        self._make = lambda: DraftModel(new_runner(), context, vocabulary)
        self._in_step: DraftModel | None = None
        self._ahead: AheadWorker | None = None

    @property
    def in_step(self) -> DraftModel:
        """Drafts on the engine thread, between the target's passes."""
        self._in_step = self._in_step or self._make()
        return self._in_step

    @property
    def ahead(self) -> AheadWorker:
        """Drafts on its own thread, during the target's passes."""
        self._ahead = self._ahead or AheadWorker(self._make())
        return self._ahead

    def close(self) -> None:
        """End the thread, if there is one; no answer uses the drafts any more."""
        if self._ahead is not None:
            self._ahead.close()


def maker(kind: DraftKind, drafts: DraftRegistry | None) -> Callable[[Sampler], Drafter] | None:
    """What makes the drafter of each answer; None: no drafts, also without the model for them."""
    match kind:
        case DraftKind.NONE:
            return None
        case DraftKind.LOOKUP:
            return lambda _: LookupDrafter()
        case DraftKind.MODEL:
            return None if drafts is None else drafts.in_step.drafter
        case DraftKind.AHEAD:
            return None if drafts is None else drafts.ahead.drafter
