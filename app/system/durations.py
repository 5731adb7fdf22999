"""Formats durations, rounded, in the user's language."""

from __future__ import annotations

from app.system.translation import number, tr


def rough_time(seconds: float) -> str:
    """An estimated time: `12 s`, `3 min`, `2 h 5 min`."""
    if seconds < 90:
        return tr("{count} s", count=number(max(1, round(seconds))))
    minutes = round(seconds / 60)
    if minutes < 120:
        return tr("{count} min", count=number(minutes))
    hours, rest = divmod(minutes, 60)
    return tr("{hours} h {minutes} min", hours=number(hours), minutes=number(rest))


def time_left(seconds: float | None) -> str:
    """`3 min left`; rounded coarsely, so that it does not change with every measurement."""
    if seconds is None or seconds < 0:
        return ""
    if seconds < 50:
        return tr("{seconds} s left", seconds=max(5, 5 * round(seconds / 5)))
    minutes = round(seconds / 60)
    if minutes < 60:
        return tr("{minutes} min left", minutes=max(1, minutes))
    hours, rest = divmod(minutes, 60)
    if hours < 24:
        return tr("{hours} h {minutes} min left", hours=hours, minutes=rest)
    return tr("more than a day left")
