"""Ranges of pages: what is read and written, by labels and by numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.page_ranges import read_ranges, write_ranges

NUMBERS = [str(n) for n in range(1, 11)]
BOOK = ["i", "ii", "iii", "1", "2", "3"]
SHEETS = ["Jan", "Feb-Mar", "2024"]


@pytest.mark.parametrize(
    ("text", "labels", "pages"),
    [
        ("1-3, 7", NUMBERS, (0, 1, 2, 6)),
        (" 7,1 - 3;; 2 ", NUMBERS, (0, 1, 2, 6)),
        ("8-", NUMBERS, (7, 8, 9)),
        ("-2", NUMBERS, (0, 1)),
        ("2–3\N{FULLWIDTH COMMA}5", NUMBERS, (1, 2, 4)),
        ("١-٣، ٧", NUMBERS, (0, 1, 2, 6)),
        ("ii-2", BOOK, (1, 2, 3, 4)),
        ("6", BOOK, (5,)),  # no page is called so: the sixth
        ("feb-mar, 2024", SHEETS, (1, 2)),
        ("Jan-2024", SHEETS, (0, 1, 2)),
        ("", NUMBERS, ()),
        ("11", NUMBERS, None),
        ("0", NUMBERS, None),
        ("3-1", NUMBERS, None),
        ("2-99", NUMBERS, None),
        ("one", NUMBERS, None),
        ("9" * 5_000, NUMBERS, None),
        ("1" + " " * 30_000 + "x", NUMBERS, None),
        ("-" * 30_000, NUMBERS, None),
    ],
)
def test_what_a_range_means(text: str, labels: list[str], pages: tuple[int, ...] | None) -> None:
    assert read_ranges(text, labels) == pages


def test_what_is_written() -> None:
    assert write_ranges((0, 1, 2, 6), NUMBERS) == "1-3, 7"
    assert write_ranges((0, 1, 8, 9), NUMBERS) == "1, 2, 9, 10"
    assert write_ranges((1, 2, 3), BOOK) == "ii-1"
    assert write_ranges((), BOOK) == ""
    assert write_ranges((-1, 2, 99), BOOK) == "iii"


@given(st.sets(st.integers(0, 9)), st.sampled_from((NUMBERS, [f"p{n}" for n in range(10)])))
def test_what_was_written_is_read_again(pages: set[int], labels: list[str]) -> None:
    assert read_ranges(write_ranges(pages, labels), labels) == tuple(sorted(pages))
