"""Work beside the engine's thread: awaited, given up, and its faults told."""

from __future__ import annotations

import threading

import pytest

from engine import Cancelled
from engine.host.background import BackgroundTask


def test_the_result_is_what_the_work_returns() -> None:
    assert BackgroundTask(lambda: 6 * 7, "answer").result() == 42


def test_a_fault_is_raised_where_the_result_is_asked_for() -> None:
    def fail() -> None:
        raise ValueError("no")

    work = BackgroundTask(fail, "failing")
    with pytest.raises(ValueError, match="no"):
        work.result()
    assert isinstance(work.failed, ValueError)


def test_waiting_ends_when_the_checkpoint_raises() -> None:
    go_on, looks = threading.Event(), []

    def checkpoint() -> None:
        looks.append(1)
        if len(looks) > 2:
            raise Cancelled

    work = BackgroundTask(lambda: go_on.wait(60), "slow")
    with pytest.raises(Cancelled):
        work.result(checkpoint)
    go_on.set()
    assert work.result() is True
