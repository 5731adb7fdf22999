"""Reader of tables in text: CSV and TSV of any dialect, as one Markdown table.

Rows are read twice and never kept as lists, so that a large file needs little more memory than its
text. Numbers and dates stay as they are written.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from app.documents.decoding import load
from app.documents.source import MOST_CHARACTERS, Source
from app.documents.tables import MOST_COLUMNS, cell_text
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, Warned

_SAMPLE = 200_000  # characters by which the dialect is found
_SAMPLE_ROWS = 200
_DELIMITERS = "\t;|,"  # in the order of preference where several divide all rows alike
_SEPARATOR_LINE = re.compile(r"\s*\"?sep=(.)\"?[ \t]*\n", re.IGNORECASE)
_NUMBER = re.compile(
    r"[-+(]?[$\u20ac\u00a3\u00a5]?\s?\d[\d.,' \u00a0\u202f]*(?:[eE][-+]?\d+)?\s?[%\u20ac$)]?"
)
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:[ T]\d{1,2}:\d\d.*)?|\d{1,2}:\d\d(?::\d\d)?")
_SPECIAL = re.compile(r"[|\n\t\v\f]|  | \0|\0 |^ | $")  # in a row whose cells are joined by zeros
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How the cells of a table are divided and quoted."""

    delimiter: str
    quotes: bool = True
    escapes: bool = False  # quotes in quotes follow a backslash, and are not doubled

    def rows(self, text: str) -> Iterator[list[str]]:
        """The rows of a text, empty lines left out."""
        csv.field_size_limit(MOST_CHARACTERS + 1)
        reader = csv.reader(
            _lines(text),
            delimiter=self.delimiter,
            quoting=csv.QUOTE_MINIMAL if self.quotes else csv.QUOTE_NONE,
            escapechar="\\" if self.escapes else None,
            doublequote=not self.escapes,
            skipinitialspace=self.delimiter != "\t",
        )
        return (row for row in reader if row and not (row[0] in _BLANK and _is_blank(row)))


_BLANK = ("", " ")


def _is_blank(row: list[str]) -> bool:
    return not any(cell.strip() for cell in row)


def read(source: Source) -> Document:
    """The table of a file. Raises ExtractionError if it is no text."""
    decoded = load(source)
    text = decoded.text
    delimiter = ""
    if found := _SEPARATOR_LINE.match(text):
        delimiter, text = found[1], text[found.end() :]
    dialect = find_dialect(text, delimiter, tabs=source.suffix in (".tsv", ".tab"))
    table = _table(text, dialect)
    warnings = decoded.warnings
    if len(table) > MOST_CHARACTERS:
        table = table[: table.rfind("\n", 0, MOST_CHARACTERS)]
        if not decoded.cut:
            warnings = (*warnings, Warned(DocumentWarning.CUT))
    if not table and not any(each.warning is DocumentWarning.EMPTY for each in warnings):
        warnings = (*warnings, Warned(DocumentWarning.EMPTY))
    return Document(DocumentKind.TABLE, (Page("", table),), warnings=warnings)


def find_dialect(text: str, delimiter: str = "", *, tabs: bool = False) -> Dialect:
    """The dialect by which most rows of a text have the same number of cells, more than one."""
    sample = text[:_SAMPLE]
    escapes = '\\"' in sample and '""' not in sample.replace('\\""', "")
    if not delimiter:
        order = "\t" + _DELIMITERS if tabs else _DELIMITERS
        ranked = [(_fit(sample, Dialect(each, escapes=escapes)), each) for each in order]
        best = max(fit for fit, _ in ranked)
        delimiter = next(each for fit, each in ranked if fit >= best - 0.02)
        if best <= 0:
            delimiter = "\t" if tabs else ","
    dialect = Dialect(delimiter, escapes=escapes)
    return Dialect(delimiter, quotes=False) if _runs_away(text, dialect) else dialect


def _fit(sample: str, dialect: Dialect) -> float:
    """The share of rows with the usual number of cells; 0 if that is one."""
    rows = list(islice(dialect.rows(sample), _SAMPLE_ROWS))
    if len(rows) > 2 and len(sample) == _SAMPLE:
        rows.pop()
    counts = Counter(map(len, rows))
    usual, times = max(counts.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
    return times / len(rows) if usual > 1 else 0.0


def _runs_away(text: str, dialect: Dialect) -> bool:
    """Whether a quote that never closes takes the rest of the table into one cell."""
    if text.count('"') % 2 == 0:
        return False
    last = deque(dialect.rows(text), maxlen=1)
    return bool(last) and "\n" in last[0][-1].rstrip("\n")


def _lines(text: str) -> Iterator[str]:
    at = 0
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        yield text[at:end]
        at = end


def _table(text: str, dialect: Dialect) -> str:
    """The Markdown table, a little longer than the limit where the table is."""
    first = list(islice(dialect.rows(text), _SAMPLE_ROWS))
    if not first:
        return ""
    width = 0
    for row in dialect.rows(text):
        if len(row) > width:
            end = len(row)
            while end > width and not row[end - 1].strip():
                end -= 1
            width = end
    is_table = width <= MOST_COLUMNS
    made: list[str] = []
    if is_table:
        header = first[0] if _has_header(first) else []
        made.append(_line(header, width))
        made.append("|" + " --- |" * width)
    length = 0
    rows = dialect.rows(text)
    if is_table and _has_header(first):
        next(rows)
    for row in rows:
        line = _line(row, width) if is_table else " | ".join(map(cell_text, row))
        made.append(line)
        length += len(line) + 1
        if length > MOST_CHARACTERS:
            break
    return "\n".join(made)


def _line(row: list[str], width: int) -> str:
    cells = row[:width]
    if _SPECIAL.search("\0".join(cells)):
        cells = [cell_text(cell) for cell in cells]
    return "| " + " | ".join([*cells, *([""] * (width - len(cells)))]) + " |"


def _has_header(rows: list[list[str]]) -> bool:
    """Whether the first row names the columns: texts, above values of other forms."""
    first, rest = rows[0], rows[1:]
    names = [cell.strip() for cell in first if cell.strip()]
    if not rest or len(names) < len(first) / 2 or len(set(names)) < len(names):
        return not rest and not any(_is_value(name) for name in names)
    values = [name for name in names if _is_value(name)]
    if not values:
        return True
    # Years may be names of columns, where what stands below is no year.
    is_below = [
        row[at] for row in rest for at, cell in enumerate(first) if at < len(row) and cell in values
    ]
    return (
        len(values) < len(names)
        and all(_YEAR.fullmatch(value) for value in values)
        and not all(_YEAR.fullmatch(each.strip()) for each in is_below)
    )


def _is_value(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell) or _DATE.fullmatch(cell))
