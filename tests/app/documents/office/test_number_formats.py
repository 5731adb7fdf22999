"""Numbers and dates as their formats show them."""

from __future__ import annotations

import pytest

from app.documents.office.number_formats import BUILT_IN, general, shown, shown_text

CASES: list[tuple[float, str, str]] = [
    (1234.5, "General", "1234.5"),
    (0.1 + 0.2, "General", "0.3"),
    (12.0, "General", "12"),
    (12.5, "GENERAL", "12.5"),
    (12.5, 'general" kg"', "12.5 kg"),
    (1e20, "General", "100000000000000000000"),
    (1.5e-12, "General", "1.5E-12"),
    (1234.567, "0.00", "1234.57"),
    (2.5, "0", "3"),
    (-2.5, "0", "-3"),
    (1234567.891, "#,##0.00", "1,234,567.89"),
    (5, "000", "005"),
    (0.5, "#.##", ".5"),
    (3.10, "0.0##", "3.1"),
    (0.256, "0%", "26%"),
    (0.2567, "0.0%", "25.7%"),
    (-1234, "#,##0;(#,##0)", "(1,234)"),
    (0, '0;-0;"none"', "none"),
    (12, '"No. "0', "No. 12"),
    (12.5, "[$€-407] #,##0.00", "€ 12.50"),
    (12.5, '#,##0.00 "EUR"', "12.50 EUR"),
    (-3, "$#,##0", "-$3"),
    (1234567, "0.0,,\\M", "1.2M"),
    (12345, "0.00E+00", "1.23E+04"),
    (0.00012, "0.0E+0", "1.2E-4"),
    (5551234567, "(000) 000-0000", "(555) 123-4567"),
    (123456789, "000-00-0000", "123-45-6789"),
    (50, '[<100]"low";[>=100]"high"', "low"),
    (500, '[<100]"low";[>=100]"high"', "high"),
    (7, "[Red]0.0", "7.0"),
    (0.5, "# ?/?", "0.5"),
    (45000, "yyyy-mm-dd", "2023-03-15"),
    (45000.75, "dd/mm/yyyy hh:mm", "15/03/2023 18:00"),
    (45000.75, "d mmm yy, h:mm AM/PM", "15 Mar 23, 6:00 PM"),
    (45000, "dddd, mmmm d", "Wednesday, March 15"),
    (1, "yyyy-mm-dd", "1900-01-01"),
    (61, "yyyy-mm-dd", "1900-03-01"),
    (0.5, "h:mm", "12:00"),
    (1.5, "[h]:mm:ss", "36:00:00"),
    (0.0006, "mm:ss.0", "00:51.8"),
    (45000.999999, "yyyy-mm-dd hh:mm", "2023-03-16 00:00"),
    (45000, "[$-409]mmm yyyy", "Mar 2023"),
    (-5, "yyyy-mm-dd", "-5"),
    (3e9, "yyyy-mm-dd", "3000000000"),
    (45000, BUILT_IN[14], "2023-03-15"),
    (0.25, BUILT_IN[9], "25%"),
    (7, "@", "7"),
    (7, "", "7"),
]


@pytest.mark.parametrize(("value", "code", "expected"), CASES)
def test_a_number_is_shown_by_its_format(value: float, code: str, expected: str) -> None:
    assert shown(value, code) == expected


def test_days_may_be_counted_from_1904() -> None:
    assert shown(0, "yyyy-mm-dd", from_1904=True) == "1904-01-01"


def test_texts_have_a_format_too() -> None:
    assert shown_text("a", '0;-0;0;"<"@">"') == "<a>"
    assert shown_text("a", "0.00") == "a"


@pytest.mark.parametrize(
    "code", [";;;", '"', "[", "\\", "0.0.0", "E+", "%%", "*", "_", "[h", "/", "?"]
)
def test_no_format_is_too_strange(code: str) -> None:
    for value in (0.0, -1.5, 45000.25, 1e300, -1e-300):
        assert isinstance(shown(value, code), str)


def test_no_number_is_too_large() -> None:
    assert general(1e300) == "1E+300"
    assert general(-1e-300) == "-1E-300"
