"""TextReader: what one model says of given texts: vectors, scores, log probabilities and logits.

Texts are read between the passes of answers, over the KV pages of the same scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TypeVar

from engine.adapters.stack import Stack
from engine.core.handle import RequestHandle
from engine.core.prompt_scorer import PromptScorer
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel
from engine.machine.background import in_background
from engine.messages import (
    ComputeLogits,
    Embed,
    Embedded,
    LogitsComputed,
    Rerank,
    Reranked,
    Score,
    Scored,
)

T = TypeVar("T")


class TextReader:
    """Used by the engine thread only."""

    def __init__(
        self,
        model: LoadedModel,
        scheduler: Scheduler,
        between_layers: Callable[[None], None],
    ) -> None:
        """`between_layers` is called during passes, beside the checkpoint of the request."""
        self._model, self._between_layers = model, between_layers
        self._embedder = model.new_embedder(scheduler)
        self._ranker = model.new_ranker(scheduler) if model.decoder.ranking else None
        self._scorer = PromptScorer(scheduler, model.tokenizer)
        self._reading = 0  # requests whose texts are being read

    @property
    def is_busy(self) -> bool:
        """Whether texts are being read."""
        return self._reading > 0

    def set_beside(self, *, is_beside: bool) -> None:
        """Whether another model takes turns with this one: passes are short then."""
        self._embedder.is_beside = is_beside
        if self._ranker is not None:
            self._ranker.is_beside = is_beside

    def embed(
        self, request: Embed, handle: RequestHandle, stack: Stack
    ) -> Generator[Embedded | None, None, None]:
        """Compute the vectors of texts; yields None between passes, when answers go on."""
        cut: list[None] = []
        on_cut = partial(cut.append, None) if request.cuts else None
        encode = partial(self._embedder.tokens, request.texts, on_cut)
        texts = yield from in_background(encode, "texts", handle.checkpoint)
        pooling = request.pooling or self._model.pooling
        work = self._embedder.vectors(texts, pooling, stack, self._checkpoint(handle))
        vectors = yield from self._read(work)
        counts = tuple(map(len, texts))
        yield Embedded(handle.id, tuple(vectors), sum(counts), pooling, counts, len(cut))

    def rerank(
        self, request: Rerank, handle: RequestHandle, stack: Stack
    ) -> Generator[Reranked | None, None, None]:
        """Score documents; yields None between passes, when answers go on."""
        ranker = self._ranker or self._model.new_ranker()
        encode = partial(ranker.pairs, request.query, request.documents, self._model.rank_template)
        pairs = yield from in_background(encode, "documents", handle.checkpoint)
        scores = yield from self._read(ranker.scores(pairs, stack, self._checkpoint(handle)))
        yield Reranked(handle.id, tuple(scores), sum(map(len, pairs)))

    def score(
        self, request: Score, handle: RequestHandle, stack: Stack
    ) -> Generator[Scored | None, None, None]:
        """Score the tokens of a text; yields None between chunks, when answers go on."""
        ids = yield from self._ids(request.text, handle)
        checkpoint = self._checkpoint(handle)
        work = self._scorer.score(ids, request.logprobs, stack, checkpoint, request.start)
        yield Scored(handle.id, tuple((yield from self._read(work))))

    def logits(
        self, request: ComputeLogits, handle: RequestHandle, stack: Stack
    ) -> Generator[LogitsComputed | None, None, None]:
        """Compute the logits after tokens of a text; yields None between chunks."""
        ids = yield from self._ids(request.text, handle)
        work = self._scorer.logits(
            ids,
            request.positions,
            request.most,
            stack,
            self._checkpoint(handle),
            with_pieces=request.with_pieces,
        )
        yield LogitsComputed(handle.id, tuple((yield from self._read(work))))

    def _checkpoint(self, handle: RequestHandle) -> Callable[[], None]:
        """Called during the passes of a request."""

        def checkpoint() -> None:
            self._between_layers(None)
            handle.checkpoint()

        return checkpoint

    def _ids(
        self, text: str | tuple[int, ...], handle: RequestHandle
    ) -> Generator[None, None, list[int]]:
        """The tokens of a text; ids are taken as they are."""
        if not isinstance(text, str):
            return list(text)
        encode = partial(self._model.tokenizer.encode, text)
        return (yield from in_background(encode, "text", handle.checkpoint))

    def _read(self, work: Generator[None, None, T]) -> Generator[None, None, T]:
        """Run work between the passes of answers."""
        self._reading += 1
        try:
            return (yield from work)
        finally:
            self._reading -= 1
