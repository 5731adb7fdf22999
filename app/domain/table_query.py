"""Query over a table: what to show of which rows, in a fixed vocabulary that a model writes as JSON.

Nothing of it is ever run as code. A query that names a column which the table does not have, or
that is no query, is refused with a sentence that the model can mend it by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, cast

MOST_ROWS = 100  # of a result
_MOST_SHOWN = 8
_MOST_CONDITIONS = 6


class Do(StrEnum):
    """What an expression makes of a column."""

    VALUE = ""
    YEAR = "year"  # of a date
    MONTH = "month"  # of a date, with its year
    COUNT = "count"  # rows, or cells with a value
    SUM = "sum"
    MEAN = "mean"
    MIN = "min"
    MAX = "max"
    DISTINCT = "distinct"  # different values

    @property
    def is_aggregate(self) -> bool:
        """Whether it is one value of many rows."""
        return self not in (Do.VALUE, Do.YEAR, Do.MONTH)


class Compare(StrEnum):
    """How a condition compares."""

    EQUAL = "="
    OTHER = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="
    CONTAINS = "contains"
    WITHOUT = "does not contain"
    EMPTY = "is empty"
    FILLED = "is not empty"

    @property
    def has_value(self) -> bool:
        """Whether it compares with a value."""
        return self not in (Compare.EMPTY, Compare.FILLED)


@dataclass(frozen=True, slots=True)
class Expression:
    """A column, or what is made of it; a count without a column is of rows."""

    column: str = ""
    do: Do = Do.VALUE

    def __str__(self) -> str:
        return " of ".join(filter(None, (self.do.value, self.column)))


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a row, or of a group if it is about an aggregate."""

    about: Expression
    compare: Compare
    value: str = ""


@dataclass(frozen=True, slots=True)
class Query:
    """What to show; aggregates are of the groups that the other expressions make."""

    show: tuple[Expression, ...]
    where: tuple[Condition, ...] = ()
    any_of: bool = False  # one condition is enough
    sort: Expression | None = None
    largest_first: bool = False
    limit: int = 0  # 0: all, of which `MOST_ROWS` are shown
    table: str = ""  # name

    @property
    def is_grouped(self) -> bool:
        """Whether its rows are groups of rows of the table."""
        return any(each.do.is_aggregate for each in self.show)

    @property
    def json(self) -> str:
        """The query as a model writes it."""
        made: dict[str, Any] = {"table": self.table} if self.table else {}
        made["show"] = [str(each) for each in self.show]
        made["where"] = [
            {"column": str(each.about), "is": each.compare.value, "value": each.value}
            for each in self.where
        ]
        if self.any_of:
            made["match"] = "any"
        if self.sort is not None:
            made["sort"] = str(self.sort)
            made["order"] = "largest first" if self.largest_first else "smallest first"
        if self.limit:
            made["limit"] = self.limit
        return json.dumps(made, ensure_ascii=False)


class QueryError(Exception):
    """Raised for what is no query over the tables; its text says why, in English."""


# The name of a column as the table has it; None: it has none of this name.
FindColumn = Callable[[str], str | None]

_WORDS = {
    "total": Do.SUM, "average": Do.MEAN, "avg": Do.MEAN, "minimum": Do.MIN, "maximum": Do.MAX,
    "smallest": Do.MIN, "largest": Do.MAX, "number": Do.COUNT, "unique": Do.DISTINCT,
    "count distinct": Do.DISTINCT,
} | {each.value: each for each in Do if each}  # fmt: skip
_OF = re.compile(
    rf"({'|'.join(sorted(_WORDS, key=len, reverse=True))})(?:\s+of\s+|\s*\(\s*|\s+)(.+?)\)?",
    re.IGNORECASE | re.DOTALL,
)
_COMPARES = {
    "==": Compare.EQUAL, "equals": Compare.EQUAL, "is": Compare.EQUAL, "<>": Compare.OTHER,
    "not": Compare.OTHER, "is not": Compare.OTHER, "\u2264": Compare.AT_MOST,
    "\u2265": Compare.AT_LEAST, "less than": Compare.LESS, "more than": Compare.MORE,
    "greater than": Compare.MORE, "not contains": Compare.WITHOUT, "empty": Compare.EMPTY,
    "not empty": Compare.FILLED,
} | {each.value: each for each in Compare}  # fmt: skip
_ROWS = frozenset(("count", "count of rows", "number of rows", "count(*)", "rows", "*"))


