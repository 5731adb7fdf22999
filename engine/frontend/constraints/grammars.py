"""Grammars of one model: constraints compiled for its vocabulary, the last used ones kept."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Final

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from engine.errors import Busy, RequestError
from engine.frontend.constraints import refusal
from engine.frontend.constraints.library import LIMITS, guarded, library_tokenizer
from engine.frontend.constraints.mask_thread import Worker
from engine.frontend.constraints.source import body_of, check, combined
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.machine.background import BackgroundTask, NoStack
from engine.messages import Constraint

_KEPT = 8  # compiled grammars
_LONGEST_SECONDS = 10.0  # of a compilation, with the wait for others
_MOST_COMPILATIONS = 2  # at once, of all models
_POLL_SECONDS, _RETRY_SECONDS = 0.02, 2.0  # until others have ended
# Megabytes of the stack of the thread that compiles: the library calls itself for each of a chain
# of rules, at about 3 kB, and rules have eight characters at least. Memory is taken as it is used.
_LEAST_STACK, _MOST_STACK = 8, 512


class Grammar:
    """A constraint compiled for a vocabulary of V tokens."""

    def __init__(
        self,
        constraint: Constraint,
        source: str,
        tokenizer: LLTokenizer,
        worker: Callable[[], Worker],
    ) -> None:
        """`worker` is the one of its answers. Raises RequestError for a grammar that is refused."""
        self.constraint: Final = constraint
        self.worker: Final = worker
        self.words: Final = -(-tokenizer.vocab_size // 32)  # of a mask
        self._source = source
        self._tokenizer = tokenizer
        self._start = self.compiled()
        self._check_start()

    def compiled(self) -> LLMatcher:
        """A new state at the start of the text, which shares nothing with others."""

        def compiled() -> tuple[LLMatcher, str]:
            with guarded():
                made = LLMatcher(self._tokenizer, self._source, log_level=0, limits=LIMITS)
                return made, made.get_error()

        constraint = self.constraint
        megabytes = min(_LEAST_STACK + (len(self._source) >> 10), _MOST_STACK)
        try:
            task = BackgroundTask(compiled, "grammar library", megabytes << 20)
        except NoStack:
            reason = f"it needs a stack of {megabytes} MB, which the system does not give"
            raise refusal.refused(constraint.kind, reason, 1, 1) from None
        try:
            made, message = task.result()
        finally:
            task.wait()  # the library cannot be interrupted
        if message:
            raise refusal.from_library(constraint.kind, constraint.text, message)
        return made

    def start(self) -> LLMatcher:
        """A state at the start of the text; it shares the tables of the lexer with others."""
        with guarded():
            return self._start.deep_copy()

    def ids(self, text: str) -> list[int]:
        """Tokens of a text, control tokens included."""
        with guarded():
            return self._tokenizer.tokenize_str(text)

    def _check_start(self) -> None:
        """Refuse a grammar that no text can match."""
        first, constraint = self.start(), self.constraint
        mask = np.zeros(self.words, np.uint32)
        with guarded():
            first.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
            failed, accepts = first.get_error(), first.is_accepting()
            stopped = first.is_stopped()
        # The library's words for its limits: items, states of the lexer, and others.
        if any(words in failed.lower() for words in ("too many", "too complex")):
            raise refusal.refused(constraint.kind, "it is too complex", 1, 1)
        if failed or not (mask.any() or accepts) or (stopped and not accepts):
            raise refusal.refused(constraint.kind, "no text can match it", 1, 1)


class _Compilations:
    """The compilations that run, on threads of their own."""

    def __init__(self) -> None:
        self._tasks: list[BackgroundTask[Grammar]] = []
        self._lock = threading.Lock()

    def begin(self, work: Callable[[], Grammar], end: float) -> BackgroundTask[Grammar]:
        """Begin one as soon as there are not too many; raises Busy if there are until `end`."""
        while True:
            with self._lock:
                self._tasks = [task for task in self._tasks if not task.finished]
                if len(self._tasks) < _MOST_COMPILATIONS:
                    self._tasks.append(BackgroundTask(work, "grammar"))
                    return self._tasks[-1]
            if time.monotonic() > end:
                advice = "Try again a little later."
                raise Busy("Other grammars take long to compile.", advice, _RETRY_SECONDS)
            time.sleep(_POLL_SECONDS)


_compilations = _Compilations()


class Grammars:
    """Compiles constraints for one vocabulary; may be used by several threads."""

    def __init__(self, tokenizer: Tokenizer | None = None, vocabulary: int = 0) -> None:
        """`vocabulary` is the number of logits. Nothing is built before it is needed.

        Without a tokenizer the vocabulary is the single bytes.
        """
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._library: LLTokenizer | None = None
        self._kept: dict[Constraint, Grammar] = {}  # least recently used first
        self._worker: weakref.ref[Worker] | None = None
        self._lock = threading.Lock()

    def compile(self, constraint: Constraint) -> Grammar:
        """The compiled grammar, at once where it is known.

        Raises RequestError with line and column for one that is malformed or that no text can
        match, and for one that takes too long; Busy while too many others are compiled.
        """
        with self._lock:
            found = self._kept.pop(constraint, None)
            if found is not None:
                self._kept[constraint] = found
                return found
        check(constraint)
        end = time.monotonic() + _LONGEST_SECONDS

        def in_time() -> None:
            if time.monotonic() > end:
                task.abandon()
                raise refusal.refused(constraint.kind, "it takes too long to compile", 1, 1)

        task = _compilations.begin(lambda: self._compile(constraint), end)
        found = task.result(in_time)
        with self._lock:
            self._kept[constraint] = found
            while len(self._kept) > _KEPT:
                del self._kept[next(iter(self._kept))]
        return found

    def _compile(self, constraint: Constraint) -> Grammar:
        library = self._built()
        bodies = body_of(constraint, self._token_id)
        source = combined(constraint, bodies, self._control, self._controls())
        return Grammar(constraint, source, library, self.worker)

    def worker(self) -> Worker:
        """The worker of all answers, which exists while there are some."""
        with self._lock:
            found = None if self._worker is None else self._worker()
            if found is None:
                found = Worker()
                self._worker = weakref.ref(found)
            return found

    def _built(self) -> LLTokenizer:
        with self._lock:
            if self._library is None:
                self._library = (
                    LLTokenizer("byte")
                    if self._tokenizer is None
                    else library_tokenizer(self._tokenizer, self._vocabulary)
                )
            return self._library

    def _token_id(self, text: str) -> int | None:
        return None if self._tokenizer is None else self._tokenizer.token_id(text)

    def _controls(self) -> list[int]:
        """The control tokens that do not end an answer."""
        if (tokenizer := self._tokenizer) is None:
            return []
        ends = tokenizer.end_tokens
        return [
            token
            for token in range(tokenizer.size)
            if tokenizer.is_control(token) and token not in ends
        ]

    def _control(self, text: str) -> int | None:
        """The control token with this text, if there is one: such a token is no text."""
        token = self._token_id(text)
        if token is None or self._tokenizer is None or not self._tokenizer.is_control(token):
            return None
        return token


def too_complex(reason: str) -> RequestError:
    """The error of an answer whose grammar reached a limit of the library."""
    return RequestError(
        f"The grammar became too complex for the answer so far ({' '.join(reason.split())}).",
        "Simplify it: ambiguous rules and long bounded repetitions are the most expensive.",
    )
