"""Crash test of the app: kills it while an answer streams, and measures the text lost on restart.

`python -m tests.drivers.crash_app [--kills 10] [--model FILE]` from the repository's root, with the
starter model or the given one. Window, engine and database are the real ones; the child process
only logs the text its window received, and when. Exits 1 when more than the last 0.5 s is lost.
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
from pathlib import Path

from app import __main__ as app_main
from app import smoke
from app.chat.controller import Controller
from app.domain.message import MessageState
from app.settings.table import Settings
from app.state.chat import ModelPhase
from app.store.store import Store
from engine import starter_path

ROOT = Path(__file__).parents[2]
ALLOWED_SECONDS = 0.5
QUESTION = "Write a long story about a gardener and a bonsai tree."
Shown = list[tuple[float, str]]


async def stream(controller: Controller, side: Path) -> str:
    """In the child: ask the question, and log every piece of the answer to the file `side`."""
    log = os.open(side, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    state = controller.state

    def write(_message: object, text: str) -> None:
        os.write(log, (json.dumps([time.monotonic(), text]) + "\n").encode())

    def ask_once() -> None:
        if state.model.phase is ModelPhase.READY:
            state.model_changed.disconnect(ask_once)
            controller.send(QUESTION)

    state.text_added.connect(write)
    state.model_changed.connect(ask_once)
    await asyncio.Event().wait()
    return ""


def kill_once(home: Path, side: Path, model: Path, chance: random.Random) -> tuple[Shown, float]:
    """Start the app and kill it at a random moment; returns the text shown and the kill time."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.drivers.crash_app",
            "--child",
            str(side),
            "--model",
            str(model),
        ],
        cwd=ROOT,
        env={**os.environ, "TOKONOMA_HOME": str(home), "QT_QPA_PLATFORM": "offscreen"},
    )
    while not (side.exists() and side.stat().st_size):
        if child.poll() is not None:
            raise SystemExit(f"The app exited before the kill, with status {child.returncode}.")
        time.sleep(0.005)
    time.sleep(chance.uniform(0.0, 4.0))
    child.kill()
    died = time.monotonic()
    child.wait()
    lines = side.read_text(encoding="utf-8").splitlines(keepends=True)
    return [tuple(json.loads(line)) for line in lines if line.endswith("\n")], died


def missing_seconds(shown: Shown, kept: int, died: float) -> float:
    """Age, at the kill, of the first shown character that is lost; 0 when none is."""
    for when, text in shown:
        kept -= len(text)
        if kept < 0:
            return died - when
    return 0.0


def main() -> int:
    """Print a row for every kill."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path, default=starter_path())
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        smoke.run = lambda controller, window: stream(controller, options.child)
        return app_main._run([options.model], Settings(), smoke_test=True)
    chance, worst, broken = random.Random(options.seed), 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        print("kill  shown s  shown  kept  missing s  state        earlier answers")
        earlier: dict[int, str] = {}
        for number in range(1, options.kills + 1):
            shown, died = kill_once(home, home / f"shown-{number}", options.model, chance)
            text = "".join(piece for _, piece in shown)
            store = Store.open(home / "data" / "conversations.sqlite")
            newest, *older = store.conversations()
            answer = store.branch(newest.id)[-1]
            found = {c.id: store.branch(c.id)[-1].text for c in older}
            store.close()
            missing = missing_seconds(shown, len(answer.text), died)
            whole = text.startswith(answer.text) and answer.state is MessageState.INTERRUPTED
            kept = all(found.get(key) == value for key, value in earlier.items())
            earlier[newest.id] = answer.text
            worst, broken = max(worst, missing), broken + (not whole or not kept)
            print(
                f"{number:4}  {died - shown[0][0]:7.2f}  {len(text):5}  {len(answer.text):4}"
                f"  {missing:9.3f}  {answer.state.value:11}  {'untouched' if kept else 'CHANGED'}"
            )
    print(f"worst: {worst:.3f} s missing of {ALLOWED_SECONDS} s allowed; {broken} broken")
    return 0 if worst <= ALLOWED_SECONDS and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
