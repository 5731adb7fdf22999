"""Helpers for tests of a single file download: start it, interrupt it, expect its error."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.downloads.policy import DownloadError, Limits, Phase, Stopped
from app.downloads.transfer import FileDownload
from hostile_hub import Fault, Hub

SIZE = 600_000
HALF = SIZE // 2
MODEL = "maker/model/model-Q4_0.gguf"
QUICK = Limits(
    stall_seconds=0.25,
    retry_seconds=0.005,
    longest_retry_seconds=0.02,
    attempts=4,
    margin_bytes=0,
    checkpoint_bytes=50_000,
)


class ProgressRecorder:
    """Records the phases and notes that a download reports."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.notes: list[str] = []

    def __call__(self, phase: Phase, note: str) -> None:
        self.phases.append(phase)
        self.notes.append(note)


def download(hub: Hub, place: Path, **settings: object) -> FileDownload:
    settings = {"limits": QUICK, **settings}
    return FileDownload(hub.url(MODEL), place, **settings)  # type: ignore[arg-type]


def fetch(hub: Hub, place: Path, **settings: object) -> FileDownload:
    job = download(hub, place, **settings)
    job.run()
    return job


def is_complete(hub: Hub, place: Path) -> bool:
    """Whether the file has its final name and content, with no partial or sidecar file left."""
    names = sorted(path.name for path in place.parent.iterdir())
    return names == [place.name] and place.read_bytes() == hub.files[MODEL].content


def interrupted(hub: Hub, place: Path, at: int = HALF) -> FileDownload:
    """Start a download and stop it once `at` bytes have arrived."""
    hub.faults.append(Fault(stall_after=at))
    job = download(hub, place, limits=replace(QUICK, stall_seconds=20))

    def stop() -> None:
        hub.stalled.wait(10)
        while job.done_bytes < at:
            hub.released.wait(0.005)
        job.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Stopped):
        job.run()
    stopper.join()
    hub.released.set()
    return job


def expect_error(hub: Hub, place: Path, **settings: object) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        fetch(hub, place, **settings)
    assert str(caught.value).endswith(".")
    assert str(caught.value).count(". ") == 0, "one sentence"
    assert caught.value.remedy.endswith(".")
    assert not place.exists()
    return caught.value
