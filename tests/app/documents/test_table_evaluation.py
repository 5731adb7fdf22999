"""Queries over tables: evaluated as a naive definition says, and all that is left out is said."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents.readers import docx, markdown, ods, table, xlsx
from app.documents.source import Source
from app.documents.table_evaluation import Stopped, evaluate
from app.documents.table_text import ColumnKind, Table, find_tables
from app.domain.documents import Document
from app.domain.parts import FilePart
from app.domain.table_query import QueryError, read_query
from app.domain.table_result import Facts, TableResult, read_facts


def file_of(document: Document, name: str) -> FilePart:
    return FilePart(
        name, document.text, kind=document.kind.value, unit=document.unit, pages=document.starts
    )


def table_of(rows: Sequence[Sequence[str]], folder: Path, name: str = "t.csv") -> Table:
    """The table of a CSV file with these rows."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    (folder / name).write_text(text.getvalue(), encoding="utf-8")
    [found] = find_tables([file_of(table.read(Source(folder / name)), name)])
    return found


def run(found: Table, **query: Any) -> TableResult:
    def find(name: str) -> str | None:
        column = found.column(name)
        return column.name if column else None

    return evaluate(found, read_query(json.dumps(query), {found.name: find}), lambda: False)


def values(found: Table, **query: Any) -> list[tuple[str, ...]]:
    return list(run(found, **query).rows)


def where(column: str, how: str, value: str = "") -> list[dict[str, str]]:
    return [{"column": column, "is": how, "value": value}]


MARKS = st.sampled_from(("point", "comma"))
ROWS = st.lists(
    st.tuples(
        st.sampled_from(("North", "South", "East")),
        st.one_of(
            st.decimals(-(10**7), 10**7, places=2),
            st.sampled_from(("", "n/a", "-", "free", "12 kg")),
        ),
        st.integers(2019, 2024),
    ),
    min_size=3,
    max_size=40,
)


def written(value: Decimal | str, mark: str) -> str:
    if isinstance(value, str):
        return value
    text = f"{value:,.2f}"
    return text if mark == "point" else text.translate({ord(","): ".", ord("."): ","})


@settings(max_examples=60, deadline=None)
@given(ROWS, MARKS)
def test_sums_means_and_counts_are_those_of_a_naive_definition(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, Decimal | str, int]],
    mark: str,
) -> None:
    rows = [*[("North", Decimal("1.25"), 2020)] * (len(rows) + 1), *rows]  # most are numbers
    folder = tmp_path_factory.mktemp("t")
    cells = [(region, written(amount, mark), f"{year}-05-01") for region, amount, year in rows]
    found = table_of([("Region", "Amount", "Day"), *cells], folder)
    by_region = defaultdict[str, list[Decimal | str]](list)
    for region, amount, _ in rows:
        by_region[region].append(amount)
    result = run(
        found, show=["Region", "sum of Amount", "count", "mean of Amount", "max of Amount"]
    )
    assert [row[0] for row in result.rows] == list(by_region)
    for region, total, count, mean, largest in result.rows:
        numbers = [each for each in by_region[region] if isinstance(each, Decimal)]
        assert count == str(len(by_region[region]))
        if not numbers:
            assert (total, mean, largest) == ("", "", "")
            continue
        shown = total.replace(",", ".") if mark == "comma" else total
        assert Decimal(shown) == sum(numbers)
        shown = mean.replace(",", ".") if mark == "comma" else mean
        assert abs(Decimal(shown) - sum(numbers) / len(numbers)) <= Decimal("5e-7")
        assert largest == written(max(numbers), mark)
    empty = sum(1 for _, amount, _ in rows if amount in ("", "n/a", "-"))
    other = sum(1 for _, amount, _ in rows if amount in ("free", "12 kg"))
    lost = [(each.empty, each.others) for each in result.facts.left_out]
    assert lost == ([(empty, other)] if empty or other else [])
    assert result.facts.used == result.facts.rows == len(rows)
    late = [(r, a) for r, a, year in rows if year >= 2022 and r != "East"]
    condition = [*where("Day", ">=", "2022"), *where("Region", "!=", "east")]
    assert values(found, show=["count"], where=condition) == [(str(len(late)),)]
    large = [r for r, a, _ in rows if isinstance(a, Decimal) and a > 1000]
    assert values(found, show=["count"], where=where("Amount", ">", "1000")) == [(str(len(large)),)]
    numbers = sorted((a for _, a, _ in rows if isinstance(a, Decimal)), reverse=True)
    top = run(found, show=["Amount"], sort="Amount", order="largest first", limit=3)
    assert [row[0] for row in top.rows[: len(numbers)]] == [written(n, mark) for n in numbers[:3]]
    ties = sum(1 for each in numbers[3:] if each == numbers[2]) if len(numbers) > 3 else 0
    assert top.facts.ties == ties
    years = values(found, show=["year of Day", "count"])
    assert years == [
        (str(y), str(sum(1 for r in rows if r[2] == y))) for y in sorted({r[2] for r in rows})
    ]


