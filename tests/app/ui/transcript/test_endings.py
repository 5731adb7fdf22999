"""The line below an answer that was stopped or failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.store.store import Message, MessageState, StopReason
from app.ui.transcript.endings import ending, short_ending
from engine import Role

ANSWER = Message(
    2, 1, 1, Role.ASSISTANT, "Because", MessageState.COMPLETE, 0.0, "model", "", 0, 0, 0.0, 1, 1
)


@pytest.mark.parametrize(
    ("state", "error", "words"),
    [
        (MessageState.COMPLETE, "", ""),
        (MessageState.STREAMING, "", ""),
        (MessageState.STOPPED, StopReason.USER, ""),
        (MessageState.STOPPED, "length", "Stopped at the answer length set in Settings"),  # as read
        (MessageState.STOPPED, StopReason.LENGTH, "Stopped at the answer length set in Settings"),
        (
            MessageState.STOPPED,
            StopReason.CONTEXT,
            "Stopped because this chat is full",
        ),
        (MessageState.STOPPED, "", ""),  # stored by an earlier version
        (MessageState.STOPPED, "An earlier sentence.", "An earlier sentence."),
        (MessageState.FAILED, "It failed. Try again.", "It failed. Try again."),
    ],
)
def test_answer_says_how_it_ended(state: MessageState, error: str, words: str) -> None:
    assert ending(replace(ANSWER, state=state, error=error)) == words


@pytest.mark.parametrize(
    ("state", "error", "word"),
    [
        (MessageState.COMPLETE, "", ""),
        (MessageState.STOPPED, "user", "Stopped by you"),
        (MessageState.STOPPED, "", "Stopped"),  # stored by an earlier version
        (MessageState.STOPPED, StopReason.CONTEXT, ""),
        (MessageState.INTERRUPTED, "", "Interrupted"),
        (MessageState.FAILED, "It failed.", ""),
    ],
)
def test_word_beside_the_tools(state: MessageState, error: str, word: str) -> None:
    assert short_ending(replace(ANSWER, state=state, error=error)) == word
