"""The question set itself: its size, its answers, and how hard its questions are."""

from __future__ import annotations

import pytest

from recall_set import FOLDER, documents, questions, stems


def test_there_are_120_questions_over_30_documents() -> None:
    texts, asked = documents(), questions()
    assert (len(texts), len(asked)) == (30, 120)
    assert {one.document for one in asked} == set(texts)
    assert all(600 <= len(text.split()) <= 1500 for text in texts.values())
    assert all(0 < one.end - one.start <= 300 for one in asked)
    assert len({one.text for one in asked}) == 120


def test_two_in_five_questions_share_no_word_with_their_answer() -> None:
    asked = questions()
    apart = [one for one in asked if not one.shared]
    assert len(apart) / len(asked) >= 0.4


def test_there_are_questions_in_other_languages() -> None:
    assert {one.document for one in questions("other_languages")} == set(
        documents("other_languages")
    )


def test_the_set_stays_small() -> None:
    size = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size <= 250_000


@pytest.mark.parametrize(
    ("one", "other"),
    [("measures", "measured"), ("stopping", "stops"), ("companies", "company"), ("leaks", "leak")],
)
def test_stems_of_forms_of_a_word_are_alike(one: str, other: str) -> None:
    assert stems(one) & stems(other)
