"""Servers of tools in the window: consent before they start, their states, and what they ask."""

from __future__ import annotations

import asyncio
import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.domain.tool_servers import PageQuestion, ServerDraft, ServerPhase, StartQuestion
from app.domain.tools import CallContext, ToolError, ToolOutcome
from server_stage import ServerStage, poisoned_draft, stored
from stage import until
from tool_site import site

pytestmark = pytest.mark.usefixtures("qapp")
Start = Callable[[], ServerStage]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[ServerStage] = []

    def begin() -> ServerStage:
        for stage in made:
            stage.close()
        made.append(ServerStage(tmp_path / "data"))
        made[-1].begin()
        return made[-1]

    yield begin
    for stage in made:
        stage.close()


def call(stage: ServerStage, tool: str = "echo", **arguments: object) -> ToolOutcome:
    """Call a tool of the first server through what calls of chats use."""
    source = stage.servers.source()
    id = f"{stage.shown.rows[0].id}/{tool}"
    future = asyncio.run_coroutine_threadsafe(
        source.call(id, arguments, CallContext(1)), stage.controller.tools.thread_of_tools.loop
    )
    until(future.done)
    return future.result()


def test_a_server_starts_only_after_its_exact_command_was_allowed(start: Start) -> None:
    stage = start()
    stage.look()
    draft = replace(
        poisoned_draft(), arguments=(*poisoned_draft().arguments, "a b\u202e", "x" * 5_000),
        folder=str(Path.home()), environment=(("TOKEN", "s3cret"),),
    )  # fmt: skip
    stage.servers.save(draft)
    until(lambda: bool(stage.shown.rows))
    [row] = stage.shown.rows
    assert (row.phase, row.asks_first, row.is_on) == (ServerPhase.OFF, True, False)
    stage.servers.switch(row.id, True)
    question = stage.question()
    assert isinstance(question, StartQuestion)
    assert question.command[-2:] == ('"a b\\u202e"', "x" * 5_000)  # nothing is cut or hidden
    assert (question.folder, question.environment) == (str(Path.home()), ("TOKEN",))
    assert "s3cret" not in repr(question)
    stage.servers.answer(question.number, None)
    stage.wait_until_idle()
    assert stage.row().phase is ServerPhase.OFF
    stage.servers.switch(row.id, True)
    stage.servers.answer(stage.question().number, True)
    row = stage.reaches(ServerPhase.READY)
    assert (row.is_on, row.asks_first) == (True, False)
    assert [tool.id for tool in row.tools] == ["echo"]
    assert call(stage, text="hello").text == "hello"
    assert "s3cret" not in (stage.folder / "tool servers.json").read_text(encoding="utf-8")
    [kept] = stored(stage.folder)
    assert kept["environment"] == {"TOKEN": ""}


def test_a_changed_command_stops_the_server_and_asks_again_with_the_difference(
    start: Start,
) -> None:
    stage = start()
    stage.look()
    row = stage.add()
    stage.allow()
    stage.servers.edit(row.id)
    until(lambda: stage.shown.draft is not None and stage.shown.draft.id == row.id)
    assert stage.shown.draft is not None
    stage.servers.save(replace(stage.shown.draft, arguments=("-c", "pass")))
    row = stage.reaches(ServerPhase.OFF)
    assert (row.asks_first, row.was_allowed) == (True, True)
    stage.servers.switch(row.id, True)
    question = stage.question()
    assert isinstance(question, StartQuestion)
    assert [line[:2] for line in question.differences] == ["- ", "+ "]
    assert question.differences[1].endswith("-c pass")
    assert stage.row().phase is ServerPhase.OFF


def test_a_new_secret_asks_again_and_a_new_name_or_limit_does_not(start: Start) -> None:
    stage = start()
    stage.look()
    stage.servers.save(replace(poisoned_draft(), environment=(("KEY", "one"),)))
    until(lambda: bool(stage.shown.rows))
    stage.allow()
    id = stage.row().id
    kept = replace(poisoned_draft(name="Other"), id=id, environment=(("KEY", None),), seconds=9.0)
    stage.servers.save(kept)
    until(lambda: stage.shown.rows[0].name == "Other")
    assert not stage.row("Other").asks_first
    assert stage.row("Other").phase is ServerPhase.READY
    stage.servers.save(replace(kept, environment=(("KEY", "two"),)))
    stage.holds(lambda: stage.row("Other").asks_first)


