"""Searches through the service that the user named: its requests, its answers, and its key."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from app.domain.tools import CallContext, ToolError
from app.net.offline import Gate
from app.tools.builtin import web
from app.tools.builtin.search_web import SearchService, SearchWeb, WebSearch
from offline import clean_gate
from web_stage import Web, response
from web_stage import web as web_of

CONTEXT = CallContext(1)
KEY = "secret-key-7"
RESULTS = [
    {
        "title": "Kyoto <strong>city</strong>",
        "url": "https://a.org/k",
        "content": "1.4  million\npeople",
    },
    {"title": "No address", "url": "javascript:alert(1)", "content": "x"},
    {"title": "Echo", "url": "https://b.org/", "description": f"your key is {KEY}"},
]


@pytest.fixture(autouse=True)
def switch() -> Iterator[Gate]:
    with clean_gate() as gate:
        yield gate


def tool(chosen: WebSearch | None) -> SearchWeb:
    return SearchWeb(lambda: chosen, str)


def searched(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, key: str = "", query: str = "kyoto people"
) -> tuple[str, Web]:
    """What a search through a SearXNG server on this computer gives."""

    async def search() -> tuple[str, Web]:
        async with web_of(monkeypatch, real_names=True) as made:
            made.pages = {f"127.0.0.1:{made.port}/sx/search": answer}
            chosen = WebSearch(SearchService.SEARXNG, f"http://127.0.0.1:{made.port}/sx/", key)
            return await tool(chosen).call({"query": query, "count": 2}, CONTEXT), made

    return asyncio.run(search())


def test_a_searxng_server_on_this_computer_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = response(json.dumps({"results": RESULTS}), "Content-Type: application/json")
    text, made = searched(monkeypatch, answer)
    assert text.startswith("1. Kyoto city\nhttps://a.org/k\n1.4 million people\n\n2. Echo\n")
    assert parse_qs(urlsplit(made.paths[0]).query) == {"q": ["kyoto people"], "format": ["json"]}


def test_the_key_is_sent_and_is_in_no_result_and_no_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answer = response(json.dumps({"results": RESULTS}), "Content-Type: application/json")
    text, made = searched(monkeypatch, answer, KEY)
    assert f"Authorization: Bearer {KEY}" in made.heads[0]
    assert "your key is (key)" in text
    shown = text + caplog.text + repr(WebSearch(SearchService.BRAVE, key=KEY))
    assert KEY not in shown
    assert KEY not in repr(web.Asked("https://a.org", headers={"X": KEY}))


def test_a_key_is_not_sent_unencrypted_to_another_computer() -> None:
    chosen = WebSearch(SearchService.SEARXNG, "http://search.example/", KEY)
    with pytest.raises(ToolError, match="unencrypted: use https") as raised:
        asyncio.run(tool(chosen).call({"query": "x"}, CONTEXT))
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("service", "url", "answer"),
    [
        (
            SearchService.BRAVE,
            "https://api.search.brave.com/res/v1/web/search?q=a+%26+b&count=5",
            {"web": {"results": RESULTS}},
        ),
        (SearchService.TAVILY, "https://api.tavily.com/search", {"results": RESULTS}),
    ],
)  # fmt: skip
def test_services_are_asked_as_they_document_it(
    monkeypatch: pytest.MonkeyPatch, service: SearchService, url: str, answer: object
) -> None:
    sent: list[web.Asked] = []

    async def send(asked: web.Asked) -> web.Reply:
        sent.append(asked)
        return web.Reply(asked.url, 200, {}, json.dumps(answer).encode())

    monkeypatch.setattr(web, "send", send)
    text = asyncio.run(tool(WebSearch(service, key=KEY)).call({"query": "a & b"}, CONTEXT))
    assert "https://a.org/k" in text
    assert KEY not in text
    (asked,) = sent
    assert asked.url == url
    assert not asked.is_private_allowed
    if service is SearchService.BRAVE:
        assert asked.headers["X-Subscription-Token"] == KEY
    else:
        assert (asked.method, asked.headers["Authorization"]) == ("POST", f"Bearer {KEY}")
        assert json.loads(asked.body) == {"query": "a & b", "max_results": 5}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (response("no", status="403 Forbidden"), 'can add "json" to search.formats'),
        (response("no", status="429 Slow"), "limits the number of searches"),
        (response("<html>"), "an answer that is not understood"),
        (response("[1]"), "an answer that is not understood"),
        (response('{"results": 7}'), "an answer that is not understood"),
        (response("", "Location: https://evil.org/", status="302 Found"), "another host, evil.org"),
    ],
)
def test_what_is_no_answer_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, answer: bytes, said: str
) -> None:
    with pytest.raises(ToolError) as raised:
        searched(monkeypatch, answer)
    assert said in str(raised.value)


def test_nothing_found_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        searched(monkeypatch, response('{"results": []}'))[0]
        == 'Nothing was found for "kyoto people".'
    )


def test_a_refused_key_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send(asked: web.Asked) -> web.Reply:
        return web.Reply(asked.url, 401, {}, b"")

    monkeypatch.setattr(web, "send", send)
    with pytest.raises(ToolError, match="refused the key") as raised:
        asyncio.run(tool(WebSearch(SearchService.BRAVE, key=KEY)).call({"query": "x"}, CONTEXT))
    assert KEY not in str(raised.value)


def test_without_a_service_it_is_off() -> None:
    assert tool(None).spec.problem == "No web search service is named in the settings."
    with pytest.raises(ToolError, match="No web search service"):
        asyncio.run(tool(None).call({"query": "x"}, CONTEXT))
    with pytest.raises(ToolError, match="needs a key"):
        asyncio.run(tool(WebSearch(SearchService.BRAVE)).call({"query": "x"}, CONTEXT))


def test_the_user_reads_what_is_sent_where() -> None:
    made = tool(WebSearch(SearchService.TAVILY, key=KEY))
    assert list(made.changes({"query": " a b "}, CONTEXT)) == ["Sends “a b” to api.tavily.com."]
    assert made.scope({"query": "a"}) == "api.tavily.com"
    assert made.spec.problem == ""


@pytest.mark.parametrize("query", ["", "  ", "x" * 401])
def test_a_query_has_a_length(query: str) -> None:
    with pytest.raises(ToolError, match="1 to 400 characters"):
        asyncio.run(tool(WebSearch(SearchService.BRAVE, key=KEY)).call({"query": query}, CONTEXT))
