"""Crash test of collections: kills the app while their files change, and looks at what is found then.

`python -m tests.drivers.crash_collection [--kills 10] [--seed 1]` from the repository's root, with
tests/support on the path. Window, store, index and the extracting child process are the real ones.
Exits 1 when a file is not found after a restart, one that is gone is, or a file of the app is damaged.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import crash_index

ROOT = Path(__file__).parents[2]
FILES = 400  # at the beginning
MOST_SECONDS = 300  # until all is read and indexed after a restart


@dataclass(frozen=True)
class Kill:
    """Result of one kill."""

    phase: str  # what was done when it came
    files: int
    lost: list[str]  # names of files that are not found after the restart
    stray: list[
        str
    ]  # hashes of texts in the index that no file has, and paths of files that are gone
    integrity: str

    @property
    def kept(self) -> bool:
        """Whether what is found is what is there."""
        return not self.lost and not self.stray and self.integrity == "ok"


class Folder:
    """A folder whose files change at random."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self.path, self._chance, self._count = path, chance, 0
        for _ in range(FILES):
            self._add()

    def change(self) -> None:
        """Add, change, rename, move or delete something."""
        files = sorted(each for each in self.path.rglob("*") if each.is_file())
        chosen = self._chance.choice(files)
        match self._chance.choice(("add", "change", "rename", "move", "delete", "folder")):
            case "change":
                self._write(chosen)
            case "rename":
                self._count += 1
                chosen.rename(chosen.with_name(f"renamed{self._count}.txt"))
            case "move":
                self._count += 1
                place = self.path / str(self._chance.randrange(10, 15))
                place.mkdir(exist_ok=True)
                chosen.rename(place / f"moved{self._count}.txt")
            case "delete" if len(files) > FILES // 2:
                chosen.unlink()
            case "folder":
                self._count += 1
                chosen.parent.rename(self.path / f"folder{self._count}")
            case _:
                self._add()

    def _add(self) -> None:
        place = self.path / str(self._chance.randrange(10))
        place.mkdir(parents=True, exist_ok=True)
        self._count += 1
        self._write(place / f"{self._count}.txt")

    def _write(self, path: Path) -> None:
        self._count += 1
        words = " ".join(f"text{self._count}" for _ in range(self._chance.randrange(1, 400)))
        path.write_text(f"Only unique{self._count}. {words}", encoding="utf-8")


def run(home: Path, folder: Path, side: Path) -> None:
    """In the child: the app with the collection, which looks again all the time, until it is killed."""
    from PySide6.QtCore import QTimer

    stage, own = _staged(home, folder)
    log = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    indexing = stage.states.indexing

    def tick() -> None:
        """Look again, and log what is done now."""
        for each in own.state.collections:
            own._scan(each.id)
        doing = {
            "scanning": own._scanning,
            "reading": own._reads.path,
            "indexing": indexing.view.is_working,
            "erasing": own._untidy or stage.controller.indexing._untidy,
        }
        phase = "+".join(name for name, value in doing.items() if value)
        os.write(log, f"{phase or 'idle'}\n".encode())

    timer = QTimer(interval=20)
    timer.timeout.connect(tick)
    timer.start()
    _application().exec()


def check(home: Path, folder: Path) -> None:
    """In the child: the app after a restart; prints what is found, and what is not."""
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
    stage, own = _staged(home, folder)
    id = own.state.collections[0].id
    _settle(stage, own, id)
    there = {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}
    keys = {hashlib.sha256(content).hexdigest(): path for path, content in there.items()}
    index = stage.controller.indexing
    found: dict[str, list[str]] = {}

    def look() -> set[str]:
        for key, path in keys.items():
            word = path.read_text(encoding="utf-8").split(".")[0].split()[1]
            found[key] = [each.key for each in index._index().search(word, list(keys), limit=1)]
        return index._index().keys()

    left: list[set[str]] = []
    index._worker.run(look, left.append)
    _until(lambda: bool(left))
    known = own._files or {}
    lost = [path.name for key, path in keys.items() if found[key] != [key]]
    lost += [path.name for path in there if str(path) not in known]
    stray = [*(left[0] - keys.keys()), *(known.keys() - set(map(str, there)))]
    print(json.dumps([len(there), lost, stray]))
    stage.close()


