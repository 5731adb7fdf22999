"""Result of a query over a table: its rows, how many were used, and all that was left out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from app.domain.table_query import Query


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Cells of a column that have no value of its kind."""

    column: str
    empty: int = 0
    others: int = 0  # with a text that is no value
    units: int = 0  # numbers in another unit
    unit: str = ""  # that of the numbers that were used
    is_date: bool = False
    examples: tuple[str, ...] = ()
    compared: bool = False  # they could not be compared, and so their rows were left out


@dataclass(frozen=True, slots=True)
class Reading:
    """How a cell was read that has two readings."""

    column: str
    text: str
    value: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a result was made of."""

    found: int = 0  # rows of the result, of which the first ones are shown
    rows: int = 0  # of the table
    used: int = 0  # of these, those that meet the conditions
    left_out: tuple[LeftOut, ...] = ()
    readings: tuple[Reading, ...] = ()
    totals: int = 0  # rows with the totals of others, which were left out
    total_name: str = ""  # of the first of these
    like_totals: int = 0  # rows that call themselves totals and were used
    ties: int = 0  # further rows that equal the last one
    rounded: bool = False  # a mean is not exact
    unnamed: bool = False  # no row names the columns
    titles: int = 0  # rows above the one that does
    as_shown: bool = False  # numbers are those that a sheet shows, perhaps rounded

    @property
    def json(self) -> str:
        """As it is stored: what is not usual."""
        usual = asdict(Facts())
        kept = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return json.dumps(kept, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class TableResult:
    """What a query found."""

    query: Query
    rows: tuple[tuple[str, ...], ...]  # at most `MOST_ROWS`
    facts: Facts


def _left_out(values: dict[str, Any]) -> LeftOut:
    made = dict(values)
    made["examples"] = tuple(map(str, values.get("examples", ())))
    return LeftOut(**made)


def read_facts(text: str) -> Facts:
    """The facts of a stored result; a field of a wrong type gets its default."""
    try:
        found: object = json.loads(text or "{}")
    except (ValueError, RecursionError):
        found = {}
    values = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    made: dict[str, Any] = {
        field.name: values[field.name]
        for field in fields(Facts)
        if field.name in values and type(values[field.name]) is type(field.default)
    }
    try:
        made["left_out"] = tuple(map(_left_out, values.get("left_out", ())))
        made["readings"] = tuple(Reading(**each) for each in values.get("readings", ()))
    except (TypeError, AttributeError):
        made.pop("left_out", None)
        made.pop("readings", None)
    return Facts(**made)
