"""Pictures in prompts: they are read, stand as marked places in rendered text, and become ids."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import add
from typing import Any

from engine.frontend.image_marks import ImageMarks, Pieces, joined
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import ImagePart, Part, Role, TextPart, ToolResult, Turn
from engine.messages.reasoning_markers import Message
from engine.vision.picture import Picture, Tile
from engine.vision.registry import ImageRegistry
from engine.vision.source import PictureSource, never

Write = Callable[[Sequence[Message], Mapping[str, object]], str]  # a template: messages to a prompt


class Pictures:
    """Reads the pictures of turns for one loaded model; used by any thread."""

    def __init__(
        self, marks: ImageMarks, registry: ImageRegistry, open_source: Callable[[], PictureSource]
    ) -> None:
        """`open_source` is called when the first picture comes."""
        self.marks = marks
        self._registry, self._open = registry, open_source
        self._source: PictureSource | None = None
        self._lock = threading.Lock()

    def read(
        self, turns: Sequence[Turn], cancelled: Callable[[], bool] = never
    ) -> dict[ImagePart, Picture]:
        """The pictures of turns, of equal ones once; raises what `PictureSource.read` raises."""
        with self._lock:
            if self._source is None:
                self._source = self._open()
            source = self._source
        found: dict[ImagePart, Picture] = {}
        for part in (image for turn in turns for image in turn.images):
            if part not in found:
                found[part] = source.read(part, cancelled)
        return found

    def ids(self, pieces: Pieces, tokenizer: Tokenizer) -> list[int]:
        """Token ids of a text with rows of pictures; nothing is added to it."""
        return tokenizer.encode_parts(
            [one if isinstance(one, str) else self._row_ids(one) for one in pieces]
        )

    def close(self) -> None:
        """Free what reads pictures."""
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            source.close()

    def _row_ids(self, tile: Tile) -> Sequence[int]:
        add = partial(self._registry.add, pixels=tile.pixels, pixel_bytes=tile.pixel_bytes)
        return add(tile.key, tile.count, tile.lines, tile.columns).ids


class ImagePlaces:
    """The pictures of one prompt, and the texts that stand in their places while it is rendered.

    These are drawn for each prompt, so that no text of a user has one. What a user writes of the
    model's own placeholder stays text.
    """

    def __init__(self, marks: ImageMarks, pictures: Mapping[ImagePart, Picture]) -> None:
        self._marks, self.placeholder = marks, marks.placeholder
        self._pictures = list(pictures.values())
        self._numbers = {part: number for number, part in enumerate(pictures)}
        self._nonce = f"P{secrets.token_hex(12)}"
        # Of a picture in a text, and of one that the template has written the placeholder of.
        self._place = re.compile(rf"{self._nonce}([TW])(\d+)E")
        self._hidden = f"{self._nonce}HE"  # for the placeholder's characters in a text

    def in_words(self, turn: Turn) -> Turn:
        """A turn with places in its text for its pictures."""
        if not turn.images:
            return turn
        if turn.role is Role.TOOL and turn.results:
            return replace(turn, content=tuple(self._in_results(turn)))
        parts = (
            TextPart(self._of(part)) if isinstance(part, ImagePart) else part
            for part in turn.content
        )
        return replace(turn, content=tuple(parts))

    def render(
        self,
        messages: Sequence[Message],
        options: Mapping[str, object],
        write: Write,
        *,
        takes_parts: bool,
    ) -> str:
        """The prompt of messages with places, which it has as well.

        `takes_parts`: the template writes a placeholder for each picture in a user's list of parts.
        Where it does not for all of these, the places stay in the text.
        """
        options, messages = self._hide(options), self._hide(messages)
        order: list[str] = []
        if takes_parts:
            text = write([self._in_parts(one, order) for one in messages], options)
            pieces = text.split(self._marks.placeholder)
            if len(pieces) == len(order) + 1:
                places = (f"{self._nonce}W{number}E" for number in order)
                text = pieces[0] + "".join(map(add, places, pieces[1:]))
                return text.replace(self._hidden, self._marks.placeholder)
        return write(messages, options).replace(self._hidden, self._marks.placeholder)

    def pieces(self, text: str) -> list[str | Tile]:
        """A rendered text with the rows of pictures, and the texts around them, in their places."""
        made: list[str | Tile] = []
        number = 0
        for part in self._split(text):
            if isinstance(part, str):
                made.append(part)
            else:
                kind, picture = part
                made += self._marks.pieces(picture, number, outer=kind == "T")
                number += 1
        return joined(made)

    def text(self, text: str) -> str:
        """A rendered text with a placeholder in each place."""
        shown = {"T": self._marks.shown, "W": self._marks.placeholder}
        return "".join(
            part if isinstance(part, str) else shown[part[0]] for part in self._split(text)
        )

    def count(self, turn: Turn, tokenizer: Tokenizer) -> int:
        """Tokens of the pictures of a turn."""
        numbers = (self._numbers[part] for part in turn.images)
        pieces = (
            one for number in numbers for one in self._marks.pieces(self._pictures[number], number)
        )
        return sum(
            len(tokenizer.encode_parts([one])) if isinstance(one, str) else one.count
            for one in pieces
        )

    def _of(self, part: ImagePart) -> str:
        return f"{self._nonce}T{self._numbers[part]}E"

    def _split(self, text: str) -> Iterator[str | tuple[str, Picture]]:
        """Texts, and the kind of a place with its picture."""
        end = 0
        for found in self._place.finditer(text):
            yield text[end : found.start()]
            yield found[1], self._pictures[int(found[2])]
            end = found.end()
        yield text[end:]

    def _in_results(self, turn: Turn) -> Iterator[Part]:
        """The results of a turn, each with places for the pictures behind it."""
        results: list[ToolResult] = []
        before = ""  # places before the first result
        for part in turn.content:
            if isinstance(part, ToolResult):
                results.append(replace(part, text=before + part.text))
                before = ""
            elif isinstance(part, ImagePart) and results:
                results[-1] = replace(results[-1], text=results[-1].text + self._of(part))
            elif isinstance(part, ImagePart):
                before += self._of(part)
        yield from results

    def _in_parts(self, message: Message, order: list[str]) -> Message:
        """A user's message with a list of parts, if it has pictures; `order` gets their numbers."""
        content = message["content"]
        if message["role"] != Role.USER.value or not isinstance(content, str):
            return message
        parts: list[dict[str, str]] = []
        end = 0
        for found in self._place.finditer(content):
            order.append(found[2])
            parts += _text_parts(content[end : found.start()])
            parts.append({"type": "image"})
            end = found.end()
        return {**message, "content": [*parts, *_text_parts(content[end:])]} if parts else message

    def _hide(self, value: Any) -> Any:
        """Strings, lists and dictionaries without the placeholder in a string."""
        match value:
            case str():
                return value.replace(self._marks.placeholder, self._hidden)
            case Mapping():
                return {key: self._hide(each) for key, each in value.items()}
            case list() | tuple():
                return [self._hide(each) for each in value]
            case _:
                return value


def _text_parts(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}] if text else []
