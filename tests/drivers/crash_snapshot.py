"""Crash test of the page store: kills a process that saves and evicts, and checks the folder.

`python tests/drivers/crash_snapshot.py [--kills 30] [--seed 1]` from the repository's root; exits 1
when a wrong state is restored, a finished save is lost that no later one evicts, or files of the
killed process are left after the next start. All kills are in one folder, each at a random moment
of the child's work.
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

from engine.state.disk import cleanup, page_file, sequence_file
from engine.state.disk.page_file import StateKey
from engine.state.disk.sequence_file import SavedSequence
from engine.state.disk.store import PageStore
from saved_pages import memory_pages, restored

KEY = StateKey("c" * 64, "", "f16", (200_000, 50_000))
WINDOWS = (0, 600)
BUDGET_BYTES = 8_000_000  # about six conversations, so that most saves evict
CONVERSATIONS = 9
EVICTED = "evicted"  # a line of the child


@dataclass(frozen=True, slots=True)
class Kill:
    """Result of one kill."""

    saves: int  # that the child had finished
    evictions: int  # the same
    sequences: int  # found afterwards
    restored_tokens: int  # of all sequences, each byte compared
    incomplete: int  # sequences of which a page is missing
    lost: bool  # the last finished save is not there
    leftovers: int  # files without a sequence, at the kill
    leftovers_after_start: int


def tokens_of(conversation: int, length: int) -> list[int]:
    """Tokens of a conversation; all conversations share the first 700."""
    shared = min(length, 700)
    return [*range(shared), *(conversation * 10_000 + at for at in range(shared, length))]


def save_repeatedly(folder: Path, seed: int) -> None:
    """In the child: extend or evict random conversations forever; print what has finished."""
    chance = random.Random(seed)
    store = PageStore(folder)
    print("ready", flush=True)
    while True:
        conversation = chance.randrange(CONVERSATIONS)
        tokens = tokens_of(conversation, chance.randint(1, 1600))
        if chance.randrange(2):
            evict(store, str(conversation), tokens, chance.randint(1, 7))
            print(EVICTED, flush=True)
            continue
        pages = memory_pages(tokens, KEY, WINDOWS)
        result = store.save(
            str(conversation), KEY, {}, tokens, pages, {}, budget_bytes=BUDGET_BYTES
        )
        print(result.path.name, flush=True)


def evict(store: PageStore, conversation: str, tokens: list[int], pages: int) -> None:
    """Write so many of the last pages, as a prefix tree gives them up: from the end."""
    sources = memory_pages(tokens, KEY, WINDOWS)
    for index in list(range(len(sources)))[: -pages - 1 : -1]:
        store.add_evicted(
            conversation,
            KEY,
            {},
            sequence_file.encoded_ids(tokens[: (index + 1) * page_file.PAGE_TOKENS]),
            {index: sources[index]},
            stamp=store.deletion_stamp(conversation),
            windows=WINDOWS,
            budget_bytes=BUDGET_BYTES,
        )


def kill_once(folder: Path, chance: random.Random) -> Kill:
    """Start a child, kill it at a random moment, and check the folder."""
    command = [sys.executable, __file__, "--child", str(folder), str(chance.randrange(1 << 30))]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    saves = chance.randint(0, 6)
    finished = [child.stdout.readline().strip() for _ in range(saves)]
    time.sleep(chance.uniform(0, 0.15))
    child.kill()
    child.wait()
    finished += child.stdout.read().split("\n")[:-1]
    child.stdout.close()
    leftovers = len(unreferenced(folder))
    store = PageStore(folder)  # as every start of the app does
    found = store.sequences()
    assert all(saved.fault is None for saved in found), "a sequence is damaged"
    tokens = [restored(store, saved, WINDOWS) for saved in found]
    # Of an evicted text memory may have had the beginning.
    whole = [0 if saved.metadata else len(saved.tokens) for saved in found]
    return Kill(
        saves=len(finished) - finished.count(EVICTED),
        evictions=finished.count(EVICTED),
        sequences=len(found),
        restored_tokens=sum(tokens),
        incomplete=sum(got < of for got, of in zip(tokens, whole, strict=True)),
        lost=finished[-1:] not in ([], [EVICTED]) and not is_saved(finished[-1], found),
        leftovers=leftovers,
        leftovers_after_start=len(unreferenced(folder)),
    )


def is_saved(name: str, found: list[SavedSequence]) -> bool:
    """Whether a sequence is there, or a longer one of its conversation, saved after it."""
    newest = [saved.path.name for saved in found[:2]]  # the killed save may have finished too
    return name in newest or (bool(newest) and newest[0].split("-")[0] == name.split("-")[0])


def unreferenced(folder: Path) -> list[Path]:
    """Unfinished files, and pages that no sequence names."""
    names = {page.name for saved in sequence_file.read_all(folder) for page in saved.pages}
    return [
        path
        for path, _ in cleanup.files_of(folder)
        if path.suffix == ".tmp" or (path.suffix == ".page" and path.name[:64] not in names)
    ]


def measure(kills: int, seed: int) -> list[Kill]:
    """Kill `kills` times in one folder, each time over the files the last kill left."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        return [kill_once(Path(name), chance) for _ in range(kills)]


def is_sound(kill: Kill) -> bool:
    """Whether everything saved is restored whole, and nothing is left of the killed process."""
    return not (kill.lost or kill.incomplete or kill.leftovers_after_start)


def main() -> int:
    """Kill, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        save_repeatedly(Path(options.child[0]), int(options.child[1]))
    kills = measure(options.kills, options.seed)
    print(
        json.dumps(
            {
                "kills": len(kills),
                "finished saves": sum(kill.saves for kill in kills),
                "finished evictions": sum(kill.evictions for kill in kills),
                "restored tokens": sum(kill.restored_tokens for kill in kills),
                "incomplete sequences": sum(kill.incomplete for kill in kills),
                "lost saves": sum(kill.lost for kill in kills),
                "left by the kills": sum(kill.leftovers for kill in kills),
                "left after the next start": sum(kill.leftovers_after_start for kill in kills),
            }
        )
    )
    return 0 if all(map(is_sound, kills)) else 1


if __name__ == "__main__":
    sys.exit(main())
