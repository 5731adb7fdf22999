"""Calls of tools for tests of the transcript: specs, messages with calls, and a state with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytestqt.qtbot import QtBot

from app.domain.message import Message, MessageState
from app.domain.parts import Part, ToolCallPart
from app.domain.tools import Effect, ToolSpec
from app.state.tools import CallPhase, LiveCall, ToolRow, ToolsState
from app.ui.transcript.message.message_view import MessageView
from app.ui.transcript.view import Transcript
from transcript_driver import message, wait_for_layout

SUM = ToolSpec("builtin/sum", "sum", "Calculate", "Works out a sum.", "{}")
WRITE = ToolSpec(
    "builtin/write_file",
    "write_file",
    "Write a file",
    "Writes a text into a file.",
    '{"type": "object"}',
    effects=frozenset({Effect.WRITES}),
)
FORECAST = ToolSpec(
    "weather/forecast",
    "forecast",
    "Forecast",
    "The weather of a place.",
    '{"type": "object"}',
    server="weather",
    origin="/usr/bin/weather --from 'a very long command' " + "x" * 3000 + " end",
)
ANSWER, CHAT = 2, 1  # ids


def use_tools(view: Transcript) -> ToolsState:
    """A state with three tools, shown by a transcript."""
    state = ToolsState(view)
    state.set_rows([ToolRow(tool) for tool in (SUM, WRITE, FORECAST)], "")
    view.calls.use(state, lambda conversation: f"Chat {conversation}")
    return state


def said(*parts: Part, state: MessageState = MessageState.COMPLETE) -> Message:
    return replace(message(ANSWER, "", state=state), parts=parts)


def show(view: Transcript, qtbot: QtBot, *parts: Part, streaming: bool = False) -> MessageView:
    """Show an answer with these parts; returns its view."""
    state = MessageState.STREAMING if streaming else MessageState.COMPLETE
    view.set_messages([message(1, "Q", is_user=True), said(*parts, state=state)])
    wait_for_layout(view, qtbot)
    return view.stack.views[-1]


def call(number: int, arguments: str = '{"n": 1}', tool: ToolSpec = SUM) -> ToolCallPart:
    return ToolCallPart(tool.name, arguments, str(number))


def live(number: int, tool: ToolSpec = SUM, arguments: str = '{"n": 1}', **more: Any) -> LiveCall:
    """A call that asks for consent, if nothing else is said."""
    made = LiveCall(CHAT, ANSWER, str(number), tool, arguments, CallPhase.ASKING)
    return replace(made, **more)


def calls_of(one: MessageView) -> Sequence[str]:
    """What the cards of a message say."""
    return [row.call.words for row in one.rows if row.call]
