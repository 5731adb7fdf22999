"""The app's own first use, unattended: load the model, ask one question, print the answer."""

from __future__ import annotations

import asyncio

from app.controller import Controller
from app.settings import Settings
from app.state import ModelPhase, State
from app.store import Message, MessageState

QUESTION = "What is the capital of France?"
SETTINGS = Settings(temperature=0.0, max_tokens=60)  # the same answer every time, and a short one
DEADLINE_SECONDS = 240


class SmokeError(Exception):
    """The run failed; the sentence says why."""


async def run(controller: Controller) -> str:
    """Drive the window's own controller; returns what to print, or raises SmokeError."""
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            answer = await _ask(controller)
    except TimeoutError:
        raise SmokeError(f"There was no answer within {DEADLINE_SECONDS} seconds.") from None
    speed = f"{answer.generated_tokens} tokens, {controller.state.speed:.1f} tokens/s"
    return f"> {QUESTION}\n{answer.text.strip()}\n\n{answer.model}: {speed}"


async def _ask(controller: Controller) -> Message:
    """Send the question as soon as the model is there, and wait for the answer's end."""
    state = controller.state
    while state.model.phase is not ModelPhase.READY:
        if state.model.error:
            raise SmokeError(f"{state.model.error} {state.model.remedy}".strip())
        await _next(state)
    controller.send(QUESTION)
    while (answer := state.messages[-1]).state is MessageState.STREAMING:
        await _next(state)
    if answer.error or not answer.text.strip():
        raise SmokeError(answer.error or "The answer was empty.")
    if notice := next(iter(state.notices.values()), None):
        raise SmokeError(f"{notice.sentence} {notice.remedy}".strip())
    return answer


async def _next(state: State) -> None:
    """Wait until the state changes, in whatever way."""
    changed = asyncio.Event()
    signals = (
        state.model_changed,
        state.generation_changed,
        state.message_changed,
        state.notices_changed,
    )
    for signal in signals:
        signal.connect(changed.set)
    try:
        await changed.wait()
    finally:
        for signal in signals:
            signal.disconnect(changed.set)
