"""Memory a model needs, in words: whether it fits, and the exact figures."""

from __future__ import annotations

from enum import Enum

from app.state.library import Memory
from app.system.byte_size import size
from app.system.translation import tr
from app.ui.widgets.units import number

_TIGHT_SHARE = 0.75  # share of available memory above which other programs may be swapped out
_MAX_SHARE = 0.9  # share of available memory that the engine may use at most


class Fit(Enum):
    """Whether a model fits in memory."""

    FITS = "fits"
    TIGHT = "tight"
    TOO_LARGE = "too large"


def fit_of(memory: Memory) -> Fit:
    """Whether a model that is not loaded would fit in memory."""
    share = memory.needed_bytes / max(memory.available_bytes, 1)
    return (
        Fit.FITS if share <= _TIGHT_SHARE else Fit.TIGHT if share <= _MAX_SHARE else Fit.TOO_LARGE
    )


def fit_words(fit: Fit) -> str:
    """The label under the memory bar."""
    match fit:
        case Fit.FITS:
            return tr("fits in memory")
        case Fit.TIGHT:
            return tr("just fits in memory")
        case Fit.TOO_LARGE:
            return tr("too large for this computer")


def memory_words(memory: Memory) -> str:
    """The label over the memory bar: needed of available."""
    needed, available = size(memory.needed_bytes), size(memory.available_bytes)
    if memory.at_least:
        return tr("at least {needed} of {available}", needed=needed, available=available)
    return tr("{needed} of {available}", needed=needed, available=available)


def memory_tip(memory: Memory) -> str:
    """The exact figures, for the tooltip."""
    needed, context = number(memory.needed_bytes), number(memory.context)
    if memory.at_least:
        total = tr("Needs at least {amount} bytes", amount=needed)
    elif memory.context:
        total = tr(
            "Needs {amount} bytes with a context of {context} tokens",
            amount=needed,
            context=context,
        )
    else:
        total = tr("Needs {amount} bytes", amount=needed)
    weights, cache, scratch = memory.weights_bytes, memory.cache_bytes, memory.scratch_bytes
    available = number(memory.available_bytes)
    lines = [
        total,
        tr("Model: {amount}", amount=number(weights)) if weights else "",
        tr("Context memory: {amount}", amount=number(cache)) if cache else "",
        tr("Working memory: {amount}", amount=number(scratch)) if scratch else "",
        tr("Available now: {amount} bytes", amount=available),
    ]
    return "\n".join(line for line in lines if line)
