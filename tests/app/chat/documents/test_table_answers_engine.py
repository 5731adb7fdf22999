"""A table asked by the starter model in the whole window: its query is always one that fits."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from app.documents.readers import table
from app.documents.source import Source
from app.domain.documents import Reads
from app.domain.message import MessageState
from app.domain.parts import FilePart, TablePart, TextPart
from app.domain.table_words import table_words
from app.settings.table import Settings
from engine import Engine, Event
from fakes import FakeEngine
from stage import Stage, until

# Each with what a sensible query has: what is shown, and the conditions.
QUESTIONS = (
    ("What is the total of amount by region?", {"Region", "sum of Amount"}, set[str]()),
    ("How many orders are there?", {"count"}, set[str]()),
    ("How many orders have the region North?", {"count"}, {"Region = North"}),
    ("What is the average price?", {"mean of Price"}, set[str]()),
    ("What is the average price of the blue ones?", {"mean of Price"}, {"Colour = blue"}),
    ("Which customers have more than 3 orders?", {"Customer", "count"}, {"count > 3"}),
    ("Which order has the largest amount?", {"Amount"}, set[str]()),
    ("How many rows have no date?", {"count"}, {"Date is empty "}),
    ("What is the total amount?", {"sum of Amount"}, set[str]()),
    ("How many different customers are there?", {"distinct of Customer"}, set[str]()),
    ("What is the smallest price?", {"min of Price"}, set[str]()),
    ("What is the largest price of each colour?", {"Colour", "max of Price"}, set[str]()),
    ("Total amount per year?", {"year of Date", "sum of Amount"}, set[str]()),
    ("How many orders per month?", {"month of Date", "count"}, set[str]()),
    ("List the customers in the region South.", {"Customer"}, {"Region = South"}),
    ("How many orders cost more than 100?", {"count"}, {"Amount > 100"}),
    ("Total amount of the customer Ada?", {"sum of Amount"}, {"Customer = Ada"}),
    ("How many red ones were sold?", {"count"}, {"Colour = red"}),
    ("Average amount by customer?", {"Customer", "mean of Amount"}, set[str]()),
    ("Which region has the most orders?", {"Region", "count"}, set[str]()),
)


class RealStage(Stage):
    """The window with the real engine."""

    def _engine(self, deliver: Callable[[Event], None], answers: list[str] | None) -> FakeEngine:
        return Engine(deliver)  # type: ignore[return-value]


def orders(folder: Path) -> FilePart:
    names, regions, colours = ("Ada", "Bo", "Cy", "Dee", "Eve"), ("North", "South"), ("red", "blue")
    rows = ["Customer,Region,Colour,Price,Amount,Date"] + [
        f"{names[n % 5]},{regions[n % 2]},{colours[n % 3 // 2]},{n % 7 + 1}.50,{n * 3 % 200}.25,"
        + (f"202{n % 3 + 2}-0{n % 9 + 1}-15" if n % 11 else "")
        for n in range(300)
    ]
    path = folder / "orders.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    read = table.read(Source(path))
    return FilePart("orders.csv", read.text, kind=read.kind.value, reads=Reads.TABLES)


def wait(condition: Callable[[], bool]) -> None:
    """Until a condition is true, on a busy machine too."""
    for _ in range(10):
        with suppress(AssertionError):
            until(condition)
            return
    pytest.fail("the condition was never true")


def answers(tmp_path: Path, model: Path, count: int) -> int:
    """Ask the first questions; returns how many queries were sensible."""
    settings = Settings(
        temperature=0.0, max_tokens=24, context=2048, threads=1, snapshot_budget_gb=0,
        model_titles="off",
    )  # fmt: skip
    stage, sensible = RealStage(tmp_path, settings=settings), 0
    try:
        stage.start(model)
        wait(lambda: stage.state.model.loaded is not None)
        file = orders(tmp_path)
        for question, show, where in QUESTIONS[:count]:
            stage.controller.new_conversation()
            assert stage.controller.send((file, TextPart(question)))
            wait(lambda: not stage.state.busy)
            answer = stage.state.messages[-1]
            assert answer.state is not MessageState.STREAMING
            found = [part for part in answer.parts if isinstance(part, TablePart)]
            assert found or (answer.error and answer.error.fault.kind == "no query")
            part = found[0] if found else None
            is_sensible = part is not None and _is_sensible(part, show, where)
            sensible += is_sensible
            words = table_words(part) if part else answer.error
            print(f"\n{'yes' if is_sensible else 'no '} {question} -> {words}")
    finally:
        stage.close()
    return sensible


def _is_sensible(part: TablePart, show: set[str], where: set[str]) -> bool:
    import json

    query = json.loads(part.query)
    asked = {f"{each['column']} {each['is']} {each['value']}" for each in query["where"]}
    return show <= set(query["show"]) and asked == where


@pytest.mark.usefixtures("qtbot")
def test_the_query_of_a_small_model_fits_the_table(tmp_path: Path, starter_model: Path) -> None:
    answers(tmp_path, starter_model, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("qtbot")
def test_how_often_a_small_model_asks_sensibly(tmp_path: Path, starter_model: Path) -> None:
    print(f"\n{answers(tmp_path, starter_model, len(QUESTIONS))} of {len(QUESTIONS)} sensible")
