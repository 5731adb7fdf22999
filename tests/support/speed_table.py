"""Reads, updates and writes the Markdown file of benchmark tables; rows not measured again stay.

There is a table per machine. Its sections hold rows, one per model file and measurement, or other
text. Rows of different days stand together, so each has its date.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from peer_runs import Speed

COLUMNS = (
    "File",
    "Of",
    "Ours",
    "Theirs",
    "Ratio",
    "Wanted",
    "GB/s",
    "Of the bandwidth",
    "Others",
    "Caches",
    "Pairs",
    "Day",
)
_TEXT = {"File", "Of", "Caches", "Day"}  # left-aligned columns
_MISSED = " **missed**"


@dataclass(frozen=True, slots=True)
class Line:
    """A row: one measurement of one model file; its cells as text, by COLUMNS."""

    cells: tuple[str, ...]

    @property
    def file(self) -> str:
        """The model file."""
        return self._cell("File")

    @property
    def of(self) -> str:
        """The measurement: decode or prefill, and its conditions."""
        return self._cell("Of")

    @property
    def ratio(self) -> float:
        """The median ratio of the engine's speed to the peer's; 0 without a peer."""
        return _number(self._cell("Ratio"))

    @property
    def wanted(self) -> float:
        """The target ratio; 0 without a target."""
        return _number(self._cell("Wanted"))

    @property
    def missed(self) -> bool:
        """Whether the ratio is below its target."""
        return bool(self._cell("Ratio")) and self.ratio < self.wanted

    def __str__(self) -> str:
        return f"| {' | '.join(self.cells)} |"

    def _cell(self, column: str) -> str:
        return self.cells[COLUMNS.index(column)]


def line(
    file: str, of: str, mine: Sequence[Speed], its: Sequence[Speed], wanted: float, day: str
) -> Line:
    """A row of alternating runs; `of` begins with the speed to compare, decode or prefill."""
    measure = of.split()[0].rstrip(",")
    values = [getattr(speed, measure) for speed in mine]
    peers = [getattr(speed, measure) for speed in its]
    times = ratios(mine, its, measure)
    missed = _MISSED if times and statistics.median(times) < wanted else ""
    read = share = ""
    if measure == "decode":
        read = f"{statistics.median(speed.read for speed in mine):.1f}"
        share = f"{statistics.median(speed.read / speed.bandwidth for speed in mine):.0%}"
    cells = {
        "File": file,
        "Of": of,
        "Ours": spread(values),
        "Theirs": spread(peers),
        "Ratio": spread(times, 2) + missed,
        "Wanted": f"{wanted:.2f}" if wanted else "",
        "GB/s": read,
        "Of the bandwidth": share,
        "Others": f"{max(speed.others for speed in (*mine, *its)):.2f}",
        "Caches": f"{_caches(mine)} / {_caches(its)}",
        "Pairs": str(len(times) or len(values)),
        "Day": day,
    }
    return Line(tuple(cells[column] for column in COLUMNS))


def ratios(mine: Sequence[Speed], its: Sequence[Speed], measure: str) -> list[float]:
    """The ratio of the engine's speed to the peer's for each pair of runs."""
    return [getattr(a, measure) / getattr(b, measure) for a, b in zip(mine, its, strict=False)]


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median and range as text; empty without values."""
    if not values:
        return ""
    low, high = min(values), max(values)
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


@dataclass(slots=True)
class Table:
    """All measurements of one machine: rows and texts by section."""

    versions: str = ""  # one sentence: program versions of the last run
    lines: dict[str, dict[tuple[str, str], Line]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def put(self, section: str, line: Line) -> None:
        """Add a row; it replaces the row of the same measurement, or the section's text."""
        self.texts.pop(section, None)
        self.lines.setdefault(section, {})[line.file, line.of] = line

    def missed(self) -> list[str]:
        """The rows below their target, one sentence each."""
        return [
            f"{section}, {line.file}, {line.of}: {line.ratio:.2f}, not {line.wanted:.2f}"
            for section, lines in self.lines.items()
            for line in lines.values()
            if line.missed
        ]

    def written(self, sections: Iterable[str], files: Sequence[str]) -> str:
        """The table as Markdown, with sections and files in the given order."""
        parts = [self.versions]
        for section in sections:
            heading = f"### {section[:1].upper()}{section[1:]}\n\n"
            if section in self.texts:
                parts.append(heading + self.texts[section])
            elif found := self.lines.get(section):
                ranks = {file: rank for rank, file in enumerate(files)}
                of = sorted(found.values(), key=lambda line: ranks.get(line.file, len(ranks)))
                parts.append(heading + _ruled(of))
        return "\n\n".join(parts)


def read(path: Path, sections: Iterable[str]) -> dict[str, Table]:
    """The tables in a Markdown file, by machine; sections other than `sections` are skipped."""
    if not path.is_file():
        return {}
    _, *parts = path.read_text(encoding="utf-8").split("\n## ")
    names = {section.lower(): section for section in sections}
    tables: dict[str, Table] = {}
    for part in parts:
        machine, _, rest = part.partition("\n")
        versions, *blocks = rest.split("\n### ")
        tables[machine.strip()] = table = Table(versions.strip())
        for block in blocks:
            heading, _, body = block.partition("\n")
            if section := names.get(heading.strip().lower()):
                _read_section(table, section, body)
    return tables


def write(
    path: Path,
    head: str,
    tables: Mapping[str, Table],
    sections: Sequence[str],
    files: Sequence[str],
) -> None:
    """Write all tables as a Markdown file that `read` can parse."""
    parts = [head.strip()]
    parts += [f"## {name}\n\n{table.written(sections, files)}" for name, table in tables.items()]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _read_section(table: Table, section: str, body: str) -> None:
    rows = [row for row in body.splitlines() if row.startswith("| ")]
    if rows and _cells(rows[0]) == COLUMNS:
        for row in rows[1:]:
            table.put(section, Line(_cells(row)))
    else:
        table.texts[section] = body.strip()


def _ruled(lines: Iterable[Line]) -> str:
    rule = ("---" if column in _TEXT else "---:" for column in COLUMNS)
    head = Line(COLUMNS)
    return "\n".join([str(head), f"|{'|'.join(rule)}|", *map(str, lines)])


def _cells(row: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row.strip().strip("|").split("|"))


def _number(cell: str) -> float:
    found = re.match(r"[0-9.]+", cell)
    return float(found[0]) if found else 0.0


def _caches(speeds: Iterable[Speed]) -> str:
    return ", ".join(sorted({speed.cache for speed in speeds}))
