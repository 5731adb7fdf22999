"""Families some of whose layers have no attention: kinds of layers, variants, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.core.prefill_calibration import layer_kinds
from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.loading.preflight import outline
from engine.models import architecture
from engine.models.config import read_config
from engine.models.feed_forward import MLP, Experts, GatedMLP
from engine.models.layers import Decoder
from engine.models.mixers import Attention, ParallelMixers, ShortConvolution, StateSpace
from kernels.ops import Activation
from kernels.ops.routing import Gating
from outlines import Outline

WIDTH, VOCABULARY = 64, 96


def built(made: Outline, folder: Path) -> Decoder:
    """The decoder of an outline, which raises what a load raises."""
    with GGUFFile.open(made.write(folder / "m.gguf")) as file:
        return outline(file, read_config(file), architecture(file))


def nemotron(**keys: object) -> Outline:
    """Attention, Mamba-2 and two layers of experts on smaller vectors, of other widths."""
    made = Outline(
        "nemotron_h_moe",
        WIDTH,
        VOCABULARY,
        {
            "block_count": 4,
            "attention.head_count": 4,
            "attention.head_count_kv": [2, 0, 0, 0],
            "attention.layer_norm_epsilon": 1e-3,
            "feed_forward_length": [0, 0, 32, 64],
            "expert_feed_forward_length": [0, 0, 32, 64],
            "expert_count": 8,
            "expert_used_count": [0, 0, 2, 3],
            "expert_shared_feed_forward_length": 96,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "moe_latent_size": 32,
            **keys,
        },
    )
    made.norm("output_norm", *(f"blk.{at}.attn_norm" for at in range(4)))
    made.attention("blk.0", 4, 2, 16)
    made.state_space("blk.1", 128, 32, 8, 2)
    for at, inner in ((2, 32), (3, 64)):
        block = f"blk.{at}"
        made.experts(block, 8, inner, gated=False, width=32)
        made.mlp(block, 96, gated=False, suffix="_shexp")
        made.tensors |= {
            f"{block}.exp_probs_b.bias": (8,),
            f"{block}.ffn_latent_down.weight": (32, WIDTH),
            f"{block}.ffn_latent_up.weight": (WIDTH, 32),
        }
    return made


def lfm2(**keys: object) -> Outline:
    """A convolution with a dense feed-forward, then attention with experts."""
    made = Outline(
        "lfm2moe",
        WIDTH,
        VOCABULARY,
        {
            "block_count": 2,
            "leading_dense_block_count": 1,
            "attention.head_count": 4,
            "attention.head_count_kv": [0, 2],
            "feed_forward_length": 96,
            "expert_feed_forward_length": 32,
            "expert_count": 8,
            "expert_used_count": 2,
            "expert_gating_func": 2,
            "shortconv.l_cache": 3,
            **keys,
        },
    )
    made.norm(
        "token_embd_norm", *(f"blk.{at}.{one}_norm" for at in (0, 1) for one in ("attn", "ffn"))
    )
    made.tensors |= {
        "blk.0.shortconv.in_proj.weight": (3 * WIDTH, WIDTH),
        "blk.0.shortconv.conv.weight": (WIDTH, 3),
        "blk.0.shortconv.out_proj.weight": (WIDTH, WIDTH),
        "blk.1.attn_q_norm.weight": (16,),
        "blk.1.attn_k_norm.weight": (16,),
        "blk.1.exp_probs_b.bias": (8,),
    }
    made.mlp("blk.0", 96)
    made.attention("blk.1", 4, 2, 16)
    made.experts("blk.1", 8, 32)
    return made


def granite_swa(**keys: object) -> Outline:
    made = Outline(
        "granite_swa",
        WIDTH,
        VOCABULARY,
        {
            "block_count": 5,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "attention.sliding_window": 16,
            "feed_forward_length": 96,
            **keys,
        },
    )
    made.norm("output_norm")
    for at in range(5):
        block = f"blk.{at}"
        made.norm(f"{block}.attn_norm", f"{block}.ffn_norm")
        made.attention(block, 4, 2, 16)
        made.tensors[f"{block}.attn_sinks.weight"] = (4,)
        made.mlp(block, 96)
    return made


def granite_hybrid(**keys: object) -> Outline:
    kv_heads = {"attention.head_count_kv": [0, 2]}
    made = Outline(
        "granitehybrid",
        WIDTH,
        VOCABULARY,
        {"block_count": 2, "attention.head_count": 4, "feed_forward_length": 96} | kv_heads | keys,
    )
    made.norm("output_norm")
    for at in range(2):
        made.norm(f"blk.{at}.attn_norm", f"blk.{at}.ffn_norm")
        made.mlp(f"blk.{at}", 96)
    made.state_space("blk.0", 128, 32, 8, 1)
    made.attention("blk.1", 4, 2, 16)
    return made


def falcon(ffn_norm: str) -> Outline:
    made = Outline(
        "falcon-h1",
        WIDTH,
        VOCABULARY,
        {
            "block_count": 1,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "feed_forward_length": 96,
        },
    )
    made.norm("output_norm", "blk.0.attn_norm")
    made.tensors[f"blk.0.{ffn_norm}"] = (WIDTH,)
    made.attention("blk.0", 4, 2, 16)
    made.state_space("blk.0", 128, 32, 8, 1, norm=False)
    made.mlp("blk.0", 96)
    return made


# --- kinds of layers ----------------------------------------------------------------------------


def test_every_nemotron_layer_is_one_thing(tmp_path: Path) -> None:
    decoder = built(nemotron(), tmp_path)
    mixers = [type(block.attention) for block in decoder.blocks]
    assert mixers == [Attention, StateSpace, type(None), type(None)]
    assert [block.mlp is None for block in decoder.blocks] == [True, True, False, False]
    assert [block.mlp_norm is None for block in decoder.blocks] == [True, True, False, False]
    assert [len(block.states) for block in decoder.blocks] == [1, 4, 0, 0]
    attention = decoder.blocks[0].attention
    assert isinstance(attention, Attention)
    assert not len(attention.rope.frequencies)  # they know positions by Mamba-2 alone


def test_nemotron_experts_differ_by_layer(tmp_path: Path) -> None:
    blocks = built(nemotron(), tmp_path).blocks[2:]
    for block, inner, chosen in zip(blocks, (32, 64), (2, 3), strict=True):
        made = block.mlp
        assert isinstance(made, Experts)
        assert made.up is None
        assert made.gate.weights[0].shape == (inner, 32)
        assert made.before is not None
        assert made.after is not None
        assert made.routing.chosen == chosen
        assert (made.routing.gating, made.routing.scale) == (Gating.SIGMOID, 2.5)
        assert made.routing.normalized
        assert made.activation is Activation.RELU_SQUARED
        assert isinstance(made.shared, MLP)


def test_older_nemotron_files_state_the_width_of_all_chosen_experts(tmp_path: Path) -> None:
    made = nemotron(feed_forward_length=[0, 0, 64, 192])
    del made.keys["expert_feed_forward_length"]
    blocks = built(made, tmp_path).blocks
    found = [
        block.mlp.gate.weights[0].shape[0] for block in blocks if isinstance(block.mlp, Experts)
    ]
    assert found == [32, 64]


def test_the_epsilon_of_rms_norms_goes_before_that_of_layer_norms(tmp_path: Path) -> None:
    last = built(nemotron(), tmp_path).norm
    assert last is not None
    assert last.epsilon == pytest.approx(1e-5)
    made = nemotron()
    del made.keys["attention.layer_norm_rms_epsilon"]
    last = built(made, tmp_path).norm
    assert last is not None
    assert last.epsilon == pytest.approx(1e-3)


def test_lfm2_begins_without_experts(tmp_path: Path) -> None:
    first, second = built(lfm2(), tmp_path).blocks
    assert isinstance(first.attention, ShortConvolution)
    assert isinstance(first.mlp, GatedMLP)
    assert first.mlp.up.weight.shape == (96, WIDTH)
    assert isinstance(second.attention, Attention)
    assert isinstance(second.mlp, Experts)
    assert second.mlp.routing.gating is Gating.SIGMOID
    assert second.mlp.routing.bias is not None


def test_granite_windows_and_rope_follow_their_lists(tmp_path: Path) -> None:
    def read(made: Outline) -> list[tuple[int, bool]]:
        mixers = [block.attention for block in built(made, tmp_path).blocks]
        return [
            (one.window, len(one.rope.frequencies) > 0)
            for one in mixers
            if isinstance(one, Attention) and one.sinks is not None
        ]

    assert read(granite_swa()) == [(0, True), (16, True), (16, True), (16, True), (0, True)]
    lists = {
        "attention.sliding_window_pattern": [True, False, True, False, True],
        "attention.rope_pattern": [True, False, True, False, False],
    }
    assert read(granite_swa(**lists)) == [
        (16, True),
        (0, False),
        (16, True),
        (0, False),
        (16, False),
    ]


@pytest.mark.parametrize("rotates", [True, False])
def test_granite_hybrids_may_rotate_nothing(rotates: bool, tmp_path: Path) -> None:
    first, second = built(granite_hybrid(**{"rope.scaling.finetuned": rotates}), tmp_path).blocks
    assert isinstance(first.attention, StateSpace)
    assert isinstance(second.attention, Attention)
    assert (len(second.attention.rope.frequencies) > 0) is rotates


@pytest.mark.parametrize("name", ["ffn_norm", "ffn_norm.weight"])
def test_falcon_h1_has_both_mixers_in_a_layer(name: str, tmp_path: Path) -> None:
    (block,) = built(falcon(name), tmp_path).blocks
    assert isinstance(block.attention, ParallelMixers)
    assert [type(one) for one in block.attention.mixers] == [Attention, StateSpace]
    assert len(block.states) == 5
    assert block.window == 0


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (lambda: nemotron(feed_forward_length=[0, 32]), r"feed_forward_length' has 2 values for 4"),
        (lambda: nemotron(expert_used_count=[0, 0, 2, 9]), r"expert_used_count' has 4 values"),
        (lambda: nemotron(expert_used_count=[0, 0, 2, 0]), r"The layer 3 has experts of 64"),
        (
            lambda: nemotron(expert_feed_forward_length=[0, 0, 0, 64]),
            r"The layer 2 has experts of 0",
        ),
        (lambda: lfm2(**{"attention.head_count_kv": [2]}), r"head_count_kv' has 1 values for 2"),
        (lambda: granite_swa(**{"attention.rope_pattern": [1, 2]}), r"rope_pattern' has 2 values"),
    ],
)
def test_lists_that_do_not_fit_are_named(
    made: Callable[[], Outline], named: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelFileError, match=named):
        built(made(), tmp_path)


def test_recurrent_heads_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    made = granite_hybrid()
    made.keys["ssm.time_step_rank"] = 7
    with pytest.raises(ModelFileError, match="7 recurrent heads cannot share 128 channels"):
        built(made, tmp_path)


@pytest.mark.parametrize(
    ("made", "tensor"),
    [
        (granite_swa, "blk.3.attn_sinks.weight"),
        (granite_hybrid, "blk.0.ssm_norm.weight"),
        (granite_hybrid, "blk.0.ssm_a"),
        (lfm2, "blk.0.shortconv.conv.weight"),
        (nemotron, "blk.2.ffn_latent_up.weight"),
    ],
)
def test_a_missing_tensor_is_named(
    made: Callable[[], Outline], tensor: str, tmp_path: Path
) -> None:
    outlined = made()
    del outlined.tensors[tensor]
    with pytest.raises(ModelFileError, match=f"'{tensor}' is missing"):
        built(outlined, tmp_path)


def test_lfm2_with_another_choice_of_experts_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"'lfm2moe\.expert_gating_func' is 1"):
        built(lfm2(expert_gating_func=1), tmp_path)


def test_an_unused_tensor_is_refused(tmp_path: Path) -> None:
    made = lfm2()
    made.tensors["dense_2.weight"] = (32, WIDTH)  # of an LFM2 that compares texts
    with pytest.raises(UnsupportedModel, match=r"'dense_2\.weight'"):
        built(made, tmp_path)


# --- prefill time -------------------------------------------------------------------------------


def test_a_layer_of_each_kind_is_timed(tmp_path: Path) -> None:
    assert layer_kinds(built(nemotron(), tmp_path)) == [[0], [1], [2, 3]]
    windows = {"attention.sliding_window_pattern": [True, True, False, True, True]}
    assert layer_kinds(built(granite_swa(**windows), tmp_path)) == [[2, 0, 1, 3, 4]]