def read_query(text: str, tables: dict[str, FindColumn]) -> Query:
    """The query that a model wrote, over one of the tables by name; raises QueryError."""
    values = _object(text)
    name = str(values.get("table") or "")
    folded = {each.casefold(): each for each in tables}
    if len(tables) == 1:
        [table] = tables
    elif (table := folded.get(name.strip().casefold(), "")) == "":
        names = ", ".join(f'"{each}"' for each in tables)
        raise QueryError(f'There is no table "{name}". The tables are: {names}.')
    find = tables[table]
    show = _list(values, "show")
    if not show:
        raise QueryError('"show" is empty: it lists what to show.')
    if len(show) > _MOST_SHOWN:
        raise QueryError(f'"show" has more than {_MOST_SHOWN} entries.')
    shown = tuple(dict.fromkeys(_expression(each, find) for each in show))
    where = tuple(_condition(each, find) for each in _list(values, "where")[:_MOST_CONDITIONS])
    if len(_list(values, "where")) > _MOST_CONDITIONS:
        raise QueryError(f'"where" has more than {_MOST_CONDITIONS} conditions.')
    any_of = str(values.get("match", "")).casefold() == "any" and len(where) > 1
    if any_of and len({each.about.do.is_aggregate for each in where}) > 1:
        raise QueryError('With "match": "any", conditions are all about rows, or all about groups.')
    limit = _limit(values.get("limit"))
    sort = _sort(values["sort"], find, shown, limit) if values.get("sort") else None
    more = [*(each.about for each in where), *filter(None, (sort,))]  # which groups have as well
    shown = tuple(dict.fromkeys((*shown, *(each for each in more if each.do.is_aggregate))))
    return Query(
        shown,
        where,
        any_of,
        sort,
        str(values.get("order", "")).casefold().startswith(("largest", "desc", "down")),
        limit,
        table,
    )


def _sort(
    sort: object, find: FindColumn, shown: tuple[Expression, ...], limit: int
) -> Expression | None:
    """What is sorted by: of groups, something that they have; None: nothing that matters."""
    made = _expression(sort, find)
    if made in shown or made.do.is_aggregate or not any(each.do.is_aggregate for each in shown):
        return made
    same = [each for each in shown if each.column == made.column and each.do.is_aggregate]
    if not same and limit:
        raise QueryError(f'"sort" is by "{made}", which "show" does not list.')
    return same[0] if same else None


def _object(text: str) -> dict[str, Any]:
    """The first JSON object in a text, whatever is around it."""
    decoder = json.JSONDecoder(parse_float=str)
    for found in re.finditer(r"\{", text):
        try:
            value: object = decoder.raw_decode(text, found.start())[0]
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            made = cast("dict[str, Any]", value)
            inner = made.get("query")
            found_in = cast("dict[str, Any]", inner) if isinstance(inner, dict) else made
            return {key.casefold(): each for key, each in found_in.items()}
    raise QueryError("It is no JSON object.")


def _list(values: dict[str, Any], key: str) -> list[object]:
    found = values.get(key)
    if found is None or found == "":
        return []
    return cast("list[object]", found) if isinstance(found, list) else [found]


def _expression(written: object, find: FindColumn) -> Expression:
    if not isinstance(written, str):
        raise QueryError(f"{json.dumps(written, default=str)[:80]} is no column.")
    text = written.strip()
    if (name := find(text)) is not None:
        return Expression(name)
    if text.casefold() in _ROWS:
        return Expression("", Do.COUNT)
    if found := _OF.fullmatch(text):
        do = _WORDS[found[1].casefold()]
        inner = found[2].strip().strip("\"'`[]")
        if (name := find(inner)) is not None:
            return Expression(name, do)
        if do is Do.COUNT and inner.casefold() in ("rows", "*"):
            return Expression("", do)
        text = inner
    if (name := find(text.strip("\"'`[]"))) is not None:
        return Expression(name)
    raise QueryError(f'There is no column "{text[:80]}".')


def _condition(written: object, find: FindColumn) -> Condition:
    if not isinstance(written, dict):
        raise QueryError('A condition has "column", "is" and "value".')
    values = {key.casefold(): each for key, each in cast("dict[str, object]", written).items()}
    about = _expression(values.get("column"), find)
    how = str(values.get("is", values.get("operator", values.get("op", "=")))).strip().casefold()
    compare = _COMPARES.get(how)
    if compare is None:
        known = ", ".join(each.value for each in Compare)
        raise QueryError(f'"{how[:40]}" is no comparison. There are: {known}.')
    value = values.get("value", "")
    if isinstance(value, dict | list):
        raise QueryError("The value of a condition is one text or number.")
    text = "" if value is None else str(value).strip()
    if not text and compare in (Compare.EQUAL, Compare.OTHER):  # without a value
        compare = Compare.EMPTY if compare is Compare.EQUAL else Compare.FILLED
    elif compare.has_value and not text:
        raise QueryError(f'The condition "{about} {compare}" has no value.')
    return Condition(about, compare, text if compare.has_value else "")


def _limit(value: object) -> int:
    try:
        return max(int(str(value)), 0) if value else 0
    except ValueError:
        raise QueryError('"limit" is no whole number.') from None
