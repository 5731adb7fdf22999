"""Crash test of long documents: kills the app while one is read part by part, until it is done.

`python -m tests.drivers.crash_long [--kills 12] [--model FILE]` from the repository's root, with the
starter model or the given one. Each run goes on with the answer of the run before; the last one
finishes it, and saves it as a file until it is killed. Exits 1 when a section is lost that was shown
for more than 0.5 s, when one is made twice or changes, or when the file is damaged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from PySide6.QtCore import QTimer

from app import __main__ as app_main
from app import smoke
from app.chat.controller import Controller
from app.domain.documents import Reads
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, Part, SectionPart, TextPart
from app.settings.table import Settings
from app.state.chat import ModelPhase
from app.store.store import Store
from engine import starter_path

ROOT = Path(__file__).parents[2]
ALLOWED_SECONDS = 0.5
TEXT = "\n\n".join(
    f"Month {n}: the ferry carried {n * 7} people and {n} dogs, and its captain was {name} Weber."
    f" The harbour council met {n % 5 + 1} times; it spent {n * 13} euros on the northern quay."
    for n, name in enumerate(["Amelia", "Jonas", "Ruth", "Ibrahim", "Mei"] * 16, 1)
)
FILE = FilePart("ferry.txt", TEXT, reads=Reads.SUMMARY)
SETTINGS = Settings(context=768, model_titles="off", snapshot_budget_gb=0)
DONE = "done"


@dataclass(frozen=True)
class Seen:
    """What a window showed: a section, or that the answer is complete."""

    when: float  # monotonic seconds
    section: dict[str, object] | str


def sections(parts: Sequence[Part]) -> list[SectionPart]:
    return [part for part in parts if isinstance(part, SectionPart)]


async def work(controller: Controller, side: Path, target: Path) -> str:
    """In the child: begin the answer or go on with it, log each new section to the file `side`, and
    save the sections at `target` once it is complete, again and again.
    """
    log = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    state, seen = controller.state, set[str]()

    def write(what: object) -> None:
        os.write(log, (json.dumps([time.monotonic(), what]) + "\n").encode())

    def begin() -> None:
        if state.model.phase is not ModelPhase.READY or seen:
            return
        seen.add("began")
        if state.conversations:
            controller.open_conversation(state.conversations[0].id)
        else:
            controller.send((FILE, TextPart("Summarise this in two sentences.")))
            write("began")

    def go_on(*_: object) -> None:
        if state.messages and "began" in seen and "went on" not in seen:
            seen.add("went on")
            if state.messages[-1].state is not MessageState.STREAMING:
                seen.update(repr(asdict(each)) for each in sections(state.messages[-1].parts))
                controller.continue_answer(state.messages[-1].id)
                write("began")

    def look(*_: object) -> None:
        message = state.messages[-1]
        for each in sections(message.parts):
            if (key := repr(asdict(each))) not in seen:
                seen.add(key)
                write(asdict(each))
        if message.state is MessageState.COMPLETE and DONE not in seen:
            seen.add(DONE)
            write(DONE)
            saving.start()
        elif message.state is MessageState.FAILED:
            write(repr(message.error))

    saving = QTimer(interval=1)
    saving.timeout.connect(lambda: controller.rewritten.save(state.messages[-1].id, target))
    state.model_changed.connect(begin)
    state.conversation_changed.connect(go_on)
    state.message_changed.connect(look)
    begin()
    await asyncio.Event().wait()
    return ""


def kill_once(
    home: Path, number: int, model: Path, chance: random.Random, wait: str
) -> tuple[list[Seen], float]:
    """Start the app, and kill it at a random moment after it has logged `wait`."""
    side, target = home / f"shown-{number}", home / "out.docx"
    module = "tests.drivers.crash_long"
    child = subprocess.Popen(
        [sys.executable, "-m", module, "--child", str(side), str(target), "--model", str(model)],
        cwd=ROOT,
        env={**os.environ, "TOKONOMA_HOME": str(home), "QT_QPA_PLATFORM": "offscreen"},
    )
    while not (side.exists() and f'"{wait}"' in side.read_text(encoding="utf-8")):
        if child.poll() is not None:
            raise SystemExit(f"The app exited before the kill, with status {child.returncode}.")
        time.sleep(0.005)
    time.sleep(chance.uniform(0.0, 1.0 if wait == DONE else 6.0))
    child.kill()
    died = time.monotonic()
    child.wait()
    lines = side.read_text(encoding="utf-8").splitlines(keepends=True)
    return [Seen(*json.loads(line)) for line in lines if line.endswith("\n")], died


def stored(home: Path) -> Message:
    """The answer in the database, which is opened as after a start."""
    store = Store.open(home / "data" / "conversations.sqlite")
    try:
        [chat] = store.conversations()
        return store.branch(chat.id)[-1]
    finally:
        store.close()


def faults(message: Message, before: list[SectionPart], seen: list[Seen], died: float) -> list[str]:
    """What is wrong with a stored answer after a kill."""
    found = sections(message.parts)
    kept = [asdict(each) for each in found]
    wrong: list[str] = []
    for each in seen:
        age = died - each.when
        if isinstance(each.section, dict) and each.section not in kept and age > ALLOWED_SECONDS:
            wrong.append(f"lost a section shown for {age:.2f} s")
    if found[: len(before)] != before:
        wrong.append("an earlier section has changed")
    read = [each for each in found if not each.level]
    if [each.start for each in read] != [0, *(each.end for each in read[:-1])][: len(read)]:
        wrong.append("a part is missing or was read twice")
    return wrong


def main() -> int:
    """Print a row for every kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, default=starter_path())
    parser.add_argument("--child", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        smoke.run = lambda controller, window: work(controller, *options.child)
        return app_main._run([options.model], SETTINGS, smoke_test=True)
    chance, broken, before = random.Random(options.seed), 0, list[SectionPart]()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        print("kill  waited for  sections by level  state        faults")
        for number in range(1, options.kills + 1):
            wait = DONE if number == options.kills else "began"
            seen, died = kill_once(home, number, options.model, chance, wait)
            answer = stored(home)
            wrong = faults(answer, before, seen, died)
            before = sections(answer.parts)
            if wait == DONE:
                if answer.state is not MessageState.COMPLETE or not answer.text.strip():
                    wrong.append("the answer is not complete")
                if before and max(each.end for each in before if not each.level) != len(TEXT):
                    wrong.append("the end of the document was not read")
                target = home / "out.docx"
                if target.exists() and zipfile.ZipFile(target).testzip() is not None:
                    wrong.append("the file is damaged")
            broken += bool(wrong)
            levels = [each.level for each in before]
            counts = "+".join(str(levels.count(n)) for n in range(max(levels, default=0) + 1))
            print(
                f"{number:4}  {wait:10}  {counts:17}  {answer.state.value:11}"
                f"  {'; '.join(wrong) or 'none'}",
                flush=True,
            )
    print(f"{broken} of {options.kills} kills broke something")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
