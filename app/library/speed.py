"""Speed of downloads on this connection, measured from the last ones and kept between runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from app.downloads.queue import Download, Phase
from app.library.index import tried
from app.state.library import LibraryState
from app.system import json_file
from app.system.worker import BackgroundWorker

_MOST = 5  # downloads that count
_SECONDS, _BYTES = 1.0, 1_000_000  # at least: shorter ones measure how they start


class DownloadSpeed:
    """Keeps `LibraryState.bytes_per_second` up to date."""

    def __init__(
        self,
        library: LibraryState,
        worker: BackgroundWorker,
        file: Path,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`file` keeps what was measured."""
        self._library, self._worker, self._file, self._now = library, worker, file, now
        self._measured: list[tuple[int, float]] = []  # bytes and seconds, the last one at the end
        self._began: dict[int, tuple[float, int]] = {}  # by download: when, and its bytes then

    def start(self) -> None:
        """Read what was measured in earlier runs."""
        self._worker.run(lambda: _read(self._file), self._on_read)

    def _on_read(self, stored: list[tuple[int, float]]) -> None:
        self._measured = [*stored, *self._measured][-_MOST:]
        self._show()

    def note(self, downloads: Sequence[Download]) -> None:
        """Measure running downloads, and remember those that have just stopped running."""
        running = {each.id for each in downloads if each.phase is Phase.RUNNING}
        for each in downloads:
            if each.id in running:
                self._began.setdefault(each.id, (self._now(), each.done_bytes))
            elif each.id in self._began:
                began, before = self._began.pop(each.id)
                self._add(each.done_bytes - before, self._now() - began)

    def _add(self, amount: int, seconds: float) -> None:
        if amount < _BYTES or seconds < _SECONDS:
            return
        self._measured = [*self._measured, (amount, seconds)][-_MOST:]
        self._show()
        file, rows = self._file, [list(row) for row in self._measured]
        # Lost if it cannot be written: no time is named in the next run.
        self._worker.run(lambda: tried(lambda: json_file.write(file, {"downloads": rows})))

    def _show(self) -> None:
        seconds = sum(seconds for _, seconds in self._measured)
        amount = sum(amount for amount, _ in self._measured)
        self._library.set_speed(amount / seconds if seconds else 0.0)


def _read(file: Path) -> list[tuple[int, float]]:
    stored = json_file.read(file).get("downloads")
    rows = cast("list[object]", stored) if isinstance(stored, list) else []
    lists = (cast("list[object]", row) for row in rows if isinstance(row, list))
    pairs = (row for row in lists if len(row) == 2)
    return [
        (amount, float(seconds))
        for amount, seconds in pairs
        if type(amount) is int
        and isinstance(seconds, int | float)
        and amount >= _BYTES
        and _SECONDS <= seconds < 1e7
    ][-_MOST:]
