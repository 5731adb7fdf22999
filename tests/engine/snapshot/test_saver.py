"""Saver: one event per save, after the cache lease is released."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest
import torch

from engine import Failed, SnapshotSaved
from engine.errors import SnapshotError
from engine.messages import Event
from engine.snapshot.capture import Snapshot
from engine.snapshot.saver import Saver
from engine.snapshot.store import Snapshots
from engine.state.kv_cache import Cache
from kv_writing import write

TIMEOUT_SECONDS = 60  # for an event, on a busy machine
MODEL = "0" * 64


class Panic(BaseException):
    """Like the exception of a panic in a Rust library: not an `Exception`."""


def captured() -> Snapshot:
    cache = Cache(2, kv_heads=2, head_width=16, context=64)
    for layer in range(2):
        write(cache, layer, torch.ones(3, 2, 16), torch.ones(3, 2, 16))
    cache.advance(3)
    return Snapshot(
        {"conversation": "talk", "stack": "", "cache": "f32", "tokens": "3"},
        cache.layout(3),
        cache.lease(),
        {"tokens": torch.tensor([1, 2, 3], dtype=torch.int32)},
    )


@pytest.mark.parametrize("fails", [False, True])
def test_cache_lease_is_released_before_the_event(tmp_path: Path, fails: bool) -> None:
    begun = threading.Event()

    def identify() -> str:
        assert begun.wait(TIMEOUT_SECONDS)
        if fails:
            raise SnapshotError("The model's file has changed.", "Load the model again.")
        return MODEL

    events: queue.Queue[tuple[Event, bool]] = queue.Queue()
    session = captured()
    lease = session.cache
    saver = Saver(lambda event: events.put((event, lease.released and not lease.pending())))
    saver.save(
        1,
        session,
        Snapshots(tmp_path),
        identify=identify,
        budget_bytes=1 << 30,
        saved=lambda path: None,
    )
    assert not lease.released
    begun.set()
    event, released = events.get(timeout=TIMEOUT_SECONDS)
    saver.wait()
    assert isinstance(event, Failed if fails else SnapshotSaved)
    assert released


def test_panic_while_saving_is_reported_and_the_next_save_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def panic() -> str:
        raise Panic("index out of bounds")

    events: queue.Queue[Event] = queue.Queue()
    saver = Saver(events.put)
    for request, identify in ((1, panic), (2, lambda: MODEL)):
        saver.wait()
        saver.save(
            request,
            captured(),
            Snapshots(tmp_path),
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
