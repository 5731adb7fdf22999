"""KV pages: fixed-size blocks of memory with the keys and values of 256 consecutive positions.

A page holds these positions for every layer of a group, so a sequence is a list of pages, a fork
shares them, and growth takes a page without moving any. Layers with the same attention window are
one group, since their pages are dropped at the same time; layers on different backends never are,
since a page is in the memory of one device. Within a page the rows are stored in the
order in which attention kernels read them, so that neither decoding nor prefill transposes:

    keys    f32, f16: [K, 16 tiles, C, 16 positions]
            i8:       [K, 16 tiles, quads of channels, 16 positions, 4 channels], zeros beyond C
            scales:   [K, blocks of 32 channels, 256 positions] f16, i8 only
    values  f32, f16: [K, 256 positions, C padded to 16], zeros beyond C
            i8:       [K, 64 quads of positions, padded C, 4 positions], zeros beyond C
            scales:   as those of keys

Latent attention has one row of a position that is both key and value: such a layer stores only
values, so that a page has each row once.

Attention always reads the stored, rounded values, so a page that was written to disk and read
again gives the same bits as one that stayed in memory. Native kernels store the same bits.

Layers whose state has a fixed size, recurrent ones and short convolutions, are a group too: its
page i is the state after the last token that was processed of the positions 256 * i on, in f32. A
pass never changes a state, so that it can be cancelled: it reads one page and writes the next one,
see `PagedState`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kernels.states.layer_state import (
    AT_END,
    PAGE_TOKENS,
    FixedState,
    LayerShape,
    LayerState,
    SharedState,
    size_bytes,
)
from kernels.states.quantized_kv import BLOCK, QuantizedKV, hadamard

LAYOUT_VERSION = "2"  # change it whenever a page gets other bytes for the same rows
TILE = 16  # positions that attention scores at once; channels that values are padded to
_QUAD = 4  # channels (keys) or positions (values) whose i8 codes are one 32-bit word
_ALIGNMENT = 64  # bytes: every part of a page starts on a cache line
_FLOAT16_MAX = 65504.0


@dataclass(frozen=True, slots=True)
class PageLayer:
    """Place and type of one layer's keys and values in the pages of its group."""

    shape: LayerShape
    dtype: torch.dtype  # float32, float16 or int8
    group: int  # index of the page table
    keys: int  # byte offsets in a page; those of the values if the values are the keys
    key_scales: int
    values: int
    value_scales: int

    @property
    def blocks(self) -> int:
        """Scales per head and position, one for 32 channels; int8 only."""
        return _blocks(self.shape.head_width)

    @property
    def key_width(self) -> int:
        """Stored channels of a key."""
        return _key_width(self.shape.head_width, self.dtype)

    @property
    def value_width(self) -> int:
        """Stored channels of a value."""
        return _value_width(self.shape.head_width, self.dtype)