def test_the_app_starts_only_servers_that_are_to_start_with_it_and_are_as_allowed(
    start: Start,
) -> None:
    stage = start()
    stage.look()
    for name in ("With", "Later", "Changed"):
        stage.add(name=name)
        stage.allow(name)
    for name in ("With", "Changed"):
        stage.servers.set_with_app(stage.row(name).id, True)
    stage.holds(lambda: stage.row("Changed").with_app)
    folder = stage.folder
    stage.close()
    rows = stored(folder)
    rows[2]["arguments"] = ["-c", "pass"]  # by another program
    text = json.dumps({"version": 1, "servers": rows})
    (folder / "tool servers.json").write_text(text, encoding="utf-8")
    stage = start()
    stage.look()
    stage.reaches(ServerPhase.READY, "With")
    assert stage.row("Later").phase is ServerPhase.OFF
    assert (stage.row("Changed").phase, stage.row("Changed").asks_first) == (ServerPhase.OFF, True)
    settings = stage.controller.chat_settings  # a chat that uses the other one
    id = f"{stage.row('Later').id}/echo"
    settings.change_shown(replace(stage.states.chat_settings.settings, tools=(id,)))
    stage.reaches(ServerPhase.READY, "Later")


def died(start: Start) -> ServerStage:
    """A server of the shown chat has ended in a call."""
    stage = start()
    stage.look()
    stage.add("dies")
    stage.allow()
    with pytest.raises(ToolError, match="ended with exit code 3"):
        call(stage, text="a")
    stage.reaches(ServerPhase.FAILED)
    return stage


def test_a_server_that_dies_is_started_again_by_the_next_call_and_only_once(start: Start) -> None:
    stage = died(start)
    assert [each.name for each in stage.servers.source().tools()] == ["echo"]
    with pytest.raises(ToolError, match="ended with exit code 3"):  # it ran again
        call(stage, text="a")
    stage.reaches(ServerPhase.FAILED)
    assert not stage.servers.source().tools()
    with pytest.raises(ToolError, match="not there"):
        call(stage, text="a")


def test_two_calls_at_once_start_a_server_that_died_again_together(start: Start) -> None:
    stage = died(start)
    source, id = stage.servers.source(), f"{stage.row().id}/echo"

    async def both() -> list[ToolOutcome | BaseException]:
        calls = (source.call(id, {"text": "a"}, CallContext(1)) for _ in range(2))
        return await asyncio.gather(*calls, return_exceptions=True)

    loop = stage.controller.tools.thread_of_tools.loop
    future = asyncio.run_coroutine_threadsafe(both(), loop)
    until(future.done)
    assert ["ended with exit code 3" in str(each) for each in future.result()] == [True, True]


