"""Measures a collection of many files: first reading, later looks, renames, the window meanwhile.

    QT_QPA_PLATFORM=offscreen python tests/benchmarks/collection.py [--files 10000] [--fifo]

from the repository's root, with tests/support on the path. The window, the store, the index and the
child process that extracts are the real ones. Prints the table of documents.md. Processor times are
those of all threads of this process, without the child; with `--fifo`, as root, the window's thread
has a real-time priority, so that other programs do not count as lateness.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch  # noqa: F401  (of the engine, which the app has loaded)
from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app.chat.documents.collections import Collections
from app.chat.sending.attachments import default_extractor
from collection_table import Table
from fakes import MODEL

WORDS = 200  # of a file


class Lateness:
    """How late a timer of the window's thread is, in ms."""

    def __init__(self) -> None:
        self._timer, self._last, self.late = QTimer(interval=5), 0.0, list[float]()
        self._timer.timeout.connect(self._tick)
        self._last = time.perf_counter()
        self._timer.start()

    def _tick(self) -> None:
        now = time.perf_counter()
        self.late.append(max(0.0, 1e3 * (now - self._last) - 5.0))
        self._last = now

    def row(self) -> str:
        """Median, p99 and the highest."""
        self._timer.stop()
        late = sorted(self.late) or [0.0]
        return " | ".join(f"{late[int(part * (len(late) - 1))]:.1f}" for part in (0.5, 0.99, 1))


class Calls:
    """Processor time of the longest call of the window's thread for collections, in ms."""

    def __init__(self, owner: Collections) -> None:
        self.most = 0.0
        for name in ("_on_scanned", "_on_read", "_advance", "_show", "_look", "_write_known"):
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, call: Callable[..., object]) -> Callable[..., object]:
        def timed(*values: object) -> object:
            begun = time.thread_time()
            try:
                return call(*values)
            finally:
                self.most = max(self.most, 1e3 * (time.thread_time() - begun))

        return timed

    def take(self) -> float:
        """It, and begin anew."""
        most, self.most = self.most, 0.0
        return most


def memory() -> float:
    """MiB of this process now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / 2**20


def measured(name: str, done: Callable[[], bool], calls: Calls) -> None:
    """Process events until it is done, and print a row."""
    begun, used, busy = time.perf_counter(), time.process_time(), Lateness()
    loop, look = QEventLoop(), QTimer(interval=50)
    look.timeout.connect(lambda: loop.quit() if done() else None)
    look.start()
    loop.exec()
    row = busy.row()
    elapsed, used = time.perf_counter() - begun, time.process_time() - used
    print(
        f"| {name} | {elapsed:.1f} | {used:.1f} | {row} | {calls.take():.1f} | {memory():.0f} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--fifo", action="store_true")
    options = parser.parse_args()
    application = QApplication([])
    chance = random.Random(1)
    words = [f"word{number}" for number in range(5_000)]
    with tempfile.TemporaryDirectory() as place:
        table = Table(Path(place), default_extractor())
        table.stage.ready(MODEL)
        for number in range(options.files):
            text = " ".join(chance.choices(words, k=WORDS))
            table.write(f"{number % 100:02}/{number}.txt", f"Note {number}. {text}")
        own, indexing = table.collections, table.stage.states.indexing
        calls = Calls(own)
        if options.fifo:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

        def idle() -> bool:
            busy = own._waiting or own._reads.path or own._scanning or own._untidy
            return not busy and not indexing.view.is_working and table.id in own._scans

        def again() -> Callable[[], bool]:
            own._scans.pop(table.id, None)
            own._scan(table.id)
            return idle

        print(
            "| | elapsed, s | processor, s | timer late, ms: median | p99 | most | longest call, ms | MiB |"
        )
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        until = time.perf_counter() + 5
        measured("idle", lambda: time.perf_counter() > until, calls)
        table.id = own.add([table.folder])
        table.use()
        measured(f"{options.files} files are found, read and indexed", idle, calls)
        until = time.perf_counter() + 20
        measured("20 s of looks without a change", lambda: time.perf_counter() > until, calls)
        for path in sorted((table.folder / "01").iterdir()):
            path.rename(path.with_name(f"renamed {path.name}"))
        measured("100 files are renamed", again(), calls)
        table.folder.joinpath("02").rename(table.folder / "moved")
        for number in range(3, 100, 5):
            table.folder.joinpath(f"{number:02}").rename(table.folder / f"moved {number}")
        measured("2,100 files are moved", again(), calls)
        shutil.rmtree(table.folder / "04")
        measured("100 files are deleted", again(), calls)
        table.stage.close()
        application.quit()


if __name__ == "__main__":
    main()