def _blocks(width: int) -> int:
    return -(-width // BLOCK)


def _key_width(width: int, dtype: torch.dtype) -> int:
    """Stored channels of a key: those of whole blocks for codes, else no more than `width`."""
    return _blocks(width) * BLOCK if dtype == torch.int8 else width


def _value_width(width: int, dtype: torch.dtype) -> int:
    return _key_width(width, dtype) if dtype == torch.int8 else -(-width // TILE) * TILE


@dataclass(frozen=True, slots=True)
class StateLayer:
    """Place of one layer's state of fixed size in the pages of its group; always float32."""

    shape: FixedState
    group: int  # index of the page table
    offset: int  # bytes in a page


class KVLayout:
    """Byte layout of the pages of a model: its layers in groups, each group with one page size."""

    def __init__(self, states: Sequence[LayerState], dtype: torch.dtype) -> None:
        """`dtype` of the stored keys and values: float32, float16 or int8."""
        own = [state for state in states if not isinstance(state, SharedState)]
        groups = list(dict.fromkeys((_window(state), state.place) for state in own))
        sizes = [0] * len(groups)
        layers: list[PageLayer | StateLayer] = []
        for state in states:
            if isinstance(state, SharedState):
                layers.append(layers[state.layer])
                continue
            group = groups.index((_window(state), state.place))
            if isinstance(state, LayerShape):
                made = _placed(state, dtype, group, sizes[group])
                layers.append(made)
                sizes[group] = made.value_scales + _part_bytes(state, dtype)[-1]
            else:
                layers.append(StateLayer(state, group, sizes[group]))
                sizes[group] += size_bytes(state)  # no padding: a pass writes the whole page
        self.dtype = dtype
        self.layers = tuple(layers)  # a shared state: the place of the one it refers to
        # Of each group; 0: unlimited; AT_END: states of fixed size.
        self.windows = tuple(window for window, _ in groups)
        self.places = tuple(place for _, place in groups)  # of each group: name of a backend
        self.page_bytes = tuple(sizes)  # of each group

    @property
    def groups(self) -> int:
        """Number of page tables of a sequence."""
        return len(self.windows)

    @property
    def name(self) -> str:
        """Names the order of the bytes in pages: pages are read by layouts of the same name only.

        The version, whether layers have only values, and where a window has several groups also
        the group of each layer.
        """
        shapes = [layer.shape for layer in self.layers if isinstance(layer, PageLayer)]
        once = any(shape.values_are_keys for shape in shapes)
        version = f"{LAYOUT_VERSION}-once" if once else LAYOUT_VERSION
        if len(set(self.windows)) == self.groups:
            return version
        return f"{version}:{','.join(str(layer.group) for layer in self.layers)}"

    @property
    def bytes_per_page(self) -> int:
        """Bytes of 256 positions in all groups."""
        return sum(self.page_bytes)

    @property
    def kv_bytes_per_page(self) -> int:
        """Bytes of 256 positions in the groups with keys and values."""
        return self.bytes_per_page - self.state_bytes

    @property
    def state_bytes(self) -> int:
        """Bytes of the states of fixed size of one sequence at one position."""
        pairs = zip(self.windows, self.page_bytes, strict=True)
        return sum(size for window, size in pairs if window == AT_END)

    def kv(self, layer: int) -> PageLayer:
        """The place of an attention layer."""
        found = self.layers[layer]
        assert isinstance(found, PageLayer), f"layer {layer} has no keys and values"
        return found

    def state(self, layer: int) -> StateLayer:
        """The place of a layer whose state has a fixed size."""
        found = self.layers[layer]
        assert isinstance(found, StateLayer), f"layer {layer} has keys and values"
        return found


def _window(state: LayerState) -> int:
    """The window of the group that a state belongs to."""
    return state.window if isinstance(state, LayerShape) else AT_END


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _placed(shape: LayerShape, dtype: torch.dtype, group: int, start: int) -> PageLayer:
    """The layer at byte `start` of its group's pages."""
    parts = _part_bytes(shape, dtype)
    keys, key_scales, values, value_scales = itertools.accumulate(parts[:-1], initial=start)
    if shape.values_are_keys:
        keys, key_scales = values, value_scales
    return PageLayer(shape, dtype, group, keys, key_scales, values, value_scales)


def _part_bytes(shape: LayerShape, dtype: torch.dtype) -> tuple[int, int, int, int]:
    """Bytes of keys, key scales, values and value scales of one layer in a page."""
    width, size = shape.head_width, dtype.itemsize
    keys, values = _key_width(width, dtype) * size, _value_width(width, dtype) * size
    scales = _blocks(width) * 2 if dtype == torch.int8 else 0
    rows = shape.kv_heads * PAGE_TOKENS
    first, second, third = (_aligned(rows * n) for n in (keys, scales, values))
    if shape.values_are_keys:
        return 0, 0, third, second
    return first, second, third, second


class PageTable:
    """The pages of one sequence in one group: page i has the positions 256 * i on.

    A page is uint8 [page_bytes], or None once no position in it will be read again.
    """

    def __init__(self) -> None:
        self.pages: list[Tensor | None] = []
        self._allocate(16)

    def __len__(self) -> int:
        return len(self.pages)

    def append(self, page: Tensor | None) -> None:
        """Add the next page."""
        self.pages.append(None)
        if len(self.pages) > len(self._addresses):
            before = self._addresses
            self._allocate(2 * len(before))
            self._addresses[: len(before)] = before
        self.set(len(self.pages) - 1, page)

    def set(self, index: int, page: Tensor | None) -> None:
        """Replace a page."""
        self.pages[index] = page
        # Native kernels run on the processor and read no page of another device.
        self._addresses[index] = page.data_ptr() if page is not None and page.is_cpu else 0

    def remove(self, index: int) -> None:
        """Drop one page; the later ones move up."""
        del self.pages[index]
        self._addresses[index:-1] = self._addresses[index + 1 :]
        self._addresses[-1] = 0

    def since(self, index: int) -> PageTable:
        """The pages from `index` on, for reading; valid until this table changes."""
        made = object.__new__(PageTable)
        made.pages = self.pages[index:]
        made._addresses = self._addresses[index:]
        made.address = made._addresses.ctypes.data
        return made

    def truncate(self, length: int) -> None:
        """Drop the pages from index `length` on."""
        del self.pages[length:]
        self._addresses[length:] = 0

    def _allocate(self, length: int) -> None:
        self._addresses = np.zeros(length, dtype=np.int64)
        # Of the array of page addresses, which native kernels read; kept, as numpy takes long.
        self.address = self._addresses.ctypes.data


@dataclass(frozen=True, slots=True)
class PagedKV:
    """Keys and values of one layer of one sequence."""

    layer: PageLayer
    table: PageTable

    def cpu(self) -> PagedKV:
        """The same keys and values in the host's memory; copies of pages that are elsewhere."""
        table = PageTable()
        for page in self.table.pages:
            table.append(None if page is None else page.cpu())
        return PagedKV(self.layer, table)

    def append(self, keys: Tensor, values: Tensor | None, position: int) -> None:
        """Store rows [T, K, C] f32 at `position`, in pages that exist already.

        `values` may be None where the layer stores one row as key and value.
        """
        if self.layer.shape.values_are_keys:
            values = keys
        assert values is not None, "values are missing: the layer stores keys and values"
        at = 0
        while at < len(keys):
            page, offset = divmod(position + at, PAGE_TOKENS)
            count = min(PAGE_TOKENS - offset, len(keys) - at)
            stored = self.table.pages[page]
            assert stored is not None, f"page {page} was dropped"
            part = slice(at, at + count)
            _Views(stored, self.layer).store(keys[part], values[part], offset)
            at += count

    def rows(self, first: int, end: int) -> tuple[Tensor | QuantizedKV, Tensor | QuantizedKV]:
        """Copies of the keys and values of the positions first .. end: [end - first, K, C]."""
        found: list[tuple[Tensor, ...]] = []
        for page in range(first // PAGE_TOKENS, -(-end // PAGE_TOKENS)):
            stored = self.table.pages[page]
            assert stored is not None, f"page {page} was dropped"
            start = page * PAGE_TOKENS
            part = slice(max(first - start, 0), min(end - start, PAGE_TOKENS))
            found.append(_Views(stored, self.layer).load(part))
        parts = [torch.cat(pieces) for pieces in zip(*found, strict=True)]
        if self.layer.dtype == torch.int8:
            return QuantizedKV(parts[0], parts[1]), QuantizedKV(parts[2], parts[3])
        return parts[0], parts[1]


@dataclass(frozen=True, slots=True)
class PagedState:
    """States of fixed size of one layer of one sequence.

    A pass from position p on is cut where pages end, see `pieces`. With n = p / 256, rounded up,
    piece j reads page n + j - 1 and writes page n + j. So the state before the pass stays, and the
    one at every page boundary is kept; `Sequence.commit` drops the state before the pass if the
    one after piece 0 takes its place.
    """

    layer: StateLayer
    table: PageTable

    def read(self, index: int) -> Tensor:
        """A copy of the state in a page, f32; index -1: zeros, the state before the first token."""
        if index < 0:
            return torch.zeros(self.layer.shape.shape, device=self._device)
        return self._view(index).clone()

    def write(self, index: int, state: Tensor) -> None:
        """Store a state in a page that exists already."""
        self._view(index).copy_(state)

    @property
    def _device(self) -> torch.device | None:
        """Where the pages are; a pass has at least the one that it writes."""
        return next((page.device for page in reversed(self.table.pages) if page is not None), None)

    def _view(self, index: int) -> Tensor:
        stored = self.table.pages[index]
        assert stored is not None, f"state {index} was dropped"
        start = self.layer.offset
        part = stored[start : start + size_bytes(self.layer.shape)]
        return part.view(torch.float32).view(self.layer.shape.shape)


def pieces(position: int, tokens: int) -> list[range]:
    """The indices of tokens from `position` on, cut where pages end."""
    first = PAGE_TOKENS - position % PAGE_TOKENS
    cuts = [0, *range(first, tokens, PAGE_TOKENS), tokens]
    return [range(start, end) for start, end in itertools.pairwise(cuts)]


class _Views:
    """One layer's part of a page as tensors."""

    def __init__(self, page: Tensor, layer: PageLayer) -> None:
        K, dtype = layer.shape.kv_heads, layer.dtype
        tiles, quads = PAGE_TOKENS // TILE, PAGE_TOKENS // _QUAD
        self._layer = layer

        def view(offset: int, dtype: torch.dtype, *shape: int) -> Tensor:
            count = int(np.prod(shape))
            return page[offset : offset + count * dtype.itemsize].view(dtype).view(shape)

        keys, values = layer.key_width, layer.value_width
        self._keys: Tensor | None = None  # not where they are the values
        has_keys = not layer.shape.values_are_keys
        if dtype == torch.int8:
            if has_keys:  # [K, 16 tiles, 16 positions, quads, 4 channels]
                self._keys = view(layer.keys, dtype, K, tiles, keys // _QUAD, TILE, _QUAD)
                self._keys = self._keys.permute(0, 1, 3, 2, 4)
            # [K, 64 quads, 4 positions, stored channels]
            self._values = view(layer.values, dtype, K, quads, values, _QUAD).permute(0, 1, 3, 2)
            self._scales: tuple[Tensor, ...] = tuple(
                view(offset, torch.float16, K, layer.blocks, PAGE_TOKENS).transpose(1, 2)
                for offset in (layer.key_scales, layer.value_scales)
            )
        else:
            if has_keys:  # [K, 16 tiles, 16 positions, stored channels]
                self._keys = view(layer.keys, dtype, K, tiles, keys, TILE).transpose(2, 3)
            self._values = view(layer.values, dtype, K, PAGE_TOKENS, values)
            self._scales = ()

    def store(self, keys: Tensor, values: Tensor, offset: int) -> None:
        """Write rows [T, K, C] f32 from position `offset` of the page on."""
        at = torch.arange(offset, offset + len(keys), device=keys.device)
        width = self._layer.shape.head_width
        value_rows = encoded(values.transpose(0, 1), self._layer.dtype)
        key_rows = value_rows
        if values is not keys:
            key_rows = encoded(keys.transpose(0, 1), self._layer.dtype)
        coded = [key_rows, value_rows]
        if self._layer.dtype == torch.int8:
            key, value = (
                functional.pad(codes, (0, self._layer.key_width - width)) for codes, _ in coded
            )
            if self._keys is not None:
                key = key.unflatten(-1, (-1, _QUAD)).to(torch.int8)
                self._keys[:, at // TILE, at % TILE] = key
            self._values[:, at // _QUAD, at % _QUAD] = value.to(torch.int8)
            for view, (_, scales) in zip(self._scales, coded, strict=True):
                view[:, at] = scales
        else:
            if self._keys is not None:
                self._keys[:, at // TILE, at % TILE] = coded[0][0].to(self._layer.dtype)
            padding = (0, self._layer.value_width - width)
            self._values[:, at] = functional.pad(coded[1][0], padding).to(self._layer.dtype)

    def load(self, part: slice) -> tuple[Tensor, ...]:
        """Copies of rows: keys and values [T, K, C]; for int8 each followed by its scales."""
        width = self._layer.shape.head_width
        if self._layer.dtype == torch.int8:
            values = self._values.flatten(1, 2)[..., :width]
            keys = values
            if self._keys is not None:
                keys = self._keys.flatten(3).flatten(1, 2)[..., :width]
            rows = (keys, self._scales[0], values, self._scales[1])  # [K, 256, ...] each
        else:
            values = self._values[..., :width]
            rows = (values if self._keys is None else self._keys.flatten(1, 2), values)
        return tuple(each[:, part].transpose(0, 1).contiguous() for each in rows)


def encoded(rows: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Rows [K, T, C] f32 as stored in pages of f32, f16 or i8 (with scales).

    f16 saturates, since an infinity would persist; it is rounded when it is copied to the page.
    """
    if dtype == torch.float32:
        return (rows,)
    rows = rows.clamp(-_FLOAT16_MAX, _FLOAT16_MAX)
    if dtype == torch.float16:
        return (rows,)
    width = rows.shape[-1]
    blocks = functional.pad(hadamard(rows), (0, -width % BLOCK)).unflatten(-1, (-1, BLOCK))
    # The least scale with which codes from -128 to 127 cover a block; NaN without a sign.
    scales = torch.maximum(blocks.amax(-1) / 127, (-blocks).amax(-1) / 128)  # [K, T, B]
    scales = scales.clamp(max=_FLOAT16_MAX).abs().to(torch.float16)
    steps = torch.where(scales > 0, 1 / scales.float(), 0.0)[..., None]
    codes = (blocks * steps).round().clamp(-128, 127)
    return codes.flatten(-2)[..., :width], scales
