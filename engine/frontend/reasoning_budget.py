"""Thoughts of one answer: counted, timed, and ended when their budget is used up.

A marker that the model has begun to write is completed, not written twice.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from engine.frontend.answer_stream import AnswerStream, Phase, Piece
from engine.frontend.constraints.resume_matcher import token_at
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages.reasoning_markers import ThoughtMarkers


@dataclass(frozen=True, slots=True)
class ThoughtPlan:
    """How an answer may think."""

    markers: ThoughtMarkers
    budget: int | None = None  # tokens; None: no limit
    begun: str = ""  # text of the answer that the prompt ends with, as the model writes it
    continued: bool = False  # it is an earlier answer's text, not the template's
    shown: tuple[str, ...] = ()  # control tokens that are text: markers of tool calls
    calls_end: bool = False  # a message of a tool call ends thoughts: see AnswerStream


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
        self._counter = self.new_stream()
        self._since = time.perf_counter() if self.is_thinking else 0.0
        self._answer_begin = 0  # number of generated tokens before the answer

    @property
    def is_thinking(self) -> bool:
        """Whether the next token is part of thoughts, or of the marker that ends them."""
        return self._counter.phase is Phase.THINKING

    @property
    def has_budget(self) -> bool:
        """Whether tokens of the marker that ends thoughts may be forced."""
        return self._plan.budget is not None

    @property
    def continues_thoughts(self) -> bool:
        """Whether the prompt ends in thoughts that are shown, and of which an answer is continued."""
        return self._plan.continued and self.is_thinking

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

    def push(self, token: int, generated: int) -> Sequence[Piece]:
        """Add a token, the last one of so many generated; returns the pieces that are certain."""
        counted, self._is_forced = not self._is_forced, False
        self._log.append((token, counted))
        counter = self._counter
        was = counter.phase
        pieces = counter.push(token, counted=counted)
        if was is Phase.BEGIN:
            self._since = time.perf_counter()
        elif was is Phase.THINKING and counter.phase is not was:
            self.seconds = time.perf_counter() - self._since
            self._answer_begin = generated + len(self._closing)  # white space behind the marker
        return pieces

    def flush(self, *, is_complete: bool) -> Sequence[Piece]:
        """The pieces still held at the end; see `AnswerStream.flush`."""
        return self._counter.flush(is_complete=is_complete)

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
        self._counter = self.new_stream()
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

    def new_stream(self) -> AnswerStream:
        """A stream after the text that the prompt ends with."""
        plan = self._plan
        made = AnswerStream(
            plan.markers,
            self._tokenizer,
            hides=self._hides,
            shown=plan.shown,
            calls_end=plan.calls_end,
        )
        for token in self._begun:
            made.push(token, counted=self._plan.continued)
        return made
