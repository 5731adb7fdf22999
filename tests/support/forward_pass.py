"""Runs the forward pass of a decoder on its program, interpreted, over fresh KV pages."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

import torch
from torch import Tensor

from engine.adapters.stack import NO_ADAPTERS, Stack
from engine.models.forward import forward_program
from engine.models.layers import Decoder
from engine.state.pages import PagePool
from engine.state.sequence import Sequence
from kernels.programs.interpreter import Interpreter
from kernels.states.kv_pages import KVLayout


def logits(
    decoder: Decoder,
    tokens: Tokens[int],
    stack: Stack = NO_ADAPTERS,
    pieces: Tokens[int] = (),
) -> Tensor:
    """Logits [T, V] f32 after each token, prefilled in chunks of the given lengths."""
    layout = KVLayout(decoder.layer_states, torch.float32)
    sequence = Sequence(PagePool(layout), len(tokens))
    (backend,) = decoder.placement.backends
    ops = backend.ops.without(decoder.refused.get(backend.name, ()))
    model = Interpreter(forward_program(decoder, layout, stack), ops)
    rows: list[Tensor] = []
    with torch.inference_mode():
        for length in pieces or [len(tokens)]:
            piece = tokens[len(sequence) : len(sequence) + length]
            sequence.reserve(len(piece))
            hidden = model.hidden([sequence.segment(piece)])
            sequence.commit(piece)
            rows.append(model.logits(hidden))
    return torch.cat(rows)
