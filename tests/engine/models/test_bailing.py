"""Ling 3: kinds of layers, limits of activations, and files that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import architecture_files
from engine.errors import EngineError, ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load
from engine.models.families import bailing
from engine.models.feed_forward import Experts, GatedMLP
from engine.models.layers import Decoder
from engine.models.mixers import DeltaNet, LatentAttention
from engine.models.weights import Weights
from kernels.ops import Activation

D, H, C, F, E, V = 48, 2, 16, 24, 4, 50
KEY, VALUE, LATENT, ROTATED = 24, 20, 40, 8
RECURRENT = (1, 2)
KEYS: dict[str, tuple[str, Any]] = {
    "vocab_size": ("UINT32", V),
    "block_count": ("UINT32", 4),
    "context_length": ("UINT32", 512),
    "embedding_length": ("UINT32", D),
    "leading_dense_block_count": ("UINT32", 1),
    "feed_forward_length": ("UINT32", 2 * F),
    "expert_feed_forward_length": ("UINT32", F),
    "expert_count": ("UINT32", E),
    "expert_used_count": ("UINT32", 2),
    "expert_shared_count": ("UINT32", 1),
    "expert_gating_func": ("UINT32", 2),
    "swiglu_clamp_exp": ("FLOAT32[]", [0.0, 2.0, 0.0, 3.0]),
    "swiglu_clamp_shexp": ("FLOAT32[]", [5.0, 4.0, 4.0, 0.0]),
    "attention.head_count": ("UINT32", H),
    "attention.head_count_kv": ("INT32[]", [0 if at in RECURRENT else 1 for at in range(4)]),
    "attention.key_length": ("UINT32", LATENT + ROTATED),
    "attention.key_length_mla": ("UINT32", KEY),
    "attention.value_length_mla": ("UINT32", VALUE),
    "attention.kv_lora_rank": ("UINT32", LATENT),
    "attention.layer_norm_rms_epsilon": ("FLOAT32", 1e-5),
    "rope.dimension_count": ("UINT32", ROTATED),
    "ssm.conv_kernel": ("UINT32", 4),
    "kda.head_dim": ("UINT32", C),
    "kda.gate_lower_bound": ("FLOAT32", -5.0),
}


def shapes() -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {"token_embd.weight": (V, D), "output_norm.weight": (D,)}
    for index in range(4):
        parts: dict[str, tuple[int, ...]] = {"attn_norm.weight": (D,), "ffn_norm.weight": (D,)}
        if index in RECURRENT:
            for letter in "qkv":
                parts[f"attn_{letter}.weight"] = H * C, D
                parts[f"ssm_conv1d_{letter}.weight"] = 1, H * C, 1, 4
            parts |= {f"ssm_{part}_a.weight": (H * C, D) for part in "fg"}
            parts |= {"ssm_beta.weight": (H, D), "ssm_a": (H, 1), "ssm_dt.bias": (H * C,)}
            parts |= {"ssm_norm.weight": (C,), "attn_output.weight": (D, H * C)}
        else:
            parts |= {"attn_q.weight": (H * KEY, D), "attn_kv_a_norm.weight": (LATENT,)}
            parts["attn_kv_a_mqa.weight"] = LATENT + ROTATED, D
            parts["attn_k_b.weight"] = H, LATENT, KEY - ROTATED
            parts["attn_v_b.weight"] = H, VALUE, LATENT
            parts |= {"attn_gate.weight": (H, D), "attn_output.weight": (D, H * VALUE)}
        inner = F if index else 2 * F
        for part, first in [("_exps", (E,)), ("_shexp", ())] if index else [("", ())]:
            parts |= {f"ffn_{up}{part}.weight": (*first, inner, D) for up in ("gate", "up")}
            parts[f"ffn_down{part}.weight"] = *first, D, inner
        if index:
            parts |= {"ffn_gate_inp.weight": (E, D), "exp_probs_b.bias": (E,)}
        made |= {f"blk.{index}.{name}": shape for name, shape in parts.items()}
    return made


def write(path: Path, **changes: tuple[str, Any] | None) -> Path:
    """A model of four layers, two of them recurrent; a change to None removes a key."""
    keys = {key: value for key, value in (KEYS | changes).items() if value is not None}
    metadata = {"general.architecture": ("STRING", "bailingmoe3")}
    metadata |= {f"bailingmoe3.{key}": value for key, value in keys.items()}
    skeleton = architecture_files.Skeleton("bailingmoe3", metadata, shapes())
    return architecture_files.write(skeleton, path)


def built(path: Path) -> Decoder:
    with GGUFFile.open(path) as file:
        weights = Weights(file, read=False)
        made = bailing.build_bailingmoe3(file, weights, 512)
        weights.refuse_unused_tensors()
        return made


def test_layers_differ(tmp_path: Path) -> None:
    blocks = built(write(tmp_path / "model.gguf")).blocks
    kinds = [type(block.attention) for block in blocks]
    assert kinds == [LatentAttention, DeltaNet, DeltaNet, LatentAttention]
    first = blocks[0].attention
    assert isinstance(first, LatentAttention)
    assert first.rope.interleaved
    assert first.gate is not None
    assert first.scale == pytest.approx(KEY**-0.5)
    dense = blocks[0].mlp
    assert isinstance(dense, GatedMLP)
    assert (dense.activation, dense.limit) == (Activation.SILU_CUT, 5.0)
    mixtures = [block.mlp for block in blocks[1:]]
    assert all(isinstance(one, Experts) for one in mixtures)
    assert [one.limit for one in mixtures if isinstance(one, Experts)] == [2.0, 0.0, 3.0]
    shared = [one.shared for one in mixtures if isinstance(one, Experts)]
    assert [one.limit for one in shared if isinstance(one, GatedMLP)] == [4.0, 4.0, 0.0]
    assert [one.activation for one in shared if one is not None][-1] is Activation.SILU


def test_models_that_see_images_pair_halves(tmp_path: Path) -> None:
    sections = {"rope.dimension_sections": ("INT32[]", [1, 1, 2, 0])}
    first = built(write(tmp_path / "model.gguf", **sections)).blocks[0].attention
    assert isinstance(first, LatentAttention)
    assert not first.rope.interleaved


@pytest.mark.parametrize(
    ("key", "value", "fault", "message"),
    [
        ("kda.safe_gate", ("BOOL", False), UnsupportedModel, "kda.safe_gate"),
        ("kda.gate_lower_bound", None, ModelFileError, "kda.gate_lower_bound"),
        ("kda.gate_lower_bound", ("FLOAT32", 1.0), ModelFileError, "kda.gate_lower_bound"),
        ("kda.head_dim", None, ModelFileError, "kda.head_dim"),
        ("kda.head_dim", ("UINT32", 8), ModelFileError, "blk.1.attn_q.weight"),
        ("swiglu_clamp_exp", ("FLOAT32[]", [1.0]), ModelFileError, "has 1 values for 4 layers"),
        ("swiglu_clamp_shexp", ("FLOAT32[]", [-1.0] * 4), ModelFileError, "clamp_shexp"),
        ("attention.head_count_kv", ("INT32[]", [1, 0]), ModelFileError, "has 2 values for 4"),
        ("attention.key_length_mla", None, UnsupportedModel, "key_length_mla"),
        ("expert_gating_func", None, ModelFileError, "expert_gating_func"),
    ],
)
def test_faulty_files_are_refused(
    key: str,
    value: tuple[str, Any] | None,
    fault: type[EngineError],
    message: str,
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "model.gguf", **{key: value})
    with pytest.raises(fault, match=message):
        built(path)


def test_a_text_can_be_read_in_pieces(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf")
    tokens = [(7 * at * at + at) % V for at in range(300)]
    with torch.inference_mode():
        model = load(path, backend="reference", context=512, threads=None, ids_only=True)
        session = model.new_session()
        whole = architecture_files.run(session, tokens)
        cut = architecture_files.run(session, tokens, (1, 250, 10, 1))
    torch.testing.assert_close(cut, whole, rtol=1e-4, atol=1e-4)
