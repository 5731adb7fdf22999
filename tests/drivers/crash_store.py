"""Crash test of the store: kills a process that streams answers into it, and counts what is lost.

`python -m tests.drivers.crash_store [--kills 10] [--seed 1]` from the repository's root; exits 1
when more than the last 0.5 s is missing, or any other message changed.
"""

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.domain.message import Message, MessageState
from app.store.store import Store
from engine import Role
from tests.support.store_contents import all_messages

ROOT = Path(__file__).parents[2]
TOKENS_PER_SECOND = 30
FLUSH_SECONDS = (0.25, 0.30)
ALLOWED_SECONDS = 0.5
WORDS = ("the ", "tree ", "grows\n", "slowly ", "静かに ", "été ", "\U0001f333 ", "**bold** ")


@dataclass(frozen=True)
class Kill:
    """Result of one kill."""

    streamed_seconds: float  # from the first token to the kill
    produced: int  # characters
    saved: int  # characters whose save had completed
    found: int  # characters after the restart
    prefix: bool  # the text found is a prefix of the text produced
    missing_seconds: float  # age of the oldest missing character when the process died
    state: str
    integrity: str
    earlier_unchanged: bool

    @property
    def kept(self) -> bool:
        """Whether all completely saved text exists, and no other message changed."""
        return (
            self.prefix
            and self.found >= self.saved
            and self.state == MessageState.INTERRUPTED.value
            and self.integrity == "ok"
            and self.earlier_unchanged
        )


def stream(path: Path, side: Path, seed: int) -> None:
    """In the child: stream endlessly as the app does; log text produced and saved to `side`."""
    chance = random.Random(seed)
    log = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    worker = ThreadPoolExecutor(1)  # a store belongs to one thread
    store = worker.submit(Store.open, path).result()

    def write(*entry: object) -> None:
        os.write(log, (json.dumps(entry) + "\n").encode())

    def save(message: int, piece: str) -> None:
        store.append_text(message, piece)
        write("saved", len(piece))

    message = worker.submit(begin, store, chance).result()
    write("begun", message.id, len(message.text))
    pending, flush_at = "", time.monotonic() + chance.uniform(*FLUSH_SECONDS)
    while True:
        time.sleep(1 / TOKENS_PER_SECOND)
        word = chance.choice(WORDS)
        write("made", time.monotonic(), word)
        pending += word
        if time.monotonic() >= flush_at:
            worker.submit(save, message.id, pending)
            pending, flush_at = "", time.monotonic() + chance.uniform(*FLUSH_SECONDS)


def begin(store: Store, chance: random.Random) -> Message:
    """At random: a new question, a regenerated answer, or the interrupted answer continued."""
    known = store.conversations()
    choice = chance.choice(("new", "again", "continue")) if known else "new"
    if choice == "continue":
        return store.branch(known[0].id)[-1]
    if choice == "again":
        parent = store.branch(known[0].id)[-1].parent
        return store.add_message(
            known[0].id, parent, Role.ASSISTANT, "", MessageState.STREAMING, "model"
        )
    conversation = store.create_conversation("A question").id
    asked = store.add_message(conversation, None, Role.USER, "How does a tree grow? " * 20)
    return store.add_message(
        conversation, asked.id, Role.ASSISTANT, "", MessageState.STREAMING, "model"
    )


def kill_once(folder: Path, number: int, chance: random.Random) -> Kill:
    """Start a child, kill it at a random moment of its answer, compare store and log."""
    path, side = folder / "conversations.sqlite", folder / f"side-{number}"
    before = everything(path)
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.drivers.crash_store",
            "--child",
            str(path),
            str(side),
            str(number),
        ],
        cwd=ROOT,
    )
    while not (side.exists() and b'"made"' in side.read_bytes()):
        assert child.poll() is None, "the child exited before the kill"
        time.sleep(0.01)
    time.sleep(chance.uniform(0.0, 2.5))
    child.kill()
    killed = time.monotonic()
    child.wait()
    log = [
        json.loads(line)
        for line in side.read_text(encoding="utf-8").splitlines(keepends=True)
        if line[-1] == "\n"
    ]
    _, message_id, length = next(entry for entry in log if entry[0] == "begun")
    made = [(when, word) for kind, when, word in (e for e in log if e[0] == "made")]
    after = everything(path)
    text, state = after.pop(message_id)
    earlier = before.pop(message_id, ("", ""))[0]
    produced = "".join(word for _, word in made)
    found = text[length:]
    return Kill(
        streamed_seconds=killed - made[0][0],
        produced=len(produced),
        saved=sum(entry[1] for entry in log if entry[0] == "saved"),
        found=len(found),
        prefix=text[:length] == earlier and produced.startswith(found),
        missing_seconds=killed - first_missing(made, len(found), killed),
        state=state,
        integrity=integrity(path),
        earlier_unchanged=all(after.get(key) == value for key, value in before.items()),
    )


def first_missing(made: list[tuple[float, str]], found: int, killed: float) -> float:
    """Time at which the first missing character was produced; `killed` when none is missing."""
    for when, word in made:
        found -= len(word)
        if found < 0:
            return when
    return killed


def everything(path: Path) -> dict[int, tuple[str, str]]:
    """Text and state of every message in the store, of all branches."""
    store = Store.open(path)
    try:
        return {number: (m.text, m.state.value) for number, m in all_messages(store).items()}
    finally:
        store.close()


def integrity(path: Path) -> str:
    """Result of SQLite's integrity checks of tables, foreign keys and search index."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("INSERT INTO search(search) VALUES ('integrity-check')")
        foreign = database.execute("PRAGMA foreign_key_check").fetchall()
        verdict = str(database.execute("PRAGMA integrity_check").fetchone()[0])
        return verdict if not foreign else "foreign keys"


def rounds(folder: Path, kills: int, seed: int) -> list[Kill]:
    """Kill `kills` child processes, one after another, that use the same store."""
    chance = random.Random(seed)
    return [kill_once(folder, number, chance) for number in range(kills)]


def main() -> int:
    """Print a row for every kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        path, side, seed = options.child
        stream(Path(path), Path(side), int(seed))
    with tempfile.TemporaryDirectory() as folder:
        results = rounds(Path(folder), options.kills, options.seed)
    print("kill  streamed s  produced  saved  found  missing s  state        integrity  kept")
    for number, kill in enumerate(results, 1):
        print(
            f"{number:4}  {kill.streamed_seconds:10.2f}  {kill.produced:8}  {kill.saved:5}"
            f"  {kill.found:5}  {kill.missing_seconds:9.3f}  {kill.state:11}  {kill.integrity:9}"
            f"  {'yes' if kill.kept else 'NO'}"
        )
    worst = max(kill.missing_seconds for kill in results)
    print(f"worst: {worst:.3f} s missing of {ALLOWED_SECONDS} s allowed")
    return 0 if worst <= ALLOWED_SECONDS and all(kill.kept for kill in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
