"""Answers from tables: the query of the model, its evaluation, and the answer from the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from app.documents.readers import table
from app.documents.source import Source
from app.domain.documents import NO_QUERY, NO_TABLE, Reads, SearchFault
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, TablePart, TextPart, prompt_text
from app.domain.table_words import result_notes, table_words
from engine import ConstraintKind, FinishReason, Priority
from fakes import CONTEXT, MODEL
from stage import Stage, flush, until

ORDERS = """Region,Customer,Amount
North,Ada,10.50
South,Bo,4.25
North,Ada,1.25
South,Cy,free
"""
BY_REGION = {"show": ["Region", "sum of Amount"], "where": []}


@pytest.fixture
def make(qtbot: QtBot, tmp_path: Path) -> Iterator[Callable[[], Stage]]:
    """Makes stages over one store, one after the other: each is a start of the app."""
    made: list[Stage] = []

    def start() -> Stage:
        if made:
            made[-1].close()
        made.append(Stage(tmp_path / "data"))
        made[-1].ready(MODEL)
        return made[-1]

    (tmp_path / "data").mkdir()
    yield start
    made[-1].close()


def ask(
    stage: Stage, tmp_path: Path, question: str, text: str = ORDERS, name: str = "orders.csv"
) -> None:
    """Send a question about a table."""
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    read = table.read(Source(path))
    file = FilePart(name, read.text, kind=read.kind.value, reads=Reads.TABLES)
    assert stage.controller.send((file, TextPart(question)))
    settle(stage)


def settle(stage: Stage) -> None:
    """Until the next request for text, or the end of the answer."""
    stage.drain()
    until(lambda: bool(stage.engine.unfinished) or last(stage).state is not MessageState.STREAMING)
    flush()


def last(stage: Stage) -> Message:
    return stage.state.messages[-1]


def result(stage: Stage) -> TablePart:
    [found] = [part for part in last(stage).parts if isinstance(part, TablePart)]
    return found


def write(stage: Stage, text: str | dict[str, Any]) -> None:
    stage.engine.write(text if isinstance(text, str) else json.dumps(text))
    stage.engine.finish()
    settle(stage)


def asked(stage: Stage) -> Any:
    """The request in progress."""
    [found] = stage.engine.unfinished
    return found


def stored(stage: Stage) -> list[Message]:
    found: list[Message] = []
    conversation = last(stage).conversation
    stage.store_queue.read(lambda store: store.branch(conversation), found.extend)
    stage.wait_until_idle()
    return found


def test_the_model_writes_a_query_and_answers_from_its_result(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    ask(stage, tmp_path, "Total of amount by region?")
    request = asked(stage)
    assert stage.engine.priorities[request.request] is Priority.BACKGROUND
    assert request.thinking is False
    assert request.sampling.temperature == 0
    assert request.constraint.kind is ConstraintKind.JSON_SCHEMA
    schema = json.loads(request.constraint.text)
    expressions = schema["$defs"]["expression"]["enum"]
    assert {"Region", "sum of Amount", "count"} <= set(expressions)
    assert "sum of Region" not in expressions
    prompt = request.turns[-1].text
    assert 'Table "orders.csv", 4 rows. Columns:' in prompt
    assert '- "Amount": number, such as 10.50, 4.25, 1.25' in prompt
    assert prompt.endswith("Question: Total of amount by region?\nQuery:")
    assert stage.state.waiting[last(stage).id] == "Writing a query over the table…"
    write(stage, BY_REGION)
    part = result(stage)
    assert part.text.splitlines()[2:] == ["| North | 11.75 |", "| South | 4.25 |"]
    assert table_words(part) == "orders.csv: sum of Amount by Region"
    assert result_notes(part) == [
        "4 rows of 4 were used.",
        "Left out in Amount: 1 that is no number (“free”).",
    ]
    final = asked(stage).turns[-1].text
    assert asked(stage).constraint is None
    assert final.startswith("Total of amount by region?")
    assert part.text in final
    assert "Note: Left out in Amount: 1 that is no number (“free”)." in final
    assert "Ada" not in final
    write(stage, "North has 11.75.")
    assert last(stage).state is MessageState.COMPLETE
    assert last(stage).text == "North has 11.75."  # the result is not in later prompts
    assert stored(stage)[-1].parts == last(stage).parts


def test_a_query_that_does_not_fit_is_asked_for_once_again(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    ask(stage, tmp_path, "Total of price?")
    write(stage, "I think the total is 99.")
    assert "It is no JSON object." in asked(stage).turns[-1].text
    assert "I think the total is 99." in asked(stage).turns[-1].text
    write(stage, {"show": ["sum of Price"]})
    assert last(stage).state is MessageState.FAILED
    error = last(stage).error
    assert error is not None
    assert error.fault == SearchFault('There is no column "Price".', NO_QUERY)
    assert not stage.engine.unfinished
    assert stored(stage)[-1].error == error
    stage.controller.regenerate(last(stage).id)
    settle(stage)
    write(stage, "```json\n" + json.dumps({"SHOW": "SUM(amount)"}) + "\n```")
    assert result(stage).text.splitlines()[-1] == "| 16.00 |"


def test_a_document_without_a_table_is_said(make: Callable[[], Stage]) -> None:
    stage = make()
    file = FilePart("a.md", "No | table", reads=Reads.TABLES)
    assert stage.controller.send((file, TextPart("How many?")))
    settle(stage)
    assert last(stage).error is not None
    assert last(stage).error.fault == SearchFault("", NO_TABLE)  # type: ignore[union-attr]


def test_the_next_question_is_about_the_same_table(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    ask(stage, tmp_path, "Total of amount by region?")
    write(stage, BY_REGION)
    write(stage, "Done.")
    assert stage.controller.send("And by customer?")
    settle(stage)
    prompt = asked(stage).turns[-1].text
    assert "The question before: Total of amount by region?" in prompt
    assert '"show": ["Region", "sum of Amount"]' in prompt
    write(
        stage, {"show": ["Customer", "sum of Amount"], "sort": "Amount", "order": "largest first"}
    )
    assert [line.split(" | ")[0] for line in result(stage).text.splitlines()[2:]] == [
        "| Ada", "| Bo", "| Cy",
    ]  # fmt: skip
    write(stage, "Ada.")
    other = tmp_path / "note.txt"
    other.write_text("A note.", encoding="utf-8")
    stage.controller.attachments.attach([other])
    for _ in range(3):
        stage.wait_until_idle()
    stage.controller.send("What does the note say?")
    settle(stage)
    assert "A note." in asked(stage).turns[-1].text
    assert asked(stage).constraint is None


def test_stop_while_the_query_is_written_and_again(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    ask(stage, tmp_path, "Total?")
    stage.engine.write('{"show": [')
    stage.drain()
    stage.controller.stop()
    stage.engine.finish(FinishReason.CANCELLED)
    settle(stage)
    assert last(stage).state is MessageState.STOPPED
    assert last(stage).parts == ()
    stage.controller.regenerate(last(stage).id)
    settle(stage)
    write(stage, BY_REGION)
    assert result(stage).text


def test_stop_while_the_table_is_looked_into(make: Callable[[], Stage], tmp_path: Path) -> None:
    stage = make()
    rows = "\n".join(f"North,Ada,{n}.5" for n in range(100_000))
    ask(stage, tmp_path, "Total?", f"Region,Customer,Amount\n{rows}\n")
    stage.engine.write(json.dumps(BY_REGION))
    stage.engine.finish()
    stage.drain()
    stage.controller.stop()
    settle(stage)
    assert last(stage).state is MessageState.STOPPED
    assert last(stage).parts == ()
    assert not stage.engine.unfinished


def test_an_answer_goes_on_from_its_result_after_a_restart(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    ask(stage, tmp_path, "Total of amount by region?")
    write(stage, BY_REGION)
    before = stored(stage)[-1]  # what a kill would leave
    assert [type(part) for part in before.parts] == [TablePart]
    stage.engine.write("North has")
    stage.drain()
    stage.controller.stop()
    stage.engine.finish(FinishReason.CANCELLED)
    settle(stage)
    message = last(stage)
    stage.wait_until_idle()
    stage = make()
    stage.controller.open_conversation(message.conversation)
    stage.wait_until_idle()
    assert last(stage).parts == message.parts
    stage.controller.continue_answer(message.id)
    settle(stage)
    turns = asked(stage).turns
    assert "| North | 11.75 |" in turns[-2].text
    assert turns[-1].text == "North has"
    write(stage, " 11.75.")
    assert last(stage).text == "North has 11.75."
    assert isinstance(last(stage).parts[0], TablePart)


def test_an_edited_question_is_a_branch_with_a_result_of_its_own(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    ask(stage, tmp_path, "Total of amount by region?")
    write(stage, BY_REGION)
    write(stage, "Done.")
    question = stage.state.messages[0]
    file = next(part for part in question.parts if isinstance(part, FilePart))
    stage.controller.edit(question.id, (file, TextPart("How many rows?")))
    settle(stage)
    write(stage, {"show": ["count"]})
    assert result(stage).text.splitlines()[-1] == "| 4 |"
    write(stage, "Four.")
    assert len(stage.state.messages) == 2


def test_many_columns_and_rows_fit_into_the_prompts(
    make: Callable[[], Stage], tmp_path: Path
) -> None:
    stage = make()
    names = ",".join(f"Column_{n}" for n in range(1999)) + ",Turnover"
    row = ",".join(["7"] * 2000)
    ask(stage, tmp_path, "Sum of turnover?", f"{names}\n{row}\n{row}\n", "wide.csv")
    prompt = asked(stage).turns[-1].text
    assert len(prompt.split()) < CONTEXT
    assert '"Turnover"' in prompt
    assert "further columns" in prompt
    write(stage, {"show": ["sum of Turnover"]})
    assert result(stage).text.splitlines()[-1] == "| 14 |"
    write(stage, "14.")
    stage.controller.new_conversation()
    rows = "\n".join(f"Name number {n},{n}" for n in range(5000))
    ask(stage, tmp_path, "List them", f"Name,Value\n{rows}\n", "long.csv")
    write(stage, {"show": ["Name", "sum of Value"]})
    assert len(asked(stage).turns[-1].text.split()) < CONTEXT
    assert "Note: Shown are" in asked(stage).turns[-1].text
    assert len(result(stage).text.splitlines()) == 102


def test_a_later_prompt_has_neither_the_table_nor_the_result() -> None:
    file = FilePart("a.csv", ORDERS, reads=Reads.TABLES)
    assert prompt_text((file, TextPart("Sum?"))) == "Sum?"
    assert prompt_text((TablePart("| a |"), TextPart("One."))) == "One."
