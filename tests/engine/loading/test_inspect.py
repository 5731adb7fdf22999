"""Model inspection: facts of valid files, one sentence for files that cannot be run."""

from __future__ import annotations

import os
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch

import tiny
from engine import (
    DEFAULT_CACHE,
    BeginningFacts,
    CacheType,
    FaultKind,
    LayerGroup,
    ModelFacts,
    ModelShape,
    inspect_beginning,
    inspect_model,
    predict_memory,
)
from engine.loading.loader import load
from engine.machine.device import available_memory
from gguf_bytes import F32, STRING, U32, entry, model, tensor, text

ARCHITECTURES = ("llama", "qwen3", "gemma3")


def refused(path: Path) -> ModelFacts:
    """The facts of a file that cannot be run, checked to hold a problem and a remedy."""
    facts = inspect_model(path)
    assert facts.problem.endswith(".")
    assert facts.remedy.endswith(".")
    assert "\n" not in facts.problem + facts.remedy
    return facts


# --- valid files --------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_facts_equal_those_of_the_loaded_model(tmp_path: Path, architecture: str) -> None:
    path = tiny.write(tmp_path / "tiny-Q8_0.gguf", architecture=architecture, format="Q8_0")
    facts = inspect_model(path)
    loaded = load(path, cache=DEFAULT_CACHE)
    assert facts.path == loaded.path
    assert (facts.name, facts.architecture) == ("tiny", architecture)
    assert (facts.layout, facts.format) == (loaded.layout, "Q8_0")
    assert (facts.parameters, facts.file_bytes) == (loaded.parameters, path.stat().st_size)
    assert (facts.context_model, facts.context, facts.most_context) == (256, 256, 256)
    assert facts.memory_bytes == loaded.plan.total_bytes
    assert facts.memory_bytes == facts.weights_bytes + facts.cache_bytes + facts.scratch_bytes
    assert facts.fits
    assert (facts.problem, facts.remedy) == ("", "")
    assert facts.has_template


def test_a_missing_chat_template_is_reported(tmp_path: Path) -> None:
    assert not inspect_model(tiny.write(tmp_path / "m.gguf", template=None)).has_template


