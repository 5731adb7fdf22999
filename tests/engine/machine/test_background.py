"""BackgroundTask: results, exceptions and cancellation."""

from __future__ import annotations

import threading

import pytest

from engine import Cancelled
from engine.machine.background import Abandoned, BackgroundTask, NoStack


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


def test_abandoned_work_ends() -> None:
    began = threading.Event()

    def endless() -> None:
        began.set()
        while True:
            pass

    work = BackgroundTask(endless, "endless")
    assert began.wait(60)
    work.abandon()
    work.wait()
    assert isinstance(work.failed, Abandoned)
    work.abandon()  # nothing happens to it any more


@pytest.mark.parametrize("fault", [ValueError("size not valid"), RuntimeError("no thread")])
def test_a_system_without_such_a_stack(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some take sizes of whole pages only; others have no room for it under a limit of memory."""
    before = threading.stack_size()

    def refuse(*_: object) -> int:
        raise fault

    name = "stack_size" if isinstance(fault, ValueError) else "Thread.start"
    with monkeypatch.context() as patch:
        patch.setattr(f"threading.{name}", refuse)
        with pytest.raises(NoStack):
            BackgroundTask(lambda: 1, "large", 1 << 20)
    assert threading.stack_size() == before
    assert BackgroundTask(lambda: 1, "small", 1 << 20).result() == 1
