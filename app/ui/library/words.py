"""Facts of a model in words: the memory it needs, whether it fits, and the exact figures."""

from __future__ import annotations

from enum import Enum

from app.state.library import Memory
from app.system.byte_size import size
from app.system.translation import number, tr, trn
from app.ui.library.row_values import Meter
from app.ui.widgets.units import parameters

_TIGHT_SHARE = 0.75  # share of available memory above which other programs may be swapped out
_MAX_SHARE = 0.9  # share of available memory that the engine may use at most
DOTS = " · "  # between the facts of a row


class Fit(Enum):
    """Whether a model fits in memory."""

    FITS = "fits"
    TIGHT = "tight"
    FROM_DISK = "from disk"  # some layers do not fit, and are read for every token
    TOO_LARGE = "too large"


_UNDER = {
    Fit.FITS: "secondary",
    Fit.TIGHT: "warning",
    Fit.FROM_DISK: "warning",
    Fit.TOO_LARGE: "danger",
}


def fit_of(memory: Memory) -> Fit:
    """Whether a model that is not loaded would fit in memory."""
    if memory.offloaded_bytes:
        return Fit.FROM_DISK
    available = max(memory.available_bytes, 1)
    if memory.needed_bytes > _MAX_SHARE * available:
        return Fit.TOO_LARGE
    return Fit.FITS if memory.needed_bytes <= _TIGHT_SHARE * available else Fit.TIGHT


def fit_words(fit: Fit) -> str:
    """The label under the memory bar."""
    match fit:
        case Fit.FITS:
            return tr("fits in memory")
        case Fit.TIGHT:
            return tr("just fits in memory")
        case Fit.FROM_DISK:
            return tr("runs from the disk, slowly")
        case Fit.TOO_LARGE:
            return tr("too large for this computer")


def from_disk_words(seconds: float) -> str:
    """Why a model that does not fit is slow, and how slow if that is known: of a token."""
    if seconds <= 0:
        return tr("Does not fit in memory: it runs from the disk, slowly.")
    return tr(
        "Does not fit in memory: it runs from the disk and takes about {time} for each word.",
        time=tr("{count} s", count=number(float(f"{seconds:.2g}"))),
    )


def memory_words(memory: Memory) -> str:
    """The label over the memory bar: needed of available."""
    needed, available = size(memory.needed_bytes), size(memory.available_bytes)
    if memory.at_least:
        return tr("at least {needed} of {available} free", needed=needed, available=available)
    return tr("{needed} of {available} free", needed=needed, available=available)


def memory_parts(memory: Memory) -> str:
    """What the needed memory is made of; empty where that is not known."""
    if not memory.weights_bytes or not memory.context:
        return ""
    return tr(
        "{model} model, {cache} for {tokens} tokens, {work} working memory",
        model=size(memory.weights_bytes + memory.encoder_bytes),
        cache=size(memory.cache_bytes),
        tokens=number(memory.context),
        work=size(memory.scratch_bytes),
    )


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
    available, offloaded = number(memory.available_bytes), memory.offloaded_bytes
    pictures = memory.encoder_bytes
    lines = [
        memory_parts(memory),
        total,
        tr("Model: {amount}", amount=number(weights)) if weights else "",
        tr("Picture encoder: {amount}", amount=number(pictures)) if pictures else "",
        tr("Context memory: {amount}", amount=number(cache)) if cache else "",
        tr("Working memory: {amount}", amount=number(scratch)) if scratch else "",
        tr("Read for each token: {amount}", amount=number(offloaded)) if offloaded else "",
        tr("Available now: {amount} bytes", amount=available),
    ]
    return "\n".join(line for line in lines if line)


def predicted(memory: Memory | None) -> Meter | None:
    """The memory bar of a model that is not loaded."""
    if memory is None or memory.needed_bytes <= 0:
        return None
    fit = fit_of(memory)
    certain = fit is Fit.TOO_LARGE or not memory.at_least
    under = fit_words(fit) if certain else ""
    share = memory.needed_bytes / max(memory.available_bytes, 1)
    return Meter(share, memory_words(memory), memory_tip(memory), _UNDER[fit], under)


def bits_each(weights: int, size_bytes: int) -> str:
    """How exactly a file stores each parameter: fewer bits are smaller and less exact."""
    if not weights or not size_bytes:
        return ""
    return tr("{count} bits each", count=number(8 * size_bytes / weights, 1))


def exact_numbers(weights: int, context: int, size_bytes: int) -> list[str]:
    """Parameters, context and bytes of a model as tooltips give them; unknown ones are empty."""
    return [
        tr("{count} parameters", count=parameters(weights)) if weights else "",
        tr("context up to {count} tokens", count=number(context)) if context else "",
        tr("{count} bytes", count=number(size_bytes)) if size_bytes else "",
    ]


def add_pictures(known: int) -> str:
    """The words that offer a picture encoder of so many bytes, 0: unknown."""
    return tr("Add pictures, {size}", size=size(known) if known else tr("size unknown"))


def model_count(number_of: int) -> str:
    """`1 model`, `3 models`."""
    return trn("{count} model", "{count} models", number_of)


def joined(*parts: str) -> str:
    """The parts that are not empty, with dots between them."""
    return DOTS.join(part for part in parts if part)
