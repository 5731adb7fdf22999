"""The table of what tests on another system gave: one row for each set of tests."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """How many tests of a set passed, were skipped and failed, how long they took, and why some
    were skipped.
    """

    name: str
    passed: int
    skipped: int
    failed: int
    seconds: float
    reasons: tuple[str, ...] = ()  # of each skipped test


def row_of(name: str, report: Path, seconds: float) -> Row:
    """The row of a JUnit file that pytest has written; a run that left none counts as failed."""
    try:
        suite = ET.parse(report).getroot().find("testsuite")
    except (OSError, ET.ParseError):
        suite = None
    if suite is None:
        return Row(name, 0, 0, 1, seconds)
    count = {key: int(suite.get(key, "0")) for key in ("tests", "skipped", "failures", "errors")}
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - count["skipped"] - failed
    # A set without a test proves nothing.
    failed = failed or int(passed <= 0)
    reasons = tuple(one.get("message", "") for one in suite.iter("skipped"))
    return Row(name, passed, count["skipped"], failed, seconds, reasons)


def table(rows: Sequence[Row]) -> str:
    """The rows as text, with their sum, and how often each reason skipped a test."""
    total = Row(
        "all",
        sum(row.passed for row in rows),
        sum(row.skipped for row in rows),
        sum(row.failed for row in rows),
        sum(row.seconds for row in rows),
    )
    width = max(len(row.name) for row in (*rows, total))
    lines = [f"{'':<{width}}  passed  skipped  failed  seconds"]
    for row in (*rows, total):
        counts = f"{row.passed:6}  {row.skipped:7}  {row.failed:6}  {row.seconds:7.0f}"
        lines.append(f"{row.name:<{width}}  {counts}")
    reasons = Counter(reason for row in rows for reason in row.reasons)
    lines += [f"{count:6} skipped: {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)
