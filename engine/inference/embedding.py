"""Embeddings: one unit vector for each text, pooled from the hidden states of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Generator
from collections.abc import Sequence as Tokens
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.errors import ModelFileError, OutOfMemory, RequestError
from engine.inference.runner import Rows, Runner
from engine.messages import Pooling
from engine.state.pages import OutOfPages, PagePool
from engine.state.prefix_tree import PrefixTree
from engine.state.sequence import Sequence

if TYPE_CHECKING:
    from engine.models.layers import Norm

_TOGETHER = 8  # texts of one pass
_OUT_OF_PAGES = OutOfMemory(
    "There is no memory for the context of these texts.",
    "Wait for the answers in progress, or give shorter texts.",
)


class Embedder:
    """Embeds texts with a model, over the KV pages that answers use; for the engine thread.

    A text is processed by itself: its vector does not depend on the others of a batch.
    """

    def __init__(
        self,
        runner: Runner,
        pool: PagePool,
        tree: PrefixTree,
        context: int,
        chunk: Callable[[], int] | None = None,
    ) -> None:
        """`tree` is evicted from to make room; `context` is the limit of a text in tokens, and
        `chunk` that of a pass; None: the runner's.
        """
        self._runner = runner
        self._pool = pool
        self._tree = tree
        self._context = context
        self._chunk = chunk or (lambda: runner.chunk)

    def embed(
        self,
        texts: Tokens[Tokens[int]],
        pooling: Pooling,
        checkpoint: Callable[[], None] = lambda: None,
    ) -> Generator[None, None, list[list[float]]]:
        """The vectors [D] of tokenized texts, each of length 1; yields after each pass.

        Closing the generator cancels it, and `checkpoint` may raise to. Raises RequestError for an empty or too long text,
        OutOfMemory, and ModelFileError when a vector is not finite.
        """
        for number, text in enumerate(texts):
            self._check(number, text)
        vectors: list[list[float]] = []
        while len(vectors) < len(texts):
            together = self._fitting(texts[len(vectors) :])
            pooled = yield from self._pooled(together, pooling, checkpoint)
            vectors += [one.vector() for one in pooled]
        return vectors

    def _check(self, number: int, text: Tokens[int]) -> None:
        if not text:
            raise RequestError(f"Text {number + 1} is empty.", "Leave it out, or give it words.")
        if len(text) > self._context:
            raise RequestError(
                f"Text {number + 1} has {len(text):,} tokens, and the model can take in "
                f"{self._context:,}.",
                "Divide it into shorter parts.",
            )

    def _fitting(self, texts: Tokens[Tokens[int]]) -> list[Tokens[int]]:
        """The first of these texts that one pass can process, at least one."""
        found, total = [texts[0]], len(texts[0])
        for text in texts[1:_TOGETHER]:
            total += len(text)
            if total > self._chunk():
                break
            found.append(text)
        return found

    def _pooled(
        self, texts: Tokens[Tokens[int]], pooling: Pooling, checkpoint: Callable[[], None]
    ) -> Generator[None, None, list[_Pooled]]:
        """Process texts, each in parts of one chunk, and pool their hidden states."""
        sequences = [Sequence(self._pool, self._context) for _ in texts]
        pooled = [_Pooled(pooling) for _ in texts]
        try:
            while left := [at for at, text in enumerate(texts) if len(sequences[at]) < len(text)]:
                chunk = self._chunk()
                rows = [Rows(sequences[at], texts[at][len(sequences[at]) :][:chunk]) for at in left]
                self._make_room(rows)
                for at, hidden in zip(left, self._runner.hidden(rows, checkpoint), strict=True):
                    pooled[at].add(_normed(self._runner.model.norm, self._runner, hidden))
                yield
        finally:
            for sequence in sequences:
                sequence.release()
        return pooled

    def _make_room(self, rows: Tokens[Rows]) -> None:
        for one in rows:
            if not self._tree.evict(one.sequence.missing_bytes(len(one.tokens))):
                raise _OUT_OF_PAGES
            try:
                one.sequence.reserve(len(one.tokens))
            except OutOfPages:
                raise _OUT_OF_PAGES from None


def _normed(norm: Norm, runner: Runner, hidden: Tensor) -> Tensor:
    """Hidden states [T, D] after the norm that precedes the head."""
    ops = runner.model.placement.head.ops
    hidden = hidden.to(norm.weight.device)
    if norm.centred:
        return ops.layer_norm(hidden, norm.weight, norm.bias, norm.epsilon).cpu()
    return ops.rms_norm(hidden, norm.weight, norm.epsilon).cpu()


class _Pooled:
    """The pooled vector of one text, whose hidden states [T, D] come in parts."""

    def __init__(self, pooling: Pooling) -> None:
        self._pooling = pooling
        self._count = 0
        self._sum: Tensor | None = None  # f64 [D]: of the tokens, of the first or of the last one

    def add(self, hidden: Tensor) -> None:
        """The next hidden states; how a text is cut into parts changes no bit."""
        rows = hidden.double()
        match self._pooling:
            case Pooling.MEAN:
                total = torch.zeros_like(rows[0]) if self._sum is None else self._sum
                for row in rows:  # in the order of the tokens
                    total = total + row
                self._sum = total
            case Pooling.CLS:
                self._sum = rows[0] if self._sum is None else self._sum
            case Pooling.LAST:
                self._sum = rows[-1]
        self._count += len(rows)

    def vector(self) -> list[float]:
        """The vector, scaled to length 1."""
        assert self._sum is not None
        vector = self._sum / self._count if self._pooling is Pooling.MEAN else self._sum
        length = vector.norm()
        if not torch.isfinite(length) or length == 0:
            raise ModelFileError(
                "The model computed a vector that has no direction.",
                "Its file is probably damaged; download it again.",
            )
        return (vector / length).tolist()
