"""CSV and TSV of any dialect, as Markdown tables."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.domain.documents import DocumentKind
from text_files import HOSTILE, MOST_SECONDS, Read, reader, warned

ROWS = "| Name | Age |\n| --- | --- |\n| Ann | 31 |\n| Bob | 27 |"

TABLES = {
    "commas": ("Name,Age\nAnn,31\nBob,27\n", ROWS),
    "semicolons": ("Name;Age\nAnn;31\nBob;27", ROWS),
    "tabs": ("Name\tAge\nAnn\t31\nBob\t27\n", ROWS),
    "bars": ("Name|Age\nAnn|31\nBob|27\n", ROWS),
    "excel's separator line": ("sep=;\r\nName;Age\r\nAnn;31\r\nBob;27\r\n", ROWS),
    "carriage returns only": ("Name,Age\rAnn,31\rBob,27\r", ROWS),
    "blank lines": ("\n\nName,Age\n\nAnn,31\n\nBob,27\n\n", ROWS),
    "spaces after commas": ("Name, Age\nAnn, 31\nBob, 27\n", ROWS),
    "decimal commas": (
        "Port;Höhe;Datum\nBrest;7,04;01.02.2026\nEmden;3,10;02.02.2026\n",
        "| Port | Höhe | Datum |\n| --- | --- | --- |\n| Brest | 7,04 | 01.02.2026 |\n"
        "| Emden | 3,10 | 02.02.2026 |",
    ),
    "numbers as they are": (
        "a,b\n007,1e5\n1.10,-0\n",
        "| a | b |\n| --- | --- |\n| 007 | 1e5 |\n| 1.10 | -0 |",
    ),
    "line breaks in quotes": (
        'a,b\n"one\ntwo","say ""hi"", you"\nx,"1,5"\n',
        '| a | b |\n| --- | --- |\n| one<br>two | say "hi", you |\n| x | 1,5 |',
    ),
    "backslashes before quotes": (
        'a,b\n"say \\"hi\\"",1\n"x",2\n',
        '| a | b |\n| --- | --- |\n| say "hi" | 1 |\n| x | 2 |',
    ),
    "bars in cells": ("a,b\nx|y,1\n", "| a | b |\n| --- | --- |\n| x\\|y | 1 |"),
    "a quote that never closes": (
        'a,b\n"x,1\ny,2\nz,3\n',
        '| a | b |\n| --- | --- |\n| "x | 1 |\n| y | 2 |\n| z | 3 |',
    ),
    "inches": ('size,n\n5" pipe,1\n6" pipe,2\n7" pipe,3\n', '| size | n |\n| --- | --- |\n| 5" pipe | 1 |\n| 6" pipe | 2 |\n| 7" pipe | 3 |'),
    "no header": ("1,2\n3,4\n", "|  |  |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |"),
    "years as header": (
        "Region,2024,2025\nNorth,5,6\nSouth,7,8\n",
        "| Region | 2024 | 2025 |\n| --- | --- | --- |\n| North | 5 | 6 |\n| South | 7 | 8 |",
    ),
    "ragged": ("a,b\n1\n1,2,3\n", "| a | b |  |\n| --- | --- | --- |\n| 1 |  |  |\n| 1 | 2 | 3 |"),
    "empty last columns": ("a,b,,\n1,2,,\n", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
    "one column": ("word\nalpha\nbeta\n", "| word |\n| --- |\n| alpha |\n| beta |"),
    "commas in one column of semicolons": (
        "name;note\nAnn;a, b, c\nBob;d\n",
        "| name | note |\n| --- | --- |\n| Ann | a, b, c |\n| Bob | d |",
    ),
    "header only": ("a,b,c\n", "| a | b | c |\n| --- | --- | --- |"),
}  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Read:
    return reader(tmp_path, "table")


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_markdown(table: Read, name: str) -> None:
    content, expected = TABLES[name]
    document = table(content, "table.csv")
    assert document.kind is DocumentKind.TABLE
    assert document.text == expected
    assert not document.warnings


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "cp932"])
def test_encodings_of_tables(table: Read, encoding: str) -> None:
    content = "名前,年齢,住所\n佐藤太郎,30,東京\n三木英子,25,大阪\n髙橋淳,35,名古屋\n"
    expected = (
        "| 名前 | 年齢 | 住所 |\n| --- | --- | --- |\n| 佐藤太郎 | 30 | 東京 |\n"
        "| 三木英子 | 25 | 大阪 |\n| 髙橋淳 | 35 | 名古屋 |"
    )
    assert table(content.encode(encoding)).text == expected


def test_tabs_are_meant_by_the_ending_tsv(table: Read) -> None:
    assert table("a b, c\td\n1, 2\t3\n", "x.tsv").text.splitlines()[0] == "| a b, c | d |"


@pytest.mark.parametrize("content", ["", "\n\n", " , \n,\n"])
def test_a_table_without_text_is_empty(table: Read, content: str) -> None:
    assert warned(table(content)) == ["empty"]


def test_a_wide_table_is_kept_as_rows(table: Read) -> None:
    content = ",".join(f"c{at}" for at in range(100)) + "\n" + ",".join(map(str, range(100)))
    assert table(content).text.splitlines()[1].startswith("0 | 1 | 2 | 3")


@pytest.mark.parametrize("size", HOSTILE)
@pytest.mark.parametrize("piece", ['"', '"",', ",", "a\n", '"a\n', ";\t|,\n", '\\"', "x" * 99])
def test_hostile_tables_take_time_that_grows_with_them(table: Read, piece: str, size: int) -> None:
    begins = time.process_time()
    table(piece * (size // len(piece)))
    assert time.process_time() - begins < MOST_SECONDS


@pytest.mark.sweep
def test_a_table_of_fifty_megabytes_is_cut_at_a_row(table: Read) -> None:
    line = "north,12.5,2026-11-27,some note about it\n"
    document = table("region,value,day,note\n" + line * (50_000_000 // len(line)))
    assert warned(document) == ["cut"]
    assert document.text.endswith("| north | 12.5 | 2026-11-27 | some note about it |")
