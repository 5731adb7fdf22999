"""Session: the tokens of one conversation and the cache that matches them, never out of step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from engine.cache import Cache
from engine.models.layers import Decoder

# Work between two looks at Cancel: about 100 ms of one layer at 50 GFLOP/s.
_WEIGHTS_TIMES_TOKENS = 2_500_000_000
_SMALLEST_CHUNK, _LARGEST_CHUNK = 16, 512


class Session:
    """Tokens read so far and their keys and values; every change is "trim, then continue"."""

    def __init__(self, model: Decoder, cache: Cache) -> None:
        self.model = model
        self.tokens: list[int] = []
        self._cache = cache
        self._chunk = chunk_size(max(block.weights for block in model.blocks))

    @property
    def context(self) -> int:
        """The most tokens the session can hold."""
        return self._cache.context

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values held now."""
        return self._cache.size_bytes

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """How many of `tokens` the session already holds, from the start on."""
        pairs = zip(self.tokens, tokens, strict=False)
        return next(
            (at for at, (a, b) in enumerate(pairs) if a != b), min(len(self.tokens), len(tokens))
        )

    def trim(self, length: int) -> None:
        """Forget every token from position `length` on."""
        self._cache.trim(length)
        del self.tokens[length:]

    def read(
        self, tokens: Sequence[int], checkpoint: Callable[[], None] = lambda: None
    ) -> Iterator[Tensor]:
        """Append `tokens` chunk by chunk, yielding each chunk's hidden states [T, D].

        `checkpoint` may raise `Cancelled` between layers: the session then holds the chunks before.
        The chunk size depends on the model alone, so equal prompts give equal bits.
        """
        for start in range(0, len(tokens), self._chunk):
            chunk = list(tokens[start : start + self._chunk])
            with torch.inference_mode():
                hidden = self.model.hidden(torch.tensor(chunk), self._cache, checkpoint)
            self.tokens += chunk
            yield hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [T, D] → logits [T, V]."""
        with torch.inference_mode():
            return self.model.logits(hidden)

    def step(self, token: int, checkpoint: Callable[[], None] = lambda: None) -> Tensor:
        """Append one token; returns the logits [V] for the next."""
        (hidden,) = self.read((token,), checkpoint)
        return self.logits(hidden)[0]


def chunk_size(layer_weights: int) -> int:
    """A power of two of tokens such that one layer of one chunk stays near 100 ms."""
    fitting = max(_WEIGHTS_TIMES_TOKENS // max(layer_weights, 1), 1)
    return min(max(1 << (fitting.bit_length() - 1), _SMALLEST_CHUNK), _LARGEST_CHUNK)
