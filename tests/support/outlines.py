"""GGUF files of the shape of real hybrid models: metadata and tensors whose bytes are never written.

The file systems of tests keep such a file without the blocks that nobody wrote.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from gguf.quants import quant_shape_to_byte_shape

Shapes = dict[str, tuple[int, ...]]
_ALIGNMENT = 32


@dataclass
class Outline:
    """A model under construction: its keys, without the architecture's name, and its tensors."""

    architecture: str
    width: int
    vocabulary: int
    keys: dict[str, Any] = field(default_factory=dict)
    tensors: Shapes = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set the tensors that every model has."""
        self.keys = {
            "embedding_length": self.width,
            "context_length": 131_072,
            "attention.layer_norm_rms_epsilon": 1e-5,
            **self.keys,
        }
        self.tensors["token_embd.weight"] = (self.vocabulary, self.width)

    def norm(self, *names: str) -> None:
        """Norms over the width of the model."""
        self.tensors.update((f"{name}.weight", (self.width,)) for name in names)

    def attention(self, block: str, heads: int, kv_heads: int, head_width: int) -> None:
        """Projections of attention."""
        query, key = (heads * head_width, self.width), (kv_heads * head_width, self.width)
        for name, shape in (("q", query), ("k", key), ("v", key), ("output", query[::-1])):
            self.tensors[f"{block}.attn_{name}.weight"] = shape

    def state_space(
        self, block: str, inner: int, state: int, heads: int, groups: int, *, norm: bool = True
    ) -> None:
        """A Mamba-2 mixer, and its keys."""
        values = (inner, state, heads, groups, 4)
        names = ("inner_size", "state_size", "time_step_rank", "group_count", "conv_kernel")
        self.keys.update((f"ssm.{name}", value) for name, value in zip(names, values, strict=True))
        convolved = inner + 2 * groups * state
        tensors: Shapes = {
            "ssm_in.weight": (inner + convolved + heads, self.width),
            "ssm_conv1d.weight": (convolved, 4),
            "ssm_conv1d.bias": (convolved,),
            "ssm_dt.bias": (heads,),
            "ssm_a": (heads, 1),
            "ssm_d": (heads, 1),
            "ssm_out.weight": (self.width, inner),
        }
        if norm:
            tensors["ssm_norm.weight"] = (groups, inner // groups)
        self.tensors.update((f"{block}.{name}", shape) for name, shape in tensors.items())

    def mlp(self, block: str, inner: int, *, gated: bool = True, suffix: str = "") -> None:
        """A feed-forward; `suffix` of the expert of all tokens: "_shexp"."""
        for name in ("gate", "up") if gated else ("up",):
            self.tensors[f"{block}.ffn_{name}{suffix}.weight"] = (inner, self.width)
        self.tensors[f"{block}.ffn_down{suffix}.weight"] = (self.width, inner)

    def experts(
        self, block: str, count: int, inner: int, *, gated: bool = True, width: int = 0
    ) -> None:
        """Experts on vectors of `width` channels, by default those of the model."""
        width = width or self.width
        self.tensors[f"{block}.ffn_gate_inp.weight"] = (count, self.width)
        for name in ("gate", "up") if gated else ("up",):
            self.tensors[f"{block}.ffn_{name}_exps.weight"] = (count, inner, width)
        self.tensors[f"{block}.ffn_down_exps.weight"] = (count, width, inner)

    def write(self, path: Path) -> Path:
        """Write the file, its matrices as Q8_0."""
        writer = GGUFWriter(path, self.architecture)
        for key, value in self.keys.items():
            _add(writer, f"{self.architecture}.{key}", value)
        writer.add_string("tokenizer.ggml.model", "no_vocab")
        size = 0
        for name, shape in self.tensors.items():
            is_matrix = len(shape) > 1 and shape[-1] % 32 == 0
            kind = GGMLQuantizationType.Q8_0 if is_matrix else GGMLQuantizationType.F32
            stored = quant_shape_to_byte_shape(shape, kind) if is_matrix else shape
            count = int(np.prod(stored)) * (1 if is_matrix else 4)
            dtype = np.dtype(np.uint8 if is_matrix else np.float32)
            writer.add_tensor_info(name, stored, dtype, count, raw_dtype=kind)
            size += -(-count // _ALIGNMENT) * _ALIGNMENT
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        writer.close()
        end = -(-path.stat().st_size // _ALIGNMENT) * _ALIGNMENT
        os.truncate(path, end + size)
        return path


def _add(writer: GGUFWriter, key: str, value: object) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case list():
            writer.add_array(key, value)
        case _:
            raise TypeError(f"{key}: {value!r}")


# --- released models ----------------------------------------------------------------------------

NEMOTRON_NANO = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
_GRANITE_ATTENTION = (5, 15, 25, 35)
_LFM2_ATTENTION = (2, 6, 10, 14, 18, 21)


def granite_h_tiny() -> Outline:
    """Granite 4.0 H Tiny: 4 of 40 layers have attention, all have 64 experts and one of all."""
    kv_heads = [4 if at in _GRANITE_ATTENTION else 0 for at in range(40)]
    made = Outline(
        "granitehybrid",
        1_536,
        100_352,
        {
            "block_count": 40,
            "attention.head_count": 12,
            "attention.head_count_kv": kv_heads,
            "feed_forward_length": 512,
            "expert_count": 64,
            "expert_used_count": 6,
            "expert_shared_feed_forward_length": 1_024,
            "rope.scaling.finetuned": False,
        },
    )
    made.norm("output_norm")
    for at in range(40):
        block = f"blk.{at}"
        made.norm(f"{block}.attn_norm", f"{block}.ffn_norm")
        if kv_heads[at]:
            made.attention(block, 12, 4, 128)
        else:
            made.state_space(block, 3_072, 128, 48, 1)
        made.experts(block, 64, 512)
        made.mlp(block, 1_024, suffix="_shexp")
    return made


def nemotron_nano() -> Outline:
    """Nemotron Nano 9B v2: 4 layers of attention, the others Mamba-2 or a feed-forward alone."""
    made = Outline(
        "nemotron_h",
        4_480,
        131_072,
        {
            "block_count": len(NEMOTRON_NANO),
            "attention.head_count": 40,
            "attention.head_count_kv": [8 if kind == "*" else 0 for kind in NEMOTRON_NANO],
            "attention.key_length": 128,
            "attention.value_length": 128,
            "attention.layer_norm_epsilon": 1e-5,
            "feed_forward_length": [15_680 if kind == "-" else 0 for kind in NEMOTRON_NANO],
            "rope.dimension_count": 112,
        },
    )
    made.norm("output_norm")
    for at, kind in enumerate(NEMOTRON_NANO):
        block = f"blk.{at}"
        made.norm(f"{block}.attn_norm")
        if kind == "*":
            made.attention(block, 40, 8, 128)
        elif kind == "M":
            made.state_space(block, 10_240, 128, 128, 8)
        else:
            made.mlp(block, 15_680, gated=False)
    return made


def lfm2_8b() -> Outline:
    """LFM2-8B-A1B: 6 of 24 layers have attention, the others a convolution; 2 have no experts."""
    kv_heads = [8 if at in _LFM2_ATTENTION else 0 for at in range(24)]
    made = Outline(
        "lfm2moe",
        2_048,
        65_536,
        {
            "block_count": 24,
            "leading_dense_block_count": 2,
            "attention.head_count": 32,
            "attention.head_count_kv": kv_heads,
            "feed_forward_length": 7_168,
            "expert_feed_forward_length": 1_792,
            "expert_count": 32,
            "expert_used_count": 4,
            "expert_gating_func": 2,
            "shortconv.l_cache": 3,
        },
    )
    made.norm("token_embd_norm")
    for at in range(24):
        block, width = f"blk.{at}", made.width
        made.norm(f"{block}.attn_norm", f"{block}.ffn_norm")
        if kv_heads[at]:
            made.attention(block, 32, 8, 64)
            made.tensors |= {f"{block}.attn_{one}_norm.weight": (64,) for one in "qk"}
        else:
            made.tensors |= {
                f"{block}.shortconv.in_proj.weight": (3 * width, width),
                f"{block}.shortconv.conv.weight": (width, 3),
                f"{block}.shortconv.out_proj.weight": (width, width),
            }
        if at < 2:
            made.mlp(block, 7_168)
        else:
            made.experts(block, 32, 1_792)
            made.tensors[f"{block}.exp_probs_b.bias"] = (32,)
    return made


def mamba_codestral() -> Outline:
    """Mamba-Codestral 7B: 64 layers of Mamba-2 alone."""
    keys = {"block_count": 64, "attention.head_count": 0, "feed_forward_length": 0}
    made = Outline("mamba2", 4_096, 32_768, keys)
    made.norm("output_norm")
    for at in range(64):
        made.norm(f"blk.{at}.attn_norm")
        made.state_space(f"blk.{at}", 8_192, 128, 128, 8)
    return made


def falcon_h1() -> Outline:
    """Falcon-H1 1.5B: attention and Mamba-2 in each of 24 layers."""
    made = Outline(
        "falcon-h1",
        2_048,
        65_536,
        {
            "block_count": 24,
            "attention.head_count": 8,
            "attention.head_count_kv": 2,
            "attention.key_length": 128,
            "attention.value_length": 128,
            "feed_forward_length": 4_096,
        },
    )
    made.norm("output_norm")
    for at in range(24):
        block = f"blk.{at}"
        made.norm(f"{block}.attn_norm")
        made.tensors[f"{block}.ffn_norm"] = (2_048,)
        made.attention(block, 8, 2, 128)
        made.state_space(block, 3_072, 256, 48, 1, norm=False)
        made.mlp(block, 4_096)
    return made


RELEASED: Mapping[str, Any] = {
    one.__name__: one
    for one in (granite_h_tiny, nemotron_nano, lfm2_8b, mamba_codestral, falcon_h1)
}
