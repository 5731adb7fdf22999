"""TextReader: what one model says of given texts: vectors, scores, log probabilities and logits.

Texts are read by the scheduler of the answers, in passes between theirs.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from engine.adapters.stack import Stack
from engine.core.cancellation import Awaited
from engine.core.handle import RequestHandle
from engine.core.prompt_scorer import PromptScorer
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel
from engine.machine.background import in_background
from engine.messages import (
    ComputeLogits,
    Embed,
    Embedded,
    Event,
    LogitsComputed,
    Rerank,
    Reranked,
    Score,
    Scored,
)

GivenTexts = Embed | Rerank | Score | ComputeLogits


class TextReader:
    """Used by the engine thread only."""

    def __init__(self, model: LoadedModel, scheduler: Scheduler) -> None:
        self._model = model
        self._embedder = model.new_embedder(scheduler)
        self._ranker = model.new_ranker(scheduler) if model.decoder.ranking else None
        self._scorer = PromptScorer(scheduler, model.tokenizer)

    def read(
        self, request: GivenTexts, handle: RequestHandle, stack: Stack
    ) -> Generator[Event | Awaited | None, None, None]:
        """Answer a request; yields what it waits for, and the event."""
        match request:
            case Embed():
                yield (yield from self._embed(request, handle, stack))
            case Rerank():
                yield (yield from self._rerank(request, handle, stack))
            case Score():
                ids = yield from self._ids(request.text, handle)
                work = self._scorer.score(ids, request.logprobs, stack, handle, request.start)
                yield Scored(handle.id, tuple((yield from work)))
            case ComputeLogits():
                ids = yield from self._ids(request.text, handle)
                wanted, most = request.positions, request.most
                shows = request.with_pieces
                work = self._scorer.logits(ids, wanted, most, stack, handle, with_pieces=shows)
                yield LogitsComputed(handle.id, tuple((yield from work)))

    def _embed(
        self, request: Embed, handle: RequestHandle, stack: Stack
    ) -> Generator[Awaited | None, None, Embedded]:
        cut: list[None] = []
        on_cut = partial(cut.append, None) if request.cuts else None
        encode = partial(self._embedder.tokens, request.texts, on_cut)
        texts = yield from in_background(encode, "texts", handle.checkpoint)
        pooling = request.pooling or self._model.pooling
        vectors = yield from self._embedder.vectors(texts, pooling, stack, handle)
        counts = tuple(map(len, texts))
        return Embedded(handle.id, tuple(vectors), sum(counts), pooling, counts, len(cut))

    def _rerank(
        self, request: Rerank, handle: RequestHandle, stack: Stack
    ) -> Generator[Awaited | None, None, Reranked]:
        ranker = self._ranker or self._model.new_ranker()
        encode = partial(ranker.pairs, request.query, request.documents, self._model.rank_template)
        pairs = yield from in_background(encode, "documents", handle.checkpoint)
        scores = yield from ranker.scores(pairs, stack, handle)
        return Reranked(handle.id, tuple(scores), sum(map(len, pairs)))

    def _ids(
        self, text: str | tuple[int, ...], handle: RequestHandle
    ) -> Generator[None, None, list[int]]:
        """The tokens of a text; ids are taken as they are."""
        if not isinstance(text, str):
            return list(text)
        encode = partial(self._model.tokenizer.encode, text)
        return (yield from in_background(encode, "text", handle.checkpoint))
