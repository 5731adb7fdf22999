"""Metadata keys to the sizes every architecture shares; nothing is guessed from a model's name."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf import GGUFFile


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of a decoder as its file states them."""

    architecture: str
    layers: int
    width: int  # D
    heads: int  # H
    kv_heads: int  # K
    head_width: int  # C
    feed_forward: int  # F
    vocabulary: int  # V
    context: int  # tokens it was trained for
    epsilon: float
    rope_base: float


def read_config(file: GGUFFile) -> Config:
    """The shared sizes; raises ModelFileError naming the key that is missing or impossible."""
    name = file.string("general.architecture")
    heads = file.integer(f"{name}.attention.head_count", minimum=1, maximum=65_536)
    kv_heads = file.integer(f"{name}.attention.head_count_kv", heads, minimum=1, maximum=65_536)
    width = file.integer(f"{name}.embedding_length", minimum=1, maximum=1 << 20)
    head_width = file.integer(
        f"{name}.attention.key_length", max(width // heads, 1), minimum=2, maximum=65_536
    )
    value_width = file.integer(f"{name}.attention.value_length", head_width)
    rotated = file.integer(f"{name}.rope.dimension_count", head_width)
    if heads % kv_heads:
        raise ModelFileError(
            f"{heads} attention heads cannot share {kv_heads} key/value heads evenly.",
            "The file is damaged or made by a faulty converter; get another copy.",
        )
    if value_width != head_width or rotated != head_width or head_width % 2:
        raise UnsupportedModel(
            f"This {name} file has key, value and rotary widths {head_width}, {value_width} and "
            f"{rotated}; they must be one even number.",
            "Choose another model of this family.",
        )
    return Config(
        architecture=name,
        layers=file.integer(f"{name}.block_count", minimum=1, maximum=4_096),
        width=width,
        heads=heads,
        kv_heads=kv_heads,
        head_width=head_width,
        feed_forward=file.integer(f"{name}.feed_forward_length", minimum=1, maximum=1 << 24),
        vocabulary=_embedding_rows(file),
        context=file.integer(f"{name}.context_length", minimum=1, maximum=1 << 30),
        epsilon=file.number(f"{name}.attention.layer_norm_rms_epsilon", minimum=0.0, maximum=1.0),
        rope_base=file.number(f"{name}.rope.freq_base", 10_000.0, minimum=1.0, maximum=1e12),
    )


def _embedding_rows(file: GGUFFile) -> int:
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFileError(
            "The tensor 'token_embd.weight' is missing or not a table: the file holds no model.",
            "A vocabulary-only file cannot answer; open a complete model.",
        )
    return embedding.shape[0]


def rope_frequencies(base: float, head_width: int) -> Tensor:
    """[C/2] f32 radians per position, rounded as the models' own training code rounds them.

    Source: https://github.com/huggingface/transformers/blob/v4.57.0/src/transformers/modeling_rope_utils.py
    """
    exponents = torch.arange(0, head_width, 2, dtype=torch.int64).float() / head_width
    return 1.0 / (base**exponents)


def linear_rope_factor(file: GGUFFile) -> float:
    """By how much positions are divided; raises UnsupportedModel for scalings that are not linear."""
    name = file.string("general.architecture")
    kind = file.string(f"{name}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise UnsupportedModel(
            f"The key '{name}.rope.scaling.type' asks for {kind!r}, which this version cannot compute.",
            "Choose a model without context extension, or update the program.",
        )
    if kind == "none":
        return 1.0
    return file.number(f"{name}.rope.scaling.factor", 1.0, minimum=1e-3, maximum=1e6)
