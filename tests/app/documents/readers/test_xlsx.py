"""Excel workbooks: sheets, values as they are shown, formulas, empty ranges."""

from __future__ import annotations

import datetime
import io
from pathlib import Path

import pytest

from app.documents.readers import xlsx as reader
from app.documents.readers.package import CHUNK
from app.documents.source import Source
from app.domain.documents import Document, DocumentKind, DocumentWarning, Page, PageUnit, Warned
from document_writers import sheet_file


def document(tmp_path: Path, data: bytes) -> Document:
    (tmp_path / "a.xlsx").write_bytes(data)
    return reader.read(Source(tmp_path / "a.xlsx"))


def c(place: str, value: str = "", kind: str = "", style: int = 0, formula: str = "") -> str:
    about = f' t="{kind}"' if kind else ""
    inner = f"<f>{formula}</f>" if formula else ""
    return f'<c r="{place}" s="{style}"{about}>{inner}{f"<v>{value}</v>" if value else ""}</c>'


def row(number: int, *cells: str) -> str:
    return f'<row r="{number}">{"".join(cells)}</row>'


STRINGS = [
    "<t>Item</t>",
    "<r><t>Pri</t></r><r><rPr/><t>ce</t></r><rPh><t>x</t></rPh>",
    "<t>a_x000D_|b</t>",
]
FORMATS = ["yyyy-mm-dd", "0.0%", "#,##0.00", '0;-0;0;"["@"]"']
CASES: dict[str, tuple[str, str]] = {
    "a table of shared strings": (
        row(1, c("A1", "0", "s"), c("B1", "1", "s")) + row(2, c("A2", "2", "s"), c("B2", "4.5")),
        "| Item | Price |\n| --- | --- |\n| a\\|b | 4.5 |",
    ),
    "strings in their cells": (
        row(
            1,
            '<c r="A1" t="inlineStr"><is><t>One</t></is></c>',
            c("B1", "two", "str", formula="X()"),
        ),
        "One | two",
    ),
    "formats": (
        row(1, c("A1", "45000", style=1), c("B1", "0.25", style=2), c("C1", "1234.5", style=3))
        + row(2, c("A2", "0", "s", style=4), c("B2", "7"), c("C2", "1", "b"), c("D2", "0", "b")),
        "| 2023-03-15 | 25.0% | 1,234.50 |  |\n| --- | --- | --- | --- |\n| [Item] | 7 | TRUE | FALSE |",
    ),
    "errors and dates of ISO": (
        row(1, c("A1", "#DIV/0!", "e"), c("B1", "2024-05-06T00:00:00", "d")),
        "#DIV/0! | 2024-05-06T00:00:00",
    ),
    "a formula's value": (row(1, c("A1", "3", formula="SUM(B1:B2)"), c("B1", "1")), "3 | 1"),
    "a formula without a value": (
        row(1, c("A1", formula="SUM(B1:B2)&amp;&quot;x&quot;"), c("B1", "1")),
        '=SUM(B1:B2)&"x" | 1',
    ),
    "a formula of an empty text": (row(1, c("A1", "", "str", formula="X()"), c("B1", "1")), "1"),
    "shared formulas without values": (
        row(
            1,
            '<c r="B1"><f t="shared" ref="B1:B3" si="0">A1*$C$1+LOG10(A1)&amp;"A1"</f></c>',
            c("C1", "2"),
        )
        + row(2, '<c r="B2"><f t="shared" si="0"/></c>', c("C2", "2")),
        '| =A1*$C$1+LOG10(A1)&"A1" | 2 |\n| --- | --- |\n| =A2*$C$1+LOG10(A2)&"A1" | 2 |',
    ),
    "huge empty ranges": (
        row(1, c("A1", "1"), c("XFD1", "2"))
        + row(1048576, c("A1048576", "3"), c("XFD1048576", "4"))
        + row(1048577, *(c(f"{each}1048577", style=1) for each in ("A", "B", "C"))),
        "1 | 2\n\n3 | 4",
    ),
    "a title above a table": (
        row(1, c("A1", "Prices", "str"))
        + row(3, c("A3", "x", "str"), c("B3", "y", "str"))
        + row(4, c("A4", "1"), c("B4", "2")),
        "Prices\n\n| x | y |\n| --- | --- |\n| 1 | 2 |",
    ),
    "an empty row within a table": (
        row(1, c("A1", "x", "str"), c("B1", "y", "str"))
        + row(2, c("A2", "1"), c("B2", "2"))
        + row(5, c("A5", "3"), c("B5", "4")),
        "| x | y |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |",
    ),
    "empty columns are left out": (
        row(1, c("C1", "x", "str"), c("F1", "y", "str")) + row(2, c("C2", "1"), c("F2", "2")),
        "| x | y |\n| --- | --- |\n| 1 | 2 |",
    ),
    "one column": (row(1, c("A1", "x", "str")) + row(2, c("A2", "y", "str")), "x\ny"),
    "cells without references": (
        "<row><c><v>1</v></c><c><v>2</v></c></row><row><c><v>3</v></c></row>",
        "| 1 | 2 |\n| --- | --- |\n| 3 |  |",
    ),
    "styles and strings that are missing": (
        row(1, c("A1", "99", "s"), c("B1", "5", style=77)),
        "5",
    ),
    "a title, an empty row and an empty column": (
        row(1, c("A1", "PROGRESS", "str"))
        + row(3, c("A3", "Task", "str"), c("C3", "Owner", "str"), c("D3", "Status", "str"))
        + row(4, c("A4", "Design", "str"), c("C4", "NA", "str"), c("D4", "None", "str")),
        "PROGRESS\n\n| Task | Owner | Status |\n| --- | --- | --- |\n| Design | NA | None |",
    ),
    "an empty cell does not change its column": (
        row(1, c("A1", "Shipped", "str"), c("B1", "Units", "str"), c("C1", "Id", "str"))
        + row(2, c("A2", "1", "b"), c("B2", "12"), c("C2", "1"))
        + row(3, c("C3", "2")),
        "| Shipped | Units | Id |\n| --- | --- | --- |\n| TRUE | 12 | 1 |\n|  |  | 2 |",
    ),
    "lines in a cell": (
        row(1, c("A1", "one\ntwo", "str"), c("B1", "2")) + row(2, c("A2", "3"), c("B2", "4")),
        "| one<br>two | 2 |\n| --- | --- |\n| 3 | 4 |",
    ),
}


