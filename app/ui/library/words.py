"""Memory a model needs, in words: whether it fits, and the exact figures."""

from __future__ import annotations

from enum import Enum

from app.state.library import Memory
from app.system.byte_size import size
from app.ui.widgets.units import number

_TIGHT_SHARE = 0.75  # share of available memory above which other programs may be swapped out
_MAX_SHARE = 0.9  # share of available memory that the engine may use at most


class Fit(Enum):
    """Whether a model fits in memory; the value is the text shown to the user."""

    FITS = "fits in memory"
    TIGHT = "tight"
    TOO_LARGE = "too large for this machine"


def fit_of(memory: Memory) -> Fit:
    """Whether a model that is not loaded would fit in memory."""
    share = memory.needed_bytes / max(memory.available_bytes, 1)
    return (
        Fit.FITS if share <= _TIGHT_SHARE else Fit.TIGHT if share <= _MAX_SHARE else Fit.TOO_LARGE
    )


def memory_words(memory: Memory) -> str:
    """The label over the memory bar: needed of available."""
    least = "at least " if memory.at_least else ""
    return f"{least}{size(memory.needed_bytes)} of {size(memory.available_bytes)}"


def memory_tip(memory: Memory) -> str:
    """The exact figures, for the tooltip."""
    kind = "At least" if memory.at_least else "Predicted:"
    lines = [f"{kind} {number(memory.needed_bytes)} bytes of memory"]
    if memory.context:
        lines[0] += f" with a context of {number(memory.context)} tokens"
    for name, value in (
        ("weights", memory.weights_bytes),
        ("cache", memory.cache_bytes),
        ("working memory", memory.scratch_bytes),
    ):
        if value:
            lines.append(f"{name}: {number(value)}")
    lines.append(f"This machine has {number(memory.available_bytes)} bytes for it now")
    return "\n".join(lines)
