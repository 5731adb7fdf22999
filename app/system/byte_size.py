"""Formats sizes in bytes with decimal units."""

from __future__ import annotations


def size(size_bytes: float) -> str:
    """Format a size: `98 MB`, `4.1 GB`; zero and negative sizes are `0 MB`."""
    if size_bytes <= 0:
        return "0 MB"
    if size_bytes >= 999.5e6:
        return f"{size_bytes / 1e9:.1f} GB"
    if size_bytes >= 999_500:
        return f"{round(size_bytes / 1e6)} MB"
    return f"{max(1, round(size_bytes / 1e3))} kB"