@pytest.mark.parametrize("is_strict", [False, True], ids=["transitional", "strict"])
@pytest.mark.parametrize("name", CASES)
def test_a_sheet_is_read(name: str, is_strict: bool, tmp_path: Path) -> None:
    rows, expected = CASES[name]
    data = sheet_file({"S": rows}, formats=FORMATS, strings=STRINGS, is_strict=is_strict)
    assert document(tmp_path, data).text == expected


def test_every_sheet_is_a_page(tmp_path: Path) -> None:
    sheets = {"Prices": row(1, c("A1", "1")), "Empty": "", "Secret": row(1, c("A1", "2"))}
    found = document(tmp_path, sheet_file(sheets, hidden=["Secret"]))
    assert found.pages == (
        Page("Prices", "1"),
        Page("Empty", ""),
        Page("Secret", "(hidden sheet)\n\n2"),
    )
    assert (found.kind, found.unit) == (DocumentKind.SHEETS, PageUnit.SHEET)
    assert document(tmp_path, sheet_file({"a": ""})).text == ""


def test_days_from_1904(tmp_path: Path) -> None:
    data = sheet_file({"S": row(1, c("A1", "1", style=1))}, formats=FORMATS, about='date1904="1"')
    assert document(tmp_path, data).text == "1904-01-02"


def test_rows_before_a_damage_are_read(tmp_path: Path) -> None:
    rows = row(1, c("A1", "1"), c("B1", "2")) + "</row>"
    found = document(tmp_path, sheet_file({"S": rows, "T": row(1, c("A1", "3"))}))
    assert [page.text for page in found.pages] == ["1 | 2", "3"]
    assert found.warnings == (Warned(DocumentWarning.DAMAGED),)


def test_a_long_sheet_is_read_up_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.documents.office.sheet.MOST_CHARACTERS", 300)
    monkeypatch.setattr(reader, "MOST_CHARACTERS", 300)
    rows = "".join(row(i, c(f"A{i}", "123456", "str"), c(f"B{i}", "7")) for i in range(1, 200))
    found = document(tmp_path, sheet_file({"S": rows, "T": rows}))
    assert len(found.pages) == 1
    assert 300 < len(found.text) < 400


def test_a_sheet_of_many_pieces_is_read(tmp_path: Path) -> None:
    rows = "".join(row(i, c(f"A{i}", str(i)), c(f"B{i}", "word", "str")) for i in range(1, 25_000))
    assert len(rows) > CHUNK
    text = document(tmp_path, sheet_file({"S": rows})).text
    assert text.count("\n") == 24_999
    assert text.endswith("| 24999 | word |")


def test_a_workbook_of_another_library_is_read(tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    sheet.title = "Stock & more"
    for values in (["Day", "Item", "Share", "Sum"], [datetime.date(2024, 5, 6), "Tea", 0.5, 3.25]):
        sheet.append(values)
    sheet["C2"].number_format = "0%"
    sheet["A4"] = "Merged"
    sheet.merge_cells("A4:D4")
    sheet["A5"], sheet["D5"] = True, "=SUM(D2:D2)"
    book.create_sheet("Hidden").sheet_state = "veryHidden"
    book["Hidden"]["B2"] = "secret"
    book.properties.title = "Stock"
    out = io.BytesIO()
    book.save(out)
    found = document(tmp_path, out.getvalue())
    assert found.title == "Stock"
    assert [page.label for page in found.pages] == ["Stock & more", "Hidden"]
    assert found.pages[0].text == (
        "| Day | Item | Share | Sum |\n| --- | --- | --- | --- |\n| 2024-05-06 | Tea | 50% | 3.25 |\n"
        "| Merged |  |  |  |\n| TRUE |  |  | =SUM(D2:D2) |"
    )
    assert found.pages[1].text == "(hidden sheet)\n\nsecret"
