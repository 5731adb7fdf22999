"""Decoders whose file says that they read a text in both directions: they make embeddings.

Such are LLM2Vec, gte-Qwen2 and LFM2.5-Embedding: the layers of a decoder, whose attention sees the
whole text and whose short convolutions are centred. Nothing of a text is cached.
"""

from __future__ import annotations

from dataclasses import replace

from engine.errors import UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.layers import Block, Decoder
from engine.models.mixers import Attention, Mixer, ShortConvolution


def key_of(file: GGUFFile) -> str:
    """The key that states whether tokens see only those before them."""
    return f"{file.string('general.architecture')}.attention.causal"


def in_both_directions(decoder: Decoder, key: str) -> Decoder:
    """The decoder as an encoder; raises UnsupportedModel, naming `key`, for layers that cannot."""
    return replace(decoder, blocks=tuple(_block(block, key) for block in decoder.blocks))


def _block(block: Block, key: str) -> Block:
    return (
        block if block.attention is None else replace(block, attention=_mixer(block.attention, key))
    )


def _mixer(mixer: Mixer, key: str) -> Mixer:
    match mixer:
        case Attention(window=0, cap=0.0, sinks=None, chunk=0, shared=None, key=one, value=two) if (
            one and two
        ):
            return replace(mixer, causal=False)
        case ShortConvolution(convolution=convolution):
            return replace(mixer, convolution=replace(convolution, causal=False))
        case _:
            raise refusal(key)


def refusal(key: str) -> UnsupportedModel:
    """The error of a model whose layers cannot read in both directions."""
    return UnsupportedModel(
        f"The key '{key}' says that the model reads texts in both directions, which this version does "
        "not support for its kind of layers.",
        "Choose another model for embeddings, such as bge-m3 or EmbeddingGemma.",
    )