ORDERS = (
    ("Customer", "Product", "Price", "Ordered"),
    ("Ada", "blue pen", "1.50", "2024-01-05"),
    ("Bo", "red pen", "2.00", ""),
    ("Ada", "Blue ink", "4.00", "2024-02-10"),
    ("Cy", "paper", "9.99", "soon"),
    ("Ada", "pen", "1.00", "2023-12-31"),
)


def test_usual_questions(tmp_path: Path) -> None:
    found = table_of(ORDERS, tmp_path)
    assert values(found, show=["Customer", "count"], where=where("count", ">", "2")) == [
        ("Ada", "3")
    ]
    assert values(found, show=["Customer"], where=where("count of rows", ">=", "3")) == [
        ("Ada", "3")
    ]
    assert values(found, show=["mean of Price"], where=where("Product", "contains", "blue")) == [
        ("2.75",)
    ]
    assert values(found, show=["count"], where=where("Ordered", "is empty")) == [("1",)]
    assert values(
        found, show=["Product", "Price"], sort="Price", order="largest first", limit=1
    ) == [("paper", "9.99")]
    assert values(found, show=["distinct of Customer"]) == [("3",)]
    assert values(found, show=["month of Ordered", "count"]) == [
        ("2023-12", "1"), ("2024-01", "1"), ("2024-02", "1"), ("", "2"),
    ]  # fmt: skip
    assert values(found, show=["count"], where=where("Ordered", "=", "2024")) == [("2",)]
    assert values(found, show=["count"], where=where("month of Ordered", "=", "2")) == [("1",)]
    assert values(found, show=["min of Ordered", "max of Ordered"]) == [
        ("2023-12-31", "2024-02-10")
    ]
    assert values(found, show=["count"], where=where("Customer", "=", "nobody")) == [("0",)]
    assert values(found, show=["sum of Price"], where=where("Customer", "=", "nobody")) == [("",)]
    either = [*where("Customer", "=", "bo"), *where("Price", ">", "9")]
    assert values(found, show=["count"], where=either, match="any") == [("2",)]
    many = where("count", ">", "1")  # which is then shown as well
    assert values(found, show=["Customer", "sum of Price"], where=many) == [("Ada", "6.50", "3")]
    lost = run(found, show=["count"], where=where("Ordered", ">", "2024-01-31")).facts.left_out
    assert [(each.column, each.others, each.compared) for each in lost] == [("Ordered", 1, True)]


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ({"show": ["Colour"]}, 'There is no column "Colour".'),
        ({"show": []}, '"show" is empty'),
        ({"show": ["sum of Customer"]}, 'The column "Customer" has no numbers.'),
        ({"show": ["year of Product"]}, 'The column "Product" has no dates.'),
        (
            {"show": ["count"], "where": [{"column": "Price", "is": ">", "value": "much"}]},
            "no number",
        ),
        (
            {"show": ["count"], "where": [{"column": "Price", "is": "~", "value": "1"}]},
            "no comparison",
        ),
        ({"show": ["count"], "where": [{"column": "Price", "is": ">"}]}, "has no value"),
        ({"show": ["count"], "where": ["Price > 3"]}, 'A condition has "column"'),
        ({"show": ["Customer", "count"], "sort": "Price", "limit": 1}, "does not list"),
        ({"show": ["count"], "limit": "few"}, "no whole number"),
        ({"show": [{"sum": "Price"}]}, "is no column"),
        ({"show": ["Price"] * 9}, "more than 8"),
    ],
)
def test_queries_that_do_not_fit_say_why(tmp_path: Path, query: dict[str, Any], why: str) -> None:
    with pytest.raises(QueryError, match=why.replace("(", "\\(").replace("~", "\\~")):
        run(table_of(ORDERS, tmp_path), **query)


