r"""The window with a real server of models: connect, ask, stop, overflow, and the server killed.

    PYTHONPATH=.:tests/support xvfb-run -a .venv/bin/python tests/drivers/remote_window.py \
        http://127.0.0.1:8000 FOLDER [--key KEY] [--kill PID]

It types into the page of connections, chooses the model in the picker, and presses the same buttons
as a user. Each step prints a line, and leaves a picture in FOLDER; the exit status is 1 if any
failed. `--kill` ends the server with SIGKILL in the middle of the last answer.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtWidgets import QApplication

from app.chat.servers.engine_directory import engines_elsewhere
from app.chat.servers.network import Outside
from app.domain.message import Message, MessageState
from app.state.connections import EngineState
from app.ui.settings.fields import LineField
from app.ui.transcript.message.endings import ending
from stage import Stage

SECONDS = 120.0
LONG = "Write a very long story about the sea, with many chapters."


def wait(true: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Process events until something is true."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("it never came true")
        QApplication.processEvents()
        time.sleep(0.005)


class Walk:
    """The steps, on one window."""

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.failed = 0
        self.stage: Stage
        directory, remote = engines_elsewhere(lambda: self.stage.controller.settings)
        self.stage = Stage(asked.folder, outside=Outside(None, directory, remote))
        self.stage.start()

    def step(self, name: str, call: Callable[[], str]) -> None:
        try:
            words = call()
        except Exception as error:  # noqa: BLE001  (the next step is tried all the same)
            self.failed += 1
            words = f"FAILED: {type(error).__name__}: {error}"
        print(f"{name:10} {words}", flush=True)
        self.stage.window.grab().save(str(self.asked.folder / f"{name}.png"))

    def run(self) -> int:
        self.step("connect", self.connect)
        self.step("choose", self.choose)
        self.step("answer", partial(self.answer, "Say hello."))
        self.step("again", partial(self.answer, "And say goodbye."))
        self.step("stop", self.stop)
        self.step("overflow", self.overflow)
        if self.asked.kill:
            self.step("killed", self.killed)
            self.step("gone", self.gone)
        self.stage.close()
        return 1 if self.failed else 0

    def connect(self) -> str:
        window = self.stage.window
        window.connections.toggle()
        page = window.connections.page
        assert page is not None
        page.engines.add.click()
        editor = page.engines.editor
        address = editor.rows["address"].field
        assert isinstance(address, LineField)
        address.line.setText(self.asked.address)
        editor.key_line.setText(self.asked.key)
        editor.save.click()
        state = self.stage.states.connections
        wait(lambda: bool(state.engines) and state.engines[0].state is not EngineState.ASKING)
        wait(lambda: state.engines[0].state in (EngineState.READY, EngineState.FAILED))
        row = state.engines[0]
        assert row.state is EngineState.READY, row.problem
        return f"{row.name} at {row.address}: {', '.join(row.models)}"

    def choose(self) -> str:
        window, state = self.stage.window, self.stage.state
        window.close_page()
        wait(lambda: bool(state.served))
        window.open_picker()
        window.picker.list.choose_first()
        wait(lambda: state.chat_model is not None)
        return window.chat.status_line.words.text()

    def ended(self) -> Message:
        state = self.stage.state
        wait(lambda: bool(state.messages) and not state.generations)
        self.stage.wait_until_idle()
        return state.messages[-1]

    def send(self, text: str) -> None:
        self.stage.window.composer.set_text(text)
        self.stage.window.composer.submitted.emit(self.stage.window.composer.parts())

    def answer(self, text: str) -> str:
        self.stage.controller.change_settings(max_tokens=20)
        self.send(text)
        message = self.ended()
        assert message.error is None, ending(message)
        assert message.text
        speed = message.generated_tokens / message.seconds if message.seconds else 0.0
        return f"{message.text!r}, {message.generated_tokens} tokens, {speed:.0f}/s"

    def writing(self) -> None:
        """Ask for a long answer, and wait until some of it is there."""
        self.stage.controller.change_settings(max_tokens=0)
        self.send(LONG)
        wait(lambda: bool(self.stage.state.generations))
        wait(lambda: len(self.stage.state.messages[-1].text) > 20)

    def stop(self) -> str:
        self.writing()
        began = time.monotonic()
        self.stage.controller.stop()
        wait(lambda: not self.stage.state.generations)
        took = (time.monotonic() - began) * 1000
        message = self.ended()
        assert message.state is MessageState.STOPPED
        assert message.text
        return f"after {took:.0f} ms, {len(message.text)} characters are kept"

    def overflow(self) -> str:
        self.send("word " * 6000)
        message = self.ended()
        assert message.error is not None
        return ending(message)

    def killed(self) -> str:
        self.stage.controller.new_conversation()
        self.choose()
        self.writing()
        os.kill(self.asked.kill, signal.SIGKILL)
        message = self.ended()
        assert message.state is MessageState.FAILED
        return f"{len(message.text)} characters are kept. {ending(message)}"

    def gone(self) -> str:
        self.stage.controller.continue_answer(self.stage.state.messages[-1].id)
        message = self.ended()
        assert message.text
        return ending(message)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("address")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--key", default="")
    parser.add_argument("--kill", type=int, default=0, metavar="PID")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    os.environ["TOKONOMA_HOME"] = str(asked.folder / "home")
    application = QApplication.instance() or QApplication([])
    assert application is not None
    return Walk(asked).run()


if __name__ == "__main__":
    sys.exit(main())
