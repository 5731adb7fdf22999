"""Values of table cells: numbers and dates as people write them, read exactly or not at all.

"1.234" is one thousand and more to some, and a little over one to others: what a column's other
cells say decides, and where nothing does, the reading that was assumed can be told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from enum import Enum

_LONGEST = 40  # characters of a number or a date: sums of so many digits are exact
_PLAIN = re.compile(r"-?(?:0|[1-9]\d*)", re.ASCII)
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d*)\.(\d+)", re.ASCII)
_CURRENCY = (
    r"[$\u20ac\u00a3\u00a5\u20b9\u20bd\u20a9\u20aa\u20ba\u0e3f\u20b4]|[A-Z]{1,3}\$|[A-Z]{3}|kr|z\u0142|K\u010d"
    r"|Rs\.?|Ft|\u5143|\u5186|\uc6d0"
)
_MINUS = "-\u2212\u2013"  # also the sign itself, and a dash
_NUMBER = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[{_MINUS}+])?\s*(?P<before>{_CURRENCY})?\s*(?P<inner>[{_MINUS}+])?\s*"
    r"(?P<body>[.,]?\d(?:[\d.,'\u2019 \u00a0\u202f]*\d)?)(?P<power>[eE][-+]?\d{1,2})?"
    rf"\s*(?P<after>%|{_CURRENCY})?(?P<behind>[{_MINUS}])?\s*(?P<close>\))?"
)
_GROUPED = {
    mark: re.compile(rf"[1-9]\d{{0,2}}(?:{re.escape(mark)}\d{{3}})+")
    for mark in (",", ".", "'", "\u2019", " ", "\u00a0", "\u202f")
}
_GROUPED_BY_TWO = re.compile(r"[1-9]\d?(?:,\d\d)*,\d{3}")  # of India
_DIGITS = {
    ord(digit): str(value)
    for zero in "\u0660\u06f0\u0966\uff10"
    for value, digit in enumerate(chr(ord(zero) + n) for n in range(10))
} | {0x66B: ".", 0x66C: "'", 0xFF0E: ".", 0xFF0C: ",", 0xFF05: "%", 0x66A: "%"}
_TIME = r"(?:(?:T|,? +)(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,]\d+)?)?(?: ?([AaPp])\.?[Mm]\.?)?" + (
    r" ?(?:Z|UTC|[-+]\d\d:?\d\d)?)?"
)
_YEAR_FIRST = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})" + _TIME)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.]|\. )(\d{1,2})\2(\d{4}|\d\d)" + _TIME)
_YEAR_MONTH = re.compile(r"(\d{4})-(\d{1,2})")
_DAY_NAME = re.compile(r"(\d{1,2})\.?[ -]([^\W\d]{3,9})\.?,?[ -](\d{4}|\d\d)" + _TIME)
_NAME_DAY = re.compile(r"([^\W\d]{3,9})\.? (\d{1,2}),? (\d{4})" + _TIME)
_NAME_YEAR = re.compile(r"([^\W\d]{3,9})\.?[ -](\d{4}|\d\d)")
_MONTHS = (
    ("january", "januar", "janvier", "enero"), ("february", "februar", "f\u00e9vrier", "febrero"),
    ("march", "m\u00e4rz", "mars", "marzo"), ("april", "avril", "abril"), ("may", "mai", "mayo"),
    ("june", "juni", "juin", "junio"), ("july", "juli", "juillet", "julio"),
    ("august", "ao\u00fbt", "agosto"), ("september", "septembre", "septiembre"),
    ("october", "oktober", "octobre", "octubre"), ("november", "novembre", "noviembre"),
    ("december", "dezember", "d\u00e9cembre", "diciembre"),
)  # fmt: skip
_EMPTY = frozenset(("", "-", "\u2013", "\u2014", "n/a", "#n/a", "null", "nan"))


class Mark(Enum):
    """Which character begins the decimals of a number."""

    POINT = "."
    COMMA = ","
    BOTH = "both"  # in one column: only cells with one reading are numbers


class Order(Enum):
    """Whether the day or the month is written first, in dates that end with the year."""

    DAY = "day"
    MONTH = "month"
    BOTH = "both"  # in one column: only cells with one reading are dates


@dataclass(frozen=True, slots=True)
class Reading:
    """What a cell may mean: its number with a decimal point and with a decimal comma."""

    point: Decimal | None
    comma: Decimal | None
    unit: str = ""  # a currency or "%"

    def value(self, mark: Mark) -> Decimal | None:
        """The number; None: it has none, or more than one."""
        if mark is Mark.POINT:
            return self.point
        if mark is Mark.COMMA:
            return self.comma
        if self.point is None or self.comma is None:
            return self.comma if self.point is None else self.point
        return self.point if self.point == self.comma else None


def is_empty(text: str) -> bool:
    """Whether a cell says that it has no value."""
    return text.strip().casefold() in _EMPTY


def number_reading(text: str) -> Reading | None:
    """What a cell means as a number; None: it is none."""
    if len(text) > _LONGEST:
        return None
    if _PLAIN.fullmatch(text):
        value = Decimal(text)
        return Reading(value, value)
    if (found := _DECIMAL.fullmatch(text)) and len(found[1]) != 3:
        return Reading(Decimal(text), None)
    if not text.isascii():
        text = text.translate(_DIGITS)
    found = _NUMBER.fullmatch(text.strip())
    if found is None or bool(found["open"]) != bool(found["close"]):
        return None
    signs = [each for each in (found["sign"], found["inner"], found["behind"]) if each]
    if len(signs) > 1 or (signs and found["open"]) or (found["before"] and found["after"]):
        return None
    body, power = found["body"], found["power"] or ""
    point, comma = _decimal(body, ".", ",", power), _decimal(body, ",", ".", power)
    if point is None and comma is None:
        return None
    if (signs and signs[0] in _MINUS) or found["open"]:
        point = None if point is None else -point
        comma = None if comma is None else -comma
    return Reading(point, comma, found["before"] or found["after"] or "")


def _decimal(body: str, mark: str, other: str, power: str) -> Decimal | None:
    """The number with decimals behind `mark` and, perhaps, groups parted by another character."""
    whole, found, decimals = body.partition(mark)
    if found and not decimals.isdecimal():
        return None
    parting = [each for each in _GROUPED if each in whole and each != mark]
    if len(parting) > 1:
        return None
    if parting:
        is_grouped = _GROUPED[parting[0]].fullmatch(whole)
        if not is_grouped and not (other == "," and _GROUPED_BY_TWO.fullmatch(whole)):
            return None
        whole = whole.replace(parting[0], "")
    elif not whole.isdecimal() and not (found and not whole):
        return None
    try:
        return Decimal(f"{whole or '0'}.{decimals or '0'}{power}" if found else whole + power)
    except InvalidOperation:
        return None


def decimal_mark(cells: Iterable[str]) -> Mark | None:
    """What begins the decimals in a column; None: no cell says so."""
    marks = set[Mark]()
    for text in cells:
        if len(marks) == 2:
            break
        if _PLAIN.fullmatch(text) or (found := number_reading(text)) is None:
            continue
        if found.comma is None:
            marks.add(Mark.POINT)
        elif found.point is None:
            marks.add(Mark.COMMA)
    return Mark.BOTH if len(marks) == 2 else next(iter(marks), None)


def date_order(cells: Iterable[str]) -> Order | None:
    """Whether the day or the month is first in a column; None: no cell says so."""
    orders = set[Order]()
    for text in cells:
        found = _YEAR_LAST.fullmatch(text.strip())
        if found is None:
            continue
        first, second = int(found[1]), int(found[3])
        if found[2] in (".", ". ") or first > 12 >= second:
            orders.add(Order.DAY)
        elif second > 12 >= first:
            orders.add(Order.MONTH)
        if len(orders) == 2:
            break
    return Order.BOTH if len(orders) == 2 else next(iter(orders), None)


def is_ambiguous(text: str) -> bool:
    """Whether the day and the month of a date could be each other."""
    found = _YEAR_LAST.fullmatch(text.strip())
    return (
        found is not None
        and "." not in found[2]
        and max(int(found[1]), int(found[3])) <= 12
        and found[1] != found[3]
    )


def read_date(text: str, order: Order = Order.DAY) -> datetime | None:
    """A date, with its time if it has one; None: it is none, or has two readings."""
    text = text.strip() if text.isascii() else text.strip().translate(_DIGITS)
    if not text or len(text) > _LONGEST:
        return None
    if found := _YEAR_FIRST.fullmatch(text):
        return _date(int(found[1]), int(found[3]), int(found[4]), found, 5)
    if found := _YEAR_LAST.fullmatch(text):
        first, second = int(found[1]), int(found[3])
        is_day_first = "." in found[2] or order is Order.DAY
        if order is Order.BOTH and "." not in found[2]:
            if is_ambiguous(text):
                return None
            is_day_first = first > 12 or first == second
        day, month = (first, second) if is_day_first else (second, first)
        return _date(_year(found[4]), month, day, found, 5)
    if found := _DAY_NAME.fullmatch(text):
        return _date(_year(found[3]), _month(found[2]), int(found[1]), found, 4)
    if found := _NAME_DAY.fullmatch(text):
        return _date(int(found[3]), _month(found[1]), int(found[2]), found, 4)
    if found := _YEAR_MONTH.fullmatch(text):
        return _date(int(found[1]), int(found[2]), 1)
    if found := _NAME_YEAR.fullmatch(text):
        return _date(_year(found[2]), _month(found[1]), 1)
    return None


def _month(name: str) -> int:
    """The number of a month by its name or its first letters; 0: it is none."""
    name = name.casefold()
    return next(
        (n for n, names in enumerate(_MONTHS, 1) if any(e.startswith(name) for e in names)), 0
    )


def _year(text: str) -> int:
    year = int(text)
    if len(text) == 4:
        return year
    return year + (2000 if year < 69 else 1900)  # as POSIX does


def _date(
    year: int, month: int, day: int, found: re.Match[str] | None = None, at: int = 0
) -> datetime | None:
    """A date that the calendar has; its hour is the group `at`."""
    hour = minute = second = 0
    if found is not None and found[at]:
        hour, minute, second = int(found[at]), int(found[at + 1]), int(found[at + 2] or 0)
        if half := found[at + 3]:
            if not 1 <= hour <= 12:
                return None
            hour = hour % 12 + (12 if half in "pP" else 0)
    try:
        return datetime.combine(date(year, month, day), datetime.min.time()).replace(
            hour=hour, minute=minute, second=min(second, 59)
        )
    except ValueError:
        return None
