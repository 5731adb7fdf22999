"""Conversations from the messages of any API, as turns that every chat template can write."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, Sequence

from engine.messages import (
    ImagePart,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCall,
    ToolResult,
    Turn,
)
from engine.server.errors import ApiError
from engine.server.fields import Fields
from engine.server.pictures import KINDS, PictureAccess, Pictures
from engine.server.turns import joined_texts, prepared

# Types of the parts of a message's content, and the field that has their text.
_TEXTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "reasoning_text": "text",
    "summary_text": "text",
    "refusal": "refusal",
}
Content = str | Sequence[Part]  # a text, or texts and pictures in order


class Conversation:
    """Collects the messages of a request in order; see `engine.server.turns` for what becomes of them.

    Parts of one answer that follow each other become one turn, whatever the API splits them into.
    The result of a call has a turn of its own.
    """

    def __init__(self, access: PictureAccess | None = None) -> None:
        """`access`: what pictures the conversation may have."""
        self.pictures = Pictures(access)
        self._turns: list[Turn | list[TextPart | ReasoningPart | ToolCall]] = []
        # Calls without a result, each with its number: by their id, and by ("name", their name).
        self._open: dict[str | tuple[str, str], deque[tuple[int, ToolCall]]] = {}
        self._answered: set[int] = set()  # numbers of the others
        self.count_calls = 0

    def system(self, text: str) -> None:
        """Add instructions."""
        if text:
            self._turns.append(Turn(Role.SYSTEM, text))

    def user(self, content: Content) -> None:
        """Add a message of the user."""
        content = content if isinstance(content, str) else joined(content)
        self._turns.append(Turn(Role.USER, content if isinstance(content, str) else tuple(content)))

    def assistant(self, part: TextPart | ReasoningPart | ToolCall) -> None:
        """Add a part of an answer; one without text is none."""
        if isinstance(part, ToolCall):
            for key in (part.id, ("name", part.name), ("name", "")):
                self._open.setdefault(key, deque()).append((self.count_calls, part))
            self.count_calls += 1
        elif not part.text:
            return
        if not self._turns or isinstance(self._turns[-1], Turn):
            self._turns.append([])
        parts = self._turns[-1]
        assert isinstance(parts, list)
        parts.append(part)

    def result(self, call_id: str, content: Content, name: str = "") -> None:
        """Add what a tool gave back: of the call with this id, else of the first one by the name.

        The turn has the text as one, and then the pictures.

        Where there is no such call it becomes the user's: agents tell of events so, or left out the
        call with the oldest messages, and templates refuse a result without one.
        """
        parts = [TextPart(content)] if isinstance(content, str) else content
        images = [part for part in parts if isinstance(part, ImagePart)]
        text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
        waiting = self._open.get(call_id or ("name", name), deque())
        while waiting:
            number, call = waiting.popleft()
            if number not in self._answered:
                self._answered.add(number)
                made = ToolResult(call.id, call.name, text)
                self._turns.append(Turn(Role.TOOL, (made, *images)))
                return
        text = f"{name}: {text}" if name else text
        self.user((TextPart(text), *images) if images else text)

    def turns(self) -> tuple[Turn, ...]:
        """The conversation so far."""
        turns = (one if isinstance(one, Turn) else _answer(one) for one in self._turns)
        return prepared(list(turns))


def _answer(parts: Sequence[TextPart | ReasoningPart | ToolCall]) -> Turn:
    """An answer, texts that follow each other as one; a text alone is its content."""
    made: list[Part] = []
    for kind, group in itertools.groupby(parts, type):
        if kind is TextPart:
            made.append(
                TextPart("\n\n".join(one.text for one in group if isinstance(one, TextPart)))
            )
        else:
            made += group
    match made:
        case [TextPart(text)]:
            return Turn(Role.ASSISTANT, text)
        case _:
            return Turn(Role.ASSISTANT, tuple(made))


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
    if kind in KINDS:
        problem = "is a picture, which only messages of the user and results of tools may have."
        part.fail("type", problem)
    return part.fail("type", f"is of type {kind[:50]!r}; models here read texts and pictures.")


def content(message: Fields, pictures: Pictures, name: str = "content") -> Content:
    """A field that is a string or a list of typed parts, texts and pictures; "" if it is absent.

    Raises ApiError for any other part, and for a picture that cannot be taken.
    """
    if not isinstance(message.get(name), list):
        return message.text(name)
    return joined([part_of(part, pictures) for part in message.objects(name)])


def part_of(part: Fields, pictures: Pictures) -> TextPart | ImagePart:
    """A part of a message's content; raises as `content`."""
    if part.text("type", "text") in KINDS:
        return pictures.of_part(part)
    return TextPart(part_text(part))


def parts_of(turn: Turn) -> tuple[Part, ...]:
    """The parts of a turn, one for a text."""
    return (TextPart(turn.content),) if isinstance(turn.content, str) else turn.content


def joined(parts: Sequence[Part]) -> Content:
    """Parts of a message as its content: with pictures in order, without any as a text."""
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    return "\n\n".join(texts) if len(texts) == len(parts) else joined_texts(parts)


def result(
    message: Fields,
    pictures: Pictures,
    name: str = "content",
    read: Callable[[Fields], str] = part_text,
) -> Content:
    """What a tool gave back: texts, as `read` reads them, and pictures; raises as `content`.

    A note stands for any other part, and for a picture that cannot be read: what a tool did must
    not end the conversation.
    """
    value = message.get(name)
    if not isinstance(value, list):
        return value if isinstance(value, str) else "" if value is None else json.dumps(value)
    parts: list[Part] = []
    for part in message.objects(name):
        kind = part.text("type", "text")
        try:
            is_picture = kind in KINDS
            parts.append(pictures.of_part(part) if is_picture else TextPart(read(part)))
        except ApiError as error:
            if kind in _TEXTS or error.status != 400:
                raise
            what = "a picture" if kind in KINDS else kind[:50]
            parts.append(TextPart(f"[{what}, which this model cannot read]"))
    return joined(parts)


def call_arguments(text: str) -> str:
    """The arguments of a call in a conversation as a JSON object, whatever a model wrote.

    A call that was cut by a limit stays in the client's conversation; it must not end that.
    """
    try:
        is_object = isinstance(json.loads(text or "{}"), dict)
    except (ValueError, RecursionError):
        is_object = False
    return (text or "{}") if is_object else json.dumps({"incomplete": text})
