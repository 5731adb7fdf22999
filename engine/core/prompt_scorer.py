"""Log probabilities of the tokens of a given text, each after the tokens before it.

Evaluations compare texts by them. The text is read in chunks between the passes of answers, and
stays cached like a prompt; a cached one is read again, because its logits were not kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from collections.abc import Sequence as Tokens

from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.logprobs import token_logprobs
from engine.core.runner import Rows
from engine.core.scheduler import Scheduler
from engine.errors import OutOfMemory, PromptTooLong, RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import TokenLogprobs
from engine.state.pages import OutOfPages
from engine.state.sequence import Sequence

_SHARED_TOKENS = 64  # read at once while answers are being generated
_BLOCK = 16  # rows whose logits are in memory at once
_STARVED_SECONDS, _POLL_SECONDS = 30.0, 0.005  # pages that are being saved are waited for

Checkpoint = Callable[[], None]


class PromptScorer:
    """Scores texts with the model of a scheduler, on its thread."""

    def __init__(self, scheduler: Scheduler, tokenizer: Tokenizer) -> None:
        self._scheduler = scheduler
        self._tokenizer = tokenizer

    def score(
        self,
        ids: Tokens[int],
        most: int,
        stack: Stack = NO_ADAPTERS,
        checkpoint: Checkpoint = lambda: None,
    ) -> Generator[None, None, list[TokenLogprobs]]:
        """The tokens [T] with their log probabilities and the `most` likely ones in their places.

        Nothing is before the first token: its log probability is 0, and no others are named. Yields
        between chunks. Raises what `checkpoint` raises, RequestError, PromptTooLong and OutOfMemory.
        """
        self._check(ids)
        runner, pool = self._scheduler.runner, self._scheduler.pool
        text = self._tokenizer.piece(ids[0]).decode("utf-8", "replace")
        made = [TokenLogprobs(ids[0], text, 0.0, ())]
        sequence = Sequence(pool, self._scheduler.context)
        since = time.monotonic()
        try:
            while len(sequence) < len(ids):
                checkpoint()
                start = len(sequence)
                size = min(runner.chunk, _SHARED_TOKENS) if self._is_busy else runner.chunk
                rows = Rows(sequence, ids[start : start + size], stack)
                try:
                    self._make_room(sequence.bytes_to_append(len(rows.tokens)))
                    hidden = runner.hidden([rows], checkpoint)[0]
                except OutOfPages:
                    if not self._is_busy and time.monotonic() - since > _STARVED_SECONDS:
                        raise _no_memory() from None
                    time.sleep(0 if self._is_busy else _POLL_SECONDS)
                else:
                    since = time.monotonic()
                    made += self._rows(hidden, ids[start + 1 :], most, stack)
                yield None
            self._scheduler.tree.insert(stack.key, sequence)
        finally:
            sequence.release()
        return made

    @property
    def _is_busy(self) -> bool:
        return self._scheduler.is_busy

    def _rows(
        self, hidden: Tensor, following: Tokens[int], most: int, stack: Stack
    ) -> list[TokenLogprobs]:
        """Log probabilities of the tokens after those with the hidden states [T, D]."""
        made: list[TokenLogprobs] = []
        for start in range(0, min(len(hidden), len(following)), _BLOCK):
            logits = self._scheduler.runner.logits(hidden[start : start + _BLOCK], stack)  # [T, V]
            tokens = following[start : start + len(logits)]
            for row, token in zip(logits, tokens, strict=False):
                made.append(token_logprobs(row, token, most, self._tokenizer))
        return made

    def _check(self, ids: Tokens[int]) -> None:
        if not ids:
            raise RequestError("The text is empty.", "Give at least one token.")
        if bad := [token for token in ids if not 0 <= token < self._tokenizer.size]:
            raise RequestError(
                f"The token id {bad[0]} is not in this model's vocabulary of "
                f"{self._tokenizer.size:,}.",
                "Give ids from 0 up to one less than that.",
            )
        if len(ids) > (context := self._scheduler.context):
            raise PromptTooLong(
                f"The text has {len(ids):,} tokens, and the model can take in {context:,}.",
                "Shorten it, or load the model with a larger context.",
            )

    def _make_room(self, size_bytes: int) -> None:
        """Evict cached pages; raises OutOfPages where answers need those that are left."""
        if not self._scheduler.tree.evict(size_bytes):
            raise OutOfPages


def _no_memory() -> OutOfMemory:
    return OutOfMemory(
        "There is no memory for the text: the KV pages are all in use.",
        "Try again, or close other programs.",
    )
