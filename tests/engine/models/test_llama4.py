"""Llama 4: which layers have RoPE, chunks and mixtures, and the models that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import architecture_files
from engine.errors import UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load
from engine.messages import SlowPart, SlowReason
from engine.models.families import llama4
from engine.models.feed_forward import Experts, GatedMLP
from engine.models.layers import Decoder
from engine.models.mixers import Attention
from engine.models.weights import Weights
from kernels.backends import BACKENDS
from kernels.ops.routing import Gating

D, C, F, E, V = 64, 16, 24, 4, 50
KEYS = {
    "vocab_size": V,
    "block_count": 5,
    "context_length": 1_024,
    "embedding_length": D,
    "attention.head_count": 2,
    "attention.key_length": C,
    "attention.value_length": C,
    "feed_forward_length": 2 * F,
    "expert_feed_forward_length": F,
    "expert_count": E,
    "expert_used_count": 1,
    "interleave_moe_layer_step": 2,
}


def write(path: Path, **changes: int) -> Path:
    """A model of five layers, every second one with a mixture."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (V, D), "output_norm.weight": (D,)}
    for index in range(5):
        name, mixed = f"blk.{index}", index % 2
        shapes |= {f"{name}.{part}_norm.weight": (D,) for part in ("attn", "ffn")}
        shapes |= {f"{name}.attn_{part}.weight": (2 * C, D) for part in ("q", "k", "v")}
        shapes[f"{name}.attn_output.weight"] = D, 2 * C
        inner = F if mixed else 2 * F
        for part, first in [("_exps", (E,)), ("_shexp", ())] if mixed else [("", ())]:
            shapes |= {f"{name}.ffn_{up}{part}.weight": (*first, inner, D) for up in ("gate", "up")}
            shapes[f"{name}.ffn_down{part}.weight"] = *first, D, inner
        if mixed:
            shapes[f"{name}.ffn_gate_inp.weight"] = E, D
    keys = {f"llama4.{key}": ("UINT32", value) for key, value in (KEYS | changes).items()}
    keys["llama4.attention.layer_norm_rms_epsilon"] = "FLOAT32", 1e-5  # type: ignore[assignment]
    skeleton = architecture_files.Skeleton(
        "llama4", {"general.architecture": ("STRING", "llama4"), **keys}, shapes
    )
    return architecture_files.write(skeleton, path)


def built(path: Path) -> Decoder:
    with GGUFFile.open(path) as file:
        weights = Weights(file, read=False)
        made = llama4.build(file, weights, 1_024)
        weights.refuse_unused_tensors()
        return made


def test_layers_differ(tmp_path: Path) -> None:
    blocks = built(write(tmp_path / "model.gguf")).blocks
    mixers = [block.attention for block in blocks if isinstance(block.attention, Attention)]
    assert [mixer.chunk for mixer in mixers] == [8_192, 8_192, 8_192, 0, 8_192]
    assert [len(mixer.rope.frequencies) for mixer in mixers] == [C // 2] * 3 + [0, C // 2]
    assert [mixer.norms_rotated for mixer in mixers] == [True, True, True, False, True]
    assert [mixer.query_scale is not None for mixer in mixers] == [False] * 3 + [True, False]
    assert [type(block.mlp) for block in blocks] == [
        *(GatedMLP, Experts, GatedMLP, Experts, GatedMLP)
    ]
    mixture = blocks[1].mlp
    assert isinstance(mixture, Experts)
    assert mixture.weighs_input
    assert mixture.routing.gating is Gating.SIGMOID_OF_CHOSEN
    assert not mixture.routing.normalized


def test_maverick_has_no_query_norms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "model.gguf")
    assert all(norm is not None for norm in norms(built(path))[:3])
    monkeypatch.setattr(llama4, "_MAVERICK_EXPERTS", E)
    assert norms(built(path)) == [None] * 5


def norms(decoder: Decoder) -> list[object]:
    mixers = [block.attention for block in decoder.blocks]
    return [mixer.query_norm for mixer in mixers if isinstance(mixer, Attention)]


@pytest.mark.parametrize("chunk", [0, 100])
def test_a_model_without_chunks_is_refused(chunk: int, tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", **{"attention.sliding_window": chunk})
    with pytest.raises(UnsupportedModel, match=f"attention.sliding_window' is {chunk}"):
        built(path)


def test_chunks_do_not_depend_on_how_a_text_is_read(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", **{"attention.sliding_window": 256})
    tokens = [(7 * at * at + at) % V for at in range(600)]
    with torch.inference_mode():
        model = load(path, backend="reference", context=1_024, threads=None, ids_only=True)
        session = model.new_session()
        whole = architecture_files.run(session, tokens)
        cut = architecture_files.run(session, tokens, (250, 6, 1, 254, 2, 3))
        again = architecture_files.run(session, tokens[:512])
        torch.testing.assert_close(cut, whole, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(again, whole[:512], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels")
def test_what_is_not_lowered_is_a_slow_part(tmp_path: Path) -> None:
    path = write(tmp_path / "model.gguf", **{"attention.sliding_window": 256})
    slow = {
        backend: load(path, backend=backend, threads=None, ids_only=True).slow
        for backend in ("cpu", "reference")
    }
    part = SlowPart(SlowReason.NOT_LOWERED, "Attend in chunks")
    assert slow == {"cpu": (part,), "reference": ()}
