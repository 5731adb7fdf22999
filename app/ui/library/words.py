"""Memory a model needs, in words: whether it fits, and the exact figures."""

from __future__ import annotations

from enum import Enum

from app.state.library import Memory
from app.system.byte_size import size
from app.ui.widgets.units import number

_TIGHT = 0.75  # of the memory there is; above this other programs feel it
_MOST = 0.9  # what the engine may fill at most


class Fit(Enum):
    """How a model fits in memory; the value is what a person reads."""

    FITS = "fits in memory"
    TIGHT = "tight"
    TOO_LARGE = "too large for this machine"


def fit_of(memory: Memory) -> Fit:
    """How a model fits that is not loaded."""
    share = memory.needed_bytes / max(memory.available_bytes, 1)
    return Fit.FITS if share <= _TIGHT else Fit.TIGHT if share <= _MOST else Fit.TOO_LARGE


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
