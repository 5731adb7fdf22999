"""Rows of a sheet as tables."""

from __future__ import annotations

import time

from app.documents.office.sheet import Sheet
from text_files import MOST_SECONDS


def test_a_table_with_many_empty_rows_takes_time_that_grows_with_it() -> None:
    sheet = Sheet()
    for number in range(60_000):
        if number % 3 < 2:
            sheet.add(number, [(0, "a"), (1, str(number))])
    begins = time.process_time()
    lines = sheet.text.splitlines()
    assert time.process_time() - begins < MOST_SECONDS
    assert (len(lines), lines[:3]) == (40_001, ["| a | 0 |", "| --- | --- |", "| a | 1 |"])
