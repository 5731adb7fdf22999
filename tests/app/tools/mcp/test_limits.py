"""Names, limits and logs of servers of tools."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
import weakref
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types

from app.system.secret_store import SecretStore
from app.tools.mcp import results
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.hooks import Hooks, SamplingRequest
from app.tools.mcp.limits import MessageMeter, Pacer, TooMuch
from app.tools.mcp.log import MOST_LINES, ServerLog, visible
from app.tools.mcp.naming import Named, safe_name, unique_names
from app.tools.mcp.session import Session
from app.tools.mcp.stdio import StdioTransport
from tool_servers import poisoned

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


# --- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("echo", "echo"),
        ("files/read.text", "files_read_text"),
        ("get weather!", "get_weather"),
        ("wetter-für-übermorgen", "wetter-f_r-_bermorgen"),
        ("Здравствуй", "tool_" + safe_name("Здравствуй")[5:]),
        ("\u0430dd", "dd"),  # the first letter is Cyrillic
    ],
)
def test_a_name_has_only_letters_that_every_model_may_write(name: str, safe: str) -> None:
    assert safe_name(name) == safe
    assert NAME.fullmatch(safe_name(name))


def test_no_server_has_a_name_that_another_one_or_the_app_has() -> None:
    tools = [
        Named("1/search", "Web", "search"),
        Named("2/Search", "Mail", "Search"),
        Named("2/calculate", "Mail", "Calculate"),
        Named("2/Web_search", "Mail", "Web_search"),
        Named("1/open", "Web", "open"),
    ]
    names = unique_names(tools, ("calculate",))
    assert names["2/Search"] == "Mail_Search"
    assert names["2/calculate"] == "Mail_Calculate"
    assert names["1/open"] == "open"
    assert len({name.casefold() for name in names.values()}) == 5
    assert names == unique_names(tools[::-1], ("calculate",))


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.text(max_size=3)), unique=True, max_size=8),
    st.lists(st.sampled_from(("a", "b", "a_a", "tool")), max_size=3),
)
def test_names_are_safe_and_unique(tools: list[tuple[str, str]], reserved: list[str]) -> None:
    named = [Named(f"{server}/{name}", server, name) for server, name in tools]
    names = unique_names(named, reserved)
    assert all(NAME.fullmatch(name) for name in names.values())
    folded = [name.casefold() for name in (*names.values(), *set(reserved))]
    assert len(folded) == len(set(folded))


def test_a_long_name_of_a_server_and_a_tool_is_cut_and_stays_unique() -> None:
    """Some services refuse names of more than 64 letters, others count the server's too."""
    names = unique_names([Named(f"1/{n}", "s" * 60, "t" * 60 + str(n)) for n in range(3)], ())
    assert len(set(names.values())) == 3
    assert all(len(name) <= 64 for name in names.values())


# --- sizes --------------------------------------------------------------------------------------


def measure(text: bytes, step: int = 7, **limits: int) -> int:
    meter = MessageMeter(**limits)
    for at in range(0, len(text), step):
        meter.feed(text[at : at + step])
    return meter._values  # pyright: ignore[reportPrivateUsage]


@given(
    st.recursive(st.integers() | st.text('",[{}\\ax'), lambda inner: st.lists(inner)),
    st.integers(1, 9),
)
def test_values_are_counted_outside_of_quotes(value: object, step: int) -> None:
    def count(found: object) -> int:
        if not isinstance(found, list):
            return 0
        return 1 + max(len(found) - 1, 0) + sum(map(count, found))

    assert measure(json.dumps(value).encode(), step) == count(value)


def test_a_large_text_is_a_message_and_many_values_are_none() -> None:
    step = 65_536
    measure(b'{"a": "' + b"[,{" * 3_000_000 + b'"}', step)
    with pytest.raises(TooMuch, match="more than 100,000 values"):
        measure(b'{"a": [' + b"0," * 200_000, step)
    with pytest.raises(TooMuch, match="more than 10 MB"):
        measure(b'"' + b"a" * 10_000_000, step)
    for wide in ("\u00e9".encode(), b"\\u00e9"):
        with pytest.raises(TooMuch, match="more than 4 MB"):
            measure(b'"' + b"a" * 4_000_000 + wide, step)


def test_a_flood_is_read_slowly_and_then_no_more() -> None:
    times = [0.0]

    async def sleep(seconds: float) -> None:
        times.append(times[-1] + seconds)

    async def run() -> int:
        pacer = Pacer(100, 50, 10, lambda: times[-1], sleep)
        for count in range(100_000):
            try:
                await pacer.spend(1, 0)
            except TooMuch:
                return count
        return 0

    read = asyncio.run(run())
    assert 550 <= read <= 660  # 100 at once, 50 a second for 10 seconds
    assert 10 <= times[-1] <= 12


def test_a_program_that_only_shouts_is_stopped(tmp_path: Path) -> None:
    async def run() -> StdioTransport:
        transport = StdioTransport(poisoned("pours"), ServerLog(), Pacer(200, 2_000, 0.2))
        async with transport as (messages, _):
            async for _message in messages:
                pass
        return transport

    assert asyncio.run(run()).reason == "Poison was stopped: it sent messages without end."


# --- logs ---------------------------------------------------------------------------------------


