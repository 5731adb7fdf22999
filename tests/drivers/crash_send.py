"""Crash test of sending: kills the app at the moment that what was typed has left the field.

`python -m tests.drivers.crash_send [--kills 4] [--load 8]` from the repository's root, with the
starter model. Window, engine and database are the real ones; the child process types, presses Enter
(or strikes a passage out) and kills itself before anything else can run. `--load` processes keep all
cores busy meanwhile. Exits 1 when a text or a strike is not in the database.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from app import __main__ as app_main
from app import smoke
from app.chat.controller import Controller
from app.domain.documents import Passage
from app.domain.parts import PassagesPart, TextPart
from app.domain.passages import passages_part
from app.settings.table import Settings
from app.state.chat import ModelPhase
from app.store.store import Store
from app.ui.window import Window
from engine import Role, starter_path

ROOT = Path(__file__).parents[2]
WAYS = ("new chat", "next message", "waiting message", "edited message", "passage")


async def until(done: Callable[[], object]) -> None:
    """Wait until something has happened in the app."""
    async with asyncio.timeout(120):
        while not done():  # noqa: ASYNC110  (it may be anything)
            await asyncio.sleep(0.01)


def enter(field: QWidget | None, text: str) -> None:
    """Type a text and press Enter; nothing else runs in between."""
    assert field is not None
    QTest.keyClicks(field, text)
    QTest.keyClick(field, Qt.Key.Key_Return)


async def use(controller: Controller, window: Window, way: str, text: str) -> str:
    """In the child: send a text, or strike a passage out, and die."""
    state, transcript = controller.state, window.transcript
    await until(lambda: state.model.phase is ModelPhase.READY)
    field = window.composer.editor
    if way != "new chat":
        await until(lambda: state.messages)
    if way == "waiting message":
        enter(field, "Tell a long story.")
        await until(lambda: len(state.messages[-1].text) > 20)
    if way == "edited message":
        transcript.edit_message(state.messages[0].id)
        assert transcript.editing.editor is not None
        enter(window.focusWidget(), text)
    elif way == "passage":
        transcript.message_layout.toggle_row(0, 0)
        strikes = [c.use for c in transcript.access.controls.of(0) if c.key.endswith(" strike")]
        assert strikes[0] is not None
        strikes[0]()
    else:
        enter(field, text)
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def prepare(database: Path) -> int:
    """A chat with a question that has a passage, and its answer."""
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(Store.open(database)) as store:
        chat = store.create_conversation("A pump")
        part = PassagesPart((Passage(1, "manual.pdf", "The warranty is two years."),))
        asked = store.add_message(chat.id, None, Role.USER, (part, TextPart("How long?")))
        store.add_message(chat.id, asked.id, Role.ASSISTANT, "Two years [1].")
        return chat.id


def is_kept(database: Path, way: str, text: str) -> bool:
    """Whether what the child did is in the database."""
    with closing(Store.open(database)) as store:
        chats = store.conversations()
        if way == "passage":
            part = passages_part(store.branch(chats[-1].id)[0].parts)
            return part is not None and part.passages[0].toggled
        texts = [message.text for chat in chats for message in store.branch(chat.id)]
        unsent = [store.draft(chat).text for chat in (None, *(chat.id for chat in chats))]
        return any(text in each for each in (*texts, *unsent))


def main() -> int:
    """Print a row for every kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=4, help="of each way to send")
    parser.add_argument("--load", type=int, default=8, help="busy processes beside the app")
    parser.add_argument("--model", type=Path, default=starter_path())
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        way, text, chat = options.child
        smoke.run = lambda controller, window: use(controller, window, way, text)
        settings = Settings(last_conversation=int(chat) if way != "new chat" else 0)
        return app_main._run([options.model], settings, smoke_test=True)
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.load)
    ]
    lost = 0
    try:
        for number in range(options.kills * len(WAYS)):
            way, text = WAYS[number % len(WAYS)], f"typed{number}"
            with tempfile.TemporaryDirectory() as folder:
                database = Path(folder) / "data" / "conversations.sqlite"
                child = (way, text, str(prepare(database)))
                done = subprocess.run(
                    [
                        sys.executable,
                        "-m",
                        "tests.drivers.crash_send",
                        "--model",
                        str(options.model),
                        "--child",
                        *child,
                    ],
                    cwd=ROOT,
                    env={**os.environ, "TOKONOMA_HOME": folder, "QT_QPA_PLATFORM": "offscreen"},
                    check=False,
                )
                if done.returncode != -signal.SIGKILL:
                    raise SystemExit(f"The app ended by itself, with status {done.returncode}.")
                kept = is_kept(database, way, text)
            lost += not kept
            print(f"{number + 1:4}  {way:16}  {'kept' if kept else 'LOST'}", flush=True)
    finally:
        for each in busy:
            each.kill()
    print(f"{lost} lost")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
