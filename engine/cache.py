"""Key/value cache of one session: append, trim, and nothing a caller could leave half done."""

from __future__ import annotations

import torch
from torch import Tensor

_FIRST_CAPACITY = 256  # tokens


class Cache:
    """Keys and values of every layer for the tokens a session has read.

    A forward pass writes each layer with `write` and then commits once with `advance`; a pass that
    is cancelled in the middle has therefore changed nothing. Buffers double as they fill, so an
    8,192-token context costs memory only when it is used.
    """

    def __init__(self, layers: int, kv_heads: int, head_width: int, context: int) -> None:
        self.context = context  # tokens: the most it may hold
        self.length = 0  # tokens committed
        self._shape = (kv_heads, head_width)
        # [K, S, C] f32 each: one head's keys are contiguous, as attention reads them.
        self._keys = [torch.empty(kv_heads, 0, head_width) for _ in range(layers)]
        self._values = [torch.empty(kv_heads, 0, head_width) for _ in range(layers)]

    @staticmethod
    def bytes_per_token(layers: int, kv_heads: int, head_width: int) -> int:
        """Bytes one token costs: f32 keys and values of every layer."""
        return layers * 2 * kv_heads * head_width * 4

    @property
    def size_bytes(self) -> int:
        """Bytes held now, used or not."""
        return sum(2 * keys.numel() * keys.element_size() for keys in self._keys)

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store `keys` and `values` [T, K, C] after the committed tokens of one layer.

        Returns everything attention reads, committed tokens first: two views [S, K, C].
        """
        start, end = self.length, self.length + keys.shape[0]
        assert end <= self.context, f"{end} tokens in a cache for {self.context}"
        self._reserve(layer, end)
        self._keys[layer][:, start:end] = keys.transpose(0, 1)
        self._values[layer][:, start:end] = values.transpose(0, 1)
        return (
            self._keys[layer][:, :end].transpose(0, 1),
            self._values[layer][:, :end].transpose(0, 1),
        )

    def advance(self, tokens: int) -> None:
        """Commit the `tokens` every layer has just written."""
        self.length += tokens

    def trim(self, length: int) -> None:
        """Forget every token from position `length` on."""
        assert 0 <= length <= self.length, f"trim to {length} of {self.length}"
        self.length = length

    def _reserve(self, layer: int, needed: int) -> None:
        """Make room for `needed` tokens in one layer, keeping what is committed."""
        held = self._keys[layer].shape[1]
        if needed <= held:
            return
        capacity = min(self.context, max(needed, 2 * held, _FIRST_CAPACITY))
        for buffers in (self._keys, self._values):
            larger = torch.empty(self._shape[0], capacity, self._shape[1])
            larger[:, : self.length] = buffers[layer][:, : self.length]
            buffers[layer] = larger
