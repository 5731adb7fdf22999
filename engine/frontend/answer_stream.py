"""AnswerStream: the tokens of an answer as pieces of text and of thoughts, told apart once.

The markers of thoughts are found in the bytes of the tokens, because they may be several tokens,
parts of tokens or control tokens. Bytes that may be part of a marker are held. Joined, the texts of
the pieces are the answer with the usual tags around its thoughts.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import THOUGHT_ENDS, THOUGHT_OPENS
from engine.messages.reasoning_markers import ThoughtMarkers, ends_thought, is_code_open


class Kind(Enum):
    """What a piece of an answer is."""

    TEXT = auto()
    THOUGHT = auto()
    OPENS = auto()  # the tag before thoughts
    ENDS = auto()  # the tag behind them


Piece = tuple[Kind, str]
_OPENS, _ENDS = (Kind.OPENS, THOUGHT_OPENS), (Kind.ENDS, THOUGHT_ENDS)


class Phase(Enum):
    """Where in an answer its last token is."""

    BEGIN = auto()  # it may begin with thoughts
    THINKING = auto()
    ANSWER = auto()


@dataclass(frozen=True, slots=True)
class _Held:
    """A token, or a part of one, that may be part of a marker."""

    raw: bytes
    shown: bytes  # the same, or nothing for a control token
    counted: bool


_LINE = 80  # bytes behind a marker in which a backtick may show that it is in code


class AnswerStream:
    """Splits the tokens of one answer: `push` each of them, `flush` at the end."""

    def __init__(
        self,
        markers: ThoughtMarkers | None,
        tokenizer: Tokenizer,
        *,
        hides: bool = False,
        shown: Sequence[str] = (),
        calls_end: bool = False,
    ) -> None:
        """`markers` None: a text without thoughts. `hides`: thoughts that begin in the stream are
        left out, with their markers. `shown`: control tokens that are text. `calls_end`: where
        thoughts are a message of their own, one that is neither thoughts nor the answer ends them
        too, with its header as text.
        """
        self.phase = Phase.ANSWER if markers is None else Phase.BEGIN
        self.tokens = 0  # of thoughts
        self._tokenizer, self._hides = tokenizer, hides
        markers = markers or ThoughtMarkers()
        self._opens, self._ends = markers.opens.encode(), markers.ends.encode()
        self._header, self._again = markers.header.encode(), markers.again.encode()
        self._other = b""  # what any message behind thoughts begins with
        if calls_end and markers.again:
            self._other = markers.again.removesuffix(markers.opens).encode()
        self._is_usual = markers.are_usual
        # Control tokens that are shown: the model's own tags, where these are the usual ones.
        tags = list(shown)
        if markers.are_usual and not hides and self.phase is Phase.BEGIN:
            tags += markers.opens, markers.ends
        self._tags: Collection[int | None] = {tokenizer.token_id(one) for one in tags}
        self._begin_markers = {one[0] for one in (self._ends, self._again) if one}  # first bytes
        self._held: deque[_Held] = deque()
        self._is_first = False  # the next bytes are the first ones of thoughts
        self._thought = bytearray()  # so far
        self._is_last = False  # no token follows
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int, *, counted: bool = True) -> Sequence[Piece]:
        """Add a token; returns the pieces that cannot be part of a marker."""
        raw, shown = self._tokenizer.piece(token), self._tokenizer.shown_piece(token)
        if token in self._tags:
            shown = raw
        if not self._held:  # most tokens
            if self.phase is Phase.ANSWER:
                text = self._decoder.decode(shown)
                return ((Kind.TEXT, text),) if text else ()
            is_inside = self.phase is Phase.THINKING and not self._is_first
            if is_inside and self._begin_markers.isdisjoint(raw):
                self._thought += raw
                self.tokens += counted
                text = self._decoder.decode(shown)
                return ((Kind.THOUGHT, text),) if text and not self._hides else ()
        self._held.append(_Held(raw, shown, counted))
        return self._advanced()

    def push_all(self, tokens: Sequence[int]) -> list[Piece]:
        """Add tokens; returns the pieces that cannot be part of a marker."""
        pieces: list[Piece] = []
        for token in tokens:
            pieces += self.push(token)
        return pieces

    def flush(self, *, is_complete: bool = True) -> Sequence[Piece]:
        """The pieces still held at the end.

        An answer that is not complete may be continued: it keeps an incomplete character back, and
        what may be part of a marker that is not the usual tag.
        """
        if not (is_complete or self._is_usual):
            return ()
        self._is_last = True
        pieces = [*self._advanced(), *self._released(len(self.held))]
        if is_complete and (rest := self._decoder.decode(b"", final=True)):
            pieces += self._of_phase(rest)
        return pieces

    @property
    def held(self) -> bytes:
        """The bytes at the end that may be part of a marker."""
        return b"".join([each.raw for each in self._held])

    @property
    def held_tokens(self) -> int:
        """The tokens of these bytes that count where they turn out to be thoughts."""
        return sum(each.counted for each in self._held)

    def _advanced(self) -> list[Piece]:
        """The pieces that are certain without another token."""
        pieces: list[Piece] = []
        while (more := self._advance()) is not None:
            pieces += more
        return pieces

    def _advance(self) -> list[Piece] | None:
        """One step: the pieces that are certain; None: there is no step without another token."""
        if not self._held:
            return None
        raw = self.held
        match self.phase:
            case Phase.BEGIN:
                return self._begin(raw)
            case Phase.THINKING:
                return self._think(raw)
            case Phase.ANSWER:
                return self._released(len(raw))

    def _begin(self, raw: bytes) -> list[Piece] | None:
        text = raw.lstrip()
        markers = [one for one in (self._opens, self._header) if one]
        found = next((one for one in markers if text.startswith(one)), None)
        if found is None:
            if any(one.startswith(text) for one in markers):
                return None
            self.phase = Phase.ANSWER
            return []
        space = self._released(len(raw) - len(text))
        self._drop(len(found))
        self.phase = Phase.THINKING if found == self._opens else Phase.ANSWER
        self._is_first = True
        return space if found != self._opens or self._hides else [*space, _OPENS]

    def _think(self, raw: bytes) -> list[Piece] | None:
        markers = [one for one in (self._ends, self._again) if one]
        found = [(at, one) for one in markers if (at := raw.find(one)) >= 0]
        at = raw.find(self._other) if self._other else -1
        if at >= 0 and not (found and min(found)[0] <= at):
            if any(one.startswith(raw[at:]) for one in markers) and not self._is_last:
                return None
            pieces = self._released(at)
            self.phase = Phase.ANSWER
            return pieces if self._hides else [*pieces, _ENDS]
        if not found:
            part = max(_overlap(raw, one) for one in (*markers, self._other) if one)
            certain = len(raw) - part
            return None if part and not certain else self._released(certain)
        at, marker = min(found)
        if marker == self._ends and (is_end := self._is_end(raw, at)) is not True:
            return None if is_end is None else self._released(at + len(marker))
        pieces = self._released(at)
        self._drop(len(marker))
        self._decoder.reset()  # an incomplete character
        if marker != self._ends:
            return pieces + self._of_phase("\n\n")
        self.phase = Phase.ANSWER
        return pieces if self._hides else [*pieces, _ENDS]

    def _is_end(self, raw: bytes, at: int) -> bool | None:
        """Whether the marker in the held bytes ends thoughts, not one in code; None: not known yet."""
        before = (self._thought + raw[:at]).decode("utf-8", "replace")
        after = raw[at + len(self._ends) :]
        is_known = self._is_last or b"`" in after or b"\n" in after or len(after) > _LINE
        if before.rpartition("\n")[2].strip() and is_code_open(before) and not is_known:
            return None
        return ends_thought(before, after.decode("utf-8", "replace"))

    def _of_phase(self, text: str) -> list[Piece]:
        """A piece of what the answer is in now."""
        if self.phase is not Phase.THINKING:
            return [(Kind.TEXT, text)]
        return [] if self._hides else [(Kind.THOUGHT, text)]

    def _released(self, length: int) -> list[Piece]:
        """The text of the first held bytes; tokens without bytes go with those before them."""
        text = ""
        while self._held and (len(self._held[0].raw) <= length or length):
            each = self._held.popleft()
            if len(each.raw) > length:
                each, rest = _split(each, length)
                self._held.appendleft(rest)
            length -= len(each.raw)
            self._count(each)
            text += self._decoder.decode(each.shown)
        return self._of_phase(text) if text else []

    def _count(self, each: _Held) -> None:
        """Count a token of thoughts, except the white space that belongs to the opening marker."""
        if self.phase is Phase.THINKING:
            self._thought += each.raw
            is_marker = self._is_first and bool(each.raw) and not each.raw.strip()
            self.tokens += each.counted and not is_marker
            self._is_first = False

    def _drop(self, length: int) -> None:
        """Remove the first held bytes: a marker."""
        while length:
            each = self._held.popleft()
            if len(each.raw) > length:
                rest = _split(each, length)[1]
                self._held.appendleft(replace(rest, counted=each.counted))
                return
            length -= len(each.raw)


def _split(each: _Held, length: int) -> tuple[_Held, _Held]:
    """The first bytes of a token, and the others, which are no token of their own."""
    at = length if each.shown else 0
    return (
        _Held(each.raw[:length], each.shown[:at], each.counted),
        _Held(each.raw[length:], each.shown[at:], counted=False),
    )


def _overlap(raw: bytes, marker: bytes) -> int:
    """Length of the longest suffix of a text that is the beginning of a marker."""
    return next(
        (n for n in range(min(len(raw), len(marker) - 1), 0, -1) if marker.startswith(raw[-n:])), 0
    )
