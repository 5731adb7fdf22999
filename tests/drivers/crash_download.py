"""Crash test of downloads: kills or quits a downloading process, and checks that a restart resumes.

`python -m tests.drivers.crash_download [--kills 10] [--quits 5] [--any 20] [--megabytes 32]
[--seed 1]` from the repository's root; prints the bytes sent twice, and exits 1 unless every
restart ends with a complete, verified file.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.downloads.partial import part_path
from app.downloads.queue import Download, Downloads, Limits, Phase, Source
from tests.support.hostile_hub import Hub, model_bytes, running

ROOT = Path(__file__).parents[2]
MODEL = "maker/model/model-Q4_0.gguf"
TIMEOUT_SECONDS = 60.0
LIMITS = Limits(margin_bytes=0, retry_seconds=0.05, checkpoint_bytes=4 << 20)


@dataclass(frozen=True)
class Outcome:
    """Result of one interruption and restart."""

    how: str  # "kill" or "quit"
    hashed: bool  # the hub states the file's SHA-256
    size: int  # bytes of the file
    sent: int  # bytes sent by the hub when the process ended
    kept: int  # bytes on disk then
    dropped: int  # bytes of these downloaded again, because no checkpoint covered them
    again: int  # bytes sent by the hub beyond the file's size, in total
    whole: bool  # the file is complete, verified, and the only one left

    def __str__(self) -> str:
        lost = f"{self.dropped:>9,} of them dropped, {self.again:>9,} sent twice"
        named = "hash known" if self.hashed else "no hash"
        state = "whole" if self.whole else "BROKEN"
        done = f"{self.how} at {self.sent / self.size:4.0%}, {named}"
        return f"{done}: {self.kept:>10,} bytes kept, {lost}, {state}"


def child(folder: Path, endpoint: str) -> int:
    """In the child: resume or start the download; exit when done, or on a line on stdin."""
    ended = threading.Event()
    result: list[Phase] = []

    def changed(download: Download) -> None:
        if download.phase in (Phase.DONE, Phase.FAILED):
            result.append(download.phase)
            ended.set()

    def wait_for_line() -> None:
        sys.stdin.readline()
        ended.set()

    queue = Downloads(folder, changed, endpoint=endpoint, limits=LIMITS)
    queue.start(resume=True)
    if not queue.all():
        repository, _, file = MODEL.rpartition("/")
        queue.add(Source(repository, file=file))
    threading.Thread(target=wait_for_line, daemon=True).start()
    ended.wait(TIMEOUT_SECONDS)
    queue.close()
    return 0 if result == [Phase.DONE] else 3


def started(folder: Path, hub: Hub) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "tests.drivers.crash_download",
        "--child",
        str(folder),
        hub.endpoint,
    ]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)


def interrupt(how: str, size: int, share: float, hashed: bool = True) -> Outcome:
    """Kill or quit a download of `size` bytes once `share` of it has been sent, and restart it."""
    with running() as hub, tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "models"
        stored = hub.put(MODEL, model_bytes(size), hashed=hashed)
        reached, ended = threading.Event(), threading.Event()
        hub.gate = _gate(int(size * share), reached, ended)
        first = started(folder, hub)
        assert reached.wait(TIMEOUT_SECONDS)
        if how == "kill":
            first.kill()
        else:
            assert first.stdin is not None
            first.stdin.write(b"quit\n")
            first.stdin.flush()
        first.wait(TIMEOUT_SECONDS)
        assert first.stdin is not None
        first.stdin.close()
        ended.set()
        sent, file = hub.sent_bytes, folder / Path(MODEL).name
        assert not file.exists(), "the final name must not exist before the end"
        kept = part_path(file).stat().st_size if part_path(file).exists() else 0
        second = started(folder, hub)
        code = second.wait(TIMEOUT_SECONDS)
        assert second.stdin is not None
        second.stdin.close()
        names = sorted(path.name for path in folder.iterdir())
        whole = code == 0 and names == ["downloads.json", file.name]
        whole = whole and file.read_bytes() == stored.content
        # Bytes in flight when the process ended have to be sent again.
        again = hub.sent_bytes - size
        return Outcome(how, hashed, size, sent, kept, kept + again - sent, again, whole)


def kill_any_time(size: int, seconds: float) -> bool:
    """Kill a download `seconds` after its start; returns whether the restart completes the file."""
    with running() as hub, tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "models"
        stored = hub.put(MODEL, model_bytes(size))
        for limit in (seconds, TIMEOUT_SECONDS):
            process = started(folder, hub)
            assert process.stdin is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(limit)
            process.kill()
            process.wait()
            process.stdin.close()
        file = folder / Path(MODEL).name
        names = sorted(path.name for path in folder.iterdir() if path.suffix != ".json")
        return names == [file.name] and file.read_bytes() == stored.content


def _gate(stop: int, reached: threading.Event, ended: threading.Event) -> Callable[[int], None]:
    """A `Hub.gate` that blocks after `stop` bytes until the client has ended, then disconnects.

    Bytes sent after that would only fill socket buffers, yet count as sent.
    """

    def gate(sent: int) -> None:
        if sent >= stop and not ended.is_set():
            reached.set()
            ended.wait(TIMEOUT_SECONDS)
            raise ConnectionResetError("the client process has ended")

    return gate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--quits", type=int, default=5)
    parser.add_argument("--any", type=int, default=20, help="kills at any moment")
    parser.add_argument("--megabytes", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "ENDPOINT"))
    options = parser.parse_args()
    if options.child:
        return child(Path(options.child[0]), options.child[1])
    chance, broken = random.Random(options.seed), 0
    for how, count in (("kill", options.kills), ("quit", options.quits)):
        for index in range(count):
            share = 0.5 if not index else chance.uniform(0.05, 0.95)
            outcome = interrupt(how, options.megabytes << 20, share, hashed=index % 2 == 0)
            print(outcome, flush=True)
            broken += not outcome.whole
    moments = [chance.uniform(0.1, 0.8) for _ in range(options.any)]
    lost = [seconds for seconds in moments if not kill_any_time(options.megabytes << 20, seconds)]
    print(f"{options.any} kills 0.1 to 0.8 s after the start: {len(lost)} broken", flush=True)
    return 1 if broken or lost else 0


if __name__ == "__main__":
    sys.exit(main())
