"""Matcher: the state of one answer's grammar, and the masks of tokens that may come next.

Masks are computed on a helper thread beside the forward pass, for the next token and for those
after each drafted one: `lookahead`. The library holds no lock of the interpreter meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.errors import RequestError
from engine.frontend.constraints.grammars import Grammar, too_complex
from engine.frontend.constraints.library import guarded
from engine.frontend.constraints.mask_thread import Task, Worker

Mask = NDArray[np.uint32]  # [ceil(V / 32)]; bit i % 32 of word i // 32 is that of token i


class Matcher:
    """Follows one answer; used by one thread, beside its own lookahead."""

    def __init__(self, grammar: Grammar) -> None:
        """At the start of the text."""
        self.grammar = grammar
        self.begin: int | None = None  # token of the whole text where the answer begins, if known
        self.worker: Worker = grammar.worker()
        self._state = grammar.start()
        self._tokens: list[int] = []  # accepted
        self._task: Task | None = None
        self._ahead: Sequence[int] = ()  # tokens that may be accepted next
        self._masks: list[Mask] = []  # for the next token, and after each of `_ahead`

    def fork(self) -> Matcher:
        """Another answer in the same state."""
        self.settle()
        made = Matcher.__new__(Matcher)
        made.grammar, made.begin, made.worker = self.grammar, self.begin, self.worker
        with guarded():
            made._state = self._state.deep_copy()
        made._tokens = list(self._tokens)
        made._task, made._ahead, made._masks = None, self._ahead, list(self._masks)
        return made

    # --- state ----------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        """Whether the answer may end here."""
        self.settle()
        with guarded():
            return self._state.is_accepting()

    @property
    def is_finished(self) -> bool:
        """Whether the answer must end here."""
        self.settle()
        with guarded():
            return self._state.is_stopped() and self._state.is_accepting()

    def accept(self, token: int) -> None:
        """The answer goes on with this token. Raises RequestError if the grammar forbids it."""
        self.settle()
        if self._ahead and self._ahead[0] == token:
            del self._masks[:1]
            self._ahead = self._ahead[1:]
        else:
            self._ahead, self._masks = (), []
        if not self._consume(token):
            self._rebuild()
            if not self._consume(token):
                raise too_complex(self._error())
        self._tokens.append(token)

    def read(self, tokens: Sequence[int]) -> None:
        """Accept the tokens of an answer that is continued. Raises RequestError if they do not fit."""
        for number, token in enumerate(tokens):
            if not self.allowed([token]):
                raise RequestError(
                    f"The answer so far does not match the {self.grammar.constraint.kind.value}, "
                    f"from its token {number + 1} on.",
                    "Let it be answered again, or continue it without the constraint.",
                )
            self.accept(token)

    def rollback(self, count: int) -> None:
        """Take the last `count` tokens back."""
        self.settle()
        self._ahead, self._masks = (), []
        if not count:
            return
        del self._tokens[len(self._tokens) - count :]
        with guarded():
            done = self._state.rollback(count) and not self._state.is_error()
        if not done:
            self._rebuild()

    # --- next tokens ----------------------------------------------------------------------------

    def mask(self) -> Mask:
        """The tokens that may come next, end tokens included. Raises RequestError at a limit."""
        self.settle()
        if not self._masks:
            found = self._computed()
            if found is None:
                self._rebuild()
                found = self._computed()
            if found is None:
                raise too_complex(self._error())
            self._masks = [found]
        return self._masks[0]

    def forced(self) -> list[int]:
        """The next tokens where the grammar leaves no choice of text, as a tokenizer spells it."""
        self.settle()
        with guarded():
            return self._state.compute_ff_tokens()

    def allowed(self, tokens: Sequence[int]) -> int:
        """How many of these tokens the grammar allows in turn."""
        self.settle()
        if not tokens:
            return 0
        with guarded():
            return self._state.validate_tokens(list(tokens))

    def look_ahead(self, draft: Sequence[int]) -> None:
        """Compute the masks for the next token and after each of a draft; called by `lookahead`."""
        self._ahead, self._masks = draft, []
        consumed = 0
        for token in (*draft, None):
            mask = self._computed()
            if mask is None:
                break
            self._masks.append(mask)
            if token is None or not self._consume(token):
                break
            consumed += 1
        with guarded():
            done = not consumed or self._state.rollback(consumed)
            failed = self._state.is_error()
        if failed or not done:
            self._rebuild()

    def expect(self, task: Task) -> None:
        """Wait for this task before the next use: it computes masks."""
        self._task = task

    def settle(self) -> None:
        """Wait for the lookahead."""
        task, self._task = self._task, None
        if task is not None:
            task.wait()

    # --- the library's state --------------------------------------------------------------------

    def _computed(self) -> Mask | None:
        """The mask of the current state; None if that is an error."""
        mask = np.zeros(self.grammar.words, np.uint32)
        with guarded():
            self._state.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            return None if self._state.is_error() else mask

    def _consume(self, token: int) -> bool:
        with guarded():
            return self._state.consume_token(token)

    def _error(self) -> str:
        with guarded():
            return self._state.get_error()

    def _rebuild(self) -> None:
        """The state of the accepted tokens again, after an error, which the library keeps.

        The tables that states of one grammar share may be full: this one has its own.
        """
        self._state = self.grammar.compiled()
        with guarded():
            if self._tokens and not self._state.consume_tokens(self._tokens):
                raise too_complex(self._state.get_error())


def lookahead(work: Sequence[tuple[Matcher, Sequence[int]]]) -> None:
    """Compute the next masks of several answers, each with its draft, on a helper thread."""
    if not work:
        return
    for matcher, _ in work:
        matcher.settle()  # of a pass that failed

    def compute() -> None:
        for matcher, draft in work:
            matcher.look_ahead(draft)

    task = work[0][0].worker.do(compute)
    for matcher, _ in work:
        matcher.expect(task)
