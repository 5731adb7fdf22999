"""Measures the sidebar with 5,000 chats, and search over their 100,000 messages.

    python tests/benchmarks/sidebar.py [--rounds 5] [OTHER_TREE]

Measures this tree with all chats in one list and with 200 folders, pins and an archive; with the
checkout of another version, that too, in turn. Prints the median of all rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
CHATS, MESSAGES, FOLDERS = 5000, 20, 200
TEXTS = ("README.md", "packaging/changelog.md")  # messages are pieces of these
QUERIES = {  # how many words, and among the words of the texts from which place by frequency
    "rare": (1, 0.2),
    "usual": (1, 0.03),
    "common": (1, 0.002),
    "two words": (2, 0.02),
    "four words": (4, 0.005),
}


def words() -> list[str]:
    """The words of the texts, in their order."""
    whole = " ".join((HERE / name).read_text(encoding="utf-8") for name in TEXTS)
    return re.findall(r"[a-z]{2,}", whole.lower())


def query(known: list[str], count: int, place: float) -> str:
    """Words that are as frequent as asked for."""
    ranked = [word for word, _ in Counter(known).most_common() if len(word) > 3]
    first = int(len(ranked) * place)
    return " ".join(ranked[first : first + count])


@contextmanager
def timed(times: list[float]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    times.append((time.perf_counter() - start) * 1000)


def fill(path: Path, *, folders: bool) -> None:
    """Create the store."""
    from app.store.store import Store
    from engine import Role

    choose = random.Random(1)
    store = Store.open(path)
    known = words()
    begins = [choose.randrange(len(known) - 80) for _ in range(4000)]
    parts = [" ".join(known[at : at + choose.randrange(10, 80)]) for at in begins]
    database = store._database
    store.create_conversation("A")  # warms the statements
    database.execute("PRAGMA synchronous = OFF")
    now = time.time()
    database.execute("BEGIN")
    for number in range(2, CHATS + 2):
        title = " ".join(choose.choices(known, k=5))
        database.execute(
            "INSERT INTO conversation(id, title, folded, created, updated) VALUES (?, ?, ?, ?, ?)",
            (number, title, title, now, now - number * 1000),
        )
        for turn in range(MESSAGES):
            message = number * 100 + turn
            parent = message - 1 if turn else None
            role = (Role.USER, Role.ASSISTANT)[turn % 2].value
            database.execute(
                "INSERT INTO message(id, conversation, parent, role, state, created)"
                " VALUES (?, ?, ?, ?, 'complete', ?)",
                (message, number, parent, role, now),
            )
            said = choose.choice(parts)
            database.execute(
                "INSERT INTO part(message, kind, data, text) VALUES (?, 'text', '', ?)",
                (message, said),
            )
            database.execute("INSERT INTO search(rowid, folded) VALUES (?, ?)", (message, said))
        database.execute(
            "UPDATE conversation SET leaf = ? WHERE id = ?", (number * 100 + MESSAGES - 1, number)
        )
    if folders:
        for number in range(1, FOLDERS + 1):
            parent = choose.randrange(1, number) if number > 20 else None
            database.execute(
                "INSERT INTO folder(id, parent, name, position, created) VALUES (?, ?, ?, ?, ?)",
                (number, parent, f"Folder {number}", number, now),
            )
        database.execute(
            "UPDATE conversation SET folder = 1 + id % ?, pinned = id % 500 = 0,"
            " archived = id % 10 = 0 WHERE id % 2 = 0",
            (FOLDERS,),
        )
    database.execute("COMMIT")
    store.close()


def measure(folder: Path) -> dict[str, float]:
    """Measure one tree on a store."""
    from PySide6.QtWidgets import QApplication

    from app.state.states import States
    from app.store.store import Store
    from app.ui.chat.sidebar.sidebar import Sidebar
    from app.ui.theme.theme import Theme

    application = QApplication([])
    Theme(application, "light")
    store = Store.open(folder / "conversations.sqlite")
    found: dict[str, list[float]] = {}
    with timed(found.setdefault("read", [])):
        chats = store.conversations()
    states = States()
    if hasattr(store, "folders"):
        states.chat.set_folders(store.folders())
    sidebar = Sidebar(states.chat, states.library)
    sidebar.resize(264, 760)
    sidebar.show()
    states.chat.set_conversations(chats)
    application.processEvents()
    for turn in range(12):  # an older chat is used: it moves to the top
        used = chats[1000 + turn * 300]
        with timed(found.setdefault("list build", [])):
            states.chat.change_conversation(used.id, updated=time.time() + turn)
            application.processEvents()
    for turn in range(12):
        with timed(found.setdefault("rename", [])):
            states.chat.change_conversation(chats[turn].id, title=f"Another {turn}")
            application.processEvents()
    bar = sidebar.list.verticalScrollBar()
    for step in range(60):
        bar.setValue(bar.maximum() * step // 60)
        with timed(found.setdefault("scroll step", [])):
            sidebar.list.viewport().repaint()
    sidebar.list.selectAll()
    with timed(found.setdefault("all selected", [])):
        states.chat.set_conversations([replace(chats[-1], updated=time.time()), *chats[:-1]])
        application.processEvents()

    known = words()
    for name, (count, place) in QUERIES.items():
        asked = query(known, count, place)
        for _ in range(3):
            with timed(found.setdefault(f"search, {name}", [])):
                results = store.conversations(asked)
            with timed(found.setdefault(f"hits, {name}", [])):
                store.hits(asked, [chat.id for chat in results[:200]])
    store.close()
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tree", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tree is not None:
        sys.path.insert(0, str(options.tree))
        print(json.dumps(measure(options.store)))
        return 0
    sys.path.insert(0, str(HERE))
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    with tempfile.TemporaryDirectory(prefix="tokonoma-sidebar-") as home:
        stores = {name: Path(home) / name for name in ("flat", "folders")}
        for name, folder in stores.items():
            folder.mkdir()
            fill(folder / "conversations.sqlite", folders=name == "folders")
        runs: list[tuple[str, Path, Path]] = []
        if options.other is not None:
            runs.append(("other", options.other.resolve(), stores["flat"]))
        runs += [(name, HERE, folder) for name, folder in stores.items()]
        rows: dict[str, dict[str, list[float]]] = {}
        for _ in range(options.rounds):
            for name, tree, store in runs:
                command = [sys.executable, __file__, "--tree", str(tree), "--store", str(store)]
                made = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=tree)
                for row, value in json.loads(made.stdout).items():
                    rows.setdefault(row, {}).setdefault(name, []).append(value)
    show: Callable[[str], str] = lambda text: f"{text:>10}"  # noqa: E731
    print(f"{'':20}" + "".join(show(name) for name, _, _ in runs))
    for row, values in rows.items():
        shown = (show(f"{statistics.median(values[name]):.2f}") for name, _, _ in runs)
        print(f"{row:20}" + "".join(shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
