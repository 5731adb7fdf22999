"""Speed of downloads: what is measured, kept and ignored, with a fake clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.downloads.entry import Download, Entry
from app.downloads.policy import Phase
from app.library.speed import DownloadSpeed
from app.net.hub import Source
from app.state.library import LibraryState
from app.system.worker import BackgroundWorker
from stage import flush

MB = 1_000_000


class Bench:
    """Downloads of a fake clock, as the queue reports them."""

    def __init__(self, folder: Path) -> None:
        self.now = 100.0
        self.library = LibraryState()
        self.worker = BackgroundWorker("files", self.library)
        file = folder / "download-speed.json"
        self.speed = DownloadSpeed(self.library, self.worker, file, lambda: self.now)
        self.speed.start()
        self.entry = Entry(1, Source("o/n", "main", "m.gguf", 500 * MB), folder / "m.gguf")

    def note(self, phase: Phase, done: int, number: int = 1) -> None:
        plain: Download = self.entry.snapshot("https://hub.invalid")
        self.speed.note([replace(plain, id=number, phase=phase, done_bytes=done)])

    def close(self) -> None:
        self.worker.close()
        flush()


@pytest.fixture
def bench(qtbot: QtBot, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def test_a_download_is_measured_while_it_runs(bench: Bench) -> None:
    bench.note(Phase.QUEUED, 40 * MB)
    bench.now += 1000
    bench.note(Phase.RUNNING, 40 * MB)
    bench.now += 5
    bench.note(Phase.RUNNING, 60 * MB)
    bench.now += 5
    bench.note(Phase.VERIFYING, 90 * MB)
    assert bench.library.bytes_per_second == 5 * MB
    bench.now += 1000
    bench.note(Phase.DONE, 90 * MB)
    assert bench.library.bytes_per_second == 5 * MB


def test_short_downloads_and_stalls_measure_nothing(bench: Bench) -> None:
    bench.note(Phase.RUNNING, 0)
    bench.now += 0.5
    bench.note(Phase.DONE, 300 * MB)
    bench.note(Phase.RUNNING, 0, 2)
    bench.now += 100
    bench.note(Phase.FAILED, 1000, 2)
    assert bench.library.bytes_per_second == 0


def test_the_last_five_count_and_are_kept(bench: Bench, tmp_path: Path) -> None:
    for number, amount in enumerate((900, 10, 10, 10, 10, 60)):
        bench.note(Phase.RUNNING, 0, number)
        bench.now += 10
        bench.note(Phase.PAUSED, amount * MB, number)
    assert bench.library.bytes_per_second == 2 * MB
    bench.close()
    again = Bench(tmp_path)
    again.close()
    assert again.library.bytes_per_second == 0  # closed before the result arrived
    again = Bench(tmp_path)
    done: list[bool] = []
    again.worker.run(lambda: True, done.append)
    while not done:
        flush()
    assert again.library.bytes_per_second == 2 * MB
    again.close()


@pytest.mark.parametrize(
    "text", ['{"downloads": [[1], ["a", 2], [-5, 1.0], [9e9, 2]]}', "{}", "[]"]
)
def test_a_damaged_file_measures_nothing(
    qtbot: QtBot, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "download-speed.json").write_text(text, encoding="utf-8")
    bench = Bench(tmp_path)
    done: list[bool] = []
    bench.worker.run(lambda: True, done.append)
    while not done:
        flush()
    assert bench.library.bytes_per_second == 0
    bench.close()
