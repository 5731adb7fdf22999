"""The drafters that a request may name."""

from __future__ import annotations

from collections.abc import Callable

from engine.inference.sampling import Sampler
from engine.inference.speculative.draft_model import DraftModel
from engine.inference.speculative.drafter import Drafter
from engine.inference.speculative.lookup import LookupDrafter
from engine.messages import DraftKind


def maker(kind: DraftKind, model: DraftModel | None) -> Callable[[Sampler], Drafter] | None:
    """What makes the drafter of each answer; None: no drafts, also without the model for them."""
    match kind:
        case DraftKind.NONE:
            return None
        case DraftKind.LOOKUP:
            return lambda _: LookupDrafter()
        case DraftKind.MODEL:
            return None if model is None else model.drafter