def test_a_log_keeps_its_last_lines_and_no_control_characters() -> None:
    seconds = iter(range(10_000))
    log = ServerLog(lambda: float(next(seconds)))
    for number in range(700):
        log.add(f"\x1b[31mline {number}\x1b[0m\x07 \u202egnp.exe\nsecond\r\n\n")
    lines = log.lines()
    assert len(lines) == MOST_LINES
    assert lines[-2:] == ("line 699 gnp.exe", "second")


def test_a_flood_of_lines_is_counted() -> None:
    log = ServerLog(lambda: 1.0)
    log.add("x\n" * 100_000)
    assert len(log.lines()) == 201
    assert log.lines()[-1] == "(99800 lines were left out)"


def test_a_visible_text_is_cut_after_the_hidden_letters_are_gone() -> None:
    assert visible("\u200b".join("abc"), 3) == "abc"
    assert visible("abcd", 3) == "ab…"
    assert visible("a\nb\tc\x00", 9, lines=True) == "a\nb\tc"
    assert visible("a\U000e0041\U000e0101b", 9) == "ab"


# --- results ------------------------------------------------------------------------------------


def _result(*content: results.Block, data: object = None) -> types.CallToolResult:
    return types.CallToolResult(content=list(content), structured_content=data)


def test_files_are_put_beside_the_text_whatever_their_size() -> None:
    png, wav = (base64.b64encode(b"x" * count).decode() for count in (3_000, 5_000_001))
    found = results.outcome(
        _result(
            types.TextContent(text="See:"),
            types.ImageContent(data=png, mime_type="image/png\n"),
            types.AudioContent(data=wav, mime_type="audio/wav"),
            types.ImageContent(data="!", mime_type="image/png"),
            types.ResourceLink(name="r", uri="file:///r", size=12),
            types.EmbeddedResource(
                resource=types.TextResourceContents(uri="memo://1", text="milk")
            ),
        )
    )
    assert found.text.splitlines() == [
        "See:",
        "[Picture, image/png, 3,000 bytes]",
        "[Sound, audio/wav, 5.0 MB]",
        "[Picture, image/png: its data is damaged]",
        "[Resource r, file:///r, 12 bytes]",
        "[Resource memo://1]",
        "milk",
    ]
    assert [(file.name, file.media_type, len(file.data)) for file in found.files] == [
        ("picture-1.png", "image/png", 3_000),
        ("sound-2.wav", "audio/wav", 5_000_001),
    ]


@pytest.mark.parametrize(
    ("text", "data", "shown"),
    [
        ("", None, "The tool returned no content."),
        ("", {"a": 1}, '{"a": 1}'),
        ('{"a":1}', {"a": 1}, '{"a":1}'),
        ("3", {"result": 3}, "3"),
        ("done", {"a": 1}, 'done\n{"a": 1}'),
    ],
)
def test_data_is_shown_once(text: str, data: object, shown: str) -> None:
    content = [types.TextContent(text=text)] if text else []
    assert results.outcome(_result(*content, data=data)).text == shown


def session_of(folder: Path, **hooks: Any) -> Session:
    entry = ServerEntry("id", "Server", "server")
    return Session(entry, Hooks(**hooks), SecretStore(folder), ServerLog(), lambda: None)


def test_what_the_user_emptied_in_a_form_is_not_sent(tmp_path: Path) -> None:
    async def fill(*_: object) -> dict[str, Any]:
        return {"name": "Ada"}

    fields = {"name": {"type": "string"}, "to": {"type": "string", "default": "all@a.example"}}
    asked = types.ElicitRequestFormParams(
        message="Send?", requested_schema={"type": "object", "properties": fields}
    )
    session = session_of(tmp_path, ask_form=fill)
    sent = asyncio.run(session._elicit(cast("Any", None), asked))
    assert sent == types.ElicitResult(action="accept", content={"name": "Ada"})


@pytest.mark.parametrize(("warmth", "seen"), [(0.5, 0.5), (None, None), (math.nan, None)])
def test_a_model_is_asked_with_a_temperature_or_none(
    tmp_path: Path, warmth: float | None, seen: float | None
) -> None:
    requests: list[SamplingRequest] = []

    async def ask(_: str, request: SamplingRequest) -> None:
        requests.append(request)

    asked = types.CreateMessageRequestParams(messages=[], max_tokens=5, temperature=warmth)
    session = session_of(tmp_path, ask_sampling=ask)
    assert isinstance(asyncio.run(session._sample(cast("Any", None), asked)), types.ErrorData)
    assert [each.temperature for each in requests] == [seen]


def test_no_page_of_a_list_is_held_while_the_next_is_read(tmp_path: Path) -> None:
    pages: list[weakref.ref[types.ListToolsResult]] = []

    async def fetch(*, cursor: str | None) -> types.ListToolsResult:
        assert [each() for each in pages] == [None] * len(pages)
        page = types.ListToolsResult(
            tools=[types.Tool(name=f"t{cursor}", input_schema={})], next_cursor=f"{cursor}+"
        )
        pages.append(weakref.ref(page))
        return page

    async def run() -> list[str]:
        names: list[str] = []
        async for page in session_of(tmp_path)._pages(fetch, 20):
            names += [each.name for each in page.tools]
            del page
        return names

    assert len(asyncio.run(run())) == 21
