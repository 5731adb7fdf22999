"""Answers of a remote engine in tests: run to their end, with what was told on the way."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from app.domain.answer_request import AnswerRequest, PromptMessage
from app.domain.connection import Connection, ServerKind
from app.domain.deltas import (
    AnswerEnd,
    AnswerUsage,
    Delta,
    TextDelta,
    ThoughtDelta,
    ToolCallDelta,
    WaitingDelta,
)
from app.domain.parts import TextPart
from app.engines.remote.engine import RemoteEngine
from app.engines.remote.errors import RemoteError
from app.engines.remote.exchange import Times
from app.engines.remote.keys import Credentials
from app.net.ledger import Purpose
from engine import Role

TIMES = Times(connect=5.0, first=5.0, between=5.0, short=5.0)


@dataclass
class Gate:
    """A gate that records, and refuses while it is offline."""

    asked: list[tuple[str, Purpose]] = field(default_factory=list)
    offline: bool = False
    closed: int = 0
    received: int = 0
    cuts: list[Callable[[], None]] = field(default_factory=list)

    def allow(self, address: str, purpose: Purpose, cut: Callable[[], None]) -> Gate:
        self.asked.append((address, purpose))
        if self.offline:
            raise ConnectionError("offline")
        self.cuts.append(cut)
        return self

    def count(self, *, sent: int = 0, received: int = 0) -> None:
        self.received += received

    def check(self) -> None:
        if self.offline:
            raise ConnectionError("offline")

    def close(self) -> None:
        self.closed += 1

    def cut(self) -> None:
        """Go offline, as the switch does."""
        self.offline = True
        for cut in self.cuts:
            cut()


def engine_for(
    address: str,
    kind: ServerKind = ServerKind.OPENAI,
    *,
    gate: Gate | None = None,
    key: str = "",
    times: Times = TIMES,
    headers: tuple[tuple[str, str], ...] = (),
    **options: Any,
) -> RemoteEngine:
    """The engine of a connection to an address; it does not really wait for a loading server."""

    async def sleep(_: float) -> None:
        await asyncio.sleep(0)

    connection = Connection("one", "One", address, headers, kind, has_key=bool(key))
    options.setdefault("sleep", sleep)
    return RemoteEngine(
        connection, (gate or Gate()).allow, Credentials(key), times=times, **options
    )


def question(text: str = "Hello", **fields: Any) -> AnswerRequest:
    """A request with one message."""
    asked = AnswerRequest("m", (PromptMessage(Role.USER, (TextPart(text),)),))
    return replace(asked, **fields)


@dataclass
class Told:
    """What an answer was."""

    deltas: list[Delta] = field(default_factory=list)
    error: RemoteError | None = None

    @property
    def text(self) -> str:
        return "".join(each.text for each in self.deltas if isinstance(each, TextDelta))

    @property
    def thoughts(self) -> str:
        return "".join(each.text for each in self.deltas if isinstance(each, ThoughtDelta))

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """Id, name and whole arguments of each call."""
        made: dict[int, list[str]] = {}
        for each in self.deltas:
            if isinstance(each, ToolCallDelta):
                call = made.setdefault(each.index, [each.id, each.name, ""])
                call[2] += each.arguments
        return [(id, name, arguments) for id, name, arguments in made.values()]

    @property
    def end(self) -> AnswerEnd | None:
        return next((each for each in self.deltas if isinstance(each, AnswerEnd)), None)

    @property
    def usage(self) -> AnswerUsage:
        found = [each for each in self.deltas if isinstance(each, AnswerUsage)]
        return found[-1] if found else AnswerUsage()

    @property
    def waits(self) -> list[WaitingDelta]:
        return [each for each in self.deltas if isinstance(each, WaitingDelta)]


def ask(engine: RemoteEngine, request: AnswerRequest | None = None) -> Told:
    """The whole answer."""
    told = Told()

    async def run() -> None:
        try:
            async with contextlib.aclosing(engine.generate(request or question())) as deltas:
                async for delta in deltas:
                    told.deltas.append(delta)
        except RemoteError as error:
            told.error = error

    asyncio.run(run())
    return told


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is true; fails after some seconds."""

    def wait() -> None:
        end = time.monotonic() + 10
        while not true():
            assert time.monotonic() < end, "it never came true"
            time.sleep(0.01)

    await asyncio.to_thread(wait)
