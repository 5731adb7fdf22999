"""The line below an answer that was stopped or failed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.domain.message import Message, MessageState, StopReason
from app.domain.parts import ErrorPart, TextPart
from app.ui.transcript.message.endings import ending, short_ending
from engine import Fault, FaultKind, Role

ANSWER = Message(
    2, 1, 1, Role.ASSISTANT, (TextPart("Because"),), MessageState.COMPLETE, 0.0, "model", "",
    0, 0, 0.0, 1, 1,
)  # fmt: skip
FULL = ErrorPart(Fault(FaultKind.CHAT_FULL, most_context=4096), "m.gguf", "Full.", "Exact.")


@pytest.mark.parametrize(
    ("state", "stop", "words"),
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
        (
            MessageState.STOPPED,
            StopReason.REPETITION,
            "Stopped: the model was repeating itself",
        ),
        (MessageState.STOPPED, "", ""),  # stored by an earlier version
        (MessageState.STOPPED, "An earlier sentence.", "An earlier sentence."),
        (MessageState.FAILED, "", ""),
    ],
)
def test_answer_says_how_it_ended(state: MessageState, stop: str, words: str) -> None:
    assert ending(replace(ANSWER, state=state, stop=stop)) == words


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            FULL,
            "This chat is full (4,096 tokens)."
            " Start a new chat, or choose a longer context in the model's settings.",
        ),
        (ErrorPart(message="It failed.", remedy="Try again."), "It failed. Try again."),
    ],
)
def test_failed_answer_says_why_and_what_to_do(error: ErrorPart, words: str) -> None:
    failed = replace(ANSWER, state=MessageState.FAILED, parts=(*ANSWER.parts, error))
    assert ending(failed) == words
    assert short_ending(failed) == ""


@pytest.mark.parametrize(
    ("state", "stop", "word"),
    [
        (MessageState.COMPLETE, "", ""),
        (MessageState.STOPPED, "user", "Stopped by you"),
        (MessageState.STOPPED, "", "Stopped"),  # stored by an earlier version
        (MessageState.STOPPED, StopReason.CONTEXT, ""),
        (MessageState.INTERRUPTED, "", "Interrupted"),
        (MessageState.FAILED, "", ""),
    ],
)
def test_word_beside_the_tools(state: MessageState, stop: str, word: str) -> None:
    assert short_ending(replace(ANSWER, state=state, stop=stop)) == word
