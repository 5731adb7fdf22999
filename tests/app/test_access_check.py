"""The real app with a screen reader and real keys: every control is reached and has a name."""

from __future__ import annotations

import pytest

from access_check import check, missing

QUITS = 20


@pytest.mark.slow
def test_app_quits_cleanly_and_names_every_control_with_a_screen_reader() -> None:
    lacking = missing()
    if lacking:
        pytest.skip(f"not on this machine: {', '.join(lacking)}")
    statuses, found = check(QUITS)
    assert statuses == [0] * QUITS
    assert found["problems"] == []
    assert found["controls"] > 1000
    assert found["stops"] > 200  # reached with Tab
    assert "level 3" in found["heard"]["a chat in that folder"]
