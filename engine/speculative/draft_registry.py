"""The drafters that a request may name."""

from __future__ import annotations

from collections.abc import Callable

from engine.messages import DraftKind
from engine.sampling import Sampler
from engine.speculative.draft_model import DraftModel
from engine.speculative.drafter import Drafter
from engine.speculative.lookup import LookupDrafter


def maker(kind: DraftKind, model: DraftModel | None) -> Callable[[Sampler], Drafter] | None:
    """What makes the drafter of each answer; None: no drafts, also without the model for them."""
    match kind:
        case DraftKind.NONE:
            return None
        case DraftKind.LOOKUP:
            return lambda _: LookupDrafter()
        case DraftKind.MODEL:
            return None if model is None else model.drafter
