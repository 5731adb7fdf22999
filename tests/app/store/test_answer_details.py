"""The JSON column of an answer's details."""

from __future__ import annotations

import pytest

from app.store.answer_details import AnswerDetails, details_of, details_text

DETAILS = AnswerDetails("Model", "Q4_1", 1.5, 2, 0.25, 3.5, 0.7, 40, 0.95, 0.05, 1.1, 12)


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