def kill_once(home: Path, folder: Folder, side: Path, chance: random.Random) -> Kill:
    """Start the app, change files, kill it at a random moment, and start it again to look."""
    child = subprocess.Popen(
        _command("run", home, folder.path, side), cwd=ROOT, env=_environment(home)
    )
    while not side.exists():
        assert child.poll() is None, "the app exited before the kill"
        time.sleep(0.02)
    end = time.monotonic() + chance.uniform(0.0, 3.0)
    while time.monotonic() < end:
        for _ in range(chance.choice((1, 1, 1, 30))):  # one by one, or a storm
            folder.change()
        time.sleep(chance.choice((0.0, 0.05, 0.3)))
    child.kill()
    child.wait()
    phase = side.read_text(encoding="utf-8").splitlines()[-1]
    for _ in range(chance.randrange(20)):
        folder.change()
    seen = subprocess.run(
        _command("check", home, folder.path, side),
        cwd=ROOT, env=_environment(home), check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    files, lost, stray = json.loads(seen.stdout.splitlines()[-1])
    return Kill(phase, files, lost, stray, crash_index.integrity(home / "documents.sqlite"))


def rounds(place: Path, kills: int, seed: int) -> Iterator[Kill]:
    """Kill the app again and again, each time in the middle of what the last one has left."""
    chance = random.Random(seed)
    home = place / "home"
    home.mkdir()
    folder = Folder(place / "documents", chance)
    for number in range(kills):
        yield kill_once(home, folder, place / f"side-{number}", chance)


def _command(mode: str, *paths: Path) -> list[str]:
    module = "tests.drivers.crash_collection"
    return [sys.executable, "-m", module, "--child", mode, *map(str, paths)]


def _environment(home: Path) -> dict[str, str]:
    places = [ROOT, ROOT / "tests/support", ROOT / "tests/drivers"]
    path = os.pathsep.join(map(str, places))
    own = {"TOKONOMA_HOME": str(home), "QT_QPA_PLATFORM": "offscreen", "PYTHONPATH": path}
    return {**os.environ, **own}


def _application():
    from PySide6.QtWidgets import QApplication

    return QApplication.instance() or QApplication([])


def _until(condition: Callable[[], bool]) -> None:
    from stage import until

    until(condition, MOST_SECONDS)


def _staged(home: Path, folder: Path):
    """The app, with a collection of the folder."""
    from app.chat.sending.attachments import default_extractor
    from stage import Stage

    _application()
    stage = Stage(home, extractor=default_extractor())
    stage.window.show()
    stage.controller.start(None)
    own = stage.controller.collections
    _until(lambda: own._has_read)
    if not own.state.collections:
        own.add([folder])
    return stage, own


def _settle(stage, own, id: int) -> None:
    """Wait until all is read and indexed, and what is not used any more is forgotten."""
    indexing = stage.controller.indexing
    _until(
        lambda: (
            id in own._scans
            and not (own._scanning or own._waiting or own._reads.path or own._untidy)
            and not (indexing._working or indexing._jobs or indexing._tasks or indexing._unchecked)
        )
    )
    done: list[int] = []
    stage.store_queue.flush(done.append)  # it is asked what is named
    _until(lambda: bool(done) and not (indexing._working or indexing._jobs))


def main() -> int:
    """Print a row for every kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        mode, home, folder, side = options.child
        if mode == "run":
            run(Path(home), Path(folder), Path(side))
        else:
            check(Path(home), Path(folder))
        return 0
    kept = True
    print("kill  files  lost  stray  integrity  kept  while")
    with tempfile.TemporaryDirectory() as place:
        for number, kill in enumerate(rounds(Path(place), options.kills, options.seed), 1):
            kept = kept and kill.kept
            print(
                f"{number:4}  {kill.files:5}  {len(kill.lost):4}  {len(kill.stray):5}"
                f"  {kill.integrity:9}  {'yes' if kill.kept else 'NO':4}  {kill.phase}",
                flush=True,
            )
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
