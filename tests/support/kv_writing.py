"""Writes rows into the KV pages of a sequence as a forward pass does, and reads them."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from functools import lru_cache

import torch
from torch import Tensor

from engine.state.sequence import Sequence
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PagedKV, PagedState, StateLayer
from kernels.states.quantized_kv import QuantizedKV

Stored = Tensor | QuantizedKV


def paged(layout: KVLayout, sequence: Sequence, layer: int) -> PagedKV:
    """The keys and values of one layer of a sequence."""
    place = layout.layers[layer]
    return PagedKV(place, sequence.segment([]).tables[place.group])


def write(
    layout: KVLayout, sequence: Sequence, layer: int, keys: Tensor, values: Tensor
) -> tuple[Stored, Stored]:
    """Store [T, K, C] f32 after the committed tokens of a layer; returns what attention reads.

    Raises OutOfPages. The caller commits the tokens after the last layer.
    """
    sequence.reserve(len(keys))
    kv = paged(layout, sequence, layer)
    kv.append(keys, values, len(sequence))
    return kv.rows(len(sequence), len(sequence) + len(keys))


def extend(layout: KVLayout, sequence: Sequence, tokens: Tokens[int], seed: int = 0) -> None:
    """Append tokens whose keys and values, in every layer, follow from the tokens before.

    As with a real model, rows are a function of the token ids up to their position, and of the
    adapters, here `seed`. They are small whole numbers, exact in f32 and f16. Raises OutOfPages.
    """
    first = len(sequence)
    if not tokens:
        return
    sequence.reserve(len(tokens))
    text = [*sequence.tokens, *tokens]
    for layer in range(len(layout.layers)):
        keys, values = expected(layout, layer, text, first, len(text), seed)
        paged(layout, sequence, layer).append(keys, values, first)
    sequence.commit(tokens)


def expected(
    layout: KVLayout, layer: int, tokens: Tokens[int], first: int, end: int, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The f32 rows [end - first, K, C] that `extend` stores for positions first .. end."""
    shape = layout.layers[layer].shape
    start = torch.tensor(_states(tuple(tokens), seed)[first:end], dtype=torch.float32)
    heads = torch.arange(shape.kv_heads * shape.head_width, dtype=torch.float32)
    keys = (start[:, None, None] + heads.view(1, shape.kv_heads, -1) + layer) % 97
    return keys, -keys


@lru_cache(maxsize=256)
def _states(tokens: tuple[int, ...], seed: int) -> list[int]:
    """A number for each position that depends on all tokens up to it."""
    state, states = seed + 17, []
    for token in tokens:
        state = (state * 31 + token + 1) % 1021
        states.append(state)
    return states


def holds_its_rows(layout: KVLayout, sequence: Sequence, seed: int = 0) -> bool:
    """Whether every visible row is the one that `extend` stores for these tokens."""
    length = len(sequence)
    for number, layer in enumerate(layout.layers if length else ()):
        first = first_visible(length, layer.shape.window)
        found = paged(layout, sequence, number).rows(first, length)
        wanted = expected(layout, number, sequence.tokens, first, length, seed)
        for stored, rows in zip(found, wanted, strict=True):
            assert isinstance(stored, Tensor)
            if not torch.equal(stored.float(), rows):
                return False
    return True


def first_visible(length: int, window: int) -> int:
    """The first position below `length` that the token at `length` sees; the last if none."""
    return min(max(length - window + 1, 0), length - 1) if window else 0


def sequence_rows(layout: KVLayout, sequence: Sequence) -> list[Tensor]:
    """Copies of the stored keys and values of all layers: of those positions that are visible.

    Of layers with a window these are the ones that the next token sees; of layers with a state of
    fixed size it is that state.
    """
    rows: list[Tensor] = []
    length = len(sequence)
    for number, layer in enumerate(layout.layers if length else ()):
        if isinstance(layer, StateLayer):
            state = PagedState(layer, sequence.segment([]).tables[layer.group])
            rows.append(state.read(-(-length // PAGE_TOKENS) - 1))
            continue
        first = first_visible(length, layer.shape.window)
        for part in paged(layout, sequence, number).rows(first, length):
            rows += [part.codes, part.scales] if isinstance(part, QuantizedKV) else [part]
    return rows


def equal_rows(one: Tokens[Tensor], other: Tokens[Tensor]) -> bool:
    """Whether two lists of stored rows are equal bit for bit."""
    return len(one) == len(other) and all(map(torch.equal, one, other))
