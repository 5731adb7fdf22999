"""The drafters that a request may name."""

from __future__ import annotations

from collections.abc import Callable

from engine.inference.speculative.drafter import Drafter
from engine.inference.speculative.lookup import LookupDrafter
from engine.messages import DraftKind

DRAFTERS: dict[DraftKind, Callable[[], Drafter] | None] = {
    DraftKind.NONE: None,
    DraftKind.LOOKUP: LookupDrafter,
}
