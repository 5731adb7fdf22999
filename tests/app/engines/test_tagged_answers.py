"""Thoughts of the engine's events between tags: new answers, continued ones, several at once."""

from __future__ import annotations

import pytest

from app.engines.tagged_answers import TaggedAnswers
from engine import Event, Finished, FinishReason, Role, Text, Thought, Turn

ASKED = Turn(Role.USER, "hello")


def texts(tagged: TaggedAnswers, *events: Event) -> list[str]:
    return [one.text for one in tagged.tagged(events) if isinstance(one, Text)]


@pytest.mark.parametrize(
    ("last", "shown"),
    [
        (ASKED, ["<think>a", "b", "</think>c"]),
        (Turn(Role.ASSISTANT, "<think>so"), ["a", "b", "</think>c"]),
        (Turn(Role.ASSISTANT, "<think>so</think>"), ["<think>a", "b", "</think>c"]),
    ],
)
def test_tags_are_where_thoughts_begin_and_end(last: Turn, shown: list[str]) -> None:
    tagged = TaggedAnswers()
    tagged.begin(1, (ASKED, last))
    assert (
        texts(tagged, Thought(1, "a", 1, 9), Thought(1, "b", 2, 10), Text(1, "c", 3, 11)) == shown
    )


def test_answers_do_not_share_their_thoughts() -> None:
    tagged = TaggedAnswers()
    tagged.begin(1, (ASKED,))
    assert texts(tagged, Thought(1, "a", 1, 9), Text(1, "x", 1, 9, 1), Text(2, "y", 1, 9)) == [
        "<think>a", "x", "y",
    ]  # fmt: skip
    ended = Finished(1, FinishReason.END, 0, 0, 0, 0.0, 0.0, 0)
    assert list(tagged.tagged([ended])) == [ended]
    tagged.end(1)
    assert texts(tagged, Text(1, "z", 1, 9)) == ["z"]
