"""Prompt scoring: log probabilities of the tokens of a given text, and logits after them.

Evaluations compare texts by them. The text is read in chunks between the passes of answers, and
stays cached like a prompt; a cached one is read again, because its logits were not kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Generator
from collections.abc import Sequence as Tokens
from functools import partial

import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.cancellation import Awaited
from engine.core.handle import RequestHandle
from engine.core.logprobs import shown, token_logprobs
from engine.core.reading import Checkpoint, States, TextReading
from engine.core.scheduler import Scheduler
from engine.errors import PromptTooLong, RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import LogitsRow, TokenLogprobs

_BLOCK = 16  # rows whose logits are in memory at once

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
        handle: RequestHandle | None = None,
        start: int = 0,
    ) -> Generator[Awaited, None, list[TokenLogprobs]]:
        """The tokens from `start` on, with their log probabilities and the `most` likely ones there.

        Nothing is before the first token: its log probability is 0, and no others are named. Yields
        what the scheduler ends. Raises Cancelled, RequestError, PromptTooLong and OutOfMemory.
        """
        self._check(ids)
        if most < 0 or not 0 <= start < len(ids):
            raise RequestError(
                f"Tokens from position {start} on were to be scored, and {most} others in each place.",
                "Give a position in the text, and 0 or more others.",
            )
        made: dict[int, TokenLogprobs] = {}

        def take(position: int, logits: Tensor) -> None:
            made[position] = token_logprobs(logits, ids[position + 1], most, self._tokenizer)

        if not start:
            made[-1] = TokenLogprobs(ids[0], shown(self._tokenizer, ids[0]), 0.0, ())
        positions = range(max(start - 1, 0), len(ids) - 1)
        yield from self._read(ids, positions, stack, handle, take)
        return list(made.values())

    def logits(
        self,
        ids: Tokens[int],
        positions: Tokens[int],
        most: int,
        stack: Stack = NO_ADAPTERS,
        handle: RequestHandle | None = None,
        *,
        with_pieces: bool = False,
    ) -> Generator[Awaited, None, list[LogitsRow]]:
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

        wanted = sorted(set(positions))
        yield from self._read(ids, wanted, stack, handle, take)
        return [made[at] for at in positions]

    def _read(
        self,
        ids: Tokens[int],
        positions: Tokens[int],
        stack: Stack,
        handle: RequestHandle | None,
        take: Take,
    ) -> Generator[Awaited, None, None]:
        """Read a text, and pass on the logits after its tokens at `positions`, which are sorted."""
        runner = self._scheduler.runner

        def take_logits(found: States, checkpoint: Checkpoint) -> None:
            start, end = found.start, found.start + len(found.hidden)
            first, last = (bisect_left(positions, at) for at in (start, end))
            for block in range(first, last, _BLOCK):
                checkpoint()
                places = positions[block : min(block + _BLOCK, last)]
                states = found.hidden[[place - start for place in places]]
                for place, row in zip(places, runner.logits(states, stack), strict=True):
                    take(place, row)

        yield from self._scheduler.read(
            TextReading(
                runner,
                self._scheduler.context,
                [ids],
                take_logits,
                stack,
                handle=handle,
                keep=partial(self._scheduler.tree.insert, stack.key),
            )
        )

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
