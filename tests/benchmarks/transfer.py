"""Measures the import of a large ChatGPT export into an empty store, with the window open.

    python tests/benchmarks/transfer.py [--megabytes 500] [--characters 2000] [--chat 100]

Writes an archive whose messages have random lengths around `--characters`, `--chat` of them in a
chat, previews it and imports it. Prints for both: seconds, CPU seconds of all threads, megabytes
above the memory before, and the longest time in which the window's event loop handled nothing.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import re
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from PySide6.QtCore import Qt, QTimer

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
SWITCH_SECONDS = 0.0005  # as the app sets it
TEXTS = ("README.md", "packaging/changelog.md")  # messages are words of these
START = 1_700_000_000.0


def texts(characters: int) -> Iterator[str]:
    """Messages of words in a random order, some with a code block or other scripts."""
    rng = random.Random(46)
    known = [
        word for name in TEXTS for word in re.findall(r"\S+", (ROOT / name).read_text("utf-8"))
    ]
    while True:
        words = rng.choices(known, k=max(1, int(characters * rng.uniform(0.5, 1.5)) // 7))
        if rng.random() < 0.2:
            words.append('\n```python\nprint("Grüße", 你好)\n```')
        yield " ".join(words)


def chats(characters: int, length: int) -> Iterator[bytes]:
    """Chats as JSON, each a chain of `length` messages."""
    said = texts(characters)
    for number in itertools.count():
        mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None,
                                               "children": ["0"]}}  # fmt: skip
        for n in range(length):
            role = ("user", "assistant")[n % 2]
            mapping[str(n)] = {
                "id": str(n),
                "message": {
                    "id": str(n),
                    "author": {"role": role, "name": None, "metadata": {}},
                    "create_time": START + number * 1000 + n,
                    "update_time": None,
                    "content": {"content_type": "text", "parts": [next(said)]},
                    "status": "finished_successfully",
                    "end_turn": True,
                    "weight": 1.0,
                    "metadata": {"model_slug": "gpt-4o", "request_id": f"{number}-{n}"},
                    "recipient": "all",
                    "channel": None,
                },
                "parent": str(n - 1) if n else "root",
                "children": [str(n + 1)] if n + 1 < length else [],
            }
        chat = {
            "title": f"Chat {number}",
            "create_time": START + number * 1000,
            "update_time": START + number * 1000 + length,
            "mapping": mapping,
            "current_node": str(length - 1),
            "conversation_id": f"{number:08}",
            "is_archived": False,
        }
        yield json.dumps(chat).encode()


def write_export(path: Path, size: int, characters: int, length: int) -> int:
    """Write an archive with `size` bytes of chats; returns how many messages it has."""
    written = count = 0
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive,
        archive.open("conversations.json", "w", force_zip64=True) as file,
    ):
        for chat in chats(characters, length):
            written += file.write((b"," if count else b"[") + chat)
            count += length
            if written >= size:
                break
        file.write(b"]")
    return count


class Loop:
    """Watches how long the event loop handles nothing, and the memory."""

    def __init__(self) -> None:
        self._timer = QTimer(timerType=Qt.TimerType.PreciseTimer, interval=2)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def measure(self, name: str, call: Callable[[], None]) -> None:
        before = memory()
        self._last, self._gaps = time.perf_counter(), [0.0]
        self._most = before
        start, cpu = time.perf_counter(), time.process_time()
        call()
        self._tick()
        wall, used = time.perf_counter() - start, time.process_time() - cpu
        gaps = sorted(self._gaps)
        slow = sum(gap > 0.05 for gap in gaps)
        print(f"{name}: {wall:.1f} s, CPU {used:.1f} s, +{(self._most - before) / 1e6:.0f} MB, "
              f"longest gap {gaps[-1] * 1e3:.0f} ms, {slow} over 50 ms", flush=True)  # fmt: skip

    _last = 0.0
    _most = 0
    _gaps: list[float] = []  # noqa: RUF012

    def _tick(self) -> None:
        now = time.perf_counter()
        self._gaps.append(now - self._last)
        self._last = now
        self._most = max(self._most, memory())


def memory() -> int:
    """Bytes that this process has in memory."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf(
        "SC_PAGE_SIZE"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--megabytes", type=int, default=500)
    parser.add_argument("--characters", type=int, default=2000, help="of a message, on average")
    parser.add_argument("--chat", type=int, default=100, help="messages of each chat")
    parser.add_argument("--file", type=Path, help="keep the archive here, and use it again")
    options = parser.parse_args()
    from PySide6.QtWidgets import QApplication

    from stage import Stage

    application = QApplication([])
    sys.setswitchinterval(SWITCH_SECONDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = options.file or folder / "export.zip"
        if not path.exists():
            count = write_export(path, options.megabytes << 20, options.characters, options.chat)
            print(f"{count:,} messages, {path.stat().st_size / 1e6:.0f} MB packed")
        stage = Stage(folder)
        stage.start()
        stage.window.show()
        gc.freeze()

        def wait() -> None:
            while stage.controller.transfer.busy:
                application.processEvents()
                time.sleep(0.001)
            stage.wait_until_idle()

        def preview() -> None:
            stage.controller.transfer.preview([path])
            wait()

        def accept() -> None:
            stage.controller.transfer.accept()
            wait()

        loop = Loop()
        loop.measure("preview", preview)
        found = stage.states.transfer.preview
        assert found is not None
        loop.measure("import", accept)
        print(f"{found.chats:,} chats, {found.messages:,} messages")
        stage.close()


if __name__ == "__main__":
    main()
