"""Evaluation of queries over tables: exact decimals, and everything that was left out is counted.

Rows are read one by one, and only groups and the rows that are shown are kept, so that a table of a
million rows needs little memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

from app.documents.column_cells import ColumnCells, Value
from app.documents.table_cells import (
    Order,
    is_empty,
    number_reading,
    read_date,
)
from app.documents.table_text import ColumnKind, Table
from app.domain.documents import DocumentKind
from app.domain.table_query import (
    MOST_ROWS,
    Compare,
    Condition,
    Do,
    Expression,
    Query,
    QueryError,
)
from app.domain.table_result import Facts, LeftOut, TableResult

_DIGITS = 100  # of a sum, which is exact
_MEAN_DECIMALS = 6
_MOST_GROUPS = 100_000
_MOST_VALUES = 1_000_000  # different ones that are counted
_CHECK_ROWS = 500
_MOST_SUMMED = 8  # columns by which rows of totals are found
_MOST_LEVELS = 50  # groups of rows of which a later row may be the total
_LONGEST_EXAMPLE = 40
_TOTAL = re.compile(
    r"(?:grand |sub-?)?totals?\b|(?:.*\W)?(?:sub-?)?totals?:?$|sums?\b|summe\b|gesamt|zwischensumme"
    r"|insgesamt|totale?\b|.*\bgesamt$|\u5408\u8ba1|\u603b\u8ba1|\u5c0f\u8ba1|\u0627\u0644\u0645\u062c\u0645\u0648\u0639",
    re.IGNORECASE,
)


class Stopped(Exception):
    """Raised when the evaluation is not wanted any more."""


@dataclass(slots=True)
class _Total:
    """What an aggregate has seen of a group."""

    count: int = 0
    total: Decimal = Decimal(0)
    best: Value | None = None
    text: str = ""  # of the best one
    values: set[str] = field(default_factory=set[str])


class _Evaluation:
    """One query over one table."""

    def __init__(self, table: Table, query: Query, stopped: Callable[[], bool]) -> None:
        self._table, self._query, self._stopped = table, query, stopped
        self._cells: dict[tuple[str, ColumnKind], ColumnCells] = {}
        self._places = {column.name: at for at, column in enumerate(table.columns)}
        self._keys = [each for each in query.show if not each.do.is_aggregate]
        self._aggregates = [each for each in query.show if each.do.is_aggregate]
        self._readers: list[tuple[Expression, ColumnCells | None]] = []  # of the aggregates
        self._values = 0  # different ones that are kept
        self._rounded = False
        self._named = set[int]()  # rows that call themselves totals
        self._totals = set[int]()  # rows that have the totals of others
        self._total_name = ""

    def result(self) -> TableResult:
        """What the query finds; raises QueryError and Stopped."""
        query, table = self._query, self._table
        grouped = query.is_grouped
        of_rows = [each for each in query.where if not each.about.do.is_aggregate]
        of_groups = [each for each in query.where if each.about.do.is_aggregate]
        self._prepare()
        self._find_totals()
        self._readers = [(each, self._reader_of(each)) for each in self._aggregates]
        tests = [self._test(each) for each in of_rows]
        wanted = any if query.any_of else all
        compared = Counter[str]()  # cells that could not be compared
        groups: dict[tuple[str, ...], list[_Total]] = {}
        top = _Top(query)
        sort = query.sort
        used, like_totals = 0, 0
        for at, row in enumerate(self._all_rows()):
            if at in self._totals:
                continue
            like_totals += at in self._named
            if tests and not wanted([test(row, compared) for test in tests]):
                continue
            used += 1
            if grouped:
                self._add(groups, row)
            else:
                key = None if sort is None else self._sort_value(sort, row)
                top.add(key, [self._shown(each, row) for each in query.show])
        if grouped:
            rows, found, ties = self._of_groups(groups, of_groups)
        else:
            rows, found, ties = top.rows, used, top.ties
        facts = Facts(
            found,
            table.row_count,
            used,
            tuple(self._left_out(compared)),
            tuple(each.reading for each in self._read if each.reading),
            len(self._totals),
            self._total_name,
            like_totals,
            ties,
            self._rounded,
            not table.is_named,
            table.titles,
            table.file.kind == DocumentKind.SHEETS.value and self._has_numbers,
        )
        return TableResult(query, tuple(tuple(row) for row in rows), facts)

    # --- how cells are read ---------------------------------------------------------------------

    @property
    def _read(self) -> list[ColumnCells]:
        """How the columns of the query are read."""
        query = self._query
        used = {each.column for each in query.show} | {each.about.column for each in query.where}
        used |= {query.sort.column} if query.sort else set()
        return [each for (name, _), each in self._cells.items() if name in used]

    @property
    def _has_numbers(self) -> bool:
        return any(each.kind is ColumnKind.NUMBER for each in self._read)

    def _prepare(self) -> None:
        """Find how the columns of the query are read, from all their cells."""
        query = self._query
        for each in (*query.show, *(c.about for c in query.where), *filter(None, (query.sort,))):
            if each.do in (Do.SUM, Do.MEAN):
                self._reader(each.column, ColumnKind.NUMBER)
            elif each.do in (Do.YEAR, Do.MONTH):
                self._reader(each.column, ColumnKind.DATE)
        for (name, kind), cells in self._cells.items():
            if not cells.has_values:
                what = "dates" if kind is ColumnKind.DATE else "numbers"
                raise QueryError(f'The column "{name}" has no {what}.')

    def _reader(self, column: str, kind: ColumnKind | None = None) -> ColumnCells:
        """How the cells of a column are read; as what most of them are, if no kind is given."""
        at = self._places[column]
        kind = kind or self._table.columns[at].kind
        if kind is ColumnKind.EMPTY:
            kind = ColumnKind.TEXT
        found = self._cells.get((column, kind))
        if found is None:
            found = self._cells[column, kind] = ColumnCells(column, at, kind)
            table = self._table
            found.judge((row[at] for row in self._all_rows()), table.mark, table.order)
        return found

    def _reader_of(self, each: Expression) -> ColumnCells | None:
        """How the cells of an aggregate are read; None: they are only counted."""
        if each.do in (Do.COUNT, Do.DISTINCT):
            return None
        is_sum = each.do in (Do.SUM, Do.MEAN)
        return self._reader(each.column, ColumnKind.NUMBER if is_sum else None)

    def _all_rows(self) -> Iterator[list[str]]:
        """The rows of the table, until it is stopped, which raises Stopped."""
        for at, row in enumerate(self._table.rows()):
            if not at % _CHECK_ROWS and self._stopped():
                raise Stopped
            yield row

    def _find_totals(self) -> None:
        """Leave the rows out that have the sums of rows above them.

        They are named so, or the last one has no name; what they say is checked in all columns of
        numbers until one agrees.
        """
        table = self._table
        last = table.row_count - 1
        named, row = self._named, [""]
        for at, row in enumerate(self._all_rows()):
            if _is_like_total(row):
                named.add(at)
        unnamed = {last} - named if not row[0] else set[int]()
        numbers = [each for each in table.columns if each.kind is ColumnKind.NUMBER]
        if last < 2 or not (named or unnamed):
            return
        readers = [self._reader(each.name) for each in numbers[:_MOST_SUMMED]]
        sums = [Decimal(0)] * len(readers)  # of the rows so far that are no totals
        begins = [list(sums)]  # the same where each group of rows began
        for at, row in enumerate(self._all_rows()):
            values = [reader.value(row[reader.at]) for reader in readers]
            if (at in named or at in unnamed) and any(
                isinstance(value, Decimal) and value and sums[n] - begin[n] == value
                for n, value in enumerate(values)
                for begin in begins
            ):
                self._totals.add(at)
                self._total_name = self._total_name or next(filter(None, row))[:_LONGEST_EXAMPLE]
                begins = [*begins[-_MOST_LEVELS:], list(sums)]
                continue
            sums = [
                total + value if isinstance(value, Decimal) else total
                for total, value in zip(sums, values, strict=True)
            ]

    # --- conditions -----------------------------------------------------------------------------

    def _test(self, condition: Condition) -> Callable[[list[str], Counter[str]], bool]:
        """Whether a row meets a condition; cells that cannot be compared are counted."""
        about, compare = condition.about, condition.compare
        if about.do in (Do.YEAR, Do.MONTH):
            return self._part_test(condition)
        at = self._places[about.column]
        wanted = " ".join(condition.value.split()).casefold()
        match compare:
            case Compare.EMPTY:
                return lambda row, _: is_empty(row[at])
            case Compare.FILLED:
                return lambda row, _: not is_empty(row[at])
            case Compare.CONTAINS:
                return lambda row, _: wanted in row[at].casefold()
            case Compare.WITHOUT:
                return lambda row, _: wanted not in row[at].casefold()
            case _:
                pass
        cells = self._compared_cells(condition)
        if cells.kind is ColumnKind.DATE and (until := _date_of(condition.value, cells.order)):
            target, precision = until
            return _compared(cells, compare, target[:precision], precision, wanted)
        if cells.kind is ColumnKind.NUMBER and (found := number_reading(condition.value)):
            number = found.value(cells.mark)
            number = found.point if number is None else number
            if number is not None:
                return _compared(cells, compare, number, 0, wanted)
        if compare not in (Compare.EQUAL, Compare.OTHER) and cells.kind is not ColumnKind.TEXT:
            kind = "date" if cells.kind is ColumnKind.DATE else "number"
            raise QueryError(f'"{condition.value[:40]}" is no {kind}, as "{about.column}" has.')
        text = ColumnCells(about.column, at, ColumnKind.TEXT)
        return _compared(text, compare, wanted, 0, wanted)

    def _compared_cells(self, condition: Condition) -> ColumnCells:
        """How the cells of a column are read that are compared: what is more than a number is one."""
        cells = self._reader(condition.about.column)
        if condition.compare in (Compare.EQUAL, Compare.OTHER):
            return cells
        if cells.kind is ColumnKind.TEXT and number_reading(condition.value):
            return self._reader(condition.about.column, ColumnKind.NUMBER)
        if cells.kind is not ColumnKind.DATE and read_date(condition.value):
            return self._reader(condition.about.column, ColumnKind.DATE)
        return cells

    def _part_test(self, condition: Condition) -> Callable[[list[str], Counter[str]], bool]:
        """The same about the year or the month of a date."""
        cells = self._reader(condition.about.column, ColumnKind.DATE)
        if not condition.compare.has_value:
            is_wanted = condition.compare is Compare.EMPTY
            return lambda row, _: (cells.value(row[cells.at]) is None) is is_wanted
        digits = condition.value
        if condition.about.do is Do.MONTH and digits.isdecimal() and 1 <= int(digits) <= 12:
            return _month_test(cells, condition.compare, int(digits))
        found = _date_of(condition.value, cells.order)
        if found is None or condition.compare in (Compare.CONTAINS, Compare.WITHOUT):
            raise QueryError(f'"{condition.value[:40]}" is no {condition.about.do}.')
        precision = 1 if condition.about.do is Do.YEAR else min(found[1], 2)
        return _compared(cells, condition.compare, found[0][:precision], precision, "")

    # --- groups ---------------------------------------------------------------------------------

    def _shown(self, expression: Expression, row: list[str]) -> str:
        """A cell, or the year or month of a date; "" if it has none."""
        text = row[self._places[expression.column]]
        if expression.do is Do.VALUE:
            return text
        value = self._reader(expression.column, ColumnKind.DATE).value(text)
        if not isinstance(value, datetime):
            return ""
        return f"{value.year:04}" if expression.do is Do.YEAR else f"{value:%Y-%m}"

    def _sort_value(self, expression: Expression, row: list[str]) -> Value | None:
        if expression.do is not Do.VALUE:
            return self._shown(expression, row) or None
        return self._reader(expression.column).counted(row[self._places[expression.column]])

    def _add(self, groups: dict[tuple[str, ...], list[_Total]], row: list[str]) -> None:
        """Add a row to its group."""
        key = tuple([self._shown(each, row) for each in self._keys])
        totals = groups.get(key)
        if totals is None:
            if len(groups) >= _MOST_GROUPS:
                raise QueryError(f"There are more than {_MOST_GROUPS:,} groups.")
            totals = groups[key] = [_Total() for _ in self._aggregates]
        counted: dict[int, Value | None] = {}  # by reader: of one cell only once
        for total, (each, cells) in zip(totals, self._readers, strict=True):
            if not each.column:
                total.count += 1
                continue
            text = row[self._places[each.column]]
            if each.do is Do.COUNT:
                total.count += not is_empty(text)
                continue
            if each.do is Do.DISTINCT:
                self._keep(total, text)
                continue
            if cells is None:
                continue
            if id(cells) not in counted:
                counted[id(cells)] = cells.counted(text)
            value = counted[id(cells)]
            if value is None:
                continue
            total.count += 1
            is_sum = each.do in (Do.SUM, Do.MEAN)
            if is_sum and isinstance(value, Decimal):
                total.total += value
            elif not is_sum and _is_better(value, total.best, largest=each.do is Do.MAX):
                total.best, total.text = value, text

    def _keep(self, total: _Total, text: str) -> None:
        """Count a value among the different ones."""
        text = " ".join(text.split())
        if is_empty(text) or text in total.values:
            return
        self._values += 1
        if self._values > _MOST_VALUES:
            raise QueryError(f"There are more than {_MOST_VALUES:,} different values.")
        total.values.add(text)

    def _of_groups(
        self, groups: dict[tuple[str, ...], list[_Total]], conditions: list[Condition]
    ) -> tuple[list[list[str]], int, int]:
        """The rows to show of the groups, how many there are, and how many equal the last one."""
        query = self._query
        keys = self._keys
        if not groups and not keys:
            groups = {(): [_Total() for _ in self._aggregates]}  # of no row: a count is 0
        top, found = _Top(query), 0
        sort = query.sort
        if sort is None and len(keys) == 1 and keys[0].do in (Do.YEAR, Do.MONTH):
            sort = keys[0]
        for key, totals in groups.items():
            values = {
                each: self._value(each, total)
                for each, total in zip(self._aggregates, totals, strict=True)
            }
            met = [_holds(values.get(each.about), each) for each in conditions]
            if conditions and not (any(met) if query.any_of else all(met)):
                continue
            found += 1
            parts = dict(zip(keys, key, strict=True))
            row = [
                parts[each] if each in parts else self._text(each, values[each], totals)
                for each in query.show
            ]
            by: Value | None = None
            if sort in parts:
                by = self._key(sort, parts[sort])
            elif sort is not None:
                by = values[sort]
            top.add(by, row)
        return top.rows, found, top.ties

    def _key(self, expression: Expression, text: str) -> Value | None:
        if expression.do is not Do.VALUE:
            return text or None
        return self._reader(expression.column).value(text)

    def _value(self, expression: Expression, total: _Total) -> Value | None:
        match expression.do:
            case Do.COUNT:
                return Decimal(total.count)
            case Do.DISTINCT:
                return Decimal(len(total.values))
            case Do.SUM:
                return total.total if total.count else None
            case Do.MEAN:
                return self._mean(total)
            case _:
                return total.best

    def _mean(self, total: _Total) -> Decimal | None:
        if not total.count:
            return None
        with localcontext(Context(_DIGITS)):
            exact = total.total / total.count
            rounded = exact.quantize(Decimal(1).scaleb(-_MEAN_DECIMALS), ROUND_HALF_EVEN)
            self._rounded |= rounded * total.count != total.total
            least = max(-int(total.total.as_tuple().exponent), 0)
            text = f"{rounded:f}"
            whole, _, decimals = text.partition(".")
            decimals = decimals.rstrip("0").ljust(min(least, _MEAN_DECIMALS), "0")
            return Decimal(f"{whole}.{decimals}" if decimals else whole)

    def _text(self, each: Expression, value: Value | None, totals: list[_Total]) -> str:
        if value is None:
            return ""
        if each.do in (Do.COUNT, Do.DISTINCT):
            return str(value)
        if isinstance(value, Decimal) and each.do in (Do.SUM, Do.MEAN):
            return self._reader(each.column, ColumnKind.NUMBER).shown(value)
        return totals[self._aggregates.index(each)].text

    def _left_out(self, compared: Counter[str]) -> Iterator[LeftOut]:
        """What could not be read in the columns of the query."""
        for cells in self._cells.values():
            others = (kind for name, kind in self._cells if name == cells.name)
            if cells.kind is ColumnKind.TEXT and any(kind is not cells.kind for kind in others):
                continue  # said of these
            if cells.empty or cells.others or cells.units:
                is_date = cells.kind is ColumnKind.DATE
                yield LeftOut(
                    cells.name, cells.empty, cells.others, cells.units, cells.unit, is_date,
                    tuple(cells.examples),
                )  # fmt: skip
        for name, count in compared.items():
            yield LeftOut(name, others=count, compared=True)


class _Top:
    """The rows that are shown: the first ones, as the query sorts them."""

    def __init__(self, query: Query) -> None:
        self._most = min(query.limit or MOST_ROWS, MOST_ROWS)
        self._is_limited = 0 < query.limit <= MOST_ROWS
        self._largest = query.largest_first
        self._kept: list[tuple[Value | None, list[str]]] = []
        self._ties = 0

    @property
    def rows(self) -> list[list[str]]:
        return [row for _, row in self._kept]

    @property
    def ties(self) -> int:
        """Further rows with the same value as the last one, where only so many were wanted."""
        return self._ties if self._is_limited else 0

    def add(self, key: Value | None, row: list[str]) -> None:
        """Keep a row, if it is among the first."""
        kept = self._kept
        if len(kept) == self._most:
            last = kept[-1][0]
            if not self._is_before(key, last):
                self._ties += key is not None and key == last
                return
        at = len(kept)
        while at and self._is_before(key, kept[at - 1][0]):
            at -= 1
        kept.insert(at, (key, row))
        if len(kept) > self._most:
            gone, _ = kept.pop()
            self._ties = self._ties + 1 if gone is not None and gone == kept[-1][0] else 0

    def _is_before(self, one: Value | None, other: Value | None) -> bool:
        return one is not None and _is_better(one, other, largest=self._largest)


def evaluate(table: Table, query: Query, stopped: Callable[[], bool]) -> TableResult:
    """What a query finds in a table.

    Raises QueryError if it does not fit what is in the columns, and Stopped.
    """
    with localcontext(Context(_DIGITS)):
        return _Evaluation(table, query, stopped).result()


def _is_like_total(row: list[str]) -> bool:
    """Whether a row calls itself a total."""
    return _TOTAL.match(next(filter(None, row), "")) is not None


def _is_better(value: Value, other: Value | None, *, largest: bool) -> bool:
    if other is None:
        return True
    if isinstance(value, Decimal) and isinstance(other, Decimal):
        return value > other if largest else value < other
    if isinstance(value, datetime) and isinstance(other, datetime):
        return value > other if largest else value < other
    return str(value) > str(other) if largest else str(value) < str(other)


def _date_of(text: str, order: Order) -> tuple[tuple[int, ...], int] | None:
    """A date as numbers from its year on, and how many of them are said."""
    text = text.strip()
    if text.isdecimal() and len(text) == 4:
        return (int(text),), 1
    date = read_date(text, Order.DAY if order is Order.BOTH else order)
    if date is None:
        return None
    numbers = (date.year, date.month, date.day, date.hour, date.minute, date.second)
    is_month = read_date(f"1 {text}") is not None or (text.count("-") == 1 and len(text) <= 7)
    return numbers, 2 if is_month else 6 if ":" in text else 3


def _compared(
    cells: ColumnCells,
    compare: Compare,
    target: Decimal | str | tuple[int, ...],
    precision: int,
    wanted: str,
) -> Callable[[list[str], Counter[str]], bool]:
    """The test of a cell by its value; a date is compared as far as the other one is said."""

    def test(row: list[str], missed: Counter[str]) -> bool:
        text = row[cells.at]
        value = cells.value(text)
        if value is None:
            if not is_empty(text):
                missed[cells.name] += 1
            is_same = bool(wanted) and " ".join(text.split()).casefold() == wanted
            if compare is Compare.EQUAL:
                return is_same
            return compare is Compare.OTHER and not is_same
        if isinstance(value, datetime):
            return _is(value.timetuple()[:precision], compare, target)
        return _is(value, compare, target)

    return test


def _month_test(
    cells: ColumnCells, compare: Compare, month: int
) -> Callable[[list[str], Counter[str]], bool]:
    """The test of the month of a date, in any year."""

    def test(row: list[str], missed: Counter[str]) -> bool:
        value = cells.value(row[cells.at])
        if not isinstance(value, datetime):
            missed[cells.name] += not is_empty(row[cells.at])
            return compare is Compare.OTHER
        return _is(value.month, compare, month)

    return test


def _is(value: object, compare: Compare, target: object) -> bool:
    """Whether a value compares so with another of its kind."""
    match compare:
        case Compare.EQUAL:
            return value == target
        case Compare.OTHER:
            return value != target
        case Compare.LESS:
            return value < target  # type: ignore[operator]
        case Compare.AT_MOST:
            return value <= target  # type: ignore[operator]
        case Compare.MORE:
            return value > target  # type: ignore[operator]
        case _:
            return value >= target  # type: ignore[operator]


def _holds(value: Value | None, condition: Condition) -> bool:
    """Whether a group meets a condition."""
    compare = condition.compare
    if not compare.has_value:
        return (value is None) is (compare is Compare.EMPTY)
    if isinstance(value, Decimal):
        found = number_reading(condition.value)
        number = found and (found.comma if found.point is None else found.point)
        if number is None or compare in (Compare.CONTAINS, Compare.WITHOUT):
            raise QueryError(f'"{condition.value[:40]}" is no number.')
        return _is(value, compare, number)
    if isinstance(value, datetime):
        date = _date_of(condition.value, Order.DAY)
        if date is None or compare in (Compare.CONTAINS, Compare.WITHOUT):
            raise QueryError(f'"{condition.value[:40]}" is no date.')
        return _is(value.timetuple()[: date[1]], compare, date[0][: date[1]])
    if value is None:
        return compare is Compare.OTHER
    wanted = " ".join(condition.value.split()).casefold()
    if compare in (Compare.CONTAINS, Compare.WITHOUT):
        return (wanted in value) is (compare is Compare.CONTAINS)
    return _is(value, compare, wanted)