def test_a_query_is_read_as_models_write_it() -> None:
    names = {"amount": "Amount", "sum of parts": "Sum of parts"}
    for text in (
        'Sure! {"query": {"show": ["SUM(amount)"]}} Done.',
        '```json\n{"show": "Total of \\"Amount\\""}\n```',
        '{"x": {"show"} {"Show": ["sum amount"]}',
    ):
        query = read_query(text, {"t": lambda name: names.get(name.casefold())})
        assert [str(each) for each in query.show] == ["sum of Amount"]
    query = read_query('{"show": ["sum of parts"]}', {"t": lambda n: names.get(n.casefold())})
    assert [str(each) for each in query.show] == ["Sum of parts"]  # a column of this name
    assert read_query(query.json, {"t": lambda n: names.get(n.casefold())}) == query


def test_an_assumed_reading_is_said(tmp_path: Path) -> None:
    found = table_of(
        (("A", "N", "D"), ("x", "1,234", "03/04/2024"), ("y", "2,000", "05/06/2024")), tmp_path
    )
    result = run(found, show=["sum of N", "max of D"])
    assert result.rows == (("3234", "05/06/2024"),)
    assert [(each.text, each.value) for each in result.facts.readings] == [
        ("1,234", "1234"), ("03/04/2024", "2024-04-03"),
    ]  # fmt: skip
    # Another column settles it.
    found = table_of((("A", "N", "M"), ("x", "1.234", "0,5"), ("y", "2.000", "1,5")), tmp_path)
    result = run(found, show=["sum of N"])
    assert result.rows == (("3234",),)
    assert result.facts.readings == ()


def test_both_ways_in_one_column_are_left_out_where_they_are_not_sure(tmp_path: Path) -> None:
    rows = (("A", "N"), ("x", "1.50"), ("y", "2,50"), ("z", "1,234"), ("v", "7"))
    result = run(table_of(rows, tmp_path), show=["sum of N"])
    assert result.rows == (("11.00",),)
    assert [(each.others, each.examples) for each in result.facts.left_out] == [(1, ("1,234",))]


def test_currencies_are_not_mixed(tmp_path: Path) -> None:
    rows = (("A", "Price"), ("x", "$5.50"), ("y", "$2"), ("z", "\u20ac3.00"), ("v", "1"))
    result = run(table_of(rows, tmp_path), show=["sum of Price"])
    assert result.rows == (("$8.50",),)
    assert [(each.units, each.unit) for each in result.facts.left_out] == [(1, "$")]


# --- reports about other programs, rebuilt small --------------------------------------------------


def test_totals_of_groups_and_of_all_are_left_out(tmp_path: Path) -> None:
    # CrestApps.Core 160: a sum came back several times too large.
    rows = (
        ("Item", "Projection"), ("A1", "10"), ("A2", "20"), ("A Total", "30"), ("B1", "5"),
        ("B2", "7"), ("B Total", "12"), ("Grand Total", "42"), ("Total Solar", "1000"),
    )  # fmt: skip
    result = run(table_of(rows, tmp_path), show=["sum of Projection", "count"])
    assert result.rows == (("1042", "5"),)
    assert (result.facts.totals, result.facts.total_name) == (3, "A Total")
    assert result.facts.like_totals == 1  # "Total Solar", which is no sum of others


def test_a_total_without_a_name_is_left_out(tmp_path: Path) -> None:
    rows = (("Item", "N"), ("a", "1"), ("b", "2"), ("c", "4"), ("", "7"))
    assert values(table_of(rows, tmp_path), show=["sum of N"]) == [("7",)]
    rows = (*rows[:-1], ("", "8"))
    assert values(table_of(rows, tmp_path), show=["sum of N"]) == [("15",)]


