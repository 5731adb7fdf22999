"""Growing text: the parts of an answer to which a model adds text.

What is added is looked at once: it goes to the last part, and only a tag of thoughts makes the
parts be told apart anew. The text of the last part is kept in pieces, which are joined when it is
read, so that adding to a long answer costs what adding to a short one costs.
"""

from __future__ import annotations

from typing import TypeVar

from app.domain.parts import Parts, TextPart, ThoughtPart, prompt_text, split, without_error
from engine import THOUGHT_ENDS, THOUGHT_OPENS

T = TypeVar("T")

_TAG = "think>"  # how both tags end
_BEGUN = len(_TAG) - 1  # most characters of that which a text can end with


class _Pieces:
    """The pieces of a text, shared by all values of it: each has those that it had when made."""

    __slots__ = ("_count", "_shared", "tail")

    def __init__(self, shared: list[str], tail: str) -> None:
        self._shared, self._count = shared, len(shared)
        self.tail = tail  # the last characters, with which a tag may have begun

    def added(self, text: str) -> _Pieces:
        """The pieces of a longer text."""
        if self._count != len(self._shared):  # another text was added to the same one before
            self._shared = self._shared[: self._count]
        self._shared.append(text)
        return _Pieces(self._shared, (self.tail + text[-_BEGUN:])[-_BEGUN:])

    def joined(self) -> str:
        """The text."""
        if self._count > 1:
            joined = "".join(self._shared[: self._count])
            self._shared, self._count = [joined], 1
        return self._shared[0]


class _Growing:
    """A part whose text is joined when it is read; equal to the plain part with that text."""

    __slots__ = ()
    pieces: _Pieces

    @property
    def text(self) -> str:
        """All characters so far."""
        return self.pieces.joined()

    def __eq__(self, other: object) -> bool:
        return plain(self) == plain(other)

    def __hash__(self) -> int:
        return hash(plain(self))


class _GrowingText(_Growing, TextPart):  # pyright: ignore[reportIncompatibleVariableOverride]
    __slots__ = ("pieces",)

    def __init__(self, pieces: _Pieces) -> None:
        object.__setattr__(self, "pieces", pieces)


class _GrowingThought(_Growing, ThoughtPart):  # pyright: ignore[reportIncompatibleVariableOverride]
    __slots__ = ("pieces",)

    def __init__(self, pieces: _Pieces, opens: str) -> None:
        object.__setattr__(self, "pieces", pieces)
        object.__setattr__(self, "opens", opens)
        object.__setattr__(self, "ends", "")


def append_text(parts: Parts, text: str) -> Parts:
    """The parts of an answer to which a model has added text; its error is dropped.

    They are those of the whole text, however it arrived; the cost does not grow with it.
    """
    parts = without_error(parts)
    if not text:
        return parts
    last = parts[-1] if parts else None
    if isinstance(last, _GrowingText | _GrowingThought) and _TAG not in last.pieces.tail + text:
        grown = last.pieces.added(text)
        is_text = isinstance(last, _GrowingText)
        new = _GrowingText(grown) if is_text else _GrowingThought(grown, last.opens)
        return (*parts[:-1], new)
    parts = _told_apart(parts, text)
    growing = prompt_text(parts[growing_part_index(parts) :])
    if _TAG in growing[growing.rfind("\n") + 1 :]:  # the rest of its line may make it code
        return parts
    match parts[-1]:
        case TextPart(said):
            return (*parts[:-1], _GrowingText(_Pieces([said], growing[-_BEGUN:])))
        case ThoughtPart(thought, opens, ""):
            return (*parts[:-1], _GrowingThought(_Pieces([thought], growing[-_BEGUN:]), opens))
        case _:
            return parts


def _told_apart(parts: Parts, text: str) -> Parts:
    """The parts with more text, by looking for tags in all that may still change."""
    at = growing_part_index(parts)
    while at and isinstance(parts[at - 1], TextPart | ThoughtPart):
        # A tag in a text before may be that of a thought, if one ends it now.
        is_open = any(isinstance(p, TextPart) and THOUGHT_OPENS in p.text for p in parts[:at])
        if not is_open and "\n" in prompt_text(parts[at:]).partition(THOUGHT_ENDS)[2]:
            break
        at = growing_part_index(parts[:at])  # the line of a tag is not complete: it may be in code
    return (*parts[:at], *split(prompt_text(parts[at:]) + text))


def growing_part_index(parts: Parts) -> int:
    """Where the last thought and the text after it begin, to which a model adds text."""
    at = len(parts)
    while at and isinstance(parts[at - 1], TextPart):
        at -= 1
    return at - 1 if at and isinstance(parts[at - 1], ThoughtPart) else at


def plain(part: T) -> T | TextPart | ThoughtPart:
    """A part whose text grows as one that does not; anything else as it is."""
    match part:
        case _GrowingText():
            return TextPart(part.text)
        case _GrowingThought():
            return ThoughtPart(part.text, part.opens, part.ends)
        case _:
            return part
