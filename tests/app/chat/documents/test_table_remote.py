"""A table asked by a server of the user: with a schema, without one, and with text around JSON."""

from __future__ import annotations

import json

import pytest

from app.domain.documents import NO_QUERY, Reads, SearchFault
from app.domain.message import Message, MessageState
from app.domain.parts import FilePart, TablePart, TextPart
from hostile_server import Server, answer, error
from remote_stage import Elsewhere

TABLE = "| Region | Amount |\n| --- | --- |\n| North | 1.50 |\n| South | 2 |\n| North | 4 |"
QUERY = json.dumps({"show": ["Region", "sum of Amount"], "where": []})


@pytest.fixture
def window(window: Elsewhere) -> Elsewhere:
    window.use()
    return window


def ask(window: Elsewhere) -> Message:
    file = FilePart("a.csv", TABLE, kind="table", reads=Reads.TABLES)
    assert window.controller.send((file, TextPart("Total by region?")))
    window.until(lambda: window.state.messages[-1].state is not MessageState.STREAMING)
    return window.ended()


def rows(message: Message) -> list[str]:
    [part] = [part for part in message.parts if isinstance(part, TablePart)]
    return part.text.splitlines()[2:]


def test_json_is_found_in_what_a_server_says(window: Elsewhere, server: Server) -> None:
    said = f"Here is the query:\n```json\n{QUERY}\n```\nHope that helps!"
    server.chat(answer(said), answer("North has 5.50."))
    found = ask(window)
    assert found.state is MessageState.COMPLETE
    assert rows(found) == ["| North | 5.50 |", "| South | 2 |"]
    assert found.text == "North has 5.50."
    first, second = server.asked
    assert "schema" in json.dumps(first.get("response_format", {}))
    assert "response_format" not in second
    assert "| North | 5.50 |" in second["messages"][-1]["content"]


def test_a_server_that_writes_no_query_is_asked_once_again(
    window: Elsewhere, server: Server
) -> None:
    server.chat(answer("The total is 7."), answer("It is 7."), answer("never"))
    found = ask(window)
    assert found.state is MessageState.FAILED
    assert found.error is not None
    assert found.error.fault == SearchFault("It is no JSON object.", NO_QUERY)
    assert len(server.asked) == 2


def test_a_server_that_refuses_the_schema(window: Elsewhere, server: Server) -> None:
    words = "Unsupported parameter: 'response_format' is not supported with this model."
    server.chat(error(words, 400), answer(QUERY), answer("Done."))
    found = ask(window)
    assert found.state is MessageState.COMPLETE
    assert rows(found)[0] == "| North | 5.50 |"
