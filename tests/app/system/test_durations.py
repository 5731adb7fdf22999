"""Durations are rounded, the longer the more."""

from __future__ import annotations

import pytest

from app.system.durations import rough_time, time_left

MINUTE, HOUR = 60, 3600


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "1 s"),
        (89, "89 s"),
        (90, "2 min"),
        (119 * MINUTE, "119 min"),
        (2 * HOUR, "2 h 0 min"),
        (2 * HOUR + 5 * MINUTE, "2 h 5 min"),
    ],
)
def test_an_estimated_time(seconds: float, text: str) -> None:
    assert rough_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (-1, ""),
        (0, "5 s left"),
        (12, "10 s left"),
        (50, "1 min left"),
        (59 * MINUTE, "59 min left"),
        (HOUR, "1 h 0 min left"),
        (24 * HOUR - MINUTE, "23 h 59 min left"),
        (24 * HOUR, "more than a day left"),
    ],
)
def test_the_time_left(seconds: float | None, text: str) -> None:
    assert time_left(seconds) == text
