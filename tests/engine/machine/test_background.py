"""BackgroundTask: results, exceptions and cancellation."""

from __future__ import annotations

import threading

import pytest

from engine import Cancelled
from engine.machine.background import BackgroundTask


def test_result_returns_the_value_of_the_work() -> None:
    assert BackgroundTask(lambda: 6 * 7, "answer").result() == 42


def test_result_raises_the_exception_of_the_work() -> None:
    def fail() -> None:
        raise ValueError("no")

    work = BackgroundTask(fail, "failing")
    with pytest.raises(ValueError, match="no"):
        work.result()
    assert isinstance(work.failed, ValueError)


def test_waiting_ends_when_the_checkpoint_raises() -> None:
    finish, calls = threading.Event(), []

    def checkpoint() -> None:
        calls.append(1)
        if len(calls) > 2:
            raise Cancelled

    work = BackgroundTask(lambda: finish.wait(60), "slow")
    with pytest.raises(Cancelled):
        work.result(checkpoint)
    finish.set()
    assert work.result() is True
