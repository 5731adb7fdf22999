"""Formats sizes in bytes with decimal units, in the user's language."""

from __future__ import annotations

from app.system.translation import number, tr


def size(size_bytes: float) -> str:
    """Format a size: `98 MB`, `4.1 GB`; zero and negative sizes are `0 MB`."""
    amount, unit = _scaled(size_bytes)
    match unit:
        case "GB":
            return tr("{amount} GB", amount=amount)
        case "MB":
            return tr("{amount} MB", amount=amount)
        case _:
            return tr("{amount} kB", amount=amount)


def size_of(done_bytes: float, whole_bytes: float) -> str:
    """A part of a size: `1.2 of 2.5 GB`, or `800 MB of 2.5 GB` where the units differ."""
    (done, done_unit), (whole, unit) = _scaled(done_bytes), _scaled(whole_bytes)
    if done_unit != unit:
        return tr("{done} of {whole}", done=size(done_bytes), whole=size(whole_bytes))
    match unit:
        case "GB":
            return tr("{done} of {whole} GB", done=done, whole=whole)
        case "MB":
            return tr("{done} of {whole} MB", done=done, whole=whole)
        case _:
            return tr("{done} of {whole} kB", done=done, whole=whole)


def _scaled(size_bytes: float) -> tuple[str, str]:
    """The number and the unit of a size."""
    if size_bytes >= 999.5e6:
        return number(size_bytes / 1e9, 1), "GB"
    if size_bytes >= 999_500 or size_bytes <= 0:
        return number(round(max(size_bytes, 0) / 1e6)), "MB"
    return number(max(1, round(size_bytes / 1e3))), "kB"