def test_servers_are_shown_again_after_an_unexpected_fault(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = start()
    stage.look()
    assert stage.servers.running is not None

    async def fail() -> None:
        raise ValueError

    with monkeypatch.context() as broken:
        broken.setattr(stage.servers.running, "rows", fail)
        stage.servers.look()
        until(lambda: "fault" in stage.state.notices)
    assert stage.add().name == "Echo"
    assert caplog.records


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_servers_end_with_the_app(start: Start) -> None:
    stage = start()
    stage.look()
    stage.add("family")
    stage.allow()
    child = int(call(stage).text)
    stage.servers.close()
    until(lambda: not _runs(child))


def _runs(process: int) -> bool:
    """Whether a program runs; one that has ended and whose parent does not know it does not."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_an_import_shows_what_it_stores_and_starts_nothing(start: Start, tmp_path: Path) -> None:
    stage = start()
    stage.look()
    file = tmp_path / "mcp.json"
    servers = {
        "Good": {"command": "touch", "args": [str(tmp_path / "started")], "autoApprove": ["*"]},
        "Old": {"url": "http://127.0.0.1/sse", "type": "sse"},
    }
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    stage.servers.import_file(file)
    until(lambda: stage.shown.preview is not None)
    preview = stage.shown.preview
    assert preview is not None
    assert [row.name for row in preview.servers] == ["Good"]
    assert "SSE" in preview.problems[0]
    assert not (stage.folder / "tool servers.json").exists()
    stage.servers.end_import(True)
    until(lambda: bool(stage.shown.rows))
    stage.wait_until_idle()
    row = stage.row("Good")
    assert (row.phase, row.is_on, row.asks_first) == (ServerPhase.OFF, False, True)
    assert not (tmp_path / "started").exists()


def test_what_is_wrong_with_a_server_is_said_and_what_was_entered_stays(start: Start) -> None:
    stage = start()
    stage.look()
    stage.add()
    stage.servers.save(poisoned_draft())
    until(lambda: bool(stage.shown.draft_problem))
    assert "Another server is named" in stage.shown.draft_problem
    assert stage.shown.draft == poisoned_draft()
    stage.servers.import_file(stage.folder / "nothing.json")
    until(lambda: bool(stage.shown.problem))
    assert "cannot be read" in stage.shown.problem


def test_a_deleted_server_comes_back_with_undo_and_is_off(start: Start) -> None:
    stage = start()
    stage.look()
    stage.servers.save(replace(poisoned_draft(), environment=(("KEY", "one"),)))
    until(lambda: bool(stage.shown.rows))
    stage.allow()
    stage.servers.delete(stage.row().id)
    until(lambda: stage.shown.deleted == "Echo" and not stage.shown.rows)
    stage.servers.undo()
    until(lambda: bool(stage.shown.rows))
    assert (stage.row().phase, stage.row().is_on) == (ServerPhase.OFF, False)
    stage = start()
    stage.look()
    assert not stage.row().asks_first  # its secret is what was allowed


def test_a_login_is_waited_for_and_can_be_cancelled_and_forgotten(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(
        "app.tool_server_wiring.open_link", lambda address: not opened.append(address)
    )
    stage = start()
    stage.look()
    with site("login") as place:
        stage.servers.save(ServerDraft(name="Site", address=place.address))
        until(lambda: bool(stage.shown.rows))
        id = stage.row("Site").id
        stage.servers.switch(id, True)
        connect = stage.question()
        assert isinstance(connect, StartQuestion)
        assert connect.address == place.address
        assert not place.asked  # nothing was sent before
        stage.servers.answer(connect.number, True)
        for _ in range(2):  # the first login is given up
            page = stage.question()
            assert isinstance(page, PageQuestion)
            view = stage.window.questions.view
            assert view is not None
            view.page_requested.emit(page.number, page.address)
            stage.reaches(ServerPhase.LOGIN, "Site")
            if len(opened) == 1:
                stage.servers.cancel(id)
                stage.reaches(ServerPhase.OFF, "Site")
                stage.servers.switch(id, True)
        with urllib.request.urlopen(opened[1], timeout=5) as shown:
            shown.read()
        stage.reaches(ServerPhase.READY, "Site")
        keys = stage.folder / "tool logins.json"
        assert place.token in keys.read_text(encoding="utf-8")
        stage.servers.log_out(id)
        stage.reaches(ServerPhase.OFF, "Site")
        until(lambda: place.token not in keys.read_text(encoding="utf-8"))


def test_a_server_that_takes_names_of_built_in_tools_gets_others_and_that_is_said(
    start: Start,
) -> None:
    stage = start()
    stage.look()
    stage.add("shadows")
    stage.allow()
    row = stage.reaches(ServerPhase.READY)
    assert row.tools[0].id == "Echo_calculate"
    assert "models know these as Echo_calculate, Echo_Read_File" in row.notice
    names = [tool.name for tool in stage.servers.source().tools()]
    assert names == [tool.id for tool in row.tools]
