"""Key/value cache of one session: append, trim, and nothing a caller could leave half done.

What attention reads is always what is held, rounding included, so a cache that was written to a
file and read back gives the same bits as one that was never away.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.host.device import give_back_memory
from engine.messages import CacheType
from engine.state.cache_lease import CacheLease
from kernels import ops
from kernels.program import KVBuffers, LayerKV
from kernels.quantized_kv import BLOCK, QuantizedKV, hadamard

_FIRST_CAPACITY = 256  # tokens
_MOST_OUTGROWN = 1 << 25  # bytes, between two times they are given back
_LINE = 64  # bytes; every buffer begins with a line of its own
_LARGEST_HALF = 65504.0

_numbers = itertools.count()  # of rooms


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


class Cache:
    """Keys and values of every layer for the tokens a session has read.

    A forward pass writes each layer with `write` and then commits once with `advance`; a pass that
    is cancelled in the middle has therefore changed nothing. Buffers double as they fill, so an
    8,192-token context costs memory only when it is used.

    What another thread reads under a lease is never overwritten; see `make_writable`.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        head_width: int,
        context: int,
        type: CacheType = CacheType.F32,
    ) -> None:
        self.context = context  # tokens: the most it may hold
        self.type = type
        self._kv_heads, self._head_width = kv_heads, head_width
        self.length = 0  # tokens committed
        self._outgrown = 0  # bytes of buffers replaced since they were last given back
        self._kv_number: KVBuffers | None = None  # where all layers lie, until one of them grows
        self._lease: CacheLease | None = None  # of this cache, or of the one it follows
        # One head's keys are contiguous, as attention reads them: [K, S, width] each.
        self._keys, self._values = (
            [_empty(kv_heads, head_width, type) for _ in range(layers)] for _ in range(2)
        )

    @staticmethod
    def bytes_per_token(
        layers: int, kv_heads: int, head_width: int, type: CacheType = CacheType.F32
    ) -> int:
        """Bytes one token costs: keys and values of every layer."""
        row = sum(part.width(head_width) * part.dtype.itemsize for part in _PARTS[type])
        return layers * 2 * kv_heads * row

    @staticmethod
    def held_type(type: CacheType) -> torch.dtype:
        """What keys and values are held as."""
        return _PARTS[type][0].dtype

    @property
    def size_bytes(self) -> int:
        """Bytes held now, used or not."""
        return sum(part.nbytes for parts in (*self._keys, *self._values) for part in parts)

    def fresh(self) -> Cache:
        """An empty cache of the same kind; what is leased of this one still counts as memory."""
        made = Cache(len(self._keys), self._kv_heads, self._head_width, self.context, self.type)
        made._lease = self._lease
        return made

    def lease(self) -> CacheLease:
        """Have another thread read the committed tokens. One lease at a time."""
        assert self._lease is None or self._lease.released, "a second lease on a cache"
        layers = zip(self._keys, self._values, strict=True)
        self._lease = CacheLease([[*keys, *values] for keys, values in layers], self.length)
        return self._lease

    def make_writable(self, tokens: int, checkpoint: Callable[[], None] = lambda: None) -> None:
        """See that writing `tokens` after the committed ones spoils nothing that is leased.

        Leased buffers that would be overwritten are left to the lease. Where they and this cache
        would together take more than a full cache, it waits until enough of them is read; raises
        what `checkpoint` raises. `write` and `buffers_for` do this too, but cannot be cancelled.
        """
        needed = self.length + tokens
        while (lease := self._lease) is not None:
            if lease.released:
                self._lease = None
            elif self._fits_beside(lease, needed):
                if self.length < lease.length:
                    self._leave(lease, needed)
                return
            else:
                lease.wait(checkpoint)

    def write(
        self, layer: int, keys: Tensor, values: Tensor
    ) -> tuple[Tensor | QuantizedKV, Tensor | QuantizedKV]:
        """Store `keys` and `values` [T, K, C] f32 after the committed tokens of one layer.

        Returns everything attention reads, committed tokens first: twice [S, K, C], as held.
        """
        start, end = self.length, self.length + keys.shape[0]
        assert end <= self.context, f"{end} tokens in a cache for {self.context}"
        self.make_writable(keys.shape[0])
        self._reserve(layer, end)
        read: list[Tensor | QuantizedKV] = []
        for buffers, rows in ((self._keys, keys), (self._values, values)):
            parts = buffers[layer]
            for part, coded in zip(parts, encoded(rows.transpose(0, 1), self.type), strict=True):
                part[:, start:end] = coded
            read.append(attended([part[:, :end] for part in parts]))
        return read[0], read[1]

    def buffers_for(self, tokens: int) -> KVBuffers:
        """Where every layer lies, with space for `tokens` after the committed ones.

        The same one until a layer outgrows it. Rows are as `write` holds them: what is written into
        it is committed by `advance`.
        """
        needed = self.length + tokens
        assert needed <= self.context, f"{needed} tokens in a cache for {self.context}"
        self.make_writable(tokens)
        if self._kv_number is None or needed > self._kv_number.capacity:
            for layer in range(len(self._keys)):
                self._reserve(layer, needed)
            self._kv_number = KVBuffers(
                next(_numbers),
                min(parts[0].shape[1] for parts in self._keys),
                tuple(_rows(parts) for parts in self._keys),
                tuple(_rows(parts) for parts in self._values),
            )
        return self._kv_number

    def advance(self, tokens: int) -> None:
        """Commit the `tokens` every layer has just written."""
        self.length += tokens

    def trim(self, length: int) -> None:
        """Forget every token from position `length` on."""
        assert 0 <= length <= self.length, f"trim to {length} of {self.length}"
        self.length = length

    def layout(self, length: int) -> dict[str, tuple[torch.dtype, tuple[int, int, int]]]:
        """Name to type and shape [K, length, width] of what `tensors` yields, in its order."""
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
        """Everything held of the first `length` tokens: views [K, length, width].

        Room is made where there is none yet, and for a little more: a cache is filled by writing
        to these views and then calling `advance`. `checkpoint` is that of `make_writable`.
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
        """Tokens one layer has space for."""
        return self._keys[layer][0].shape[1]

    def _grown(self, held: int, needed: int) -> int:
        """Tokens a layer is given space for that has space for `held` and lacks it."""
        return held if needed <= held else min(self.context, max(needed, 2 * held, _FIRST_CAPACITY))

    def _fits_beside(self, lease: CacheLease, needed: int) -> bool:
        """Whether this cache, with `needed` tokens, and what is leased take at most a full cache."""
        leased = lease.kept()
        tokens = 0  # of single layers
        for layer in range(len(self._keys)):
            held = self._capacity(layer)
            if self._is_leased(layer, leased) and self.length < lease.length:
                tokens += held + self._grown(0, needed)
            else:
                tokens += self._grown(held, needed)
                if layer in leased and not self._is_leased(layer, leased):
                    tokens += leased[layer][0].shape[1]
        return tokens <= len(self._keys) * self.context

    def _is_leased(self, layer: int, leased: dict[int, list[Tensor]]) -> bool:
        """Whether the lease reads the very buffers this cache writes to."""
        return layer in leased and leased[layer][0] is self._keys[layer][0]

    def _leave(self, lease: CacheLease, needed: int) -> None:
        """Leave to the lease what it still reads, and take a copy of what stays."""
        leased = lease.kept()
        for layer in range(len(self._keys)):
            if self._is_leased(layer, leased):
                self._replace(layer, self._grown(0, needed))

    def _reserve(self, layer: int, needed: int) -> None:
        """Make room for `needed` tokens in one layer, keeping what is committed."""
        held = self._capacity(layer)
        if needed <= held:
            return
        outgrown = self._replace(layer, self._grown(held, needed))
        self._outgrown += sum(part.nbytes for part in outgrown)
        if self._lease is not None:
            self._lease.move(layer, outgrown, [*self._keys[layer], *self._values[layer]])
        del outgrown
        # Outgrown buffers stay in the allocator's heap, in pieces the larger ones cannot use:
        # half a cache that nobody holds, unless it is told to let them go.
        if self._outgrown > _MOST_OUTGROWN or layer == len(self._keys) - 1:
            give_back_memory()
            self._outgrown = 0

    def _replace(self, layer: int, capacity: int) -> list[Tensor]:
        """Give a layer new buffers with what is committed in them; returns those it had."""
        self._kv_number = None
        before = [*self._keys[layer], *self._values[layer]]
        after = _together(before, capacity)
        for part, copy in zip(before, after, strict=True):
            copy[:, : self.length] = part[:, : self.length]
        half = len(after) // 2
        self._keys[layer], self._values[layer] = after[:half], after[half:]
        return before


def _empty(kv_heads: int, head_width: int, type: CacheType) -> list[Tensor]:
    return [
        torch.empty(kv_heads, 0, part.width(head_width), dtype=part.dtype) for part in _PARTS[type]
    ]


def _together(parts: list[Tensor], capacity: int) -> list[Tensor]:
    """Buffers like `parts` [K, _, width] for `capacity` tokens, in one piece of memory."""
    shapes = [(part.shape[0], capacity, part.shape[2]) for part in parts]
    sizes = [
        math.prod(shape) * part.dtype.itemsize for part, shape in zip(parts, shapes, strict=True)
    ]
    starts = [0, *itertools.accumulate(-(-size // _LINE) * _LINE for size in sizes)]
    memory = ops.memory(starts[-1])
    return [
        memory[start : start + size].view(part.dtype).view(shape)
        for part, shape, start, size in zip(parts, shapes, starts, sizes, strict=False)
    ]


def _rows(parts: list[Tensor]) -> LayerKV:
    return LayerKV(parts[0], parts[1] if len(parts) > 1 else None)


def encoded(rows: Tensor, type: CacheType) -> tuple[Tensor, ...]:
    """Rows [K, T, C] f32 as they are held; halves saturate, since an infinity spoils a session."""
    if type is CacheType.F32:
        return (rows,)
    rows = rows.clamp(-_LARGEST_HALF, _LARGEST_HALF)
    if type is CacheType.F16:
        return (rows,)  # rounded as it is stored
    width = rows.shape[-1]
    blocks = functional.pad(hadamard(rows), (0, -width % BLOCK)).unflatten(-1, (-1, BLOCK))
    largest = blocks.abs().amax(-1)  # [K, T, B]
    scales = (largest / 127).clamp(max=_LARGEST_HALF).to(torch.float16)
    steps = torch.where(scales > 0, 1 / scales.float(), 0.0)[..., None]
    codes = (blocks * steps).round().clamp(-127, 127)
    return codes.flatten(-2)[..., :width], scales


def attended(parts: list[Tensor]) -> Tensor | QuantizedKV:
    """What `encoded` made, parts [K, S, width], as attention takes it: [S, K, C]."""
    first, *scales = (part.transpose(0, 1) for part in parts)
    return QuantizedKV(first, scales[0]) if scales else first
