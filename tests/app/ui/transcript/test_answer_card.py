"""The card about one answer: what it shows, from the engine to the store and the window."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from app.domain.answer_details import AnswerDetails
from app.domain.message import Message, MessageState, StopReason
from app.domain.parts import TextPart
from app.domain.word_count import word_count
from app.settings.table import Settings
from app.store.store import Store
from app.system.translation import isolated
from app.ui.transcript.message.answer_card import AnswerCard, answer_rows, exact_rows
from app.ui.widgets.units import moment
from engine import FinishReason, Role
from fakes import MODEL
from stage import Stage, until

DETAILS = AnswerDetails(
    model="Small Model 135M",
    format="Q4_1",
    ended=1_760_000_000.0,
    reused_tokens=12,
    first_token_seconds=0.314,
    decode_seconds=2.0,
    temperature=0.3,
    top_k=40,
    top_p=0.95,
    seed=7,
)
ANSWER = Message(
    2, 1, 1, Role.ASSISTANT, (TextPart("Because."),), MessageState.COMPLETE, 1_759_000_000.0, "Old",
    "", 40, 24, 2.3, 1, 1, details=DETAILS,
)  # fmt: skip


def shown(message: Message) -> dict[str, str]:
    return dict([*answer_rows(message), *exact_rows(message)])


def test_every_detail_has_a_row() -> None:
    rows = shown(ANSWER)
    assert rows["Model"] == "Small Model 135M (Q4_1)"
    assert rows["Read"] == "40 tokens; 12 of them were still in memory"
    assert rows["Written"] == "24 tokens"
    assert rows["Length"] == "1 word, 8 characters"
    assert rows["Speed"] == "11.5 tokens/s, first word after 0.31 s"
    assert rows["Sampling"] == "temperature 0.3, top-k 40, top-p 0.95"
    assert rows["Seed"] == "7"
    assert rows["Ended"] == "The answer is complete"
    assert "Adapters" not in rows


def test_the_time_is_that_of_the_end_or_of_the_message_if_the_end_is_not_known() -> None:
    assert shown(ANSWER)["Time"] == moment(1_760_000_000.0)
    unknown = replace(ANSWER, details=AnswerDetails(model="Small Model 135M"))
    assert shown(unknown)["Time"] == moment(ANSWER.created)


def test_a_gain_from_drafts_is_shown_and_none_is_not() -> None:
    drafted = replace(DETAILS, drafted_tokens=20, accepted_tokens=12, draft_gain=1.62)
    speed = shown(replace(ANSWER, details=drafted))["Speed"]
    assert speed == "11.5 tokens/s, 1.6 times as fast by guessing ahead, first word after 0.31 s"
    for gain, accepted in ((1.01, 12), (1.62, 0)):
        vain = replace(drafted, draft_gain=gain, accepted_tokens=accepted)
        assert "guessing" not in shown(replace(ANSWER, details=vain))["Speed"]


ELSEWHERE = AnswerDetails(
    model="big",
    server="gpu:8000",
    connection="Office",
    server_model="big-2026",
    sent_sampling='{"temperature": 0.7, "seed": 4}',
    temperature=0.7,
    decode_seconds=2.0,
)


def test_answer_of_an_engine_elsewhere_names_its_server_and_what_was_sent() -> None:
    rows = shown(replace(ANSWER, details=ELSEWHERE))
    assert rows["Model"] == "big (big-2026)"
    assert (rows["Connection"], rows["Server"]) == (isolated("Office"), isolated("gpu:8000"))
    assert rows["Written"] == "24 tokens"
    assert rows["Speed"] == "11.5 tokens/s"
    assert rows["Sampling"] == "Temperature 0.7, Seed 4, the rest as the server has it"
    plain = replace(ELSEWHERE, server_model="", sent_sampling="{}")
    rows = shown(replace(ANSWER, details=plain, generated_tokens=0, prompt_tokens=0))
    assert rows["Model"] == "big"
    assert rows["Sampling"] == "As the server has it"
    assert rows["Usage"] == f"{isolated('gpu:8000')} did not report it"
    assert not {"Read", "Written"} & rows.keys()


def test_greedy_answer_has_no_seed() -> None:
    rows = shown(replace(ANSWER, details=replace(DETAILS, temperature=0.0)))
    assert rows["Sampling"].startswith("Always the likeliest word")
    assert "Seed" not in rows


def test_answer_of_an_earlier_version_shows_what_is_known() -> None:
    rows = shown(replace(ANSWER, details=None))
    assert rows["Model"] == "Old"
    assert {"Read", "Written", "Time", "Ended"} <= rows.keys()
    assert not {"Speed", "Sampling", "Seed"} & rows.keys()


def test_exact_figures_are_shown_on_request(qtbot: QtBot) -> None:
    card = AnswerCard()
    qtbot.addWidget(card)
    card.show_message(ANSWER)
    card.show()
    assert not {"Sampling", "Seed"} & visible(card)
    card.more.click()
    assert {"Model", "Sampling", "Seed"} <= visible(card)
    card.show_message(ANSWER)  # of the next answer they are hidden again
    assert not {"Sampling", "Seed"} & visible(card)
    card.show_message(replace(ANSWER, details=None))
    assert not card.more.isVisible()


def visible(card: AnswerCard) -> set[str]:
    return {line.text() for line in card.findChildren(QLabel) if line.isVisible()}


@pytest.mark.parametrize(
    ("text", "words"),
    [("", 0), ("  \n", 0), ("It's a test.", 3), ("你好", 2), ("一 2 x", 3), ("Grüße, Ödön!", 2)],
)
def test_words_are_counted_in_every_script(text: str, words: int) -> None:
    assert word_count(text) == words


def test_stopped_answers_say_why() -> None:
    for reason, words in (
        (StopReason.USER, "Stopped by you"),
        (StopReason.LENGTH, "answer length"),
        (StopReason.CONTEXT, "this chat is full"),
        (StopReason.REPETITION, "the model was repeating itself"),
    ):
        stopped = replace(ANSWER, state=MessageState.STOPPED, stop=reason)
        assert words in shown(stopped)["Ended"]


def test_details_are_stored_and_shown_by_the_tool(qtbot: QtBot, stage: Stage) -> None:
    stage.controller.settings = Settings(temperature=0.4)
    stage.controller.library.set_settings(stage.controller.settings)
    stage.ready(MODEL)
    stage.controller.send("Why?")
    stage.engine.write("Because")
    stage.engine.finish(FinishReason.END)
    stage.wait_until_idle()
    answer = stage.state.messages[-1]
    assert answer.details is not None
    assert (answer.details.seed, answer.details.temperature) == (7, 0.4)
    assert (answer.details.model, answer.details.format) == ("Small Model 135M", "Q4_1")
    stored: list[Message] = []

    def last(store: Store) -> Message:
        return store.branch(store.conversations()[0].id)[-1]

    stage.store_queue.read(last, stored.append)
    until(lambda: bool(stored))
    assert stored[0].details == answer.details
    transcript = stage.window.transcript
    tools, _ = transcript.tools.all(1)
    info = next(tool for tool in tools if tool.name == "info")
    transcript.tools.use(1, info)
    content = stage.window.cards.details
    assert content is not None
    card = content.parentWidget()
    assert card.isVisible()
    qtbot.keyClick(card, Qt.Key.Key_Escape)
    assert card.isHidden()
    transcript.selection.set((1, 0, 0), (1, 0, 4))
    transcript.tools.use(1, info)  # the second time it is made anew from the message
    assert ("Selected", "1 word, 4 characters") in stage.window.cards.details.rows
    assert card.isVisible()
    stage.wait_for_animations()
