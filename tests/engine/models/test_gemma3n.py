"""Gemma 3n: streams, sparse layers, shared keys, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import architecture_files as files
from chosen_backend import ops
from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.models.config import read_config
from engine.models.feed_forward import GatedMLP
from engine.models.mixers import Attention
from sessions import open_decoder, open_session, session_over

V, D, WIDTH, F, P, RANK, LAYERS, STREAMS = 64, 32, 16, 48, 8, 12, 6, 4
WINDOWS = [True, True, True, False, True, False]
TOKENS = (np.arange(120) * 37 % V).tolist()


def write(path: Path, **changes: Any) -> Path:
    """Write a small model; `changes` are other values of keys with `__` for a point."""
    tensors: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (V, D),
        "output_norm.weight": (D,),
        "altup_proj.weight": (STREAMS - 1, D, D),
        "altup_unembd_proj.weight": (STREAMS - 1, D, D),
        "per_layer_token_embd.weight": (V, P * LAYERS),
        "per_layer_model_proj.weight": (P * LAYERS, D),
        "per_layer_proj_norm.weight": (P,),
    }
    layer = {
        **dict.fromkeys(("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"), (D,)),
        **dict.fromkeys(("attn_q_norm", "attn_k_norm"), (WIDTH,)),
        **dict.fromkeys(("post_norm", "altup_router_norm", "laurel_post_norm"), (D,)),
        "altup_correct_scale": (D,),
        "attn_q": (2 * WIDTH, D),
        "attn_k": (WIDTH, D),
        "attn_v": (WIDTH, D),
        "attn_output": (D, 2 * WIDTH),
        "ffn_gate": (F, D),
        "ffn_up": (F, D),
        "ffn_down": (D, F),
        "inp_gate": (P, D),
        "proj": (D, P),
        "altup_correct_coef": (STREAMS, STREAMS),
        "altup_predict_coef": (STREAMS**2, STREAMS),
        "altup_router": (STREAMS, D),
        "laurel_l": (RANK, D),
        "laurel_r": (D, RANK),
    }
    for at in range(LAYERS):
        tensors |= {f"blk.{at}.{name}.weight": shape for name, shape in layer.items()}
    keys: dict[str, Any] = {
        "vocab_size": ("UINT32", V),
        "context_length": ("UINT32", 256),
        "block_count": ("UINT32", LAYERS),
        "embedding_length": ("UINT32", D),
        "feed_forward_length": ("INT32[]", [F] * LAYERS),
        "attention.head_count": ("UINT32", 2),
        "attention.head_count_kv": ("UINT32", 1),
        "attention.key_length": ("UINT32", WIDTH),
        "attention.value_length": ("UINT32", WIDTH),
        "attention.sliding_window": ("UINT32", 32),
        "attention.sliding_window_pattern": ("BOOL[]", WINDOWS),
        "attention.shared_kv_layers": ("UINT32", 2),
        "attention.layer_norm_rms_epsilon": ("FLOAT32", 1e-6),
        "rope.freq_base": ("FLOAT32", 1e6),
        "embedding_length_per_layer_input": ("UINT32", P),
        "activation_sparsity_scale": ("FLOAT32[]", [1.5, 1.0, *[-math.inf] * (LAYERS - 2)]),
        "altup.num_inputs": ("UINT32", STREAMS),
        "altup.active_idx": ("UINT32", 0),
    }
    keys |= {name.replace("__", "."): value for name, value in changes.items()}
    metadata = {f"gemma3n.{key}": value for key, value in keys.items() if value is not None}
    metadata = {"general.architecture": ("STRING", "gemma3n")} | metadata
    return files.write(files.Skeleton("gemma3n", metadata, tensors), path)


def deviations(path: Path) -> list[float | None]:
    mlps = [block.mlp for block in open_decoder(path).blocks]
    return [mlp.deviations for mlp in mlps if isinstance(mlp, GatedMLP)]


def test_layers_share_keys_and_are_sparse_as_the_file_says(tmp_path: Path) -> None:
    decoder = open_decoder(path := write(tmp_path / "m.gguf"))
    mixers = [block.attention for block in decoder.blocks]
    shared = [one.shared for one in mixers if isinstance(one, Attention)]
    assert shared == [None, None, None, None, 2, 3]
    assert deviations(path) == [1.5, 1.0, None, None, None, None]
    assert decoder.logit_cap == 30.0
    assert decoder.altup is not None
    assert decoder.altup.count == STREAMS


def test_without_these_keys_the_values_of_the_released_models_count(tmp_path: Path) -> None:
    keys = dict.fromkeys(("attention__shared_kv_layers", "activation_sparsity_scale"))
    decoder = open_decoder(path := write(tmp_path / "m.gguf", altup__num_inputs=None, **keys))
    mixers = [block.attention for block in decoder.blocks]
    assert all(isinstance(one, Attention) and one.shared is None for one in mixers)
    assert deviations(path) == [1.6448533535003662] * LAYERS  # of the first ten


def test_pieces_give_the_logits_of_the_whole(tmp_path: Path) -> None:
    session = open_session(write(tmp_path / "m.gguf"))
    whole = files.run(session, TOKENS)
    assert np.isfinite(whole).all()
    for pieces in (files.PIECES, (1,) * len(TOKENS)):
        assert files.nmse(files.run(session, TOKENS, pieces), whole) < 1e-9


def test_it_is_recorded_with_the_bits_of_its_ops(tmp_path: Path) -> None:
    decoder = open_decoder(write(tmp_path / "m.gguf"))
    found = [
        files.run(session_over(one), TOKENS)
        for one in (decoder, replace(decoder, refused={"cpu": ("no_such_op",)}))
    ]
    assert session_over(decoder).runner.is_recorded == ("cpu" in ops.BACKENDS)
    assert np.array_equal(*found)


def test_a_token_whose_embedding_is_zero_gives_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    with GGUFFile.open(path) as file:
        assert read_config(file).vocabulary == V
        info = file.tensors["token_embd.weight"]
    with path.open("r+b") as file:  # as converters pad the rows of images
        file.seek(info.offset)
        file.write(bytes(4 * D))
    assert np.isfinite(files.run(open_session(path), [0, 0, 5])).all()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"activation_sparsity_scale": ("FLOAT32[]", [1.0])}, "has 1 values for 6 layers"),
        (
            {"activation_sparsity_scale": ("FLOAT32[]", [math.nan] * LAYERS)},
            "activation_sparsity_scale' has 6 values for 6 layers, or others than numbers",
        ),
        ({"activation_sparsity_scale": ("FLOAT32", 1.0)}, "has 0 values for 6 layers"),
        ({"embedding_length_per_layer_input": None}, "is missing or 0"),
        ({"altup__num_inputs": ("UINT32", 3)}, "'blk.0.altup_router.weight' has the shape"),
        ({"altup__num_inputs": ("UINT32", 1)}, "at least 2 is wanted"),
        ({"attention__shared_kv_layers": ("UINT32", 4)}, "no layer before layer 2 is of the kind"),
    ],
)
def test_impossible_keys_are_named(changes: Any, match: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=match):
        open_decoder(write(tmp_path / "m.gguf", **changes))


def test_another_active_stream_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"altup\.active_idx' is 1"):
        open_decoder(write(tmp_path / "m.gguf", altup__active_idx=("UINT32", 1)))
