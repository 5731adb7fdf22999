"""Download queue test recorder: a queue whose progress reports are recorded and waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from app.downloads.queue import Download, Downloads, Limits, Phase, Source
from hostile_hub import Fault, Hub, model_bytes

SIZE = 600_000
HALF = SIZE // 2
TIMEOUT_SECONDS = 20.0
QUICK = Limits(
    stall_seconds=10,
    retry_seconds=0.005,
    longest_retry_seconds=0.02,
    attempts=4,
    margin_bytes=0,
)


class QueueRecorder:
    """A download queue and every progress report it has made."""

    def __init__(self, hub: Hub, folder: Path, **settings: object) -> None:
        self.reports: list[Download] = []
        self.threads: set[threading.Thread] = set()
        self._reported = threading.Condition()
        settings = {"limits": QUICK, "tick_seconds": 0.02, "endpoint": hub.endpoint, **settings}
        self.queue = Downloads(folder, self._changed, **settings)  # type: ignore[arg-type]

    def _changed(self, download: Download) -> None:
        with self._reported:
            self.reports.append(download)
            self.threads.add(threading.current_thread())
            self._reported.notify_all()

    def wait_for_phase(self, id: int, *phases: Phase) -> Download:
        """Wait for a report of a download in one of these phases; returns the first such report."""
        return self.wait_for(lambda one: one.id == id and one.phase in phases)

    def wait_for(self, wanted: Callable[[Download], bool]) -> Download:
        with self._reported:
            found = self._reported.wait_for(lambda: any(map(wanted, self.reports)), TIMEOUT_SECONDS)
            assert found, self.reports[-5:]
            return next(one for one in self.reports if wanted(one))

    def clear(self) -> None:
        with self._reported:
            self.reports.clear()

    def phases(self, id: int) -> list[Phase]:
        """The phases of a download in order, without repeats."""
        with self._reported:
            seen = [one.phase for one in self.reports if one.id == id]
        return [one for at, one in enumerate(seen) if not at or seen[at - 1] is not one]


def source(number: int) -> Source:
    return Source(f"maker/model{number}", file=f"model{number}-Q4_0.gguf")


def content(number: int) -> bytes:
    return model_bytes(SIZE + number, number)


def model_files(folder: Path) -> list[str]:
    """Names of the files in a folder, partial downloads included, JSON files excluded."""
    return sorted(
        path.name for path in folder.rglob("*") if path.is_file() and "json" not in path.name
    )


def stalled_half_way(hub: Hub, watched: QueueRecorder, number: int = 1) -> int:
    """Start a download that stalls after half of the file; returns its id."""
    hub.faults.append(Fault(stall_after=HALF))
    id = watched.queue.add(source(number))
    assert hub.stalled.wait(TIMEOUT_SECONDS)
    watched.wait_for(lambda one: one.id == id and one.done_bytes == HALF)
    return id
