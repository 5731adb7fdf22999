"""Formats sizes in bytes with decimal units, in the user's language."""

from __future__ import annotations

from app.system.translation import number, tr


def size(size_bytes: float) -> str:
    """Format a size: `98 MB`, `4.1 GB`; zero and negative sizes are `0 MB`."""
    if size_bytes <= 0:
        return tr("{amount} MB", amount=0)
    if size_bytes >= 999.5e6:
        return tr("{amount} GB", amount=number(size_bytes / 1e9, 1))
    if size_bytes >= 999_500:
        return tr("{amount} MB", amount=round(size_bytes / 1e6))
    return tr("{amount} kB", amount=max(1, round(size_bytes / 1e3)))
