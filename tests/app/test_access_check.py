"""The real app on a screen reader's bus: it quits without a crash, and everything in it is named."""

from __future__ import annotations

import pytest

from access_check import check, missing

QUITS = 20


@pytest.mark.slow
def test_with_a_screen_reader_each_quit_is_clean_and_each_control_is_described() -> None:
    lacking = missing()
    if lacking:
        pytest.skip(f"not on this machine: {', '.join(lacking)}")
    statuses, found = check(QUITS)
    assert statuses == [0] * QUITS
    assert found["problems"] == []
    assert found["controls"] > 200
