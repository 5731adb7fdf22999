"""Rotated matrices, as of Bonsai 2: a folded model answers like the model before, or is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFValueType, GGUFWriter
from numpy.typing import NDArray

import architecture_files as files
import tiny
from engine.errors import EngineError, ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load
from kernels.weights.weight import decode_rows

Tensors = dict[str, NDArray[np.float32]]
D, F, V, BLOCK, LAYERS = 64, 96, 40, 32, 2
KEY_HEADS, REPEATS, STATE = 2, 3, 32  # of the delta net, which has KEY_HEADS * REPEATS value heads
INNER = KEY_HEADS * REPEATS * STATE
WIDTHS = (D, F, INNER)
TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, V, 90)]
PREFIX = "prism.hadamard."
_FOLDED = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_gate", "attn_output", "ssm_out")
_FOLDED_MLP = ("ffn_gate", "ffn_up", "ffn_down", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


def qwen35(*, tied: bool = False) -> tuple[dict[str, Any], Tensors]:
    """A delta net and a layer with attention."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (V, D), "output_norm.weight": (D,)}
    if not tied:
        shapes["output.weight"] = (V, D)
    keys, values = KEY_HEADS * STATE, INNER
    shapes |= {
        "blk.0.attn_qkv.weight": (2 * keys + values, D),
        "blk.0.attn_gate.weight": (values, D),
        "blk.0.ssm_conv1d.weight": (2 * keys + values, 4),
        "blk.0.ssm_dt.bias": (KEY_HEADS * REPEATS,),
        "blk.0.ssm_a": (KEY_HEADS * REPEATS,),
        "blk.0.ssm_beta.weight": (KEY_HEADS * REPEATS, D),
        "blk.0.ssm_alpha.weight": (KEY_HEADS * REPEATS, D),
        "blk.0.ssm_norm.weight": (STATE,),
        "blk.0.ssm_out.weight": (D, values),
        "blk.1.attn_q.weight": (2 * D, D),
        "blk.1.attn_k.weight": (D, D),
        "blk.1.attn_v.weight": (D, D),
        "blk.1.attn_output.weight": (D, D),
        "blk.1.attn_q_norm.weight": (32,),
        "blk.1.attn_k_norm.weight": (32,),
    }
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{part}_norm.weight": (D,) for part in ("attn", "post_attention")}
        shapes |= {f"blk.{layer}.ffn_{part}.weight": (F, D) for part in ("gate", "up")}
        shapes[f"blk.{layer}.ffn_down.weight"] = (D, F)
    metadata = _metadata("qwen35") | {
        "qwen35.full_attention_interval": 2,
        "qwen35.ssm.conv_kernel": 4,
        "qwen35.ssm.inner_size": values,
        "qwen35.ssm.state_size": STATE,
        "qwen35.ssm.time_step_rank": KEY_HEADS * REPEATS,
        "qwen35.ssm.group_count": KEY_HEADS,
        "qwen35.rope.dimension_count": 16,
    }
    return metadata, {name: files.weights(name, shape) for name, shape in shapes.items()}


def qwen3moe() -> tuple[dict[str, Any], Tensors]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (V, D),
        "output_norm.weight": (D,),
        "output.weight": (V, D),
    }
    for layer in range(LAYERS):
        name = f"blk.{layer}"
        shapes |= {f"{name}.{part}_norm.weight": (D,) for part in ("attn", "ffn")}
        shapes |= {f"{name}.attn_{part}_norm.weight": (32,) for part in "qk"}
        shapes |= {f"{name}.attn_{part}.weight": (D, D) for part in ("q", "k", "v", "output")}
        shapes |= {f"{name}.ffn_{part}_exps.weight": (4, F, D) for part in ("gate", "up")}
        shapes |= {f"{name}.ffn_down_exps.weight": (4, D, F), f"{name}.ffn_gate_inp.weight": (4, D)}
    metadata = _metadata("qwen3moe") | {
        "qwen3moe.expert_count": 4,
        "qwen3moe.expert_used_count": 2,
        "qwen3moe.expert_feed_forward_length": F,
    }
    return metadata, {name: files.weights(name, shape) for name, shape in shapes.items()}


def _metadata(name: str) -> dict[str, Any]:
    sizes = {
        "block_count": LAYERS,
        "embedding_length": D,
        "context_length": 128,
        "feed_forward_length": F,
        "attention.head_count": 2,
        "attention.head_count_kv": 2,
        "attention.key_length": 32,
        "attention.value_length": 32,
    }
    keys: dict[str, Any] = {f"{name}.{key}": value for key, value in sizes.items()}
    keys[f"{name}.attention.layer_norm_rms_epsilon"] = 1e-6
    return {"general.architecture": name, "tokenizer.ggml.model": "no_vocab"} | keys


