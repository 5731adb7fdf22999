"""What a model says of a given text: log probabilities of its tokens, and logits after them.

Evaluations compare texts by them. The text is read in chunks between the passes of answers, and
stays cached like a prompt; a cached one is read again, because its logits were not kept.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Generator
from collections.abc import Sequence as Tokens

import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.logprobs import shown, token_logprobs
from engine.core.runner import Rows
from engine.core.scheduler import Scheduler
from engine.errors import OutOfMemory, PromptTooLong, RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import LogitsRow, TokenLogprobs
from engine.state.pages import OutOfPages
from engine.state.sequence import Sequence

_SHARED_TOKENS = 64  # read at once while answers are being generated
_BLOCK = 16  # rows whose logits are in memory at once
_STARVED_SECONDS, _POLL_SECONDS = 30.0, 0.005  # pages that are being saved are waited for

Checkpoint = Callable[[], None]
Take = Callable[[int, Tensor], None]  # a position, and the logits [V] after the token there


class PromptScorer:
    """Reads texts with the model of a scheduler, on its thread."""

    def __init__(self, scheduler: Scheduler, tokenizer: Tokenizer) -> None:
        self._scheduler = scheduler
        self._tokenizer = tokenizer

    def score(
        self,
        ids: Tokens[int],
        most: int,
        stack: Stack = NO_ADAPTERS,
        checkpoint: Checkpoint = lambda: None,
        start: int = 0,
    ) -> Generator[None, None, list[TokenLogprobs]]:
        """The tokens from `start` on, with their log probabilities and the `most` likely ones there.

        Nothing is before the first token: its log probability is 0, and no others are named. Yields
        between chunks. Raises what `checkpoint` raises, RequestError, PromptTooLong and OutOfMemory.
        """
        self._check(ids)
        if most < 0 or not 0 <= start < len(ids):
            raise RequestError(
                f"Tokens from position {start} on were to be scored, and {most} others in each place.",
                "Give a position in the text, and 0 or more others.",
            )
        made: list[TokenLogprobs] = []

        def take(position: int, logits: Tensor) -> None:
            made.append(token_logprobs(logits, ids[position + 1], most, self._tokenizer))

        if not start:
            made.append(TokenLogprobs(ids[0], shown(self._tokenizer, ids[0]), 0.0, ()))
        yield from self._read(ids, range(max(start - 1, 0), len(ids) - 1), stack, checkpoint, take)
        return made

    def logits(
        self,
        ids: Tokens[int],
        positions: Tokens[int],
        most: int,
        stack: Stack = NO_ADAPTERS,
        checkpoint: Checkpoint = lambda: None,
        *,
        with_pieces: bool = False,
    ) -> Generator[None, None, list[LogitsRow]]:
        """The `most` highest logits after the tokens at some positions; 0: all of them.

        Yields and raises as `score` does.
        """
        self._check(ids)
        if most < 0:
            raise RequestError(f"{most} logits were requested.", "Give 0 for all logits, or more.")
        if bad := [at for at in positions if not 0 <= at < len(ids)]:
            raise RequestError(
                f"There is no position {bad[0]} in a prompt of {len(ids)} tokens.",
                f"Give positions from 0 to {len(ids) - 1}.",
            )
        made: dict[int, LogitsRow] = {}

        def take(position: int, logits: Tensor) -> None:
            values, tokens = torch.sort(logits.cpu(), descending=True, stable=True)  # [V] each
            chosen: list[int] = tokens[: most or len(tokens)].tolist()
            pieces = (shown(self._tokenizer, token) for token in (chosen if with_pieces else ()))
            made[position] = LogitsRow(
                tuple(chosen), tuple(values[: len(chosen)].tolist()), tuple(pieces)
            )

        yield from self._read(ids, sorted(set(positions)), stack, checkpoint, take)
        return [made[at] for at in positions]

    def _read(
        self,
        ids: Tokens[int],
        positions: Tokens[int],
        stack: Stack,
        checkpoint: Checkpoint,
        take: Take,
    ) -> Generator[None, None, None]:
        """Read a text, and pass on the logits after its tokens at `positions`, which are sorted."""
        runner, pool = self._scheduler.runner, self._scheduler.pool
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
                    first, end = (bisect_left(positions, at) for at in (start, len(sequence)))
                    for block in range(first, end, _BLOCK):
                        checkpoint()
                        places = positions[block : min(block + _BLOCK, end)]
                        states = hidden[[place - start for place in places]]
                        for place, row in zip(places, runner.logits(states, stack), strict=True):
                            take(place, row)
                yield None
            self._scheduler.tree.insert(stack.key, sequence)
        finally:
            sequence.release()

    @property
    def _is_busy(self) -> bool:
        return self._scheduler.is_busy

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
