"""KV cache of one session: transactional append, trim, and F32, F16 or Q8_0 storage."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.host.device import trim_heap
from engine.messages import CacheType
from engine.state.cache_lease import CacheLease
from kernels.program import KVBuffers, LayerKV
from kernels.quantized_kv import BLOCK

_FIRST_CAPACITY = 256  # tokens
_MAX_OUTGROWN_BYTES = 1 << 25  # freed buffers before the heap is trimmed
_CACHE_LINE = 64  # bytes; every buffer starts on a cache line boundary

_buffer_ids = itertools.count()  # of `KVBuffers`


@dataclass(frozen=True, slots=True)
class _Part:
    """One tensor [K, S, width] of keys or values."""

    suffix: str
    dtype: torch.dtype
    scales: bool = False  # one number per block instead of per channel

    def width(self, head_width: int) -> int:
        """Numbers per head and token."""
        return -(-head_width // BLOCK) if self.scales else head_width


_PARTS: dict[CacheType, tuple[_Part, ...]] = {
    CacheType.F32: (_Part("", torch.float32),),
    CacheType.F16: (_Part("", torch.float16),),
    CacheType.Q8_0: (_Part("", torch.int8), _Part(".scales", torch.float16, scales=True)),
}


def _heap(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)


class Cache:
    """Keys and values of every layer for the tokens of one session.

    A forward pass writes into `buffers_for` its tokens and then commits once with `advance`, so a
    cancelled pass leaves the cache unchanged. Buffers double as they fill, so an 8,192-token
    context costs memory only when it is used.

    Tokens that another thread reads under a lease are never overwritten; see `make_writable`.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_width: int,
        context: int,
        type: CacheType = CacheType.F32,
        memory: Callable[[int], Tensor] = _heap,
    ) -> None:
        """An empty cache; `memory` allocates uint8 tensors, see `Backend.memory`."""
        self.context = context  # tokens: the maximum length
        self.type = type
        self._memory = memory
        self._kv_heads, self._head_width = kv_heads, head_width
        self.length = 0  # tokens committed
        self._outgrown = 0  # bytes of buffers replaced since the heap was last trimmed
        self._buffers: KVBuffers | None = None  # of all layers; invalid once one of them grows
        self._lease: CacheLease | None = None  # on this cache, or on the one it replaces
        # [K, S, width] each: one head's keys are contiguous, as attention reads them.
        self._keys, self._values = (
            [_empty(kv_heads, head_width, type) for _ in range(layers)] for _ in range(2)
        )

    @staticmethod
    def bytes_per_token(
        layers: int, kv_heads: int, head_width: int, type: CacheType = CacheType.F32
    ) -> int:
        """Bytes one token takes: keys and values of every layer."""
        row = sum(part.width(head_width) * part.dtype.itemsize for part in _PARTS[type])
        return layers * 2 * kv_heads * row

    @staticmethod
    def storage_dtype(type: CacheType) -> torch.dtype:
        """The dtype keys and values are stored as."""
        return _PARTS[type][0].dtype

    @property
    def size_bytes(self) -> int:
        """Bytes allocated now, used or not."""
        return sum(part.nbytes for parts in (*self._keys, *self._values) for part in parts)

    def fresh(self) -> Cache:
        """An empty cache of the same shape; buffers leased from this one still count as memory."""
        made = Cache(len(self._keys), self._kv_heads, self._head_width, self.context, self.type)
        made._memory = self._memory
        made._lease = self._lease
        return made

    def lease(self) -> CacheLease:
        """A lease for another thread to read the committed tokens; one lease at a time."""
        assert self._lease is None or self._lease.released, "a second lease on a cache"
        layers = zip(self._keys, self._values, strict=True)
        self._lease = CacheLease([[*keys, *values] for keys, values in layers], self.length)
        return self._lease

    def make_writable(self, tokens: int, checkpoint: Callable[[], None] = lambda: None) -> None:
        """Copy on write: let `tokens` be written after the committed ones without changing a lease.

        Leased buffers that would be overwritten are handed over to the lease. If they and this
        cache together would take more memory than a full cache, wait until enough layers have been
        read; raises what `checkpoint` raises. `buffers_for` does this too, without a checkpoint.
        """
        needed = self.length + tokens
        while (lease := self._lease) is not None:
            if lease.released:
                self._lease = None
            elif self._fits_beside(lease, needed):
                if self.length < lease.length:
                    self._hand_over(lease, needed)
                return
            else:
                lease.wait(checkpoint)

    def buffers_for(self, tokens: int) -> KVBuffers:
        """The buffers of every layer, with capacity for `tokens` after the committed ones.

        The same object until a layer outgrows its buffers. Rows are stored as by `kv_rows.append`;
        rows written into them are committed by `advance`.
        """
        needed = self.length + tokens
        assert needed <= self.context, f"{needed} tokens in a cache for {self.context}"
        self.make_writable(tokens)
        if self._buffers is None or needed > self._buffers.capacity:
            for layer in range(len(self._keys)):
                self._reserve(layer, needed)
            self._buffers = KVBuffers(
                next(_buffer_ids),
                min(parts[0].shape[1] for parts in self._keys),
                tuple(_rows(parts) for parts in self._keys),
                tuple(_rows(parts) for parts in self._values),
            )
        return self._buffers

    def advance(self, tokens: int) -> None:
        """Commit the `tokens` that were just written to every layer."""
        self.length += tokens

    def trim(self, length: int) -> None:
        """Drop every token from position `length` on."""
        assert 0 <= length <= self.length, f"trim to {length} of {self.length}"
        self.length = length

    def layout(self, length: int) -> dict[str, tuple[torch.dtype, tuple[int, int, int]]]:
        """Name to dtype and shape [K, length, width] of the views from `tensors`, in order."""
        return {
            f"{name}.{layer}{part.suffix}": (
                part.dtype,
                (self._kv_heads, length, part.width(self._head_width)),
            )
            for layer in range(len(self._keys))
            for name in ("keys", "values")
            for part in _PARTS[self.type]
        }

    def tensors(
        self, length: int, checkpoint: Callable[[], None] = lambda: None
    ) -> Iterator[Tensor]:
        """Views [K, length, width] of the buffers that hold the first `length` tokens.

        Buffers that are too small are grown, with some spare capacity: to restore a cache, write
        to these views and then call `advance`. `checkpoint` is that of `make_writable`.
        """
        wanted = min(length + _FIRST_CAPACITY, self.context)
        if any(self._capacity(layer) < length for layer in range(len(self._keys))):
            self.make_writable(wanted - self.length, checkpoint)
        for layer in range(len(self._keys)):
            if self._capacity(layer) < length:
                self._reserve(layer, wanted)
            for buffers in (self._keys, self._values):
                yield from (part[:, :length] for part in buffers[layer])

    def _capacity(self, layer: int) -> int:
        """Tokens the buffers of one layer have capacity for."""
        return self._keys[layer][0].shape[1]

    def _grown(self, capacity: int, needed: int) -> int:
        """The capacity after growing from `capacity` to at least `needed` tokens: doubled."""
        if needed <= capacity:
            return capacity
        return min(self.context, max(needed, 2 * capacity, _FIRST_CAPACITY))

    def _fits_beside(self, lease: CacheLease, needed: int) -> bool:
        """Whether this cache with `needed` tokens and the lease take at most a full cache."""
        leased = lease.pending()
        tokens = 0  # summed over layers
        for layer in range(len(self._keys)):
            capacity = self._capacity(layer)
            if self._is_leased(layer, leased) and self.length < lease.length:
                tokens += capacity + self._grown(0, needed)
            else:
                tokens += self._grown(capacity, needed)
                if layer in leased and not self._is_leased(layer, leased):
                    tokens += leased[layer][0].shape[1]
        return tokens <= len(self._keys) * self.context

    def _is_leased(self, layer: int, leased: dict[int, list[Tensor]]) -> bool:
        """Whether the lease reads the same buffers this cache writes to."""
        return layer in leased and leased[layer][0] is self._keys[layer][0]

    def _hand_over(self, lease: CacheLease, needed: int) -> None:
        """Give leased buffers up to the lease and copy the committed tokens to new ones."""
        leased = lease.pending()
        for layer in range(len(self._keys)):
            if self._is_leased(layer, leased):
                self._replace(layer, self._grown(0, needed))

    def _reserve(self, layer: int, needed: int) -> None:
        """Grow the buffers of one layer to `needed` tokens, keeping the committed ones."""
        capacity = self._capacity(layer)
        if needed <= capacity:
            return
        outgrown = self._replace(layer, self._grown(capacity, needed))
        self._outgrown += sum(part.nbytes for part in outgrown)
        if self._lease is not None:
            self._lease.move(layer, outgrown, [*self._keys[layer], *self._values[layer]])
        del outgrown
        # Freed buffers stay in the allocator's heap, too fragmented for the larger ones: up to half
        # a cache is lost unless the heap is trimmed.
        if self._outgrown > _MAX_OUTGROWN_BYTES or layer == len(self._keys) - 1:
            trim_heap()
            self._outgrown = 0

    def _replace(self, layer: int, capacity: int) -> list[Tensor]:
        """Copy a layer's committed tokens to new buffers; returns the old ones."""
        self._buffers = None
        before = [*self._keys[layer], *self._values[layer]]
        after = _allocate(before, capacity, self._memory)
        for part, copy in zip(before, after, strict=True):
            copy[:, : self.length] = part[:, : self.length]
        half = len(after) // 2
        self._keys[layer], self._values[layer] = after[:half], after[half:]
        return before


def _empty(kv_heads: int, head_width: int, type: CacheType) -> list[Tensor]:
    return [
        torch.empty(kv_heads, 0, part.width(head_width), dtype=part.dtype) for part in _PARTS[type]
    ]


def _allocate(
    parts: list[Tensor], capacity: int, allocate: Callable[[int], Tensor]
) -> list[Tensor]:
    """Buffers like `parts` [K, _, width] for `capacity` tokens, in one allocation."""
    shapes = [(part.shape[0], capacity, part.shape[2]) for part in parts]
    sizes = [
        math.prod(shape) * part.dtype.itemsize for part, shape in zip(parts, shapes, strict=True)
    ]
    starts = [0, *itertools.accumulate(-(-size // _CACHE_LINE) * _CACHE_LINE for size in sizes)]
    memory = allocate(starts[-1])
    return [
        memory[start : start + size].view(part.dtype).view(shape)
        for part, shape, start, size in zip(parts, shapes, starts, sizes, strict=False)
    ]


def _rows(parts: list[Tensor]) -> LayerKV:
    return LayerKV(parts[0], parts[1] if len(parts) > 1 else None)
