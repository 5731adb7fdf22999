"""The thread of tools and the GUI thread: what one tells or answers the other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from app.chat.tools.thread import ToolThread
from stage import until

pytestmark = pytest.mark.usefixtures("qapp")


@pytest.fixture
def errors() -> list[Exception]:
    return []


@pytest.fixture
def thread(errors: list[Exception]) -> Iterator[ToolThread]:
    made = ToolThread(errors.append)
    yield made
    made.stop()
    made.deleteLater()


def test_what_raises_is_reported_and_what_was_told_with_it_is_called(
    thread: ToolThread, errors: list[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    told: list[int] = []

    def fail() -> None:
        raise ValueError

    thread.tell(fail)
    thread.tell(lambda: told.append(1))
    until(lambda: bool(told))
    assert [type(each) for each in errors] == [ValueError]
    assert caplog.records


def test_an_answer_that_comes_after_the_end_is_dropped(thread: ToolThread) -> None:
    answers: list[Callable[[int], None]] = []
    thread.start(thread.ask(answers.append))
    until(lambda: bool(answers))
    thread.stop()
    answers[0](1)


def test_nothing_begins_after_the_end(thread: ToolThread) -> None:
    thread.stop()
    work = thread.start(asyncio.sleep(0))
    assert [type(each) for each in work.came._came] == [asyncio.CancelledError]
    assert not any(each.name == "tools" for each in threading.enumerate())


def test_what_is_cancelled_is_so_for_whoever_waits(thread: ToolThread) -> None:
    work = thread.start(asyncio.sleep(600))
    work.cancel()
    found: list[BaseException] = []

    async def wait() -> None:
        try:
            await work.result()
        except asyncio.CancelledError as error:
            found.append(error)

    coroutine = wait()
    until(lambda: bool(work.came._came))
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert found
