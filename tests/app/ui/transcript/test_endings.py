"""The line below an answer that was stopped or failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.store.store import Message, MessageState, StopReason
from app.ui.transcript.endings import ending
from engine import Role

ANSWER = Message(
    2, 1, 1, Role.ASSISTANT, "Because", MessageState.COMPLETE, 0.0, "model", "", 0, 0, 0.0, 1, 1
)


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        (MessageState.COMPLETE, "", ""),
        (MessageState.STREAMING, "", ""),
        (MessageState.STOPPED, StopReason.USER, "Stopped by you"),
        (MessageState.STOPPED, "user", "Stopped by you"),  # as read from the store
        (MessageState.STOPPED, StopReason.LENGTH, "Stopped at the answer length set in Settings"),
        (
            MessageState.STOPPED,
            StopReason.CONTEXT,
            "Stopped because this chat is full. Start a new chat to go on.",
        ),
        (MessageState.STOPPED, "", ""),  # stored by an earlier version
        (MessageState.STOPPED, "An earlier sentence.", "An earlier sentence."),
        (MessageState.FAILED, "It failed. Try again.", "It failed. Try again."),
    ],
)
def test_answer_says_how_it_ended(state: MessageState, error: str, words: str) -> None:
    assert ending(replace(ANSWER, state=state, error=error)) == words
