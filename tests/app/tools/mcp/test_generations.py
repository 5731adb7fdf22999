"""Both generations of the protocol, with a server of the SDK: calls, questions, lists."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tool_servers
from app.domain.tools import ToolError
from app.system.secret_store import SecretStore
from app.tools.mcp.entry import ServerEntry
from app.tools.mcp.hooks import Hooks, SamplingRequest
from app.tools.mcp.log import ServerLog
from tool_servers import Trial, no_keyring, poisoned, trial

HONEST = Path(tool_servers.__file__).with_name("sdk_tools.py")


class User:
    """Who answers what servers ask."""

    def __init__(self, answer: dict[str, Any] | None = None, words: str | None = None) -> None:
        self.asked: list[object] = []
        self.declines = False
        self.waits = 0.0  # seconds before an answer
        self._answer, self._words = answer, words

    @property
    def hooks(self) -> Hooks:
        return Hooks(self._fill, self._say, self._open)

    async def _fill(
        self, server: str, message: str, schema: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        self.asked.append((server, message, sorted(schema["properties"])))
        return None if self.declines else self._answer

    async def _say(self, server: str, request: SamplingRequest) -> str | None:
        self.asked.append((server, request.messages, request.most_tokens))
        return None if self.declines else self._words

    async def _open(self, server: str, address: str, why: str) -> bool:
        self.asked.append((server, address, why))
        await asyncio.sleep(self.waits)
        return True


def honest() -> ServerEntry:
    return ServerEntry("", "Honest", sys.executable, ("-I", str(HONEST)))


def test_a_server_of_today_is_used_whole(tmp_path: Path) -> None:
    user = User({"days": 3}, "Bob")

    async def run() -> list[str]:
        async with trial(tmp_path, honest(), user.hooks) as made:
            status, servers, id = made.status, made.servers, made.entry.id
            assert (status.protocol, status.program) == ("2026-07-28", "Honest 2.0")
            assert [each.name for each in servers.tools()] == [
                "add",
                "book",
                "name",
                "count",
                "grow",
            ]
            assert (await made.call("add", left=1, right=2)).text == "3"
            assert (await made.call("add")).failed
            assert (await made.call("book")).text == "3 days in Rome"
            assert (await made.call("name")).text == "named Bob"
            assert (await made.call("count")).text == "counted"
            one, days = await servers.resources(id)
            assert (one.uri, days.is_template) == ("memo://one", True)
            assert (await servers.read_resource(id, "memo://one"))[0].text == "Buy milk."
            assert (await servers.read_resource(id, "memo://tue/raw"))[0].data == b"tue"
            (prompt,) = await servers.prompts(id)
            assert prompt.arguments[0].is_required
            assert await servers.prompt(id, "greet", {"who": "Ann"}) == "Greet Ann."
            assert (await made.call("grow")).text == "grown"
            await made.until(lambda: bool(made.status.notice))
            assert servers.tools()[-1].name == "late"
            user.declines = True
            assert (await made.call("book")).failed
            with pytest.raises(ToolError, match="The user declined the request"):
                await made.call("name")
            return made.outputs

    assert asyncio.run(run()) == ["1 of 2: counting\n", "2 of 2: counting\n"]
    form, question = (
        ("Honest", "Where to?", ["city", "days"]),
        ("Honest", (("user", "Name it."),), 9),
    )
    assert user.asked == [form, question, form, question]


@pytest.mark.slow
def test_a_server_is_used_by_the_older_protocol_too(tmp_path: Path) -> None:
    from app.tools.mcp.session import Session

    user = User({"days": 3}, "Bob")

    async def run() -> None:
        secrets = SecretStore(tmp_path / "keys.json", no_keyring)
        entry = replace(honest(), id="h")
        session = Session(entry, user.hooks, secrets, ServerLog(), lambda: None, mode="legacy")
        async with session.opened():
            assert session.protocol == "2025-11-25"
            for name, words in (("book", "3 days in Rome"), ("name", "named Bob")):
                assert (await session.call(name, {}, lambda _: None)).text == words

    asyncio.run(run())


@pytest.mark.parametrize(
    ("address", "action"),
    [
        ("https://bank.example/login", "accept"),
        ("file:///etc/passwd", "decline"),
        ("javascript:alert(1)", "decline"),
        ("http://bank.example/", "decline"),
    ],
)
def test_only_web_pages_are_opened_for_a_server(tmp_path: Path, address: str, action: str) -> None:
    user = User()

    async def run(made: Trial) -> None:
        async with trial(tmp_path, poisoned("page"), user.hooks) as made:
            assert (await made.call(text=address)).text == action

    asyncio.run(run(Trial(tmp_path)))
    assert user.asked == ([("Poison", address, "Log in")] if action == "accept" else [])


def test_the_time_of_a_call_stands_still_while_the_user_is_asked(tmp_path: Path) -> None:
    user = User()
    user.waits = 0.6

    async def run() -> None:
        async with trial(tmp_path, poisoned("page"), user.hooks) as made:
            object.__setattr__(made.entry, "seconds", 0.3)
            assert (await made.call(text="https://bank.example/")).text == "accept"
            with pytest.raises(ToolError, match="did not answer within"):
                await made.call("echo", text="")

    asyncio.run(run())
