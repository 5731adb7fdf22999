"""Rows of cells as Markdown tables."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from app.documents.tables import MOST_COLUMNS, cell_text, markdown_table
from text_files import MOST_SECONDS


def test_a_table_has_a_header_and_its_ragged_rows_are_filled() -> None:
    assert markdown_table([["Name", "Price"], ["Tea"], ["Coffee", "3", ""], ["", ""]]) == (
        "| Name | Price |\n| --- | --- |\n| Tea |  |\n| Coffee | 3 |"
    )


def test_bars_and_lines_do_not_end_a_cell() -> None:
    assert cell_text(" a|b\r\nc\t d\n\n") == "a\\|b<br>c d"


def test_empty_tables_have_no_text() -> None:
    assert markdown_table([]) == ""
    assert markdown_table([["", " "], ["\n"]]) == ""


def test_an_empty_row_between_others_is_kept() -> None:
    assert markdown_table([[""], ["a"], [""], ["b"]]).splitlines() == [
        "| a |",
        "| --- |",
        "|  |",
        "| b |",
    ]


def test_a_very_wide_table_is_kept_as_rows() -> None:
    wide = [str(i) for i in range(MOST_COLUMNS + 1)]
    assert markdown_table([wide, ["x", "y"]]) == " | ".join(wide) + "\nx | y"


@given(st.lists(st.lists(st.text("a|\n\\ ", max_size=4), max_size=4), max_size=5))
def test_every_line_of_a_table_has_as_many_cells(rows: list[list[str]]) -> None:
    bars = {
        line.replace("\\\\", "").replace("\\|", "").count("|")
        for line in markdown_table(rows).splitlines()
    }
    assert len(bars) <= 1


def test_a_cell_of_backslashes_takes_time_that_grows_with_it() -> None:
    begins = time.process_time()
    assert cell_text("\\" * 100_000 + "x\\|").endswith("x\\\\\\|")
    assert time.process_time() - begins < MOST_SECONDS
