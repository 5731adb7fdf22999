"""Tests of text that a model adds to an answer: what each addition looks at, and what it gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chat.requests.planner import Branch
from app.chat.requests.running_answer import QueuedAnswer, RunningAnswer
from app.domain import growing
from app.domain.deltas import TextDelta, ThoughtDelta
from app.domain.growing import append_text, plain
from app.domain.message import Message, MessageState
from app.domain.parts import Part, Parts, TextPart, ThoughtPart, prompt_text, split
from app.engines.local import LocalAnswer
from app.engines.run import Run
from app.state.chat import State
from app.store.part_rows import from_row, to_row
from engine import Chat, Role

LINE = "A word, `code`, a <b>tag</b> and 5 < 6 in a line.\n"
BEGINNINGS = {
    "text": "",
    "thought": "<think>\nLet me see.\n",
    "text after a thought": "<think>\nLet me see.\n</think>\n\n",
    "text with a tag in code": "Write `</think>` at the end.\n",
}


class Touched:
    """Counts the characters that are looked at or copied while text is added."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.characters = 0

        def counted_split(text: str) -> Parts:
            self.characters += len(text)
            return split(text)

        def counted_text(parts: Parts) -> str:
            text = prompt_text(parts)
            self.characters += len(text)
            return text

        join = growing._Pieces.joined

        def counted_join(pieces: growing._Pieces) -> str:
            text = join(pieces)
            self.characters += len(text)
            return text

        monkeypatch.setattr(growing, "split", counted_split)
        monkeypatch.setattr(growing, "prompt_text", counted_text)
        monkeypatch.setattr(growing._Pieces, "joined", counted_join)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> Touched:
    return Touched(monkeypatch)


class Handle:
    """The handle of a request that no engine has."""

    id = 1

    def cancel(self) -> None:
        pass


def running_answer(parts: Parts = ()) -> RunningAnswer:
    asked = Chat(())
    job = QueuedAnswer(Branch(1), 1, 7, parts, lambda: asked, request=None, adapters=None)
    return RunningAnswer(LocalAnswer(Run(asked, Handle())), job, asked, (), "Model", None, parts)


@pytest.mark.parametrize("beginning", BEGINNINGS)
@pytest.mark.parametrize("characters", [1_000, 1_000_000])
def test_adding_to_a_long_answer_looks_at_what_is_added_only(
    touched: Touched, qapp: object, beginning: str, characters: int
) -> None:
    state, chat = State(), 1
    message = Message(
        7, chat, None, Role.ASSISTANT, (), MessageState.STREAMING, 0.0, "", "", 0, 0, 0, 1, 1
    )
    state.set_branch(chat, [message], [])
    state.show(chat)
    shown: list[Message] = []
    state.text_added.connect(lambda message, _text: shown.append(message))
    running = running_answer()

    def add(text: str) -> None:
        added = running.add(TextDelta(text))
        state.add_text(chat, 7, added, running.parts)

    text = BEGINNINGS[beginning] + LINE * (characters // len(LINE)) + "One"
    add(text[:-3])
    add(text[-3:])
    touched.characters = 0
    for word in (" more", " of", "\n\n", "these", " <", "i>", "</", "b>", "\n", "x" * 40) * 20:
        add(word)
        text += word
    assert touched.characters == 0
    assert shown[-1].parts == split(text)
    assert shown[-1] == replace(message, parts=split(text))
    assert touched.characters <= 2 * len(text)  # read once, here


def test_a_tag_is_looked_for_in_what_may_still_change(touched: Touched) -> None:
    before = "x" * 100_000 + "\n"
    parts = append_text((), f"<think>{before}</think>\n\n{before}")
    touched.characters = 0
    parts = append_text(append_text(parts, "<th"), "ink>Hm.\n")
    assert 0 < touched.characters < 10 * len(before)
    assert parts == split(f"<think>{before}</think>\n\n{before}<think>Hm.\n")
    ended = append_text(append_text(parts, "Yes.</thi"), "nk>\n\nDone.")
    assert ended == split(f"<think>{before}</think>\n\n{before}<think>Hm.\nYes.</think>\n\nDone.")


def test_thoughts_that_the_engine_tells_apart_have_their_markup() -> None:
    running = running_answer()
    written = [
        running.add(delta)
        for delta in (
            ThoughtDelta("\nHm."),
            ThoughtDelta(""),
            ThoughtDelta(" So.\n"),
            TextDelta("\n\nYes"),
            TextDelta("."),
        )
    ]
    assert written == ["<think>\nHm.", "", " So.\n", "</think>\n\nYes", "."]
    assert running.parts == split("".join(written))
    assert running.take_unsaved() == "".join(written)
    again = running_answer(split("<think>Hm"))
    assert again.add(ThoughtDelta("m.")) + again.add(TextDelta("Yes.")) == "m.</think>Yes."
    assert again.parts == split("<think>Hmm.</think>Yes.")


PIECES = st.lists(
    st.one_of(
        st.sampled_from(("<think>", "</think>", "<th", "ink>", "</", "think>", "\n", "`", "```\n")),
        st.text(max_size=6),
    ),
    max_size=20,
)


@given(PIECES, st.integers(0, 20), PIECES)
def test_two_answers_that_begin_alike_do_not_share_what_is_added(
    first: list[str], at: int, second: list[str]
) -> None:
    parts: Parts = ()
    for piece in first[:at]:
        parts = append_text(parts, piece)
    one, other = parts, parts
    for piece in first[at:]:
        one = append_text(one, piece)
    for piece in second:
        other = append_text(other, piece)
    begun = "".join(first[:at])
    assert parts == split(begun)
    assert one == split(begun + "".join(first[at:]))
    assert other == split(begun + "".join(second))
    assert split(begun + "".join(second)) == other
    assert hash(other) == hash(split(begun + "".join(second)))


@pytest.mark.parametrize(
    "part", [TextPart("Half\n of it"), ThoughtPart("Half\n of it", "\n<think>", "")]
)
def test_a_growing_part_is_stored_like_any_other(part: Part) -> None:
    whole = prompt_text((part,))
    (grown,) = append_text(append_text((), whole[:-4]), whole[-4:])
    assert type(grown) is not type(part)
    assert type(plain(grown)) is type(part)
    assert grown == part
    assert repr(part).partition("(")[2] == repr(grown).partition("(")[2]
    assert from_row(*to_row(grown)) == part
