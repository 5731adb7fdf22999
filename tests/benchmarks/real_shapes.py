"""Writes models with the shapes of released hybrids and mixtures, and random weights, for speed.

    python tests/benchmarks/real_shapes.py qwen3.5-0.8b Q4_0 FILE

An engine does the work of the real model on such a file: the same bytes read, the same kernels and
caches. What it writes is noise. The tokenizer is a small byte-level BPE, padded to the real size.
Shapes: the catalog's entries of these models and the configuration files published with them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import tiny  # noqa: E402
from kernels.weights.formats import Format, by_name  # noqa: E402

Tensor = tuple[str, tuple[int, ...], str]  # name, shape, and "" or a format of its own
Tensors = Iterator[Tensor]
_NORM = "norm"  # in place of a format: float32 values near 1
_RATE = "rate"  # negative float32 values
_FLOATS = "F32"
_REPEATED = 1 << 18  # random blocks that are repeated


@dataclass(frozen=True)
class Shape:
    """One model: its architecture, metadata without the prefix, and tensors of its layers."""

    architecture: str
    layers: int
    width: int
    vocabulary: int
    keys: dict[str, Any]
    layer: Callable[[Shape, int], Tensors]
    tied: bool = True
    table: str = ""  # format of the embedding and of the head; "": that of the matrices
    more: tuple[Tensor, ...] = ()  # tensors of no layer


def _qwen35(one: Shape, index: int) -> Tensors:
    D, keys = one.width, one.keys
    heads, kv, C = (
        keys[f"attention.{key}"] for key in ("head_count", "head_count_kv", "key_length")
    )
    F, inner = keys["feed_forward_length"], keys["ssm.inner_size"]
    recurrent, small = keys["ssm.time_step_rank"], keys["ssm.group_count"] * keys["ssm.state_size"]
    yield "attn_norm.weight", (D,), _NORM
    if (index + 1) % 4:
        yield "attn_qkv.weight", (2 * small + inner, D), ""
        yield "attn_gate.weight", (inner, D), ""
        yield "ssm_conv1d.weight", (2 * small + inner, 4), _FLOATS
        yield "ssm_a", (recurrent,), _RATE
        yield "ssm_dt.bias", (recurrent,), _FLOATS
        yield "ssm_beta.weight", (recurrent, D), ""
        yield "ssm_alpha.weight", (recurrent, D), ""
        yield "ssm_norm.weight", (keys["ssm.state_size"],), _NORM
        yield "ssm_out.weight", (D, inner), ""
    else:
        yield "attn_q.weight", (2 * heads * C, D), ""
        yield "attn_k.weight", (kv * C, D), ""
        yield "attn_v.weight", (kv * C, D), ""
        yield "attn_q_norm.weight", (C,), _NORM
        yield "attn_k_norm.weight", (C,), _NORM
        yield "attn_output.weight", (D, heads * C), ""
    yield "post_attention_norm.weight", (D,), _NORM
    yield "ffn_gate.weight", (F, D), ""
    yield "ffn_up.weight", (F, D), ""
    yield "ffn_down.weight", (D, F), ""


def qwen35(
    layers: int, width: int, heads: int, kv: int, ffn: int, recurrent: int, *, tied: bool = True
) -> Shape:
    """A Qwen3.5 model; `recurrent` value heads of 128 channels."""
    keys = {
        "context_length": 262_144,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e7,
        "rope.dimension_count": 64,
        "rope.dimension_sections": [11, 11, 10, 0],
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": recurrent,
        "ssm.inner_size": 128 * recurrent,
        "full_attention_interval": 4,
    }
    return Shape("qwen35", layers, width, 248_320, keys, _qwen35, tied)


def _lfm2(one: Shape, index: int) -> Tensors:
    D, F = one.width, one.keys["feed_forward_length"]
    kv = one.keys["attention.head_count_kv"][index] * 64
    yield "attn_norm.weight", (D,), _NORM
    if kv:
        yield "attn_q.weight", (D, D), ""
        yield "attn_k.weight", (kv, D), ""
        yield "attn_v.weight", (kv, D), ""
        yield "attn_q_norm.weight", (64,), _NORM
        yield "attn_k_norm.weight", (64,), _NORM
        yield "attn_output.weight", (D, D), ""
    else:
        yield "shortconv.conv.weight", (D, 3), _FLOATS
        yield "shortconv.in_proj.weight", (3 * D, D), ""
        yield "shortconv.out_proj.weight", (D, D), ""
    yield "ffn_norm.weight", (D,), _NORM
    yield "ffn_gate.weight", (F, D), ""
    yield "ffn_up.weight", (F, D), ""
    yield "ffn_down.weight", (D, F), ""


def lfm2(width: int, heads: int, ffn: int) -> Shape:
    """An LFM2 model of 16 layers, 6 of them with attention."""
    attention = (2, 5, 8, 10, 12, 14)
    keys = {
        "context_length": 128_000,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": [8 if at in attention else 0 for at in range(16)],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 1e6,
        "shortconv.l_cache": 3,
        "vocab_size": 65_536,
    }
    return Shape("lfm2", 16, width, 65_536, keys, _lfm2)


def _gpt_oss(one: Shape, index: int) -> Tensors:
    del index
    D, E, F = one.width, one.keys["expert_count"], one.keys["expert_feed_forward_length"]
    yield "attn_norm.weight", (D,), _NORM
    for part, rows in (("q", 4_096), ("k", 512), ("v", 512)):
        yield f"attn_{part}.weight", (rows, D), "Q8_0"
        yield f"attn_{part}.bias", (rows,), _FLOATS
    yield "attn_output.weight", (D, 4_096), "Q8_0"
    yield "attn_output.bias", (D,), _FLOATS
    yield "attn_sinks.weight", (64,), _FLOATS
    yield "post_attention_norm.weight", (D,), _NORM
    yield "ffn_gate_inp.weight", (E, D), _FLOATS
    yield "ffn_gate_inp.bias", (E,), _FLOATS
    for part, rows, columns in (("gate", F, D), ("up", F, D), ("down", D, F)):
        yield f"ffn_{part}_exps.weight", (E, rows, columns), ""
        yield f"ffn_{part}_exps.bias", (E, rows), _FLOATS


def gpt_oss(layers: int) -> Shape:
    """gpt-oss 20B, whole with 24 layers, or as many of its layers as memory allows."""
    keys = {
        "context_length": 131_072,
        "feed_forward_length": 2_880,
        "expert_feed_forward_length": 2_880,
        "expert_count": 32,
        "expert_used_count": 4,
        "attention.head_count": 64,
        "attention.head_count_kv": 8,
        "attention.key_length": 64,
        "attention.value_length": 64,
        "attention.sliding_window": 128,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 150_000.0,
        "rope.dimension_count": 64,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4_096,
    }
    return Shape("gpt-oss", layers, 2_880, 201_088, keys, _gpt_oss, tied=False, table="Q8_0")


_GEMMA4_LAYERS, _GEMMA4_SHARED, _GEMMA4_INPUT = 35, 20, 256


def _gemma4(one: Shape, index: int) -> Tensors:
    D, keys = one.width, one.keys
    local, P = keys["attention.sliding_window_pattern"][index], _GEMMA4_INPUT
    C, F = (256 if local else 512), keys["feed_forward_length"][index]
    yield "attn_norm.weight", (D,), _NORM
    yield "attn_q.weight", (8 * C, D), ""
    yield "attn_q_norm.weight", (C,), _NORM
    if index < _GEMMA4_LAYERS - _GEMMA4_SHARED:
        yield "attn_k.weight", (C, D), ""
        yield "attn_v.weight", (C, D), ""
        yield "attn_k_norm.weight", (C,), _NORM
    yield "attn_output.weight", (D, 8 * C), ""
    yield "post_attention_norm.weight", (D,), _NORM
    yield "ffn_norm.weight", (D,), _NORM
    yield "ffn_gate.weight", (F, D), ""
    yield "ffn_up.weight", (F, D), ""
    yield "ffn_down.weight", (D, F), ""
    yield "post_ffw_norm.weight", (D,), _NORM
    yield "inp_gate.weight", (P, D), ""
    yield "proj.weight", (D, P), ""
    yield "post_norm.weight", (D,), _NORM
    yield "layer_output_scale.weight", (1,), _NORM


def gemma4_e2b() -> Shape:
    """Gemma 4 E2B, with the formats of its published Q4_0 file."""
    L, own, P, V, D = _GEMMA4_LAYERS, _GEMMA4_LAYERS - _GEMMA4_SHARED, _GEMMA4_INPUT, 262_144, 1_536
    keys = {
        "context_length": 131_072,
        "feed_forward_length": [6_144 if at < own else 12_288 for at in range(L)],
        "attention.head_count": 8,
        "attention.head_count_kv": 1,
        "attention.key_length": 512,
        "attention.value_length": 512,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [bool((at + 1) % 5) for at in range(L)],
        "attention.shared_kv_layers": _GEMMA4_SHARED,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.freq_base": 1e6,
        "rope.freq_base_swa": 1e4,
        "rope.dimension_count": 512,
        "rope.dimension_count_swa": 256,
        "embedding_length_per_layer_input": P,
        "final_logit_softcapping": 30.0,
    }
    more = (
        ("rope_freqs.weight", (256,), _NORM),
        ("per_layer_token_embd.weight", (V, L * P), "Q6_K"),
        ("per_layer_model_proj.weight", (L * P, D), "BF16"),
        ("per_layer_proj_norm.weight", (P,), _NORM),
    )
    return Shape("gemma4", L, D, V, keys, _gemma4, table="Q6_K", more=more)


SHAPES = {
    "gemma4-e2b": gemma4_e2b(),
    "qwen3.5-0.8b": qwen35(24, 1_024, 8, 2, 3_584, 16),
    "qwen3.5-4b": qwen35(32, 2_560, 16, 4, 9_216, 32),
    "bonsai-27b": qwen35(64, 5_120, 24, 4, 17_408, 48, tied=False),
    "lfm2-350m": lfm2(1_024, 16, 4_608),
    "lfm2-1.2b": lfm2(2_048, 32, 8_192),
    "gpt-oss-20b": gpt_oss(24),
    "gpt-oss-20b-6": gpt_oss(6),
}


def write(shape: Shape, format: Format, path: Path) -> Path:
    """Write a model whose matrices are in one format, but for those that have another."""
    random = np.random.default_rng(0)
    writer = GGUFWriter(path, shape.architecture)
    keys = {"block_count": shape.layers, "embedding_length": shape.width, **shape.keys}
    for key, value in keys.items():
        tiny.add_key(writer, f"{shape.architecture}.{key}", value)
    words = tiny.bpe("qwen3")
    tiny.pad_vocabulary(words, shape.vocabulary)
    for key, value in words.items():
        tiny.add_key(writer, key, value)
    first: Tensor = ("token_embd.weight", (shape.vocabulary, shape.width), shape.table)
    for tensor in (first, *shape.more):
        _add_tensor(writer, random, tensor, format)
    for index in range(shape.layers):
        for name, dimensions, kind in shape.layer(shape, index):
            _add_tensor(writer, random, (f"blk.{index}.{name}", dimensions, kind), format)
    _add(writer, random, _norm_name(shape), (shape.width,), format, _NORM)
    if not shape.tied:
        head: Tensor = ("output.weight", (shape.vocabulary, shape.width), shape.table)
        _add_tensor(writer, random, head, format)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _norm_name(shape: Shape) -> str:
    return "token_embd_norm.weight" if shape.architecture == "lfm2" else "output_norm.weight"


def _add_tensor(
    writer: GGUFWriter, random: np.random.Generator, tensor: Tensor, format: Format
) -> None:
    name, dimensions, kind = tensor
    one = by_name(kind) if kind not in ("", _NORM, _RATE) else format
    _add(writer, random, name, dimensions, one, kind if kind in (_NORM, _RATE) else "")


def _add(
    writer: GGUFWriter,
    random: np.random.Generator,
    name: str,
    shape: tuple[int, ...],
    format: Format,
    values: str = "",
) -> None:
    spread = shape[-1] ** -0.5
    if values == _NORM:
        writer.add_tensor(name, random.uniform(0.9, 1.1, shape).astype(np.float32))
    elif values == _RATE:
        writer.add_tensor(name, -random.uniform(0.05, 4.0, shape).astype(np.float32))
    elif format.name == _FLOATS:
        writer.add_tensor(name, random.standard_normal(shape, np.float32) * np.float32(spread))
    else:
        rows = int(np.prod(shape[:-1], dtype=np.int64))
        raw = _blocks(random, rows * shape[-1] // format.block, spread, format)
        raw = raw.reshape(*shape[:-1], format.row_bytes(shape[-1])).view(np.int8)
        writer.add_tensor(name, raw, raw_shape=shape, raw_dtype=format.id)  # type: ignore[arg-type]


def _blocks(
    random: np.random.Generator, count: int, spread: float, format: Format
) -> NDArray[np.uint8]:
    """Random codes whose scales give the weights about this spread; some blocks, repeated."""
    some = min(count, _REPEATED)
    blocks = random.integers(0, 256, (some, format.size), dtype=np.uint8)
    if format.name == "MXFP4":  # a power of two; the codes have a spread of about 2.8
        blocks[:, 0] = 127 + round(np.log2(spread / 2.8))
    elif format.name == "Q6_K":  # all groups have one scale
        blocks[:, -18:-2] = 64
        scales = random.uniform(0.75, 1.25, some) * spread / (64 * 18.5)
        blocks[:, -2:] = scales.astype("<f2")[:, None].view(np.uint8)
    elif format.name == "BF16":
        values = random.standard_normal(some, np.float32) * np.float32(spread)
        blocks[:] = (values.view(np.uint32) >> 16).astype("<u2")[:, None].view(np.uint8)
    else:
        unit = {"Q1_0": 1.0, "Q4_0": 4.6, "Q8_0": 73.9}[format.name]
        scales = random.uniform(0.75, 1.25, some) * spread / unit
        blocks[:, :2] = scales.astype("<f2")[:, None].view(np.uint8)
    return np.resize(blocks, (count, format.size))


if __name__ == "__main__":
    model, name, to = sys.argv[1:]
    print(write(SHAPES[model], by_name(name), Path(to)))
