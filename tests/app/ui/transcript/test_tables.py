"""Results of queries over tables in the transcript: table, notes, the query behind a row, access."""

from __future__ import annotations

from dataclasses import replace

from pytestqt.qtbot import QtBot

from app.domain.documents import NO_QUERY, SearchFault
from app.domain.message import Message, MessageState
from app.domain.parts import ErrorPart, TablePart, TextPart, clipboard_text
from app.domain.table_words import result_text, table_words
from app.state.faults import explain
from app.ui.transcript.message.message_tools import tools_for
from app.ui.transcript.message.sections import Kind
from app.ui.transcript.view import Transcript
from transcript_driver import message, wait_for_layout

PART = TablePart(
    "| Region | sum of Amount |\n| --- | --- |\n| North | 11.75 |\n| South | 4.25 |",
    "orders.csv",
    '{"show": ["Region", "sum of Amount"], "where": [{"column": "Region", "is": "!=", "value": "x"}],'
    ' "sort": "sum of Amount", "order": "largest first", "limit": 2}',
    '{"rows": 5, "used": 4, "found": 2, "left_out": [{"column": "Amount", "others": 1}]}',
    ("Region", "Amount"),
)


def answer(*parts: TablePart | TextPart) -> Message:
    return replace(message(2, ""), parts=parts or (PART, TextPart("North.")))


def test_the_result_is_shown_and_the_query_is_behind_its_row(
    view: Transcript, qtbot: QtBot
) -> None:
    view.set_messages([message(1, "Which?", is_user=True), answer()])
    wait_for_layout(view, qtbot)
    shown = view.stack.views[1]
    assert [each.kind for each in shown.sections] == [Kind.QUERY, Kind.RESULT, Kind.TEXT]
    words = (
        "orders.csv: sum of Amount by Region, where Region is not x,"
        " largest first by sum of Amount, the first 2"
    )
    assert [row.words for row in shown.rows] == [words]
    spoken = shown.spoken
    assert spoken.startswith(words)
    assert "| North | 11.75 |" in spoken
    assert "4 rows of 5 were used.\nLeft out in Amount: 1 that is no number." in spoken
    assert '"show"' not in spoken
    assert spoken.endswith("North.")
    view.message_layout.toggle_row(1, 0)
    assert '"show"' in view.stack.views[1].spoken
    assert clipboard_text(shown.message.parts) == "North."


def test_what_another_version_wrote_is_shown_as_it_is(view: Transcript, qtbot: QtBot) -> None:
    part = replace(PART, query='{"show": ["median of Amount"]}')
    assert table_words(part) == "orders.csv"
    assert result_text(part) == part.text
    view.set_messages([message(1, "Which?", is_user=True), answer(part)])
    wait_for_layout(view, qtbot)
    assert "| North | 11.75 |" in view.stack.views[1].spoken


def test_without_a_query_the_answer_says_what_to_do() -> None:
    fault = SearchFault('There is no column "Price".', NO_QUERY)
    shown = explain(fault, "", "")
    assert shown.sentence == "The model wrote no query that fits the table."
    assert shown.detail == 'There is no column "Price".'
    failed = replace(message(2, ""), parts=(ErrorPart(fault),), state=MessageState.FAILED)
    names = {tool.name for tool in tools_for(failed, busy=False)}
    assert "without_passages" not in names
