"""Mixtures with sliding windows: which layers have one, what their keys may say, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import architecture_files as files
from engine.errors import EngineError
from engine.gguf.reader import GGUFFile
from engine.models import architecture
from engine.models.feed_forward import Experts, GatedMLP
from engine.models.layers import Decoder
from engine.models.mixers import Attention
from engine.models.weights import Weights
from kernels.ops import Activation

D, C, F, E, V, LAYERS = 32, 16, 16, 4, 24, 6
Shapes = dict[str, tuple[int, ...]]


def _layer(name: str, gate: int, *, dense: bool) -> Shapes:
    shapes: Shapes = {f"{name}.{part}": (D,) for part in ("attn_norm.weight", "ffn_norm.weight")}
    shapes |= {f"{name}.attn_{part}.weight": (2 * C, D) for part in "qkv"}
    shapes |= {f"{name}.attn_{part}_norm.weight": (C,) for part in "qk"}
    shapes[f"{name}.attn_output.weight"] = (D, 2 * C)
    if gate:
        shapes[f"{name}.attn_gate.weight"] = (gate, D)
    parts = (("gate", (F, D)), ("up", (F, D)), ("down", (D, F)))
    if dense:
        return shapes | {f"{name}.ffn_{part}.weight": shape for part, shape in parts}
    shapes[f"{name}.ffn_gate_inp.weight"] = (E, D)
    return shapes | {f"{name}.ffn_{part}_exps.weight": (E, *shape) for part, shape in parts}


def _laguna(gate: int) -> Shapes:
    """One dense layer, then mixtures with a shared expert and a bias."""
    shapes = _layer("blk.0", gate, dense=True)
    for layer in range(1, LAYERS):
        name = f"blk.{layer}"
        shapes |= _layer(name, gate, dense=False) | {f"{name}.exp_probs_b.bias": (E,)}
        shapes |= {f"{name}.ffn_{part}_shexp.weight": (F, D) for part in ("gate", "up")}
        shapes[f"{name}.ffn_down_shexp.weight"] = (D, F)
    return shapes


def _build(folder: Path, name: str, shapes: Shapes, keys: dict[str, tuple[str, Any]]) -> Decoder:
    sizes = {
        "block_count": LAYERS,
        "embedding_length": D,
        "context_length": 64,
        "feed_forward_length": F,
        "expert_feed_forward_length": F,
        "expert_count": E,
        "expert_used_count": 2,
        "attention.head_count": 2,
        "attention.key_length": C,
        "attention.value_length": C,
        "attention.sliding_window": 8,
    }
    metadata: dict[str, tuple[str, Any]] = {"general.architecture": ("STRING", name)}
    metadata |= {f"{name}.{key}": ("UINT32", value) for key, value in sizes.items()}
    metadata[f"{name}.attention.layer_norm_rms_epsilon"] = ("FLOAT32", 1e-6)
    metadata |= {f"{name}.{key}": value for key, value in keys.items()}
    ends = {"token_embd.weight": (V, D), "output_norm.weight": (D,), "output.weight": (V, D)}
    skeleton = files.Skeleton(name, metadata, ends | shapes)
    with GGUFFile.open(files.write(skeleton, folder / "model.gguf")) as file:
        weights = Weights(file, read=False)
        decoder = architecture(file)(file, weights, 64)
        weights.refuse_unused_tensors()
    return decoder


def _maple(folder: Path, **keys: tuple[str, Any]) -> Decoder:
    shapes: Shapes = {}
    for layer in range(LAYERS):
        shapes |= _layer(f"blk.{layer}", 0, dense=False)
    return _build(folder, "maple", shapes, keys)


def _attention(decoder: Decoder) -> list[Attention]:
    mixers = [block.attention for block in decoder.blocks]
    return [mixer for mixer in mixers if isinstance(mixer, Attention)]


def test_the_first_of_four_laguna_layers_has_full_attention(tmp_path: Path) -> None:
    keys = {"leading_dense_block_count": ("UINT32", 1), "rope.freq_base_swa": ("FLOAT32", 5.0)}
    decoder = _build(tmp_path, "laguna", _laguna(2), keys)
    layers = _attention(decoder)
    assert [layer.window for layer in layers] == [0, 8, 8, 8, 0, 8]
    assert [float(layer.rope.frequencies[1]) for layer in layers[:2]] == pytest.approx(
        [10_000 ** (-1 / 8), 5 ** (-1 / 8)]
    )
    assert [type(block.mlp) for block in decoder.blocks] == [GatedMLP, *[Experts] * 5]


@pytest.mark.parametrize("rows", [2, 2 * C])
def test_a_laguna_gate_is_by_head_or_by_channel(rows: int, tmp_path: Path) -> None:
    keys = {"leading_dense_block_count": ("UINT32", 1)}
    for layer in _attention(_build(tmp_path, "laguna", _laguna(rows), keys)):
        assert layer.gate is not None
        assert layer.gate.projection.weight.shape == (rows, D)
        assert layer.gate.activation is Activation.SOFTPLUS


def test_a_laguna_gate_of_another_width_is_refused(tmp_path: Path) -> None:
    keys = {"leading_dense_block_count": ("UINT32", 1)}
    with pytest.raises(EngineError, match=r"'blk\.0\.attn_gate\.weight' has the shape \[3, 32\]"):
        _build(tmp_path, "laguna", _laguna(3), keys)


def test_only_maple_layers_with_a_window_have_rope(tmp_path: Path) -> None:
    decoder = _maple(tmp_path, swiglu_clamp_exp=("FLOAT32", 7.0))
    layers = _attention(decoder)
    assert [layer.window for layer in layers] == [8, 8, 8, 0, 8, 8]
    assert [len(layer.rope.frequencies) for layer in layers] == [8, 8, 8, 0, 8, 8]
    mixtures = [block.mlp for block in decoder.blocks]
    assert [one.limit for one in mixtures if isinstance(one, Experts)] == [7.0] * LAYERS


@pytest.mark.parametrize("values", [[7.0] * 5, [7.0, 7.0, -1.0, 7.0, 7.0, 7.0]])
def test_wrong_limits_of_maple_experts_are_refused(values: list[float], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=rf"swiglu_clamp_exp' has {len(values)} values"):
        _maple(tmp_path, swiglu_clamp_exp=("FLOAT32[]", values))


def test_an_odd_number_of_rotated_channels_is_refused(tmp_path: Path) -> None:
    keys = {"rope.dimension_count_swa": ("UINT32", 7), "swiglu_clamp_exp": ("FLOAT32", 7.0)}
    with pytest.raises(EngineError, match=r"'maple\.rope\.dimension_count_swa' is 7"):
        _maple(tmp_path, **keys)