def test_decimal_commas_are_no_thousands(tmp_path: Path) -> None:
    # smoothcsv 242: 1,5 + 1,2 = 27. csvkit 876: 2523,00 was read as 252300.
    rows = (("When", "N", "M"), ("30.07.2017 14:15:00", "1,5", "2523,00"),
            ("30.07.2017 14:30:00", "1,2", "2143,50"))  # fmt: skip
    assert values(table_of(rows, tmp_path), show=["sum of N", "sum of M"]) == [("2,7", "4666,50")]


def test_a_minus_sign_that_is_no_hyphen(tmp_path: Path) -> None:
    # Kotlin dataframe 607: a locale was respected in one column and ignored in the other.
    rows = (("A", "B"), ("68,83", "\u22120,08"), ("1,00", "2,00"))
    assert values(table_of(rows, tmp_path), show=["sum of A", "sum of B"]) == [("69,83", "1,92")]


def test_one_date_tells_the_order_of_all(tmp_path: Path) -> None:
    # csvkit 280, May 250: dates of one column were read in two ways.
    rows = (("D", "N"), ("02/01/2014", "1"), ("31/12/2012", "2"))
    found = table_of(rows, tmp_path)
    assert values(found, show=["month of D", "sum of N"]) == [("2012-12", "2"), ("2014-01", "1")]
    rows = (("D", "N"), ("12/31/2026", "1"), ("12/01/2026", "2"))
    assert values(table_of(rows, tmp_path), show=["month of D", "sum of N"]) == [("2026-12", "3")]


def test_names_of_columns_are_found(tmp_path: Path) -> None:
    # xberg 1369: a table of texts lost its header. CsvQuery 24: columns without names.
    found = table_of((("Name", "City"), ("Alice", "NYC"), ("Bob", "LA")), tmp_path)
    assert [each.name for each in found.columns] == ["Name", "City"]
    assert found.row_count == 2
    found = table_of((("1", "Ada"), ("2", "Bo"), ("3", "Cy")), tmp_path)
    assert [each.name for each in found.columns] == ["Column 1", "Column 2"]
    result = run(found, show=["sum of Column 1"])
    assert result.rows == (("6",),)
    assert result.facts.unnamed


def test_a_total_is_never_that_of_the_model(tmp_path: Path) -> None:
    # private-gpt 289: "total amount = 35 (12+17)".
    rows = (("DATE", "Customer", "Amount"), ("01-Jan", "ABC", "5"), ("05-Jan", "ABC", "10"),
            ("02-Feb", "ABC", "20"), ("02-Jan", "DEF", "50"), ("06-Feb", "DEF", "100"),
            ("Feb-23", "DEF", "120"))  # fmt: skip
    found = table_of(rows, tmp_path)
    assert values(found, show=["sum of Amount"]) == [("305",)]
    assert values(found, show=["Customer", "sum of Amount"]) == [("ABC", "35"), ("DEF", "270")]


# --- shapes ---------------------------------------------------------------------------------------


def test_names_that_are_missing_or_the_same(tmp_path: Path) -> None:
    found = table_of((("A", "", "a", "A"), ("x", "y", "z", "w"), ("1", "2", "3", "4")), tmp_path)
    names = [each.name for each in found.columns]
    assert len({name.casefold() for name in names}) == 4
    for at, name in enumerate(names):
        assert values(found, show=[name], where=where(name, "=", str(at + 1)))