def write(path: Path, metadata: Mapping[str, Any], tensors: Tensors) -> Path:
    writer = GGUFWriter(path, "")
    writer.kv_data[0].clear()
    kinds = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}
    for key, value in metadata.items():
        if isinstance(value, list):
            kind = "STRING" if isinstance(value[0], str) else "INT32"
            of = GGUFValueType["FLOAT32" if isinstance(value[0], float) else kind]
            writer.add_key_value(key, value, GGUFValueType.ARRAY, of)
        else:
            writer.add_key_value(key, value, GGUFValueType[kinds[type(value)]])
    for name, values in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def fold(
    metadata: dict[str, Any], tensors: Tensors, *, signed: bool = True, grouped: bool = True
) -> tuple[dict[str, Any], Tensors]:
    """The model with rows in the rotated basis: of the matrix H, row times signs, by blocks."""
    random = np.random.default_rng(11)
    signs = {width: random.integers(0, 2, width) * 2 - 1 for width in WIDTHS}
    one = np.array([[(-1.0) ** (i & j).bit_count() for j in range(BLOCK)] for i in range(BLOCK)])
    names = [
        name
        for name in tensors
        if name == "output.weight" or name.split(".")[-2] in (*_FOLDED, *_FOLDED_MLP)
    ]
    folded = dict(tensors)
    for name in (*names, "token_embd.weight"):
        rows = tensors[name].astype(np.float64)
        width = rows.shape[-1]
        if grouped and ".ssm_out." in name:  # from [repeat, key head] to [key head, repeat]
            heads = rows.reshape(-1, REPEATS, KEY_HEADS, STATE)
            rows = heads.transpose(0, 2, 1, 3).reshape(rows.shape)
        if signed:
            rows = rows * signs[width]
        blocks = rows.reshape(*rows.shape[:-1], -1, BLOCK) @ one / BLOCK**0.5
        folded[name] = blocks.reshape(rows.shape).astype(np.float32)
    tied = "output.weight" not in tensors
    keys = {
        "version": 2 if tied else 1,
        "block_size": BLOCK,
        "transform": "normalized-sylvester-walsh-hadamard",
        "axis": "input-last-dimension",
        "sign_mode": "explicit" if signed else "identity",
        "weight_names": names,
        "inverse_weight_names": ["token_embd.weight"],
    }
    if signed:
        keys["sign_widths"] = list(WIDTHS)
        keys["sign_values"] = [int(sign) for width in WIDTHS for sign in signs[width]]
    if grouped:
        keys["gdn_v_grouped"] = True
    if tied:
        keys["tied_output"] = True
    return metadata | {PREFIX + key: value for key, value in keys.items()}, folded


def logits(path: Path, backend: str = "reference", pieces: tuple[int, ...] = ()) -> files.Rows:
    model = load(path, backend=backend, context=len(TOKENS), threads=None, ids_only=True)
    session = model.new_session()
    assert session.runner.is_recorded == (backend == "cpu")
    return files.run(session, TOKENS, pieces)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_folded_hybrid_answers_like_the_model_before(
    tied: bool, backend: str, tmp_path: Path
) -> None:
    plain = qwen35(tied=tied)
    wanted = logits(write(tmp_path / "plain.gguf", *plain))
    path = write(tmp_path / "folded.gguf", *fold(*plain))
    assert files.nmse(logits(path, backend), wanted) < 1e-10
    assert files.nmse(logits(path, backend, pieces=(1, 40, 7)), wanted) < 1e-10


@pytest.mark.parametrize(("backend", "signed"), [("reference", False), ("cpu", True)])
def test_a_folded_mixture_answers_like_the_model_before(
    backend: str, signed: bool, tmp_path: Path
) -> None:
    plain = qwen3moe()
    wanted = logits(write(tmp_path / "plain.gguf", *plain))
    path = write(tmp_path / "folded.gguf", *fold(*plain, signed=signed, grouped=False))
    assert files.nmse(logits(path, backend), wanted) < 1e-10


