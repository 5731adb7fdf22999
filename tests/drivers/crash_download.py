"""Kills a process half way through a download, or quits it, and counts what the next start fetches again.

`python -m tests.drivers.crash_download [--kills 10] [--quits 5] [--any 20] [--megabytes 32] [--seed 1]` from the
repository's root; exits 1 unless every next start ends in a whole, verified file.
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

from app.downloads.partial import part_of
from app.downloads.queue import Download, Downloads, Limits, Phase, Source
from tests.support.hostile_hub import Hub, model_bytes, running

ROOT = Path(__file__).parents[2]
MODEL = "maker/model/model-Q4_0.gguf"
PATIENCE = 60.0  # seconds
LIMITS = Limits(margin_bytes=0, retry_seconds=0.05, checkpoint_bytes=4 << 20)


@dataclass(frozen=True)
class Outcome:
    """What one interruption came to."""

    how: str  # "kill" or "quit"
    hashed: bool  # the hub names the file's SHA-256
    size: int  # bytes of the file
    sent: int  # by the hub when the process ended
    kept: int  # on the disk after that
    dropped: int  # of those, fetched again because nothing vouched for them
    again: int  # sent by the hub beyond the file's size, all in all
    whole: bool  # the file is complete, verified, and alone in its folder

    def __str__(self) -> str:
        lost = f"{self.dropped:>9,} of them dropped, {self.again:>9,} sent twice"
        named = "hash known" if self.hashed else "no hash"
        state = "whole" if self.whole else "BROKEN"
        done = f"{self.how} at {self.sent / self.size:4.0%}, {named}"
        return f"{done}: {self.kept:>10,} bytes kept, {lost}, {state}"


def child(folder: Path, endpoint: str) -> int:
    """A process as the app is one: takes up what is there, or starts; ends when told to or done."""
    over = threading.Event()
    result: list[Phase] = []

    def changed(download: Download) -> None:
        if download.phase in (Phase.DONE, Phase.FAILED):
            result.append(download.phase)
            over.set()

    def listen() -> None:
        sys.stdin.readline()
        over.set()

    queue = Downloads(folder, changed, endpoint=endpoint, limits=LIMITS)
    queue.start(resume=True)
    if not queue.all():
        repository, _, file = MODEL.rpartition("/")
        queue.add(Source(repository, file=file))
    threading.Thread(target=listen, daemon=True).start()
    over.wait(PATIENCE)
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
    """Stop a download of `size` bytes when `share` of it has been sent, and start again."""
    with running() as hub, tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "models"
        stored = hub.put(MODEL, model_bytes(size), hashed=hashed)
        reached, ended = threading.Event(), threading.Event()
        hub.gate = _gate(int(size * share), reached, ended)
        first = started(folder, hub)
        assert reached.wait(PATIENCE)
        if how == "kill":
            first.kill()
        else:
            assert first.stdin is not None
            first.stdin.write(b"quit\n")
            first.stdin.flush()
        first.wait(PATIENCE)
        assert first.stdin is not None
        first.stdin.close()
        ended.set()
        sent, file = hub.sent_bytes, folder / Path(MODEL).name
        assert not file.exists(), "no name before the end"
        kept = part_of(file).stat().st_size if part_of(file).exists() else 0
        second = started(folder, hub)
        code = second.wait(PATIENCE)
        assert second.stdin is not None
        second.stdin.close()
        names = sorted(path.name for path in folder.iterdir())
        whole = code == 0 and names == ["downloads.json", file.name]
        whole = whole and file.read_bytes() == stored.content
        # What was on its way when the process ended is sent again whatever anyone does.
        again = hub.sent_bytes - size
        return Outcome(how, hashed, size, sent, kept, kept + again - sent, again, whole)


def kill_any_time(size: int, seconds: float) -> bool:
    """Kill a download so long after its start, whatever it does; whether the next start ends well."""
    with running() as hub, tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "models"
        stored = hub.put(MODEL, model_bytes(size))
        for patience in (seconds, PATIENCE):
            process = started(folder, hub)
            assert process.stdin is not None
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience)
            process.kill()
            process.wait()
            process.stdin.close()
        file = folder / Path(MODEL).name
        names = sorted(path.name for path in folder.iterdir() if path.suffix != ".json")
        return names == [file.name] and file.read_bytes() == stored.content


def _gate(stop: int, reached: threading.Event, ended: threading.Event) -> Callable[[int], None]:
    """Holds the hub back at `stop` bytes until the process that asks has ended, and ends there.

    What it wrote after that would fill the system's buffers, and count as sent to somebody.
    """

    def gate(sent: int) -> None:
        if sent >= stop and not ended.is_set():
            reached.set()
            ended.wait(PATIENCE)
            raise ConnectionResetError("the process that asked has ended")

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
