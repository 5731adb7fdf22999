"""Crash test of the document index: kills a process that writes into it, and looks at what is left.

`python -m tests.drivers.crash_index [--kills 10] [--seed 1]` from the repository's root; exits 1
when a document that was complete is not found, one that was removed is, or the file is damaged.
"""

import argparse
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.documents.index import DocumentIndex

ROOT = Path(__file__).parents[2]
MODEL = "model"


@dataclass(frozen=True)
class Kill:
    """Result of one kill."""

    complete: int  # documents that were completely written
    found: int  # of them, after the restart
    removed_found: int  # documents that were removed, and are found all the same
    begun: int  # documents of which a part was written
    integrity: str

    @property
    def kept(self) -> bool:
        """Whether all that was written and nothing else exists."""
        return self.found == self.complete and not self.removed_found and self.integrity == "ok"


def text_of(key: str) -> str:
    """The text of a document, the same in every process."""
    chance = random.Random(key)
    return "\n\n".join(
        " ".join(f"{key}word{chance.randrange(50)}" for _ in range(100)) + f" end{key}."
        for _ in range(chance.randrange(1, 200))
    )


def write(path: Path, side: Path, seed: int) -> None:
    """In the child: add, remove and embed documents endlessly; log what is done to `side`."""
    chance = random.Random(seed)
    log = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    index = DocumentIndex(path)
    count = len(index.keys())
    while True:
        known = sorted(index.keys())
        match chance.choice(("add", "add", "remove", "tidy", "embed")):
            case "add":
                key = f"s{seed}n{count}"
                count += 1
                os.write(log, f"begin {key}\n".encode())
                index.add(key, text_of(key))
                os.write(log, f"done {key}\n".encode())
            case "remove" if len(known) > 3:
                key = chance.choice(known)
                os.write(log, f"remove {key}\n".encode())
                index.remove([key])
                os.write(log, f"gone {key}\n".encode())
            case "tidy":
                while chance.random() < 0.9 and index.tidy():
                    pass
            case _:
                todo = index.without_vectors(MODEL, 64)
                index.set_vectors(MODEL, [(each.id, [1.0, each.id]) for each in todo])
                whole = index.without_parts(MODEL, 16)
                index.set_parts(MODEL, {each.id: [[1.0, 0.5]] * len(each.parts) for each in whole})


def kill_once(folder: Path, number: int, chance: random.Random, known: set[str]) -> Kill:
    """Start a child, kill it at a random moment, and compare index and log; updates `known`."""
    path, side = folder / "documents.sqlite", folder / f"side-{number}"
    places = (str(path), str(side), str(number))
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.drivers.crash_index", "--child", *places], cwd=ROOT
    )
    while not (side.exists() and b"done" in side.read_bytes()):
        assert child.poll() is None, "the child exited before the kill"
        time.sleep(0.01)
    time.sleep(chance.uniform(0.0, 1.0))
    child.kill()
    child.wait()
    lines = [
        line.split()
        for line in side.read_text(encoding="utf-8").splitlines(keepends=True)
        if line[-1] == "\n"
    ]
    by_word = {
        word: {key for kind, key in lines if kind == word}
        for word in ("begin", "done", "remove", "gone")
    }
    unsure = by_word["begin"] - by_word["done"] | by_word["remove"] - by_word["gone"]
    complete = (known | by_word["done"]) - by_word["remove"]
    index = DocumentIndex(path)
    left = index.keys()
    found = {key for key in complete if any(e.key == key for e in index.search(f"end{key}", [key]))}
    gone = {key for key in by_word["gone"] if index.search(f"end{key}", [key])} | left & by_word[
        "gone"
    ]
    stray = left - complete - unsure
    index.search("x", vector=[1.0, 1.0], model=MODEL)
    for key in sorted(by_word["begin"] - by_word["done"]):
        index.add(key, text_of(key))  # is continued, or begun anew
    known.clear()
    known |= index.keys()
    lost = index.lost
    index.close()
    return Kill(
        len(complete),
        len(found & left),
        len(gone) + len(stray),
        len(by_word["begin"] - by_word["done"]),
        "made anew" if lost else integrity(path),
    )


def integrity(path: Path) -> str:
    """Result of SQLite's integrity checks, and whether documents have the passages they say."""
    with closing(sqlite3.connect(path)) as base:
        base.execute("INSERT INTO words(words) VALUES ('integrity-check')")
        verdict = str(base.execute("PRAGMA integrity_check").fetchone()[0])
        wrong = base.execute(
            "SELECT count(*) FROM document AS d WHERE last - first + 1 <>"
            " (SELECT count(*) FROM passage WHERE document = d.id)"
        ).fetchone()[0]
        stray = base.execute(
            "SELECT count(*) FROM vector WHERE passage NOT IN (SELECT p.id FROM passage AS p"
            " JOIN document AS d ON d.id = p.document WHERE d.key IS NOT NULL)"
        ).fetchone()[0]
        indexed = base.execute("SELECT count(*) FROM words_docsize").fetchone()[0]
        passages = base.execute("SELECT count(*) FROM passage").fetchone()[0]
        if wrong or stray or indexed != passages:
            return f"{wrong} documents, {stray} vectors, {indexed} of {passages} passages"
        return verdict


def rounds(folder: Path, kills: int, seed: int) -> list[Kill]:
    """Kill `kills` child processes, one after another, that use the same index."""
    chance = random.Random(seed)
    known: set[str] = set()
    return [kill_once(folder, number, chance, known) for number in range(kills)]


def main() -> int:
    """Print a row for every kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        path, side, seed = options.child
        write(Path(path), Path(side), int(seed))
    with tempfile.TemporaryDirectory() as folder:
        results = rounds(Path(folder), options.kills, options.seed)
    print("kill  complete  found  removed found  begun  integrity  kept")
    for number, kill in enumerate(results, 1):
        print(
            f"{number:4}  {kill.complete:8}  {kill.found:5}  {kill.removed_found:13}"
            f"  {kill.begun:5}  {kill.integrity:9}  {'yes' if kill.kept else 'NO'}"
        )
    return 0 if all(kill.kept for kill in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
