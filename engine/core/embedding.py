"""Embeddings and ranking: texts to vectors of length 1, pairs of query and document to scores.

Vectors are pooled from the hidden states after the final norm; a score is what a head makes of one.
Means are sums of the same blocks, however a text is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from collections.abc import Sequence as Tokens
from typing import TypeVar

import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.cancellation import Awaited
from engine.core.handle import RequestHandle
from engine.core.reading import BLOCK, Checkpoint, States, TextReading
from engine.core.runner import Runner
from engine.core.scheduler import Scheduler
from engine.errors import ModelFileError, RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Pooling

T = TypeVar("T")


class Embedder:
    """Reads texts with one model; used by one thread at a time."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: Runner,
        tokenizer: Tokenizer,
        *,
        equal_ops: bool = False,
    ) -> None:
        """`runner` computes `Result.NORMED` or SCORES. With `equal_ops` an encoder that is interpreted
        gives a token the same bits in any batch too, as long as it has no adapters.
        """
        self.scheduler = scheduler
        self._runner = runner
        self._tokenizer = tokenizer
        self._context = scheduler.context
        self._equal_ops = equal_ops

    def tokens(
        self, texts: Tokens[str], on_cut: Callable[[], None] | None = None
    ) -> list[list[int]]:
        """The token ids of texts, in which control texts such as `<|im_end|>` are plain text.

        `on_cut` is called for each text of which only the beginning fits; None: it is refused.
        Raises RequestError for no texts, and for one that is empty or too long.
        """
        if not texts:
            raise RequestError("There is no text to embed.", "Give at least one.")
        made: list[list[int]] = []
        most = self._context
        for number, text in enumerate(texts, 1):
            ids = self._tokenizer.encode(text, parse_special=False)
            if on_cut is not None and len(ids) > most:
                last = ids[-1:] if self._tokenizer.add_eos else []  # it may be what is pooled
                ids = ids[: most - len(last)] + last
                on_cut()
            self.check_length(ids, f"Text {number}" if len(texts) > 1 else "The text")
            made.append(ids)
        return made

    def check_length(self, ids: Tokens[int], what: str) -> None:
        """Raise RequestError for a text, described by `what`, without tokens or with too many."""
        if not ids:
            raise RequestError(f"{what} is empty.", "Give each text at least one character.")
        if len(ids) > self._context:
            raise RequestError(
                f"{what} is too large: it has {len(ids):,} tokens, and the context of this model is "
                f"{self._context:,}.",
                "Split it, or load the model with a larger context if it has one.",
            )

    def vectors(
        self,
        texts: Tokens[Tokens[int]],
        pooling: Pooling,
        stack: Stack = NO_ADAPTERS,
        handle: RequestHandle | None = None,
    ) -> Generator[Awaited, None, list[tuple[float, ...]]]:
        """The vector [D] of each text, or with `Pooling.NONE` of each token; yields what the scheduler
        ends.

        Raises Cancelled, OutOfMemory, or ModelFileError where a model computes no finite numbers.
        """
        form = _rows if pooling is Pooling.NONE else _normalized
        found = yield from self._pooled(texts, pooling, stack, handle, form)
        return [row for rows in found for row in rows]

    def pairs(self, query: str, documents: Tokens[str], template: str) -> list[list[int]]:
        """The token ids of a query with each document, as the `template` has them; "": one of both.

        Control texts in them are plain text. Raises RequestError as `tokens` does.
        """
        tokenizer, made = self._tokenizer, []
        if not documents:
            raise RequestError("There is no document to score.", "Give at least one.")
        for number, document in enumerate(documents, 1):
            if template:
                values = {"{query}": query, "{document}": document}
                ids = tokenizer.encode_filled(template, values)
            else:
                ids = tokenizer.encode(query, parse_special=False)
                if tokenizer.separator is not None:
                    ids.append(tokenizer.separator)
                ids += tokenizer.encode(document, add_special=False, parse_special=False)
                if tokenizer.eos is not None and tokenizer.add_eos:
                    ids.append(tokenizer.eos)
            self.check_length(ids, f"Document {number} with the query")
            made.append(ids)
        return made

    def scores(
        self,
        pairs: Tokens[Tokens[int]],
        stack: Stack = NO_ADAPTERS,
        handle: RequestHandle | None = None,
    ) -> Generator[Awaited, None, list[float]]:
        """The score of each pair of query and document, by a runner of `Result.SCORES`.

        It yields and raises as `vectors` does.
        """
        model = self._runner.model
        ranking = model.ranking
        assert ranking is not None, "the model has no head that scores"
        pooling = Pooling.CLS if model.is_encoder else Pooling.LAST

        def form(values: Tensor, number: int) -> float:
            return _score(values, ranking.is_share, number)

        return (yield from self._pooled(pairs, pooling, stack, handle, form))

    def _pooled(
        self,
        texts: Tokens[Tokens[int]],
        pooling: Pooling,
        stack: Stack,
        handle: RequestHandle | None,
        form: Callable[[Tensor, int], T],
    ) -> Generator[Awaited, None, list[T]]:
        """What `form` makes of the pooled states [D] f64 of each text, of `Pooling.NONE` [T, D], and of
        its number.
        """
        pooled: Tensor | None = None  # of the text that is being read
        made: list[T] = []

        def take(found: States, checkpoint: Checkpoint) -> None:
            nonlocal pooled
            pooled = self._with(pooled if found.start else None, found.hidden, pooling, stack)
            length = len(texts[found.text])
            if found.start + len(found.hidden) == length:
                made.append(form(self._finished(pooled, length, pooling, stack), len(made) + 1))

        reading = TextReading(
            self._runner,
            self._context,
            texts,
            take,
            stack,
            equal_bits=self._equal_ops and stack.key == NO_ADAPTERS.key,
            handle=handle,
        )
        yield from self.scheduler.read(reading)
        return made

    def _with(
        self, before: Tensor | None, hidden: Tensor, pooling: Pooling, stack: Stack
    ) -> Tensor:
        """What is pooled of a text so far, and of its next hidden states [T, D]."""
        if pooling is Pooling.LAST:
            return hidden[-1:]
        if pooling is Pooling.CLS:
            return hidden[:1] if before is None else before
        states = self._runner.logits(hidden, stack).double()
        if pooling is Pooling.NONE:
            return states if before is None else torch.cat([before, states])
        total = torch.zeros_like(states[0]) if before is None else before
        for block in states.split(BLOCK):
            total = total + block.sum(0)
        return total

    def _finished(self, pooled: Tensor, tokens: int, pooling: Pooling, stack: Stack) -> Tensor:
        if pooling is Pooling.MEAN:
            return pooled / tokens
        if pooling is Pooling.NONE:
            return pooled
        return self._runner.logits(pooled, stack)[0].double()


def _score(values: Tensor, is_share: bool, number: int) -> float:
    """The score of a document from the values [n] f64 of its labels."""
    if not values.isfinite().all():
        raise _not_finite(f"document {number}")
    return float((values.softmax(0) if is_share else values)[0])


def _normalized(vector: Tensor, number: int) -> list[tuple[float, ...]]:
    """A vector [D] f64 with length 1, as float32 values; of length 0 it stays as it is."""
    length = float(vector.norm())
    if not vector.isfinite().all():
        raise _not_finite(f"text {number}")
    return [tuple((vector / (length or 1.0)).float().tolist())]


def _rows(states: Tensor, number: int) -> list[tuple[float, ...]]:
    """The states [T, D] f64 of tokens as float32 values."""
    if not states.isfinite().all():
        raise _not_finite(f"text {number}")
    return [tuple(row) for row in states.float().tolist()]


def _not_finite(what: str) -> ModelFileError:
    return ModelFileError(
        f"The model computes numbers that are not finite for {what}.",
        "The file is damaged or made by a faulty converter; get another copy.",
    )
