"""Values of table cells: numbers and dates as people write them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.table_cells import (
    Mark,
    Order,
    date_order,
    decimal_mark,
    is_empty,
    number_reading,
    read_date,
)


@pytest.mark.parametrize(
    ("text", "point", "comma", "unit"),
    [
        ("12", "12", "12", ""),
        ("1,234.56", "1234.56", None, ""),
        ("1.234,56", None, "1234.56", ""),
        ("1,234", "1234", "1.234", ""),
        ("1.234", "1.234", "1234", ""),
        ("0.123", "0.123", None, ""),
        ("1.234.567", None, "1234567", ""),
        ("1,23,456.00", "123456.00", None, ""),
        ("1 234,5", None, "1234.5", ""),
        ("1\u202f234,5", None, "1234.5", ""),
        ("1\u2019234.50", "1234.50", None, ""),
        ("\u22123", "-3", "-3", ""),
        ("(5.00)", "-5.00", None, ""),
        ("5-", "-5", "-5", ""),
        ("$-5", "-5", "-5", "$"),
        ("-$5", "-5", "-5", "$"),
        ("1.234,00 \u20ac", None, "1234.00", "\u20ac"),
        ("USD 5", "5", "5", "USD"),
        ("R$ 2.590,10", None, "2590.10", "R$"),
        ("-US$5", "-5", "-5", "US$"),
        ("Rs.51,968,287.00", "51968287.00", None, "Rs."),
        ("12,5 K\u010d", None, "12.5", "K\u010d"),
        ("1,234\u5186", "1234", "1.234", "\u5186"),
        ("12 %", "12", "12", "%"),
        ("1.5e3", "1.5e3", None, ""),
        (".5", "0.5", None, ""),
        ("\u0661\u0662\u066b\u0665", "12.5", None, ""),
    ],
)
def test_numbers(text: str, point: str | None, comma: str | None, unit: str) -> None:
    found = number_reading(text)
    assert found is not None
    assert found.point == (None if point is None else Decimal(point))
    assert found.comma == (None if comma is None else Decimal(comma))
    assert found.unit == unit


@pytest.mark.parametrize(
    "text",
    ["", "-", "abc", "12 kg", "3 Jan", "1-2", "1,2,3", "12.", "--5", "(5", "$5%", "1 2", "2024-01-02",
     "1.2.2024", "10:30", "1e999", "9" * 60, "NaN", "Infinity", "0x10", "1_000", "\u00b2"],
)  # fmt: skip
def test_what_is_no_number(text: str) -> None:
    assert number_reading(text) is None


@given(st.decimals(-(10**9), 10**9, places=2), st.sampled_from(("", "$", "%", "EUR")))
def test_every_way_to_write_a_number_is_read(value: Decimal, unit: str) -> None:
    english = f"{value:,.2f}" + unit
    swapped = english.translate({ord(","): ".", ord("."): ","})
    spaced = swapped.replace(".", "\u00a0")
    for text, mark in ((english, Mark.POINT), (swapped, Mark.COMMA), (spaced, Mark.COMMA)):
        found = number_reading(text)
        assert found is not None
        assert found.value(mark) == value
        assert found.unit == unit
        assert decimal_mark([text]) is mark


@given(st.text(max_size=50))
def test_any_text_is_read_or_not(text: str) -> None:
    number_reading(text)
    for order in Order:
        read_date(text, order)
    assert not (is_empty(text) and number_reading(text))


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2024-03-01", datetime(2024, 3, 1)),
        ("2024/3/1", datetime(2024, 3, 1)),
        ("2024-03-01T12:30:05Z", datetime(2024, 3, 1, 12, 30, 5)),
        ("2024-03-01 12:30 pm", datetime(2024, 3, 1, 12, 30)),
        ("1.3.2024", datetime(2024, 3, 1)),
        ("1. 3. 2024", datetime(2024, 3, 1)),
        ("01/03/2024", datetime(2024, 3, 1)),
        ("15-Mar-23", datetime(2023, 3, 15)),
        ("3 M\u00e4rz 2024", datetime(2024, 3, 3)),
        ("Jan 3, 2024", datetime(2024, 1, 3)),
        ("Mar 2024", datetime(2024, 3, 1)),
        ("2024-03", datetime(2024, 3, 1)),
        ("3/15/23", None),
        ("2024-02-30", None),
        ("31/11/2024", None),
        ("May", None),
        ("12", None),
        ("2024", None),
        ("10:30", None),
        ("1.2", None),
    ],
)
def test_dates(text: str, when: datetime | None) -> None:
    assert read_date(text) == when


def test_the_order_of_dates_is_that_of_their_column() -> None:
    assert date_order(["02/01/2014", "31/12/2012"]) is Order.DAY
    assert date_order(["12/01/2026", "12/31/2026"]) is Order.MONTH
    assert date_order(["31/12/2012", "12/31/2012"]) is Order.BOTH
    assert date_order(["02/01/2014", "2014-02-31"]) is None
    assert read_date("12/01/2026", Order.MONTH) == datetime(2026, 12, 1)
    assert read_date("12/01/2026", Order.BOTH) is None
    assert read_date("12/31/2026", Order.BOTH) == datetime(2026, 12, 31)
    assert read_date("12/12/2026", Order.BOTH) == datetime(2026, 12, 12)
