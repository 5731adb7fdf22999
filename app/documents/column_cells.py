"""Cells of one column: how they are written, what they mean, and how many mean nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from app.documents.table_cells import (
    Mark,
    Order,
    date_order,
    decimal_mark,
    is_ambiguous,
    is_empty,
    number_reading,
    read_date,
)
from app.documents.table_text import ColumnKind
from app.domain.table_result import Reading

_MOST_CACHED = 20_000  # cells whose value is remembered
_MOST_DIFFERENT = 200_000  # cells that are looked at once, to find how the column is written
_EXAMPLES = 3
_LONGEST_EXAMPLE = 40
_BEFORE = frozenset("$\u00a3\u00a5")  # currencies that stand before the number

Value = Decimal | datetime | str


@dataclass(slots=True)
class ColumnCells:
    """How the cells of a column are read, and what could not be."""

    name: str
    at: int
    kind: ColumnKind
    mark: Mark = Mark.POINT
    order: Order = Order.DAY
    unit: str = ""
    assumed: bool = False  # nothing says which of two readings is right
    has_values: bool = True
    empty: int = 0
    others: int = 0  # with a text that is no value
    units: int = 0  # in another unit
    examples: list[str] = field(default_factory=list[str])
    reading: Reading | None = None  # an example of what was assumed
    known: dict[str, Value | None] = field(default_factory=dict[str, Value | None])

    def judge(self, texts: Iterable[str], mark: Mark | None, order: Order | None) -> None:
        """Find how the cells are written; `mark` and `order` are those of the table."""
        if self.kind is ColumnKind.TEXT:
            return
        found = list(_different(texts))
        if self.kind is ColumnKind.DATE:
            own_order = date_order(found) or (None if order is Order.BOTH else order)
            self.order, self.assumed = own_order or Order.DAY, own_order is None
        else:
            own = decimal_mark(found) or (None if mark is Mark.BOTH else mark)
            self.mark, self.assumed = own or Mark.POINT, own is None
            units = Counter[str]()
            for text in found:
                if (reading := number_reading(text)) and reading.unit:
                    units[reading.unit] += 1
            self.unit = units.most_common(1)[0][0] if units else ""
        self.has_values = any(self._read(text) is not None for text in found)

    def value(self, text: str) -> Value | None:
        """The value of a cell; None: it has none, or of another kind."""
        try:
            return self.known[text]
        except KeyError:
            value = self._read(text)
            if len(self.known) < _MOST_CACHED:
                self.known[text] = value
            return value

    def counted(self, text: str) -> Value | None:
        """The same; a cell without a value is counted."""
        value = self.value(text)
        if value is None:
            if is_empty(text):
                self.empty += 1
                return None
            found = number_reading(text) if self.kind is ColumnKind.NUMBER else None
            if found and found.value(self.mark) is not None:
                self.units += 1
            else:
                self.others += 1
            example = text[:_LONGEST_EXAMPLE]
            if len(self.examples) < _EXAMPLES and example not in self.examples:
                self.examples.append(example)
        return value

    def _read(self, text: str) -> Value | None:
        if is_empty(text):
            return None
        if self.kind is ColumnKind.NUMBER:
            found = number_reading(text)
            if found is None or (found.unit and self.unit and found.unit != self.unit):
                return None
            value = found.value(self.mark)
            if self.assumed and value is not None and found.point != found.comma:
                self.reading = self.reading or Reading(self.name, text, str(value))
            return value
        if self.kind is ColumnKind.DATE:
            date = read_date(text, self.order)
            if self.assumed and date is not None and is_ambiguous(text):
                self.reading = self.reading or Reading(self.name, text, f"{date:%Y-%m-%d}")
            return date
        return " ".join(text.split()).casefold()

    def shown(self, value: Decimal) -> str:
        """A number with the unit of the column."""
        text = f"{value:f}"
        if self.mark is Mark.COMMA:  # as its cells are written
            text = text.replace(".", ",")
        if not self.unit:
            return text
        if self.unit == "%":
            return f"{text}%"
        return f"{self.unit}{text}" if self.unit in _BEFORE else f"{text} {self.unit}"


def _different(texts: Iterable[str]) -> Iterable[str]:
    """The texts, few of them more than once."""
    seen = set[str]()
    for text in texts:
        if text not in seen:
            if len(seen) < _MOST_DIFFERENT:
                seen.add(text)
            yield text
