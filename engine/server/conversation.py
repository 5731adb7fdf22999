"""Conversations from the messages of any API, as turns that every chat template can write."""

from __future__ import annotations

import json
from collections.abc import Callable

from engine.messages import ReasoningPart, Role, TextPart, ToolCall, ToolResult, Turn
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.turns import prepared

# Types of the parts of a message's content, and the field that has their text.
_TEXTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
_PICTURES = ("image", "image_url", "input_image")


class Conversation:
    """Collects the messages of a request in order; see `engine.server.turns` for what becomes of them.

    Parts of one answer that follow each other become one turn, whatever the API splits them into.
    The result of a call has a turn of its own.
    """

    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._calls: list[ToolCall] = []  # without a result
        self.count_calls = 0

    def system(self, text: str) -> None:
        """Add instructions."""
        if text:
            self._turns.append(Turn(Role.SYSTEM, text))

    def user(self, text: str) -> None:
        """Add a message of the user."""
        self._turns.append(Turn(Role.USER, text))

    def assistant(self, part: TextPart | ReasoningPart | ToolCall) -> None:
        """Add a part of an answer; one without text is none."""
        if isinstance(part, ToolCall):
            self._calls.append(part)
            self.count_calls += 1
        elif not part.text:
            return
        if not self._turns or self._turns[-1].role is not Role.ASSISTANT:
            self._turns.append(Turn(Role.ASSISTANT, ()))
        parts = self._turns[-1].content
        assert not isinstance(parts, str)
        if parts and isinstance(part, TextPart) and isinstance(last := parts[-1], TextPart):
            parts, part = parts[:-1], TextPart(f"{last.text}\n\n{part.text}")
        self._turns[-1] = Turn(Role.ASSISTANT, (*parts, part))

    def result(self, call_id: str, text: str, name: str = "") -> None:
        """Add what a tool gave back: of the call with this id, else of the first one by the name.

        Where there is no such call it becomes the user's: agents tell of events so, or left out the
        call with the oldest messages, and templates refuse a result without one.
        """
        for at, call in enumerate(self._calls):
            if call.id == call_id or (not call_id and name in ("", call.name)):
                del self._calls[at]
                result = ToolResult(call.id, call.name, text)
                self._turns.append(Turn(Role.TOOL, (result,)))
                return
        self.user(f"{name}: {text}" if name else text)

    def turns(self) -> tuple[Turn, ...]:
        """The conversation so far."""
        return prepared([_plain(turn) for turn in self._turns])


def _plain(turn: Turn) -> Turn:
    """A turn whose only part is text, with that as its content."""
    match turn.content:
        case (TextPart(text),):
            return Turn(turn.role, text)
        case _:
            return turn


def content_text(message: Fields, name: str = "content") -> str:
    """The text of a field that is a string or a list of typed parts; "" if it is absent."""
    if not isinstance(message.get(name), list):
        return message.text(name)
    return "\n\n".join(part_text(part) for part in message.objects(name))


def part_text(part: Fields) -> str:
    """The text of a part of a message's content; raises ApiError for what is no text."""
    kind = part.text("type", "text")
    if kind in _TEXTS:
        return part.text(_TEXTS[kind])
    what = "a picture" if kind in _PICTURES else f"of type {kind[:50]!r}"
    return part.fail("type", f"is {what}; the models here read text only.")


def result_text(
    message: Fields, name: str = "content", read: Callable[[Fields], str] = part_text
) -> str:
    """The text of what a tool gave back, whose parts `read` reads.

    A note stands for a part that is no text, such as a picture: it must not end the conversation.
    """
    value = message.get(name)
    if not isinstance(value, list):
        return value if isinstance(value, str) else "" if value is None else json.dumps(value)
    texts: list[str] = []
    for part in message.objects(name):
        kind = part.text("type", "text")
        try:
            texts.append(read(part))
        except ApiError:
            if kind in _TEXTS:
                raise
            what = "a picture" if kind in _PICTURES else kind[:50]
            texts.append(f"[{what}, which this model cannot read]")
    return "\n\n".join(texts)


def call_arguments(text: str) -> str:
    """The arguments of a call in a conversation as a JSON object, whatever a model wrote.

    A call that was cut by a limit stays in the client's conversation; it must not end that.
    """
    try:
        is_object = isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        is_object = False
    return (text or "{}") if is_object else json.dumps({"incomplete": text})
