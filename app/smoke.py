"""The app's own first use, unattended: ask one question, open the pages, print the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from PySide6.QtCore import SignalInstance
from PySide6.QtWidgets import QWidget

from app.chat.controller import Controller
from app.settings.table import Settings
from app.state.chat import ModelPhase, State
from app.state.library import FileState, LibraryState
from app.store.store import Message, MessageState
from app.ui.window import Window
from engine import starter_path

QUESTION = "What is the capital of France?"
SETTINGS = Settings(temperature=0.0, max_tokens=60)  # the same answer every time, and a short one
DEADLINE_SECONDS = 240


class SmokeError(Exception):
    """The run failed; the sentence says why."""


async def run(controller: Controller, window: Window) -> str:
    """Drive the window and its controller; returns what to print, or raises SmokeError."""
    doing = "an answer"
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            answer = await _ask(controller)
            doing = "a list of models"
            _look(window.open_library, lambda: window.library)
            await _listed(controller.library.state)
            _look(window.open_settings, lambda: window.preferences)
            _look(window.close_page, lambda: window.chat)
    except TimeoutError:
        raise SmokeError(f"There was not {doing} within {DEADLINE_SECONDS} seconds.") from None
    _see_notices(controller.state)
    speed = f"{answer.generated_tokens} tokens, {controller.state.speed:.1f} tokens/s"
    return f"> {QUESTION}\n{answer.text.strip()}\n\n{answer.model}: {speed}"


async def _ask(controller: Controller) -> Message:
    """Send the question as soon as the model is there, and wait for the answer's end."""
    state = controller.state
    while state.model.phase is not ModelPhase.READY:
        if state.model.error:
            raise SmokeError(f"{state.model.error} {state.model.remedy}".strip())
        await _change(state)
    controller.send(QUESTION)
    while (answer := state.messages[-1]).state is MessageState.STREAMING:
        await _change(state)
    if answer.error or not answer.text.strip():
        raise SmokeError(answer.error or "The answer was empty.")
    _see_notices(state)
    return answer


def _look(open_page: Callable[[], None], page: Callable[[], QWidget | None]) -> None:
    """Open a page and have it drawn, as the next frame would."""
    open_page()
    shown = page()
    if shown is None or not shown.isVisible() or shown.grab().isNull():
        raise SmokeError("A page was opened and did not show itself.")


async def _listed(library: LibraryState) -> None:
    """Wait until the models were looked through; the starter, where it is there, must be good."""
    starter = starter_path()
    while True:
        rows = [row for row in library.installed if row.path == starter]
        if library.searched and not (rows and rows[0].state is FileState.UNKNOWN):
            break
        await _next(library.installed_changed)
    if starter.is_file() and (not rows or rows[0].state is not FileState.GOOD):
        why = f"{rows[0].problem} {rows[0].remedy}" if rows else "It is not listed."
        raise SmokeError(f"The page of models is wrong about {starter.name}. {why}".strip())


def _see_notices(state: State) -> None:
    """Nothing may have gone wrong on the way."""
    if notice := next(iter(state.notices.values()), None):
        raise SmokeError(f"{notice.sentence} {notice.remedy}".strip())


async def _change(state: State) -> None:
    """Wait until the chat's state changes, in whatever way."""
    await _next(
        state.model_changed, state.generation_changed, state.message_changed, state.notices_changed
    )


async def _next(*signals: SignalInstance) -> None:
    """Wait until one of the signals comes."""
    changed = asyncio.Event()
    for signal in signals:
        signal.connect(changed.set)
    try:
        await changed.wait()
    finally:
        for signal in signals:
            signal.disconnect(changed.set)
