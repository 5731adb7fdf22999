"""Saver: one event per save, after the pages are released."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from engine import Failed, SnapshotSaved
from engine.errors import SnapshotError
from engine.messages import Event
from engine.state.disk.page_file import StateKey
from engine.state.disk.saver import Capture, Saver
from engine.state.disk.store import PageStore
from saved_pages import KEY, MemoryPage, memory_pages, restored

TIMEOUT_SECONDS = 60  # for an event, on a busy machine
TOKENS = range(600)


class Panic(BaseException):
    """Like the exception of a panic in a Rust library: not an `Exception`."""


def captured() -> tuple[Capture, list[MemoryPage]]:
    pages = memory_pages(TOKENS)
    return Capture("talk", {"model": "Tiny"}, TOKENS, pages, {"random": "00"}), pages


@pytest.mark.parametrize("fails", [False, True])
def test_pages_are_released_before_the_event(tmp_path: Path, fails: bool) -> None:
    begun = threading.Event()

    def identify() -> StateKey:
        assert begun.wait(TIMEOUT_SECONDS)
        if fails:
            raise SnapshotError("The model's file has changed.", "Load the model again.")
        return KEY

    events: queue.Queue[tuple[Event, bool]] = queue.Queue()
    capture, pages = captured()
    saver = Saver()

    def deliver(event: Event) -> None:
        events.put((event, all(page.released for page in pages)))

    store, paths = PageStore(tmp_path), list[Path]()
    saver.save(
        1, deliver, capture, store, identify=identify, budget_bytes=1 << 30, saved=paths.append
    )
    assert not any(page.released for page in pages)
    begun.set()
    event, released = events.get(timeout=TIMEOUT_SECONDS)
    saver.wait()
    assert released
    if fails:
        assert event == Failed(1, "The model's file has changed.", "Load the model again.",
                               fault=SnapshotError("").fault)  # fmt: skip
        assert paths == []
        return
    assert isinstance(event, SnapshotSaved)
    (saved,) = store.sequences()
    assert paths == [saved.path]
    assert (event.tokens, event.size_bytes, event.evicted) == (600, saved.size_bytes, 0)
    assert saved.resume == {"random": "00"}
    assert restored(store, saved) == 600


def test_panic_while_saving_is_reported_and_the_next_save_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def panic() -> StateKey:
        raise Panic("index out of bounds")

    events: queue.Queue[Event] = queue.Queue()
    saver, store = Saver(), PageStore(tmp_path)
    for request, identify in ((1, panic), (2, lambda: KEY)):
        saver.wait()
        saver.save(
            request,
            events.put,
            captured()[0],
            store,
            identify=identify,
            budget_bytes=1 << 30,
            saved=lambda path: None,
        )
    saver.wait()
    first, second = events.get(timeout=TIMEOUT_SECONDS), events.get(timeout=TIMEOUT_SECONDS)
    assert isinstance(first, Failed)
    assert "index out of bounds" in first.message
    assert first.remedy
    assert isinstance(second, SnapshotSaved)
    assert "index out of bounds" in caplog.text
    assert len(store.sequences()) == 1


def test_disk_error_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    events: queue.Queue[Event] = queue.Queue()
    saver = Saver()
    saver.save(
        1,
        events.put,
        captured()[0],
        PageStore(tmp_path / "file"),
        identify=lambda: KEY,
        budget_bytes=1 << 30,
        saved=lambda path: None,
    )
    saver.wait()
    event = events.get(timeout=TIMEOUT_SECONDS)
    assert isinstance(event, Failed)
    assert event.message.startswith("The conversation's cached context could not be saved:")
