"""Quitting with unsaved changes: asks the user, and a hanging store does not block it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QTimer

from app.store.store import Store
from fakes import MODEL
from stage import Stage, until

ROOT = Path(__file__).parents[3]
LIMIT_MILLISECONDS = 5000  # time limit of the flush before the user is asked


class Gate:
    """A store change that blocks until the test opens the gate."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, store: Store) -> None:
        self.entered.set()
        assert self.opened.wait(60)


@pytest.fixture
def gate(stage: Stage) -> Iterator[Gate]:
    """The store's thread is blocked in a call."""
    made = Gate()
    stage.store_queue.write(made)
    assert made.entered.wait(10)
    yield made
    made.opened.set()


def shorten(stage: Stage) -> None:
    """Shorten the time limit before the user is asked."""
    timers = stage.controller.quitting.findChildren(QTimer)
    (limit,) = [timer for timer in timers if timer.interval() == LIMIT_MILLISECONDS]
    limit.setInterval(20)


def quits_of(stage: Stage) -> list[bool]:
    quits: list[bool] = []
    stage.controller.may_quit.connect(lambda: quits.append(True))
    return quits


def test_quitting_with_a_hanging_store_asks_the_user(stage: Stage, gate: Gate) -> None:
    quits = quits_of(stage)
    shorten(stage)
    stage.controller.ask_to_quit()
    until(lambda: "quit" in stage.state.notices)
    assert stage.state.notices["quit"].action == "Quit anyway"
    assert quits == []
    stage.controller.act_on_notice("quit")
    assert quits == [True]


def test_app_quits_when_a_slow_store_finishes(stage: Stage, gate: Gate) -> None:
    quits = quits_of(stage)
    shorten(stage)
    stage.controller.ask_to_quit()
    until(lambda: "quit" in stage.state.notices)
    gate.opened.set()
    until(lambda: quits == [True])


def test_closing_the_question_keeps_the_app_open(stage: Stage, gate: Gate) -> None:
    quits = quits_of(stage)
    shorten(stage)
    stage.controller.ask_to_quit()
    until(lambda: "quit" in stage.state.notices)
    stage.controller.close_notice("quit")
    gate.opened.set()
    stage.wait_until_idle()
    assert quits == []
    assert "quit" not in stage.state.notices
    stage.controller.ask_to_quit()
    until(lambda: quits == [True])


def test_close_times_out_on_a_hanging_store(
    stage: Stage, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    stage.controller.start(MODEL)
    stage.engine.finish_load()
    stage.drain()
    assert stage.controller.send("Is this kept?")
    assert not stage.store_queue.close(timeout_seconds=0.05)
    assert "could not be saved" in caplog.text


HANGING = """
import sys, threading
sys.path[:0] = [{root!r}]
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from app import __main__ as program
from app.store import writer
from app.settings.table import Settings
from app.ui.window import Window

has_store = asked = False

class Hanging(writer.StoreQueue):
    def __init__(self, *arguments):
        global has_store
        super().__init__(*arguments)
        self.write(lambda store: threading.Event().wait())
        has_store = True

writer.StoreQueue = Hanging

def look():
    global asked
    for window in QApplication.topLevelWidgets() if QApplication.instance() else ():
        if not isinstance(window, Window) or not window.isVisible() or not has_store:
            continue
        if not asked:
            asked = True
            window.close()
        elif "quit" in window.banners.shown:
            print("asked", flush=True)
            window.banners.shown["quit"].action.click()

class Watched(Window):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.look = QTimer(self, interval=50)
        self.look.timeout.connect(look)
        self.look.start()

program.Window = Watched
status = program._run([], Settings(), smoke_test=False)
print("ended", flush=True)
sys.exit(status)
"""


def test_quit_anyway_ends_the_process_with_a_hanging_store(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING.format(root=str(ROOT))],
        env={**os.environ, "TOKONOMA_HOME": str(tmp_path), "QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["asked", "ended"]
    assert done.returncode == 0, done.stderr
    assert "could not be saved" in done.stderr
