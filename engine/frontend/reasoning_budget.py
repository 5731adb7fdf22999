"""Thoughts of one answer: told apart from its text, counted, and ended when their budget is used up.

The markers are found in the bytes of the tokens, because they may be several tokens, parts of tokens
or control tokens. A marker that the model has begun to write is completed, not written twice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from engine.frontend.constraints.resume_matcher import token_at
from engine.frontend.tokenizer.stream import TextStream
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import THOUGHT_ENDS, THOUGHT_OPENS
from engine.messages.reasoning_markers import ThoughtMarkers, ends_thought, is_code_open


@dataclass(frozen=True, slots=True)
class ThoughtPlan:
    """How an answer may think."""

    markers: ThoughtMarkers
    budget: int | None = None  # tokens; None: no limit
    begun: str = ""  # text of the answer that the prompt ends with, as the model writes it
    continued: bool = False  # it is an earlier answer's text, not the template's


class Phase(Enum):
    """Where in an answer its last token is."""

    BEGIN = auto()  # it may begin with thoughts
    THINKING = auto()
    ANSWER = auto()


@dataclass(frozen=True, slots=True)
class _Piece:
    raw: bytes
    shown: bytes  # the same, or nothing for a control token
    counted: bool


_LINE = 80  # bytes behind a marker in which a backtick may show that it is in code


class ThoughtStream:
    """Splits the tokens of an answer into thoughts and text, with the usual tags around thoughts."""

    def __init__(self, markers: ThoughtMarkers, tokenizer: Tokenizer, *, hides: bool) -> None:
        """`hides`: thoughts that begin in the stream are left out, with their markers."""
        self.phase = Phase.BEGIN
        self.tokens = 0  # of thoughts
        self._tokenizer, self._hides = tokenizer, hides
        self._opens, self._ends = markers.opens.encode(), markers.ends.encode()
        self._header, self._again = markers.header.encode(), markers.again.encode()
        self._held: deque[_Piece] = deque()  # may be part of a marker
        self._is_first = False  # the next piece is the first one of thoughts
        self._thought = bytearray()  # so far
        self._is_last = False  # no token follows
        self._decoder = TextStream(lambda token: b"")

    def push(self, token: int, *, counted: bool = True) -> str:
        """Add a token; returns the characters that cannot be part of a marker."""
        raw, shown = self._tokenizer.piece(token), self._tokenizer.shown_piece(token)
        self._held.append(_Piece(raw, shown, counted))
        text = ""
        while (more := self._advance()) is not None:
            text += more
        return text

    def flush(self) -> str:
        """The text still held at the end."""
        self._is_last = True
        text = ""
        while (more := self._advance()) is not None:
            text += more
        return text + self._released(len(self.held)) + self._decoder.flush()

    @property
    def held(self) -> bytes:
        """The bytes at the end that may be part of a marker."""
        return b"".join([piece.raw for piece in self._held])

    @property
    def held_tokens(self) -> int:
        """The tokens of these bytes that count where they turn out to be thoughts."""
        return sum(piece.counted for piece in self._held)

    def _advance(self) -> str | None:
        """One step: the text that is certain; None: there is no step without another token."""
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

    def _begin(self, raw: bytes) -> str | None:
        text = raw.lstrip()
        markers = [one for one in (self._opens, self._header) if one]
        found = next((one for one in markers if text.startswith(one)), None)
        if found is None:
            if any(one.startswith(text) for one in markers):
                return None
            self.phase = Phase.ANSWER
            return ""
        space = self._released(len(raw) - len(text))
        self._drop(len(found))
        self.phase = Phase.THINKING if found == self._opens else Phase.ANSWER
        self._is_first = True
        return space if found != self._opens or self._hides else space + THOUGHT_OPENS

    def _think(self, raw: bytes) -> str | None:
        markers = [one for one in (self._ends, self._again) if one]
        found = [(at, one) for one in markers if (at := raw.find(one)) >= 0]
        if not found:
            part = max(_overlap(raw, one) for one in markers)
            certain = len(raw) - part
            if part and not certain:
                return None
            text = self._released(certain)
            return "" if self._hides else text
        at, marker = min(found)
        if marker == self._ends and (is_end := self._is_end(raw, at)) is not True:
            if is_end is None:
                return None
            text = self._released(at + len(marker))
            return "" if self._hides else text
        text = self._released(at)
        self._drop(len(marker))
        self._decoder.reset()  # an incomplete character
        if marker != self._ends:
            return "" if self._hides else text + "\n\n"
        self.phase = Phase.ANSWER
        return "" if self._hides else text + THOUGHT_ENDS

    def _is_end(self, raw: bytes, at: int) -> bool | None:
        """Whether the marker in the held bytes ends thoughts, not one in code; None: not known yet."""
        before = (self._thought + raw[:at]).decode("utf-8", "replace")
        after = raw[at + len(self._ends) :]
        is_known = self._is_last or b"`" in after or b"\n" in after or len(after) > _LINE
        if before.rpartition("\n")[2].strip() and is_code_open(before) and not is_known:
            return None
        return ends_thought(before, after.decode("utf-8", "replace"))

    def _released(self, length: int) -> str:
        """The text of the first held bytes; tokens without bytes go with those before them."""
        text = ""
        while self._held and (len(self._held[0].raw) <= length or length):
            piece = self._held.popleft()
            if len(piece.raw) > length:
                piece, rest = _split(piece, length)
                self._held.appendleft(rest)
            length -= len(piece.raw)
            self._count(piece)
            text += self._decoder.push_bytes(piece.shown)
        return text

    def _count(self, piece: _Piece) -> None:
        """Count a token of thoughts, except the white space that belongs to the opening marker."""
        if self.phase is Phase.THINKING:
            self._thought += piece.raw
            is_marker = self._is_first and bool(piece.raw) and not piece.raw.strip()
            self.tokens += piece.counted and not is_marker
            self._is_first = False

    def _drop(self, length: int) -> None:
        """Remove the first held bytes: a marker."""
        while length:
            piece = self._held.popleft()
            if len(piece.raw) > length:
                rest = _split(piece, length)[1]
                self._held.appendleft(replace(rest, counted=piece.counted))
                return
            length -= len(piece.raw)


class Thoughts:
    """Follows the thoughts of one answer."""

    def __init__(
        self, plan: ThoughtPlan, tokenizer: Tokenizer, prompt: Sequence[int], *, is_bare: bool
    ) -> None:
        """`prompt` ends with `plan.begun`; `is_bare`: no white space is written around the marker
        that ends thoughts, because a constraint follows it or a text is banned.
        """
        self.seconds = 0.0  # of thinking
        self.is_exhausted = False  # the budget ended the thoughts
        self._plan, self._tokenizer, self._is_bare = plan, tokenizer, is_bare
        self._closing: deque[int] = deque()  # tokens of the marker that follow
        self._is_forced = False  # the next token is one of these
        self._log: list[tuple[int, bool]] = []  # tokens, and whether they are counted
        self._begun: list[int] = []
        if begun := plan.begun.encode("utf-8", "replace"):
            at = token_at(tokenizer, prompt, begun)
            known = at is not None
            self._begun = list(prompt[at:]) if known else tokenizer.encode_within(plan.begun)
        self._hides = plan.budget == 0 and not plan.continued
        self._counter = self._new_stream()
        markers = plan.markers
        # The text is the model's own where it uses the usual tags.
        is_own = markers.are_usual and not self._hides
        self.stream = None if is_own else self._new_stream()
        tags = (tokenizer.token_id(markers.opens), tokenizer.token_id(markers.ends))
        self.tags = frozenset(tag for tag in tags if tag is not None)  # shown if control tokens
        self._since = time.perf_counter() if self.is_thinking else 0.0
        self._answer_begin = 0  # number of generated tokens before the answer

    @property
    def is_thinking(self) -> bool:
        """Whether the next token is part of thoughts, or of the marker that ends them."""
        return self._counter.phase is Phase.THINKING

    @property
    def tokens(self) -> int:
        """Tokens of thoughts so far, without markers."""
        return self._counter.tokens

    def free_tokens(self, generated: int) -> int:
        """Of so many generated tokens those that the limit of the answer leaves out.

        Thoughts that have a limit themselves do not shorten the answer.
        """
        if self._plan.budget is None:
            return 0
        return generated if self.is_thinking else self._answer_begin

    @property
    def must_end(self) -> bool:
        """Whether the next token is one of the marker that ends thoughts."""
        if self._closing:
            return True
        budget, counter = self._plan.budget, self._counter
        if budget is None or not self.is_thinking:
            return False
        held = counter.held
        completes = self._plan.markers.ends.encode().startswith(held)
        return completes and counter.tokens + counter.held_tokens >= budget

    def is_marker(self, token: int) -> bool:
        """Whether a token that ends other answers is part of the marker that ends thoughts here."""
        if self._is_forced or not self.is_thinking:
            return self._is_forced
        markers = self._plan.markers.ends, self._plan.markers.again
        begun = self._counter.held + self._tokenizer.piece(token)
        return any(one.encode().startswith(begun) for one in markers)

    def forced(self) -> int | None:
        """The next token if it is one of the marker that ends thoughts."""
        if not self.must_end:
            return None
        if not self._closing:
            self._closing += self._closing_tokens()
            self.is_exhausted = True
        self._is_forced = True
        return self._closing.popleft()

    def push(self, token: int, generated: int) -> None:
        """Add a token, the last one of so many generated."""
        counted, self._is_forced = not self._is_forced, False
        self._log.append((token, counted))
        was = self._counter.phase
        if was is Phase.ANSWER:
            return
        self._counter.push(token, counted=counted)
        now = time.perf_counter()
        if was is Phase.THINKING and not self.is_thinking:
            self.seconds = now - self._since
            self._answer_begin = generated + len(self._closing)  # white space behind the marker
        elif was is Phase.BEGIN:
            self._since = now

    def begin(self, now: float) -> None:
        """The first token is drawn: thoughts that the prompt begins are timed from here."""
        self._since = now

    def finish(self) -> None:
        """The answer has ended, perhaps in its thoughts."""
        if self.is_thinking and self._log:
            self.seconds = time.perf_counter() - self._since

    def rewind(self, count: int) -> None:
        """Take the last tokens back."""
        del self._log[len(self._log) - count :]
        self._closing.clear()
        self._is_forced = False
        self._counter = self._new_stream()
        for token, counted in self._log:
            self._counter.push(token, counted=counted)
        if self.is_thinking:
            self.is_exhausted = False

    def _closing_tokens(self) -> list[int]:
        markers, held = self._plan.markers, self._counter.held
        before, marker, after = markers.closing.partition(markers.ends)
        if self._is_bare:
            before = after = ""
        rest = marker.encode()[len(held) :].decode("utf-8", "ignore") if held else before + marker
        return self._tokenizer.encode_within(rest + after, parse_special=True)

    def _new_stream(self) -> ThoughtStream:
        """A stream after the text that the prompt ends with."""
        made = ThoughtStream(self._plan.markers, self._tokenizer, hides=self._hides)
        for token in self._begun:
            made.push(token, counted=self._plan.continued)
        return made


def _split(piece: _Piece, length: int) -> tuple[_Piece, _Piece]:
    """The first bytes of a piece, and the others, which are no token of their own."""
    at = length if piece.shown else 0
    return (
        _Piece(piece.raw[:length], piece.shown[:at], piece.counted),
        _Piece(piece.raw[length:], piece.shown[at:], counted=False),
    )


def _overlap(raw: bytes, marker: bytes) -> int:
    """Length of the longest suffix of a text that is the beginning of a marker."""
    return next(
        (n for n in range(min(len(raw), len(marker) - 1), 0, -1) if marker.startswith(raw[-n:])), 0
    )
