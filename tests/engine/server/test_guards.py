"""Origins of web pages that the word "localhost" allows; the key and the texts of the log, changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.server.guards import Security
from engine.server.serve import ServerOptions
from serving import Served, chat, wait_until

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def local(tiny_model: Path) -> Iterator[Served]:
    made = Served(tiny_model, ServerOptions(security=Security(origins=("localhost",))))
    yield made
    made.close()


@pytest.mark.parametrize(
    "origin",
    ["http://localhost", "https://localhost:3000", "http://127.0.0.1:1", "http://[::1]:3000"],
)
def test_pages_of_this_computer_are_allowed(local: Served, origin: str) -> None:
    for response in (
        local.http.options("/v1/models", headers={"Origin": origin}),
        local.http.get("/v1/models", headers={"Origin": origin}),
    ):
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost.evil.example",
        "http://evil.example/localhost",
        "http://192.0.2.7",
        "file://localhost",
        "null",
    ],
)
def test_other_pages_are_not(local: Served, origin: str) -> None:
    response = local.http.get("/v1/models", headers={"Origin": origin})
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_a_new_key_counts_at_once_and_a_running_answer_goes_on(tiny_model: Path) -> None:
    made = Served(tiny_model, ServerOptions(security=Security("old")))
    body = chat(max_tokens=400, ignore_eos=True, stream=True)
    old, new = ({"Authorization": f"Bearer {key}"} for key in ("old", "new"))
    try:
        with made.http.stream("POST", CHAT, json=body, headers=old) as response:
            lines = response.iter_lines()
            next(lines)
            made.server.change("new", 60.0, keeps_texts=False)
            status = made.http.get("/v1/models", headers=old).status_code
            assert list(lines)[-2] == "data: [DONE]"
        assert status == 401
        assert made.http.get("/v1/models", headers=new).status_code == 200
        made.server.change("", 60.0, keeps_texts=False)
        assert made.http.get("/v1/models").status_code == 200
    finally:
        made.close()


def test_texts_are_gone_when_the_owner_does_not_want_them_any_more(tiny_model: Path) -> None:
    made = Served(tiny_model)
    try:
        made.server.change("", 60.0, keeps_texts=True)
        made.post(CHAT, chat("a question"))
        wait_until(lambda: not made.server.activity.log[0].is_running)
        (row,) = made.server.activity.log
        assert row.prompt == "a question"
        assert row.answer
        made.server.change("", 60.0, keeps_texts=False)
        (row,) = made.server.activity.log
        assert (row.prompt, row.answer) == ("", "")
    finally:
        made.close()
