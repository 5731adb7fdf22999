"""Sizes in bytes as the app writes them, in decimal units."""

from __future__ import annotations


def size(size_bytes: float) -> str:
    """Bytes as people say them: `98 MB`, `4.1 GB`; nothing or less is `0 MB`."""
    if size_bytes <= 0:
        return "0 MB"
    if size_bytes >= 999.5e6:
        return f"{size_bytes / 1e9:.1f} GB"
    if size_bytes >= 999_500:
        return f"{round(size_bytes / 1e6)} MB"
    return f"{max(1, round(size_bytes / 1e3))} kB"
