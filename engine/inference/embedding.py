"""Embeddings: one unit vector for each text, pooled from the hidden states of its tokens."""

from __future__ import annotations

from collections.abc import Generator
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

    def __init__(self, runner: Runner, pool: PagePool, tree: PrefixTree, context: int) -> None:
        """`tree` is evicted from to make room; `context` is the limit of a text in tokens."""
        self._runner = runner
        self._pool = pool
        self._tree = tree
        self._context = context

    def embed(
        self, texts: Tokens[Tokens[int]], pooling: Pooling
    ) -> Generator[None, None, list[list[float]]]:
        """The vectors [D] of tokenized texts, each of length 1; yields after each pass.

        Closing the generator cancels it. Raises RequestError for an empty or too long text,
        OutOfMemory, and ModelFileError when a vector is not finite.
        """
        for number, text in enumerate(texts):
            self._check(number, text)
        vectors: list[list[float]] = []
        while len(vectors) < len(texts):
            together = self._fitting(texts[len(vectors) :])
            states = yield from self._states(together)
            vectors += [_vector(rows, pooling) for rows in states]
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
            if total > self._runner.chunk:
                break
            found.append(text)
        return found

    def _states(self, texts: Tokens[Tokens[int]]) -> Generator[None, None, list[list[Tensor]]]:
        """The hidden states of each text after the final norm, in parts [T, D]."""
        sequences = [Sequence(self._pool, self._context) for _ in texts]
        parts: list[list[Tensor]] = [[] for _ in texts]
        chunk = self._runner.chunk
        try:
            for start in range(0, max(map(len, texts)), chunk):
                rows = [
                    Rows(sequence, text[start : start + chunk])
                    for sequence, text in zip(sequences, texts, strict=True)
                ]
                self._make_room(rows)
                for found, hidden in zip(parts, self._runner.hidden(rows), strict=True):
                    found.append(_normed(self._runner.model.norm, self._runner, hidden))
                yield
        finally:
            for sequence in sequences:
                sequence.release()
        return parts

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


def _vector(parts: Tokens[Tensor], pooling: Pooling) -> list[float]:
    """The pooled vector [D] of hidden states in parts [T, D], scaled to length 1."""
    match pooling:
        case Pooling.MEAN:
            total = torch.stack([part.sum(0, dtype=torch.float64) for part in parts]).sum(0)
            vector = total / sum(map(len, parts))
        case Pooling.CLS:
            vector = parts[0][0].double()
        case Pooling.LAST:
            vector = parts[-1][-1].double()
    length = vector.norm()
    if not torch.isfinite(length) or length == 0:
        raise ModelFileError(
            "The model computed a vector that has no direction.",
            "Its file is probably damaged; download it again.",
        )
    return (vector / length).tolist()