def test_a_sheet_with_a_title_and_merged_cells(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Sales"
    sheet["A1"] = "Sales of the year"
    sheet.merge_cells("A1:C1")
    for at, row in enumerate(
        (("Region", "Item", "Amount"), ("North", "a", 1.5), ("", "b", 2), ("South", "c", 4)), 2
    ):
        for column, value in enumerate(row, 1):
            sheet.cell(at, column, value or None)
    sheet.merge_cells("A3:A4")
    other = book.create_sheet("Costs")
    for row in (("Region", "Cost"), ("North", 3), ("South", 5)):
        other.append(row)
    book.save(tmp_path / "b.xlsx")
    sales, costs = find_tables([file_of(xlsx.read(Source(tmp_path / "b.xlsx")), "b.xlsx")])
    assert (sales.name, costs.name) == ("b.xlsx / Sales", "b.xlsx / Costs")
    assert [each.name for each in sales.columns] == ["Region", "Item", "Amount"]
    result = run(sales, show=["Region", "sum of Amount"])
    assert result.rows == (("North", "1.5"), ("", "2"), ("South", "4"))
    assert result.facts.titles == 1
    assert result.facts.as_shown
    assert values(costs, show=["sum of Cost"]) == [("8",)]


def test_tables_of_other_documents(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "Text | with a bar\n\n| Name \\| nick | N |\n|:--|--:|\n| a \\| b | 1 |\n| c | 2 |\n\nMore.\n\n"
        "X | Y\n--- | ---\n1 | 2\n",
        encoding="utf-8",
    )
    first, second = find_tables([file_of(markdown.read(Source(tmp_path / "a.md")), "a.md")])
    assert [each.name for each in first.columns] == ["Name | nick", "N"]
    assert values(first, show=["Name | nick", "N"]) == [("a | b", "1"), ("c", "2")]
    assert values(second, show=["Y"]) == [("2",)]
    assert (first.name, second.name) == ("a.md / 1", "a.md / 2")
    word = pytest.importorskip("docx")
    made = word.Document()
    made.add_paragraph("Before")
    cells = made.add_table(3, 2)
    for row, texts in zip(
        cells.rows, (("Item", "Price"), ("a", "1.20"), ("b", "2.30")), strict=True
    ):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    made.save(tmp_path / "a.docx")
    [found] = find_tables([file_of(docx.read(Source(tmp_path / "a.docx")), "a.docx")])
    assert values(found, show=["sum of Price"]) == [("3.50",)]


def test_an_ods_sheet(tmp_path: Path) -> None:
    pytest.importorskip("odf")
    from odf.opendocument import OpenDocumentSpreadsheet
    from odf.table import Table as OdfTable
    from odf.table import TableCell, TableRow
    from odf.text import P

    made = OpenDocumentSpreadsheet()
    sheet = OdfTable(name="S")
    for row in (("Item", "Price"), ("a", "1,20"), ("b", "2,30")):
        line = TableRow()
        for text in row:
            cell = TableCell(valuetype="string")
            cell.addElement(P(text=text))
            line.addElement(cell)
        sheet.addElement(line)
    made.spreadsheet.addElement(sheet)
    made.save(str(tmp_path / "a.ods"))
    [found] = find_tables([file_of(ods.read(Source(tmp_path / "a.ods")), "a.ods")])
    assert values(found, show=["sum of Price"]) == [("3,50",)]


def test_two_thousand_columns(tmp_path: Path) -> None:
    rows = [[f"C{n}" for n in range(2000)], *([str(n) for n in range(2000)] for _ in range(20))]
    found = table_of(rows, tmp_path)
    assert len(found.columns) == 2000
    assert found.columns[7].kind is ColumnKind.NUMBER
    assert values(found, show=["sum of C1999", "count"]) == [("39980", "20")]


def test_it_can_be_stopped(tmp_path: Path) -> None:
    found = table_of(ORDERS, tmp_path)
    query = read_query('{"show": ["count"]}', {found.name: lambda name: name})
    with pytest.raises(Stopped):
        evaluate(found, query, lambda: True)


def test_facts_are_stored_and_read_again(tmp_path: Path) -> None:
    facts = run(table_of(ORDERS, tmp_path), show=["year of Ordered", "sum of Price"]).facts
    assert facts != Facts()
    assert read_facts(facts.json) == facts
    for broken in ("", "[1", "[]", '{"rows": "x", "left_out": 3}', '{"left_out": [{"a": 1}]}'):
        assert read_facts(broken) == Facts()


def test_rows_are_not_kept() -> None:
    line = "| North | Ada | 12.50 | 2024-01-05 |\n| South | Bo | 7.25 | 2024-02-05 |\n"
    text = "| Region | Customer | Amount | Day |\n| --- | --- | --- | --- |\n" + line * 5_000
    tracemalloc.start()
    [found] = find_tables([FilePart("m.csv", text, kind="table")])
    result = run(found, show=["Region", "sum of Amount"], where=where("Day", ">=", "2024-01-01"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.rows == (("North", "62500.00"), ("South", "36250.00"))
    assert peak < 2_000_000
