"""Embeddings and ranking: texts to vectors of length 1, pairs of query and document to scores.

Vectors are pooled from the hidden states after the final norm; a score is what a head makes of one.

Each text is a sequence of its own, whose pages are freed at once. Only programs that give a token
the same bits in any batch read texts together, or in shorter passes while answers are generated;
and means are sums of the same blocks. So a text has the same vector alone and among others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from collections.abc import Sequence as Tokens

import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.core.metrics import Metrics
from engine.core.runner import MOST_TEXTS, Rows, Runner
from engine.errors import ModelFileError, OutOfMemory, RequestError
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.messages import Pooling
from engine.state.pages import OutOfPages, PagePool
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence
from kernels.states.kv_pages import PAGE_TOKENS

_SHARED_SECONDS = 0.12  # of a pass while answers are being generated
_UNKNOWN_SECONDS = 1e-3  # per token, before the first pass was measured
_BLOCK = 16  # tokens that are summed together; passes are multiples of it
_STARVED_SECONDS, _POLL_SECONDS = 30.0, 0.005  # pages that are being saved are waited for

Checkpoint = Callable[[], None]


class Embedder:
    """Reads texts with one model; used by one thread at a time."""

    def __init__(
        self,
        runner: Runner,
        tokenizer: Tokenizer,
        context: int,
        pool: PagePool,
        tree: PrefixTree | None = None,
        is_busy: Callable[[], bool] = lambda: False,
        metrics: Callable[[], Metrics] | None = None,
        *,
        equal_ops: bool = False,
    ) -> None:
        """`runner` computes `Result.NORMED` or SCORES. With `equal_ops` an encoder that is interpreted
        gives a token the same bits in any batch too, as long as it has no adapters.

        The pages of `tree` are evicted where none are free. `is_busy` is whether answers hold pages
        of the pool, which they give back when they end. `metrics` count what is read.
        """
        self._runner = runner
        self._tokenizer = tokenizer
        self._context = context
        self._pool = pool
        self._tree = tree
        self._is_busy = is_busy
        self._metrics, self._equal_ops = metrics, equal_ops
        self.is_beside = False  # another model takes turns with this one
        self._token_seconds = _UNKNOWN_SECONDS  # running mean

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
        checkpoint: Checkpoint = lambda: None,
    ) -> Generator[None, None, list[tuple[float, ...]]]:
        """The vector [D] of each text, or with `Pooling.NONE` of each token; yields between passes.

        Raises what `checkpoint` raises, OutOfMemory, or ModelFileError where a model computes no
        finite numbers.
        """
        made: list[tuple[float, ...]] = []
        for group in self._groups(texts, stack):
            for pooled in (yield from self._pooled(group, pooling, stack, checkpoint)):
                if pooling is Pooling.NONE:
                    made += _rows(pooled)
                else:
                    made.append(_normalized(pooled, len(made) + 1))
        return made

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
        checkpoint: Checkpoint = lambda: None,
    ) -> Generator[None, None, list[float]]:
        """The score of each pair of query and document, by a runner of `Result.SCORES`.

        It yields and raises as `vectors` does.
        """
        model = self._runner.model
        assert model.ranking is not None, "the model has no head that scores"
        pooling, made = Pooling.CLS if model.is_encoder else Pooling.LAST, []
        for group in self._groups(pairs, stack):
            for values in (yield from self._pooled(group, pooling, stack, checkpoint)):
                made.append(_score(values, model.ranking.is_share, len(made) + 1))
        return made

    def _groups(self, texts: Tokens[Tokens[int]], stack: Stack) -> Iterator[list[Tokens[int]]]:
        """Texts in the order given, as many together as fit in one pass."""
        count = 1
        if self._has_equal_bits(stack):
            paged = not self._runner.model.is_encoder
            count = min(self._context // PAGE_TOKENS if paged else MOST_TEXTS, MOST_TEXTS)
        group: list[Tokens[int]] = []
        for text in texts:
            most = self._tokens_at_once(stack)
            fits = len(group) < count and sum(map(len, group)) + len(text) <= most
            if group and not fits:
                yield group
                group = []
            group.append(text)
        if group:
            yield group

    def _tokens_at_once(self, stack: Stack) -> int:
        """Tokens of a pass: fewer while answers wait for it, where the cuts change no bit."""
        most = self._context if self._runner.model.is_encoder else self._runner.chunk
        if not (self._is_shared() and self._has_equal_bits(stack)):
            return most
        fitting = int(_SHARED_SECONDS / self._token_seconds) // _BLOCK * _BLOCK
        return min(max(fitting, _BLOCK), most)

    def _has_equal_bits(self, stack: Stack) -> bool:
        """Whether a token gets the same bits in any batch."""
        equal = self._equal_ops and stack.key == NO_ADAPTERS.key
        return equal or self._runner.has_equal_bits(stack)

    def _pooled(
        self, texts: list[Tokens[int]], pooling: Pooling, stack: Stack, checkpoint: Checkpoint
    ) -> Generator[None, None, list[Tensor]]:
        """The pooled states [D] f64 of each text, of `Pooling.NONE` [T, D]; read again where pages ran
        out.
        """
        since = time.monotonic()
        while True:
            checkpoint()
            try:
                return (yield from self._read(texts, pooling, stack, checkpoint))
            except OutOfPages:
                pass
            if len(texts) > 1:
                alone: list[Tensor] = []
                for text in texts:
                    alone += yield from self._pooled([text], pooling, stack, checkpoint)
                return alone
            if self._is_shared():
                since = time.monotonic()
            elif time.monotonic() - since > _STARVED_SECONDS:
                raise OutOfMemory(
                    "There is no memory for the text: the KV pages are all in use.",
                    "Try again, or close other programs.",
                )
            else:
                time.sleep(_POLL_SECONDS)
            yield None

    def _read(
        self, texts: list[Tokens[int]], pooling: Pooling, stack: Stack, checkpoint: Checkpoint
    ) -> Generator[None, None, list[Tensor]]:
        """Read texts in chunks, all of them in one pass unless there is only one."""
        if self._runner.model.is_encoder:
            started = time.perf_counter()
            states = self._runner.read_texts(texts, stack, checkpoint)
            self._on_pass(texts, time.perf_counter() - started)
            yield None
            return [
                self._finished(self._with(None, hidden, pooling, stack), len(text), pooling, stack)
                for text, hidden in zip(texts, states, strict=True)
            ]
        sequences = [Sequence(self._pool, self._context) for _ in texts]
        pooled: list[Tensor | None] = [None for _ in texts]
        try:
            pairs = zip(sequences, texts, strict=True)
            self._make_room(sum(one.bytes_to_append(len(text)) for one, text in pairs))
            start, longest = 0, max(map(len, texts))
            while start < longest:
                checkpoint()
                end = start + (longest if len(texts) > 1 else self._tokens_at_once(stack))
                started = time.perf_counter()
                batch = [
                    Rows(sequence, text[start:end], stack)
                    for sequence, text in zip(sequences, texts, strict=True)
                ]
                for at, hidden in enumerate(self._runner.hidden(batch, checkpoint)):
                    pooled[at] = self._with(pooled[at], hidden, pooling, stack)
                self._on_pass([rows.tokens for rows in batch], time.perf_counter() - started)
                start = end
                yield None
                self._make_room(self._pool.layout.bytes_per_page)
        finally:
            for sequence in sequences:
                sequence.release()
        return [
            self._finished(one, len(text), pooling, stack)
            for one, text in zip(pooled, texts, strict=True)
            if one is not None
        ]

    def _on_pass(self, texts: Tokens[Tokens[int]], seconds: float) -> None:
        """A pass over these tokens took so long."""
        tokens = sum(map(len, texts))
        self._token_seconds = (self._token_seconds + seconds / tokens) / 2
        if self._metrics is not None:
            metrics = self._metrics()
            metrics.on_pass(len(texts))
            metrics.embedded_tokens += tokens

    def _is_shared(self) -> bool:
        """Whether passes should be short, since others wait for them."""
        return self.is_beside or self._is_busy()

    def _make_room(self, size_bytes: int) -> None:
        """Evict cached pages; raises OutOfPages where answers need those that are left."""
        if self._tree is None or self._tree.evict(size_bytes) or not self._is_busy():
            return
        raise OutOfPages

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
        for block in states.split(_BLOCK):
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


def _normalized(vector: Tensor, number: int) -> tuple[float, ...]:
    """A vector [D] f64 with length 1, as float32 values; of length 0 it stays as it is."""
    length = float(vector.norm())
    if not vector.isfinite().all():
        raise _not_finite(f"text {number}")
    return tuple((vector / (length or 1.0)).float().tolist())


def _rows(states: Tensor) -> list[tuple[float, ...]]:
    """The states [T, D] f64 of tokens as float32 values."""
    if not states.isfinite().all():
        raise _not_finite("a text")
    return [tuple(row) for row in states.float().tolist()]


def _not_finite(what: str) -> ModelFileError:
    return ModelFileError(
        f"The model computes numbers that are not finite for {what}.",
        "The file is damaged or made by a faulty converter; get another copy.",
    )
