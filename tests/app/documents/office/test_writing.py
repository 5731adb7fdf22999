"""Paragraphs, labels and formats of numbers of any length."""

from __future__ import annotations

import pytest

from app.documents.office.number_formats import shown
from app.documents.office.numbering import counted
from app.documents.office.writing import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" a \t b ", "a b"),
        ("a \n \xa0\n\tb", "a\n\nb"),
        ("a\t\t \tb\tc", "a b c"),
        ("a  b", "a  b"),
        ("a" + " " * 300_000 + "b", "a" + " " * 300_000 + "b"),
    ],
)
def test_spaces_around_lines_and_tabs_are_left_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_numbers_are_counted_in_letters_up_to_a_length() -> None:
    assert [counted(value, "lowerLetter") for value in (0, 1, 27, 10**30)] == [
        "",
        "a",
        "aa",
        str(10**30),
    ]


def test_a_format_of_any_length_shows_a_number() -> None:
    assert shown(2.5, "0.0" + "[" * 300_000) == "2.5"
    assert shown(1.0, "0" + "%" * 300_000).startswith("1")
