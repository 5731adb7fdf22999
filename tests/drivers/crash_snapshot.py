"""Crash test of snapshots: kills a process while it saves, and checks the file and leftovers.

`python tests/drivers/crash_snapshot.py [--kills 30] [--seed 1]` from the repository's root; exits 1
when a snapshot is broken, or a temporary file is left after the next start. Each kill is at a
random moment of a save that replaces an older file of the same name.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import tiny
from engine import CacheType, SnapshotError
from engine.inference.session import Session
from engine.loading.loader import load
from engine.snapshot import file as snapshot_file
from engine.snapshot.capture import capture, restore, write

SHA = "c" * 64
TOKENS = 900  # of the tiny model: some megabytes per file, so that a save takes measurable time


@dataclass(frozen=True, slots=True)
class Kill:
    """Result of one kill."""

    after_seconds: float  # since the start of the save
    outcome: str  # "old", "new", or why the file is broken
    leftovers: int  # temporary files
    leftovers_after_start: int


def filled(path: Path, first: int) -> Session:
    """A session of the tiny model with `TOKENS` tokens, starting at `first`."""
    session = load(path, cache=CacheType.F32).new_session()
    (*_, hidden) = session.prefill([3 + (first + at) % 200 for at in range(TOKENS)])
    session.logits_after(hidden)
    return session


def save_repeatedly(model: Path, file: Path) -> None:
    """In the child: save a session that changes each time; print when each save begins and ends."""
    session = filled(model, 0)
    number = 0
    while True:
        number += 1
        session.tokens[0] = 3 + number % 200
        captured = capture(session, model="tiny", architecture="llama")
        print("begin", number, flush=True)
        write(captured, file, SHA)
        print("end", number, flush=True)


def kill_once(model: Path, folder: Path, chance: random.Random) -> Kill:
    """Start a child, kill it during one of its saves, and check the folder."""
    file = folder / "session.safetensors"
    command = [sys.executable, __file__, "--child", str(model), str(file)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    saves = chance.randint(3, 12)
    longest = 0.0
    begun = time.perf_counter()
    for line in child.stdout:
        word, number = line.split()
        if word == "begin":
            begun = time.perf_counter()
            if int(number) == saves:
                break
        else:
            longest = max(longest, time.perf_counter() - begun)
    time.sleep(chance.uniform(0, longest))
    after = time.perf_counter() - begun
    child.kill()
    child.wait()
    output = child.stdout.read().split("\n")
    child.stdout.close()
    finished = [int(line.split()[1]) for line in output if line.startswith("end")]
    outcome = _outcome(model, file, finished[-1] if finished else saves - 1)
    leftovers = len(list(folder.glob(".*.tmp")))
    snapshot_file.remove_leftovers(folder)  # as every start of the app does
    return Kill(after, outcome, leftovers, len(list(folder.glob(".*.tmp"))))


def _outcome(model: Path, file: Path, last: int) -> str:
    """Returns "old" for the last completed save, "new" for the one after it, else why it is broken."""
    session = load(model, cache=CacheType.F32).new_session()
    try:
        restore(file, session, SHA)
    except SnapshotError as error:
        return str(error)
    found = session.tokens[0]
    if len(session.tokens) != TOKENS:
        return f"{len(session.tokens)} tokens"
    if found == 3 + last % 200:
        return "old"
    return "new" if found == 3 + (last + 1) % 200 else f"token {found} after save {last}"


def measure(kills: int, seed: int) -> list[Kill]:
    """Kill `kills` times in one folder, each time over the files the last kill left."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tiny.write(folder / "model.gguf", layers=8, context=1024)
        return [kill_once(model, folder, chance) for _ in range(kills)]


def is_sound(kill: Kill) -> bool:
    """Whether no saved session is lost and no temporary file is left."""
    return kill.outcome in ("old", "new") and kill.leftovers_after_start == 0


def main() -> int:
    """Kill, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        save_repeatedly(*options.child)
    kills = measure(options.kills, options.seed)
    print(
        json.dumps(
            {
                "kills": len(kills),
                "old": sum(kill.outcome == "old" for kill in kills),
                "new": sum(kill.outcome == "new" for kill in kills),
                "broken": sum(kill.outcome not in ("old", "new") for kill in kills),
                "left unfinished": sum(kill.leftovers for kill in kills),
                "left after the next start": sum(kill.leftovers_after_start for kill in kills),
            }
        )
    )
    return 0 if all(map(is_sound, kills)) else 1


if __name__ == "__main__":
    sys.exit(main())