def test_the_requested_context_determines_the_memory(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf")
    short, long = inspect_model(path, 128), inspect_model(path, 16_384)
    assert (short.context, long.context) == (128, 16_384)
    assert long.cache_bytes == 128 * short.cache_bytes
    assert long.scratch_bytes - short.scratch_bytes < long.cache_bytes // 2  # pages never move
    assert long.context_model == 256


def test_memory_of_the_loaded_model_counts_as_available(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf")
    more = inspect_model(path, reclaimable=1 << 40).available_bytes
    assert more - inspect_model(path).available_bytes == pytest.approx(1 << 40, rel=0.1)


def test_any_part_of_a_split_model_gives_the_facts_of_the_whole(tmp_path: Path) -> None:
    whole = tiny.write(tmp_path / "whole.gguf")
    first, *_, last = split(whole, tmp_path / "model.gguf")
    facts = inspect_model(last)
    assert replace(facts, available_bytes=0) == replace(inspect_model(first), available_bytes=0)
    assert facts.path == first
    assert facts.name == "model"
    assert facts.problem == ""
    assert facts.parameters == inspect_model(whole).parameters
    assert facts.file_bytes == sum(part.stat().st_size for part in tmp_path.glob("model-*"))
    last.unlink()
    assert last.name in refused(first).problem


def split(whole: Path, path: Path) -> list[Path]:
    """Split a model file into several parts."""
    reader = gguf.GGUFReader(whole)
    writer = gguf.GGUFWriter(path, "llama", split_max_tensors=6)
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            kind, *inner = field.types
            writer.add_key_value(field.name, field.contents(), kind, inner[-1] if inner else None)
    for found in reader.tensors:
        writer.add_tensor(found.name, found.data, raw_dtype=found.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(path.parent.glob(f"{path.stem}-*-of-*.gguf"))


@pytest.mark.skipif(sys.platform == "win32", reason="files have no holes by themselves")
def test_a_model_of_a_tebibyte_is_inspected_without_reading_it(tmp_path: Path) -> None:
    sizes = {
        "block_count": 1, "context_length": 256, "embedding_length": 64, "feed_forward_length": 64,
        "attention.head_count": 1,
    }  # fmt: skip
    keys = [entry(f"llama.{key}", U32, struct.pack("<I", size)) for key, size in sizes.items()]
    keys.append(entry("general.architecture", STRING, text("llama")))
    keys.append(entry("llama.attention.layer_norm_rms_epsilon", F32, struct.pack("<f", 1e-5)))
    keys.append(entry("tokenizer.ggml.model", STRING, text("llama")))
    shapes = {"token_embd": (64, 1 << 32), "output_norm": (64,)} | {
        f"blk.0.{name}": (64, 64)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    }
    shapes |= {"blk.0.attn_norm": (64,), "blk.0.ffn_norm": (64,)}
    tensors: list[bytes] = []
    end = 0
    for name, shape in shapes.items():
        tensors.append(tensor(f"{name}.weight", *shape, offset=end))
        end += 4 * shape[0] * (shape[1] if shape[1:] else 1)
    path = tmp_path / "huge.gguf"
    path.write_bytes(model(*keys, tensors=tuple(tensors), data=b"\0"))
    os.truncate(path, path.stat().st_size + end)
    facts = refused(path)
    assert "needs 1237.0 GB" in facts.problem
    assert facts.memory_bytes > facts.weights_bytes > 1 << 40
    assert not facts.fits
    assert facts.most_context == 0
    assert facts.parameters > 1 << 38


def test_a_context_that_does_not_fit_is_refused_with_the_largest_that_does(tmp_path: Path) -> None:
    facts = inspect_model(tiny.write(tmp_path / "m.gguf"), context=1 << 34)
    assert not facts.fits
    assert 256 < facts.most_context < 1 << 34
    assert f"at most {facts.most_context:,} tokens" in facts.remedy
    assert inspect_model(tmp_path / "m.gguf", facts.most_context // 2).fits


def test_inspecting_a_loaded_model_leaves_it_unchanged(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        inspect_model(path)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


# --- files that cannot be run -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"general.type": "adapter", "adapter.type": "lora"}, "is an adapter"),
        ({"general.type": "mmproj"}, "image or audio encoder"),
        ({"general.architecture": "clip", "general.type": None}, "image or audio encoder"),
        ({"general.type": "imatrix"}, "importance matrix"),
        ({"general.architecture": "mamba"}, "'mamba'"),
        ({"general.architecture": None}, "'general.architecture'"),
        ({"llama.feed_forward_length": 77}, "ffn_gate"),
        ({"llama.block_count": 1}, "blk.1"),
        ({"llama.rope.scaling.type": "ntk"}, "'ntk'"),
        ({"tokenizer.ggml.model": "rwkv"}, "'rwkv'"),
        ({"tokenizer.ggml.pre": "unheard-of"}, "'unheard-of'"),
        ({"tokenizer.ggml.tokens": [str(number) for number in range(999)]}, "999 tokens"),
    ],
)
def test_the_problem_of_an_unsupported_file_is_named(
    tmp_path: Path, metadata: dict[str, Any], named: str
) -> None:
    path = tiny.write(tmp_path / "m.gguf", metadata=metadata)
    facts = refused(path)
    assert named in facts.problem
    assert facts.file_bytes == path.stat().st_size
    with pytest.raises(Exception, match=named):
        load(path)


# --- the beginning of a file ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "about"),
    [
        ({"general.type": "adapter", "adapter.type": "lora"}, "adapter"),
        ({"general.type": "mmproj"}, "mmproj"),
        ({"general.architecture": "clip", "general.type": None}, "mmproj"),
        ({"general.type": "imatrix"}, "imatrix"),
        ({"general.architecture": "mamba"}, "mamba"),
        ({"general.architecture": "bert"}, "embeddings"),
    ],
)
def test_the_beginning_of_a_file_that_cannot_chat_says_so(
    tmp_path: Path, metadata: dict[str, Any], about: str
) -> None:
    data = tiny.write(tmp_path / "m.gguf", metadata=metadata).read_bytes()
    facts = inspect_beginning(data[:600], "m.gguf")  # ends within the vocabulary
    assert facts.fault is not None
    assert facts.fault.about == about
    assert (facts.is_model, facts.formats_run) == (False, False)


def test_a_beginning_of_any_length_never_contradicts_the_file(tmp_path: Path) -> None:
    data = tiny.write(tmp_path / "m.gguf", format="Q4_K").read_bytes()
    whole = inspect_beginning(data, "m.gguf")
    assert (whole.is_model, whole.formats_run, whole.format) == (True, True, "Q4_K")
    for length in (*range(4, 800), *range(800, len(data), 997)):
        facts = inspect_beginning(data[:length], "m.gguf")
        assert facts.problem == ""
        assert whole.is_model >= facts.is_model
        assert not facts.formats_run or facts == whole


@pytest.mark.parametrize("data", [b"GGUF" + bytes(range(256)), b"GGUF\3\0\0\0" + b"\xff" * 99])
def test_a_damaged_beginning_says_nothing(data: bytes) -> None:
    assert inspect_beginning(data, "m.gguf") == BeginningFacts()


@pytest.mark.parametrize("version", [b"\1\0\0\0", b"\0\0\0\2", b"\0\0\0\3"])
def test_a_beginning_of_an_old_or_big_endian_file_says_so(version: bytes) -> None:
    facts = inspect_beginning(b"GGUF" + version + bytes(100), "m-Q4_0-be.gguf")
    assert facts.problem.endswith(".")
    assert facts.fault is not None


def test_a_beginning_that_is_no_gguf_says_so() -> None:
    facts = inspect_beginning(b"<!DOCTYPE html><html>", "m.gguf")
    assert facts.fault is not None
    assert facts.fault.kind is FaultKind.NOT_A_MODEL


def test_a_beginning_with_no_tensors_is_a_vocabulary_unless_parts_follow() -> None:
    keys = (entry("general.architecture", STRING, text("llama")),)
    facts = inspect_beginning(model(*keys), "m.gguf")
    assert facts.fault is not None
    assert facts.fault.about == "vocabulary"
    split = model(*keys, entry("split.count", U32, struct.pack("<I", 2)))
    assert inspect_beginning(split, "m-00001-of-00002.gguf").is_model


def test_a_file_with_only_a_vocabulary_is_refused(tmp_path: Path) -> None:
    reader = gguf.GGUFReader(tiny.write(tmp_path / "m.gguf"))
    writer = gguf.GGUFWriter(tmp_path / "vocabulary.gguf", "llama")
    for field in reader.fields.values():
        if not field.name.startswith(("GGUF.", "general.architecture")):
            kind, *inner = field.types
            writer.add_key_value(field.name, field.contents(), kind, inner[-1] if inner else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert "a vocabulary and no model" in refused(tmp_path / "vocabulary.gguf").problem


def test_files_that_are_not_gguf_are_refused(tmp_path: Path) -> None:
    (tmp_path / "web.gguf").write_text("<!DOCTYPE html><html>", encoding="utf-8")
    (tmp_path / "empty.gguf").touch()
    assert "web page" in refused(tmp_path / "web.gguf").problem
    assert "empty" in refused(tmp_path / "empty.gguf").problem
    assert "no file" in refused(tmp_path / "nowhere.gguf").problem
    assert "not a file" in refused(tmp_path).problem


def test_a_truncated_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    whole = tiny.write(tmp_path / "m.gguf", layers=1).read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(0, len(whole), 997):
        cut.write_bytes(whole[:length])
        refused(cut)


# --- models that are not downloaded -------------------------------------------------------------


@pytest.mark.parametrize("cache", CacheType)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_prediction_for_a_catalog_entry_equals_that_for_its_file(
    tmp_path: Path, architecture: str, cache: CacheType
) -> None:
    path = tiny.write(tmp_path / "m.gguf", architecture=architecture, format="Q4_K", layers=3)
    facts = inspect_model(path, 1_000, cache)
    row = ModelShape(
        architecture=architecture,
        layers=3,
        width=256,
        heads=4,
        kv_heads=2,
        head_width=64,
        feed_forward=256,
        vocabulary=_embedding_rows(path),
        context=256,
        format="Q4_K",
        parameters=facts.parameters,
    )
    plan = predict_memory(row, 1_000, cache)
    assert (plan.context, plan.cache_bytes) == (facts.context, facts.cache_bytes)
    assert plan.scratch_bytes == facts.scratch_bytes
    assert plan.weights_bytes == pytest.approx(facts.weights_bytes, rel=0.1)
    assert plan.fits
    assert plan.available_bytes == pytest.approx(available_memory(), rel=0.2)


def test_a_quantization_mix_counts_as_the_format_in_its_name(tmp_path: Path) -> None:
    row = ModelShape("qwen3", 2, 256, 4, 2, 64, 256, 320, 4_096, "Q4_K", 1 << 30)
    recipe = ModelShape("qwen3", 2, 256, 4, 2, 64, 256, 320, 4_096, "Q4_K_M", 1 << 30)
    assert predict_memory(row).weights_bytes == predict_memory(recipe).weights_bytes


def test_a_mix_with_many_wider_weights_counts_as_its_file() -> None:
    row = ModelShape("qwen3", 2, 256, 4, 2, 64, 256, 320, 4_096, "Q4_K_M", 1 << 20)
    mixed = replace(row, file_bytes=3_000_000)  # five times the weights as Q4_K
    added = predict_memory(mixed).weights_bytes - predict_memory(row).weights_bytes
    assert added >= 3_000_000 - 144 * (1 << 20) // 256
    alike = predict_memory(replace(row, file_bytes=9)), predict_memory(row)
    assert alike[0].weights_bytes == alike[1].weights_bytes


def test_layers_of_a_hybrid_with_states_of_fixed_size_need_no_context_memory() -> None:
    row = ModelShape("qwen3", 8, 256, 4, 2, 64, 256, 320, 8_192, "Q4_K_M", 1 << 20)
    attention = LayerGroup(2, 2, 64)
    hybrid = replace(
        row,
        groups=(
            LayerGroup(5, recurrence=(4, 32, 64), convolution=(512, 4)),
            LayerGroup(1),
            attention,
        ),
    )
    caches = [predict_memory(row, context).cache_bytes for context in (2_048, 8_192)]
    fixed = [predict_memory(hybrid, context).cache_bytes for context in (2_048, 8_192)]
    assert fixed[1] - fixed[0] == (caches[1] - caches[0]) // 4  # 2 of 8 layers
    assert fixed[0] > caches[0] // 4


def _embedding_rows(path: Path) -> int:
    table = next(t for t in gguf.GGUFReader(path).tensors if t.name == "token_embd.weight")
    return int(table.shape[1])
