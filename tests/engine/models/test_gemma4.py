"""Gemma 4: which layers share keys, embeddings that stay in the file, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import architecture_files as files
import gemma4_files
from engine.errors import ModelFileError, RequestError
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load
from engine.loading.placement import kernels_in_use, place, predict
from engine.loading.preflight import identify
from engine.messages import CacheType, DeviceFault
from engine.models.config import read_config
from engine.models.file_table import FileTable
from engine.models.mixers import Attention
from fake_gpu import FakeGpu
from sessions import open_decoder, open_session, session_over

TOKENS = (np.arange(150) * 37 % gemma4_files.V).tolist()


def attentions(path: Path) -> list[Attention]:
    found = [block.attention for block in open_decoder(path).blocks]
    assert all(isinstance(one, Attention) for one in found)
    return found  # type: ignore[return-value]


def test_the_last_layers_read_the_keys_of_the_last_of_their_kind(tmp_path: Path) -> None:
    found = attentions(gemma4_files.write(tmp_path / "m.gguf"))
    assert [one.shared for one in found] == [None] * 4 + [2, 3]
    assert [one.window for one in found] == [32, 0] * 3
    assert [one.head_width for one in found] == [16, 32] * 3
    windows = [True, False, True, True, True, False]  # another pattern than the released models
    keys: gemma4_files.Keys = {"attention.sliding_window_pattern": ("BOOL[]", windows)}
    wide, narrow = gemma4_files.WIDTH, gemma4_files.LOCAL_WIDTH
    shapes = {"blk.3.attn_q.weight": (4 * narrow, 64), "blk.3.attn_output.weight": (64, 4 * narrow)}
    shapes |= {f"blk.3.attn_{name}.weight": (narrow, 64) for name in "kv"}
    shapes |= {f"blk.3.attn_{name}_norm.weight": (narrow,) for name in "qk"}
    found = attentions(gemma4_files.write(tmp_path / "other.gguf", keys, shapes))
    assert [one.shared for one in found] == [None] * 4 + [3, 1]
    assert found[-1].head_width == wide


def test_keys_that_no_layer_has_are_refused(tmp_path: Path) -> None:
    keys: gemma4_files.Keys = {"attention.shared_kv_layers": ("UINT32", 5)}
    with pytest.raises(
        ModelFileError, match=r"shared_kv_layers' is 5, but no layer before layer 1"
    ):
        open_decoder(gemma4_files.write(tmp_path / "m.gguf", keys))


def test_unused_keys_and_values_of_sharing_layers_change_nothing(tmp_path: Path) -> None:
    path = gemma4_files.write(tmp_path / "m.gguf")
    width = gemma4_files.LOCAL_WIDTH
    more = {f"blk.4.attn_{name}.weight": (width, 64) for name in "kv"}
    more |= {"blk.4.attn_k_norm.weight": (width,), "blk.4.attn_k.scale": (1,)}
    other = gemma4_files.write(tmp_path / "other.gguf", tensors=more)
    found = [files.run(open_session(one), TOKENS) for one in (path, other)]
    assert np.array_equal(*found)


def test_a_fused_tensor_of_queries_keys_and_values_is_read(tmp_path: Path) -> None:
    path = gemma4_files.write(tmp_path / "m.gguf")
    skeleton = files.read_skeleton(path)
    names = [f"blk.0.attn_{letter}.weight" for letter in "qkv"]
    rows = sum(skeleton.tensors.pop(name)[0] for name in names)
    skeleton.tensors["blk.0.attn_qkv.weight"] = (rows, gemma4_files.D)
    decoder = open_decoder(files.write(skeleton, tmp_path / "fused.gguf"))
    first = decoder.blocks[0].attention
    assert isinstance(first, Attention)
    assert first.key is not None
    assert first.key.name == "blk.0.attn_qkv.weight"
    assert first.key.weight.shape == (gemma4_files.LOCAL_WIDTH, gemma4_files.D)


@pytest.mark.parametrize("write", [gemma4_files.write, gemma4_files.write_mixture])
def test_pieces_give_the_logits_of_the_whole(write: Any, tmp_path: Path) -> None:
    session = open_session(write(tmp_path / "m.gguf"))
    whole = files.run(session, TOKENS)
    for pieces in (files.PIECES, (1,) * len(TOKENS)):
        assert files.nmse(files.run(session, TOKENS, pieces), whole) < 1e-10


def test_values_of_a_layer_without_their_tensor_are_its_keys(tmp_path: Path) -> None:
    """With a tensor of values that has the weights of the keys, logits are the same."""
    path = gemma4_files.write_mixture(tmp_path / "m.gguf")
    decoder = open_decoder(path)
    found = files.run(session_over(decoder), TOKENS)
    attention = decoder.blocks[1].attention
    assert isinstance(attention, Attention)
    assert attention.value is None
    object.__setattr__(attention, "value", attention.key)
    assert files.nmse(files.run(session_over(decoder), TOKENS), found) < 1e-12


def test_the_router_reads_the_stream_by_its_own_norm(tmp_path: Path) -> None:
    decoder = open_decoder(gemma4_files.write_mixture(tmp_path / "m.gguf"))
    mixture = decoder.blocks[0].mlp.branches[1].mlp  # type: ignore[union-attr]
    with GGUFFile.open(tmp_path / "m.gguf") as file:
        scale = torch.frombuffer(
            bytearray(file.data("blk.0.ffn_gate_inp.scale")), dtype=torch.float32
        )
    assert torch.allclose(mixture.router_norm.weight, scale * gemma4_files.D**-0.5)
    assert mixture.router.scale == 1.0


# --- embeddings that stay in the file -----------------------------------------------------------


def test_embeddings_of_layers_are_not_in_memory(tmp_path: Path) -> None:
    path = gemma4_files.write(tmp_path / "m.gguf")
    decoder = open_decoder(path)
    assert decoder.layer_inputs is not None
    assert isinstance(decoder.layer_inputs.table, FileTable)
    with GGUFFile.open(path) as file:
        config, table = read_config(file), file.tensors[gemma4_files.TABLE]
        sizes = [info.size_bytes for info in file.tensors.values()]
        placement = place(config.layers, "reference")
        plan, _ = predict(file, config, placement, 0, CacheType.F32)
        del file.tensors[gemma4_files.TABLE]
        without, _ = predict(file, config, placement, 0, CacheType.F32)
    assert plan.weights_bytes == without.weights_bytes
    assert plan.weights_bytes == sum(sizes) - table.size_bytes


def test_the_format_of_a_table_in_the_file_needs_no_kernel(tmp_path: Path) -> None:
    with GGUFFile.open(gemma4_files.write(tmp_path / "m.gguf")) as file:
        _, config = identify(file)
        info = file.tensors[gemma4_files.TABLE]
        file.tensors[gemma4_files.TABLE] = type(info)(
            info.name, info.shape, _format("Q2_K"), info.offset, info.size_bytes, info.part
        )
        found = kernels_in_use(file, place(config.layers, "reference"))
    assert not any("Q2_K" in kernel for kernel in found["reference"])


def _format(name: str) -> Any:
    from kernels.weights.formats import by_name

    return by_name(name)


def test_progress_counts_the_table_too(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = gemma4_files.write(tmp_path / "m.gguf")
    load(path, backend="reference", ids_only=True, progress=lambda *at: seen.append(at))
    assert seen[-1][0] == seen[-1][1]


# --- devices ------------------------------------------------------------------------------------


def test_a_model_whose_layers_read_more_than_the_stream_is_not_divided(tmp_path: Path) -> None:
    path = gemma4_files.write(tmp_path / "m.gguf")
    parts = [("reference", 3), ("torch:cpu", 0)]
    with pytest.raises(RequestError, match=r"a gemma4 model cannot be divided between reference"):
        load(path, parts=parts, ids_only=True)
    mixture = gemma4_files.write_mixture(tmp_path / "mixture.gguf")
    model = load(mixture, parts=[("reference", 1), ("torch:cpu", 0)], ids_only=True)
    assert len(model.decoder.placement.backends) == 2


def test_one_that_is_too_large_for_the_gpu_stays_on_the_processor(
    tmp_path: Path, gpu: FakeGpu
) -> None:
    path = gemma4_files.write(tmp_path / "m.gguf")
    whole = load(path, ids_only=True, cache=CacheType.F16)
    assert [one.name for one in whole.runs_on] == ["cuda"]
    gpu.free_bytes = int(whole.plan.devices[1].total_bytes * 0.8)
    model = load(path, ids_only=True, cache=CacheType.F16)
    assert [one.name for one in model.runs_on] == ["cpu"]
    assert model.moved is not None
    assert model.moved.fault is DeviceFault.TOO_LARGE
    assert "cannot be divided" in model.moved.text


# --- damaged files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"attention.key_length_swa": ("UINT32", 15)}, "key_length_swa' is 15, which must be even"),
        ({"attention.value_length_swa": ("UINT32", 8)}, "keys and values must be one number"),
        ({"rope.dimension_count_swa": ("UINT32", 32)}, "heads with a window have 16 channels"),
        (
            {"embedding_length_per_layer_input": None},
            "does not use, such as 'blk.0.inp_gate.weight",
        ),
        ({"embedding_length_per_layer_input": ("UINT32", 8)}, "'per_layer_proj_norm.weight'"),
        ({"feed_forward_length": ("INT32[]", [96, 96])}, "has 2 values for 6 layers"),
        ({"attention.sliding_window_pattern": ("BOOL[]", [True])}, "has 1 values for 6 layers"),
    ],
)
def test_impossible_keys_are_named(changes: gemma4_files.Keys, match: str, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=match):
        open_decoder(gemma4_files.write(tmp_path / "m.gguf", changes))


def test_experts_without_their_number_are_refused(tmp_path: Path) -> None:
    path = gemma4_files.write_mixture(tmp_path / "m.gguf", {"expert_count": None})
    with pytest.raises(ModelFileError, match=r"no key 'gemma4\.expert_count'"):
        open_decoder(path)
