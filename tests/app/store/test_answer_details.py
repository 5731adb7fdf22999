"""The JSON column of an answer's details."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.answer_details import AnswerDetails, AnswerRecord, details_of, details_text
from app.domain.message import MessageState
from app.store.store import Store
from engine import Role

DETAILS = AnswerDetails("Model", "Q4_1", 1.5, 2, 0.25, 0.2, 3.5, 0.7, 40, 0.95, 0.05, 1.1, 12)


def test_details_survive_the_column() -> None:
    assert details_of(details_text(DETAILS)) == DETAILS
    assert details_text(None) == ""
    assert details_of("") is None


@pytest.mark.parametrize("text", ["{", "[]", "1", "null", "[" * 100_000, '"seed"'])
def test_damaged_column_means_no_details(text: str) -> None:
    assert details_of(text) is None


def test_fields_of_a_wrong_type_get_their_default() -> None:
    found = details_of('{"seed": "7", "top_k": 1.5, "temperature": 1, "model": null, "later": 3}')
    assert found == AnswerDetails(temperature=1)


def test_the_last_answers_of_all_chats_are_found_by_their_figures(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "conversations.sqlite")
    made = [replace(DETAILS, ended=float(at)) for at in range(7)]
    for at, details in enumerate(made):
        conversation = store.create_conversation(f"Chat {at}").id
        asked = store.add_message(conversation, None, Role.USER, "Why?").id
        one, empty, old = (
            store.add_message(conversation, asked, Role.ASSISTANT, "", MessageState.STREAMING).id
            for _ in range(3)
        )
        store.finish(
            one, MessageState.COMPLETE, prompt_tokens=9, generated_tokens=at + 1, details=details
        )
        store.finish(empty, MessageState.STOPPED, details=details)  # without a token
        store.finish(old, MessageState.COMPLETE, generated_tokens=5)  # of an earlier version
    assert store.last_answers(3) == [AnswerRecord(9, at + 1, made[at]) for at in (4, 5, 6)]
    assert len(store.last_answers(50)) == 7
    store.close()
