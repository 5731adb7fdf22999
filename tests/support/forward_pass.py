"""Runs the forward pass of a decoder on its program, interpreted, over a fresh KV cache."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.lora.stack import NO_ADAPTERS, Stack
from engine.models.forward import forward_program
from engine.models.layers import Decoder
from engine.state.kv_cache import Cache
from kernels.interpreter import Interpreter


def logits(
    decoder: Decoder,
    tokens: Sequence[int],
    stack: Stack = NO_ADAPTERS,
    pieces: Sequence[int] = (),
) -> Tensor:
    """Logits [T, V] f32 after each token, prefilled in chunks of the given lengths."""
    attention = decoder.blocks[0].attention
    kv_heads = attention.key.weight.shape[0] // attention.head_width
    cache = Cache(len(decoder.blocks), kv_heads, attention.head_width, len(tokens))
    model = Interpreter(
        forward_program(decoder, stack), decoder.backend.ops.without(decoder.refused)
    )
    rows: list[Tensor] = []
    with torch.inference_mode():
        for length in pieces or [len(tokens)]:
            piece = tokens[cache.length : cache.length + length]
            hidden = model.hidden(piece, cache.buffers_for(length), cache.length)
            cache.advance(length)
            rows.append(model.logits(hidden))
    return torch.cat(rows)
