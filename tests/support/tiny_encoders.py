"""Writes tiny encoders (bert, nomic-bert, EmbeddingGemma) and rerankers, with random weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

import tiny

SPACE = "\u2581"
WIDTH, HEADS, INNER, LAYERS = 48, 4, 96, 3
_CONTROLS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jump",
    "over",
    "lazy",
    "dog",
    "how",
    "are",
    "you",
    "today",
    "hello",
    "tree",
    "old",
]


def wordpiece() -> dict[str, Any]:
    """Keys of a vocabulary of words, and of letters that begin and continue one."""
    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    pieces = [*(SPACE + one for one in [*_WORDS, *letters]), *letters, "s", "ing", "ed"]
    pieces = list(dict.fromkeys(pieces))
    tokens = _CONTROLS + pieces
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "bert-bge",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [tiny.CONTROL] * len(_CONTROLS) + [tiny.NORMAL] * len(pieces),
        "tokenizer.ggml.token_type_count": 2,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.seperator_token_id": 3,
        "tokenizer.ggml.mask_token_id": 4,
    }


def write(
    path: Path,
    architecture: str = "bert",
    *,
    pooling: int | None = 1,
    context: int = 64,
    types: int = 2,
    ranks: bool = False,
    dense: bool = True,
    metadata: Mapping[str, Any] | None = None,
    without: str = "",
    words: dict[str, Any] | None = None,
) -> Path:
    """Write a model; `metadata` replaces keys, None removes one, `without` leaves out a tensor.

    `words` are the keys of its vocabulary, by default `wordpiece`. With `ranks` it has a head of one score, after a `dense` layer or without.
    """
    words = words or wordpiece()
    a = architecture
    keys: dict[str, Any] = {
        "general.architecture": a,
        "general.type": "model",
        "general.name": f"tiny {a}",
        f"{a}.block_count": LAYERS,
        f"{a}.context_length": context,
        f"{a}.embedding_length": WIDTH,
        f"{a}.feed_forward_length": INNER,
        f"{a}.attention.head_count": HEADS,
        f"{a}.attention.layer_norm_epsilon": 1e-12,
        f"{a}.attention.causal": False,
        f"{a}.pooling_type": 4 if ranks else pooling,
        f"{a}.rope.freq_base": 1000.0 if a != "bert" else None,
        **words,
        **(metadata or {}),
    }
    writer = gguf.GGUFWriter(path, a)
    writer.kv_data[0].clear()
    for key, value in keys.items():
        if value is not None:
            tiny.add_key(writer, key, value)
    random = np.random.default_rng(7)
    count = len(words["tokenizer.ggml.tokens"])
    for name, shape in _tensors(a, count, context, types, ranks, dense):
        if name == without:
            continue
        value = random.standard_normal(shape) * (0.3 if len(shape) > 1 else 0.1)
        if name.endswith("norm.weight"):
            value = value + 1
        writer.add_tensor(name, value.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gemma(path: Path, *, dense: int = 2, context: int = 256) -> Path:
    """A tiny EmbeddingGemma with so many layers after pooling; six layers of seven have a window."""
    plain = path.with_name("gemma3.gguf")
    tiny.write(plain, architecture="gemma3", layers=7, context=context)
    random = np.random.default_rng(3)
    added = {
        "dense_2.weight": random.standard_normal((96, 64)) / 8,
        "dense_3.weight": random.standard_normal((64, 96)) / 8,
    }
    keys = {
        "gemma-embedding.attention.sliding_window": 8,
        "gemma-embedding.attention.causal": False,
        "gemma-embedding.pooling_type": 1,
        "gemma-embedding.dense_2_feat_in": 64,
        "gemma-embedding.dense_2_feat_out": 96,
        "gemma-embedding.dense_3_feat_in": 96,
        "gemma-embedding.dense_3_feat_out": 64,
        "tokenizer.ggml.add_eos_token": True,
    }
    return changed(plain, path, "gemma-embedding", keys, dict(list(added.items())[:dense]))


def changed(
    source: Path,
    path: Path,
    architecture: str,
    keys: Mapping[str, Any],
    tensors: Mapping[str, NDArray[Any]],
) -> Path:
    """Copy a model of F32 tensors as one of another architecture, with other keys and more tensors."""
    reader = gguf.GGUFReader(source)
    before = reader.fields["general.architecture"].contents()
    fields: dict[str, Any] = {
        f"{architecture}.{name.removeprefix(f'{before}.')}"
        if name.startswith(f"{before}.")
        else name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    writer = gguf.GGUFWriter(path, architecture)
    writer.kv_data[0].clear()
    for name, value in (fields | {"general.architecture": architecture} | dict(keys)).items():
        tiny.add_key(writer, name, value)
    for one in reader.tensors:
        writer.add_tensor(one.name, np.array(one.data))
    for name, value in tensors.items():
        writer.add_tensor(name, value.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(
    architecture: str, count: int, context: int, types: int, ranks: bool, dense: bool
) -> Iterator[tuple[str, tuple[int, ...]]]:
    is_bert = architecture == "bert"
    yield "token_embd.weight", (count, WIDTH)
    if types:
        yield "token_types.weight", (types, WIDTH)
    if is_bert:
        yield "position_embd.weight", (context, WIDTH)
    yield from _biased("token_embd_norm", WIDTH)
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        if is_bert:
            for letter in "qkv":
                yield from _biased(f"{name}.attn_{letter}", WIDTH, WIDTH)
            yield from _biased(f"{name}.attn_output", WIDTH, WIDTH)
            yield from _biased(f"{name}.ffn_up", INNER, WIDTH)
            yield from _biased(f"{name}.ffn_down", WIDTH, INNER)
        else:
            yield f"{name}.attn_qkv.weight", (3 * WIDTH, WIDTH)
            yield f"{name}.attn_output.weight", (WIDTH, WIDTH)
            yield f"{name}.ffn_gate.weight", (INNER, WIDTH)
            yield f"{name}.ffn_up.weight", (INNER, WIDTH)
            yield f"{name}.ffn_down.weight", (WIDTH, INNER)
        yield from _biased(f"{name}.attn_output_norm", WIDTH)
        yield from _biased(f"{name}.layer_output_norm", WIDTH)
    if ranks:
        if dense:
            yield from _biased("cls", WIDTH, WIDTH)
        yield from _biased("cls.output", 1, WIDTH)


def _biased(name: str, *shape: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]
