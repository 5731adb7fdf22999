"""Drafting ahead: a draft model on a thread of its own, while the target verifies what it has drafted.

A line of drafted tokens goes on from the text as if the target accepted all of it. Where the target
draws another token, the line is dropped and one from the new text begins; nobody waits for it.

Source: Liu et al. 2024, Parallel Speculative Decoding with Adaptive Draft Length (PEARL).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from engine.core.prompt import common_length
from engine.sampling import Sampler
from engine.speculative.draft_model import DraftModel, DraftSequence
from engine.speculative.drafter import Draft
from kernels import backends

log = logging.getLogger(__name__)
_MOST_AHEAD = 32  # drafted tokens that are not verified yet


@dataclass(slots=True, eq=False)
class _Line:
    """Drafted tokens after a text; the worker adds to it while it is a drafter's current one."""

    text: list[int]
    tokens: list[int] = field(default_factory=list)
    used: int = 0  # of the tokens, those that the text has taken over
    ended: bool = False  # nothing likely follows, or there is no room

    @property
    def needs_work(self) -> bool:
        return not self.ended and len(self.tokens) - self.used < _MOST_AHEAD

    def follow(self, text: Sequence[int]) -> bool:
        """Whether the text goes on as the line does, so far."""
        known = len(self.text) + self.used
        new = text[known:]
        if list(new) != self.tokens[self.used : self.used + len(new)]:
            return False
        self.used += len(new)
        return True


class AheadDrafter:
    """The drafter of one answer: takes what the worker has drafted by then."""

    costs_nothing = True  # to the engine thread; what it takes from the passes is measured
    runs_ahead = True
    priors = (0.7,)

    def __init__(self, worker: AheadWorker, sampler: Sampler) -> None:
        self._worker = worker
        self._sequence = DraftSequence(worker.model, sampler)
        self._line: _Line | None = None  # None: nothing to draft now
        self._processed: list[int] = []  # text and drafted tokens that the sequence follows
        self._drawn: tuple[_Line, Tensor] | None = None  # logits after a line's last token
        self._left = 1  # tokens of the text that are to be processed before the next part
        self._error: BaseException | None = None
        self.is_closed = False

    def draft(self, text: Sequence[int], most: int) -> Draft:
        """What is drafted after the text, at most `most` tokens; raises the worker's error."""
        with self._worker.condition:
            if self._error is not None:
                raise self._error
            if self._line is None or not self._line.follow(text):
                self._line = _Line(list(text))
            line = self._line
            self._worker.condition.notify_all()
            return Draft(line.tokens[line.used : line.used + most], is_behind=self._left > 0)

    def pause(self) -> None:
        """Draft nothing until the next call of `draft`."""
        with self._worker.condition:
            self._line = None

    def rewind(self, length: int) -> None:
        """The text was cut to `length` tokens."""
        self.pause()

    def close(self) -> None:
        """Let the worker keep what is cached for the next answer in this conversation."""
        with self._worker.condition:
            self._line, self.is_closed = None, True
            self._worker.condition.notify_all()

    # --- on the worker's thread -------------------------------------------------------------------

    @property
    def needs_work(self) -> bool:
        """Whether the worker has something to do; the caller holds the condition."""
        return self._line is not None and self._line.needs_work and self._error is None

    def advance(self) -> None:
        """Process a part of the text, or draft one token."""
        with self._worker.condition:
            line = self._line
            if line is None:
                return
            tokens = [*line.text, *line.tokens]
        try:
            self._advance(line, tokens)
        except BaseException as error:  # noqa: BLE001  the answer goes on without drafts
            with self._worker.condition:
                self._error = error

    def finish(self) -> None:
        """After `close`: give the pages back."""
        try:
            self._sequence.close()
        except Exception:
            log.exception("a draft's text could not be closed")

    def _advance(self, line: _Line, tokens: list[int]) -> None:
        logits = self._drawn[1] if self._drawn and self._drawn[0] is line else None
        if logits is None:
            found = self._process(tokens)
            if isinstance(found, int):
                self._left = max(found, 0)
                line.ended = found < 0
                return
            self._left, logits = 0, found
        token = self._sequence.likely(logits, tokens)
        self._drawn = None
        if token is None:
            line.ended = True
            return
        with self._worker.condition:
            line.tokens.append(token)
        if self._worker.model.vocabulary.ends(token):
            line.ended = True
        elif len(line.tokens) % _MOST_AHEAD:  # then there is room that was reserved
            self._drawn = line, self._sequence.step(token)
            self._processed.append(token)

    def _process(self, tokens: list[int]) -> Tensor | int:
        """The logits after these tokens, or how many are left; see `DraftSequence.process`."""
        common = common_length(self._processed, tokens)
        self._sequence.cut(common)
        self._sequence.append(tokens)
        self._processed = tokens
        return self._sequence.process(_MOST_AHEAD)


class AheadWorker:
    """The thread of one draft model; serves the drafters of all answers in turn."""

    def __init__(self, model: DraftModel) -> None:
        """`model` is used by no other thread from now on."""
        self.model = model
        self.condition = threading.Condition()
        self._drafters: list[AheadDrafter] = []  # the one served last comes last
        self._is_stopping = False
        self._is_serving = False
        self._thread = threading.Thread(target=self._run, name="draft", daemon=True)
        self._thread.start()

    def drafter(self, sampler: Sampler) -> AheadDrafter:
        """The drafter of one answer, which `sampler` draws."""
        made = AheadDrafter(self, sampler)
        with self.condition:
            self._drafters.append(made)
        return made

    def close(self) -> None:
        """End the thread after the token it drafts; drafters propose nothing more."""
        with self.condition:
            self._is_stopping = True
            self.condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            with backends.alone():
                while (work := self._next()) is not None:
                    work()
        except BaseException:
            log.exception("drafting ahead has ended")

    def _next(self) -> Callable[[], None] | None:
        """What to do next for one of the drafters, waiting for it; None: the thread ends."""
        with self.condition:
            self._is_serving = False
            while not self._is_stopping:
                for drafter in self._drafters:
                    if drafter.is_closed or drafter.needs_work:
                        self._is_serving = True
                        self._drafters.remove(drafter)
                        if drafter.is_closed:
                            return drafter.finish
                        self._drafters.append(drafter)
                        return drafter.advance
                self.condition.wait()
            return None
