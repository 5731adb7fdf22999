"""Tools on an application stage: a source whose calls a test ends, and a fake engine that calls them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.chat.documents.file_texts import TextExtractor
from app.domain.message import Message
from app.domain.parts import ToolResultPart
from app.domain.tools import CallContext, Effect, ToolError, ToolOutcome, ToolSpec
from app.state.tools import CallPhase, Consent
from engine import FinishReason
from fakes import MODEL
from stage import Stage, flush, until

ADD = ToolSpec(
    "builtin/add",
    "add",
    "Add",
    "Adds two numbers.",
    '{"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, '
    '"required": ["a", "b"], "additionalProperties": false}',
)
NOTE = ToolSpec(
    "notes/write",
    "write_note",
    "Write a note",
    "Writes a note.",
    '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}',
    "notes",
    frozenset((Effect.WRITES,)),
    origin="notes-server --stdio",
)
PAGE = replace(
    NOTE,
    id="builtin/page",
    name="page",
    server="",
    effects=frozenset((Effect.NETWORK,)),
    origin="",
)


@dataclass
class FakeTools:
    """A source of tools: `add` answers at once, the others when a test says so."""

    specs: list[ToolSpec] = field(default_factory=lambda: [ADD, NOTE, PAGE])
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    waits: bool = False  # calls of others than `add` wait for `finish`
    result: Callable[[dict[str, Any]], str] = lambda arguments: f"written: {arguments.get('text')}"
    context: CallContext | None = None
    _going: list[asyncio.Event] = field(default_factory=list)

    def tools(self) -> Sequence[ToolSpec]:
        return self.specs

    def changes(self, id: str, arguments: Mapping[str, Any], context: CallContext) -> Sequence[str]:
        if arguments.get("text") == "nowhere":
            raise ToolError("No folder is picked.")
        return () if id == ADD.id else (f"Writes {arguments.get('text')}",)

    def scope(self, id: str, arguments: Mapping[str, Any]) -> str:
        return str(arguments["text"]).partition("/")[0] if id == PAGE.id else ""

    async def call(
        self, id: str, arguments: Mapping[str, Any], context: CallContext
    ) -> ToolOutcome:
        assert threading.current_thread().name == "tools"
        self.context = context
        self.calls.append((id, dict(arguments)))
        if id == ADD.id:
            return ToolOutcome(str(arguments["a"] + arguments["b"]))
        if arguments.get("text") == "fail":
            raise ToolError("The note cannot be written.")
        if self.waits:
            going = asyncio.Event()
            self._going.append(going)
            try:
                await going.wait()
            except asyncio.CancelledError:
                self.cancelled.append(id)
                raise
        return ToolOutcome(self.result(dict(arguments)))

    def finish(self, stage: Stage) -> None:
        """Let the calls that wait return."""
        until(lambda: bool(self._going))
        loop = stage.controller.tools.thread_of_tools.loop
        for going in self._going:
            loop.call_soon_threadsafe(going.set)
        self._going.clear()


def stages(
    folder: Path,
    source: FakeTools,
    *,
    tools: Sequence[ToolSpec] = (ADD, NOTE, PAGE),
    extractor: TextExtractor | None = None,
    encoder: Path | None = None,
) -> Iterator[Callable[[], Stage]]:
    """Makes stages over one store, one after the other: each is a start of the app."""
    made: list[Stage] = []

    def start() -> Stage:
        if made:
            made[-1].close()
        stage = Stage(folder, tool_source=lambda: source, extractor=extractor)
        made.append(stage)
        stage.start(MODEL)
        stage.engine.finish_load(can_call=True, encoder=encoder)
        stage.wait_until_idle()
        settings = stage.controller.chat_settings
        if stage.state.current is None:
            ids = tuple(tool.id for tool in tools)
            settings.change_shown(replace(stage.states.chat_settings.settings, tools=ids))
        return stage

    folder.mkdir(exist_ok=True)
    yield start
    for stage in made[-1:]:
        stage.close()


def last(stage: Stage) -> Message:
    return stage.state.messages[-1]


def results(message: Message) -> list[ToolResultPart]:
    return [part for part in message.parts if isinstance(part, ToolResultPart)]


def called(stage: Stage, *calls: tuple[str, dict[str, Any]], text: str = "") -> None:
    """The model writes a text and these calls, and waits for their results."""
    if text:
        stage.engine.write(text)
    for name, arguments in calls:
        stage.engine.call(name, json.dumps(arguments))
    stage.engine.finish(FinishReason.TOOL_CALLS)
    stage.drain()


def asked(stage: Stage, *calls: tuple[str, dict[str, Any]], text: str = "") -> None:
    """The user writes something, and the model calls tools."""
    stage.controller.send("Do it")
    stage.drain()
    called(stage, *calls, text=text)


def asks_again(stage: Stage) -> None:
    """Until the engine is asked to go on with results."""
    until(lambda: bool(stage.engine.unfinished))
    flush()


def ask(stage: Stage) -> str:
    """The id of the first call that waits for consent, once one does."""
    until(lambda: bool(stage.states.tools.asking))
    return stage.states.tools.asking[0].call


def answer(stage: Stage, consent: Consent, arguments: str | None = None) -> None:
    """The user answers the first question for consent."""
    call = ask(stage)
    [live, *_] = [each for each in stage.states.tools.asking if each.call == call]
    stage.controller.tools.calls.decide(
        live.message, call, consent, live.arguments if arguments is None else arguments
    )


def runs(stage: Stage) -> None:
    """Until a call is carried out."""
    until(lambda: any(e.phase is CallPhase.RUNNING for e in stage.states.tools.live.values()))