def test_columns_of_a_recurrence_may_be_in_the_order_of_values(tmp_path: Path) -> None:
    plain = qwen35()
    wanted = logits(write(tmp_path / "plain.gguf", *plain))
    path = write(tmp_path / "folded.gguf", *fold(*plain, grouped=False))
    assert files.nmse(logits(path), wanted) < 1e-10
    assert files.nmse(logits(path, "cpu"), wanted) < 1e-10


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("version", 3, r"version' is 3"),
        ("version", 2, r"version' is 2"),
        ("tied_output", True, r"version' is 1 and the head is tied"),
        ("transform", "fourier", r"transform' is not 'normalized-sylvester-walsh-hadamard'"),
        ("axis", "output", r"axis' is not 'input-last-dimension'"),
        ("sign_mode", "hashed", r"sign_mode' is 'hashed'"),
        ("stages", 2, r"'prism\.hadamard\.stages' changes the rotation"),
        ("inverse_weight_names", ["output.weight"], r"inverse_weight_names' states a rotation"),
        ("weight_names", ["blk.0.ssm_beta.weight", "blk.0.attn_norm.weight"], r"attn_norm\.weight"),
    ],
)
def test_another_rotation_is_refused(
    key: str, value: object, sentence: str, tmp_path: Path
) -> None:
    """Without the right rotation answers would be noise."""
    metadata, tensors = fold(*qwen35())
    path = write(tmp_path / "m.gguf", metadata | {PREFIX + key: value}, tensors)
    with pytest.raises(UnsupportedModel, match=sentence):
        logits(path)


@pytest.mark.parametrize(
    ("key", "value", "sentence"),
    [
        ("block_size", 48, r"block_size' is 48; a power of two"),
        ("block_size", 64, r"sign_values' has not a sign"),  # 96 columns are no whole blocks
        ("weight_names", ["blk.7.attn_q.weight"], r"'blk\.7\.attn_q\.weight'.*missing"),
        ("weight_names", "all", r"weight_names' is not a list of names"),
        ("sign_values", [1, -1, 1], r"sign_values' has not a sign"),
        ("sign_values", [2] * sum(WIDTHS), r"sign_values' has not a sign"),
        ("sign_widths", [D, F], r"sign_values' has not a sign"),
        ("sign_widths", [sum(WIDTHS)], r"has 64 columns, for which the file states no rotation"),
    ],
)
def test_damaged_keys_are_named(key: str, value: object, sentence: str, tmp_path: Path) -> None:
    metadata, tensors = fold(*qwen35())
    path = write(tmp_path / "m.gguf", metadata | {PREFIX + key: value}, tensors)
    with pytest.raises(ModelFileError, match=sentence):
        logits(path)


def test_a_tied_head_beside_a_head_is_refused(tmp_path: Path) -> None:
    metadata, tensors = fold(*qwen35())
    keys = {PREFIX + "version": 2, PREFIX + "tied_output": True}
    with pytest.raises(EngineError, match=r"no tensor 'output\.weight', but it has one"):
        logits(write(tmp_path / "m.gguf", metadata | keys, tensors))


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("format", ["Q1_0", "Q2_0", "PQ2_0", "PTQ1_0"])
def test_rotated_matrices_of_bonsai_formats_are_what_they_decode_to(
    format: str, backend: str, tmp_path: Path
) -> None:
    folded = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    keys = {
        "version": 1,
        "block_size": 256,
        "transform": "normalized-sylvester-walsh-hadamard",
        "axis": "input-last-dimension",
        "sign_mode": "explicit",
        "sign_widths": [256],
        "sign_values": [-1 if at % 3 else 1 for at in range(256)],
        "weight_names": [f"blk.{layer}.{part}.weight" for layer in (0, 1) for part in folded],
        "inverse_weight_names": ["token_embd.weight"],
    }
    metadata = {PREFIX + key: value for key, value in keys.items()}
    packed = tiny.write(
        tmp_path / "packed.gguf", architecture="qwen3", format=format, metadata=metadata
    )
    with GGUFFile.open(packed) as file:
        stored = {info.format.name for info in file.tensors.values()}
        plain = {
            name: decode_rows(
                torch.frombuffer(bytearray(file.data(name)), dtype=torch.uint8).view(
                    -1, info.format.row_bytes(info.shape[-1])
                ),
                info.format,
                info.shape[-1],
            )
            .view(info.shape)
            .numpy()
            for name, info in file.tensors.items()
        }
        made = write(tmp_path / "plain.gguf", dict(file.metadata), plain)
    assert format in stored
    # Native kernels round x to 8 bits for products of packed matrices.
    limit = 1e-12 if backend == "reference" else 1e-3
    assert files.nmse(logits(packed, backend), logits(made)) < limit
