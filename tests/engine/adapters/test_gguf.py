"""GGUF adapters: all variants of valid files, and errors for faulty ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny
import tiny_lora
from engine import AdapterError, EngineError, FaultKind, OutOfMemory
from engine.adapters.stack import BaseModel, load_adapter
from engine.gguf.reader import GGUFFile
from engine.models import architecture
from engine.models.weights import Weights
from kernels.weights.formats import FORMATS

Q = "blk.0.attn_q.weight"
UP = "blk.1.ffn_up.weight"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def base(path: Path) -> BaseModel:
    with GGUFFile.open(path) as file:
        return architecture(file)(file, Weights(file, read=False), 64).base


def halves(
    name: str = Q, rank: int = 4, rows: int = 64, columns: int = 64
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    return {
        f"{name}.lora_a": random.standard_normal((rank, columns), np.float32),
        f"{name}.lora_b": random.standard_normal((rows, rank), np.float32),
    }


def refused(file: Path, base: BaseModel, *words: str) -> EngineError:
    """The error for a file, checked to be one sentence with `words`, and a remedy."""
    with pytest.raises(AdapterError) as caught:
        load_adapter(file, base)
    for word in words:
        assert word in str(caught.value), caught.value
    assert str(caught.value).endswith(".")
    assert caught.value.remedy.endswith(".")
    assert "\n" not in caught.value.sentence
    return caught.value


@pytest.mark.parametrize("rank", [1, 4, 5, 16, 64])
def test_rank_and_scale_come_from_the_tensors(
    rank: int, path: Path, base: BaseModel, tmp_path: Path
) -> None:
    file = tiny_lora.write(tmp_path / "a.gguf", path, rank=rank, alpha=24.0)
    found = load_adapter(file, base)
    assert (found.kind, found.name, found.path, found.rank) == ("GGUF", "a", file, rank)
    assert len(found.pairs) == 14
    assert {pair.scale for pair in found.pairs.values()} == {24.0 / rank}
    assert found.notes == ()


def test_each_pair_has_its_own_rank(base: BaseModel, tmp_path: Path) -> None:
    tensors = halves(rank=2) | halves(UP, rank=8, rows=128)
    keys = {"adapter.lora.alpha": 4.0}
    found = load_adapter(tiny_lora.write_gguf(tmp_path / "a.gguf", tensors, metadata=keys), base)
    assert {name: (pair.rank, pair.scale) for name, pair in found.pairs.items()} == {
        Q: (2, 2.0),
        UP: (8, 0.5),
    }
    assert found.rank == 8


@pytest.mark.parametrize("keys", [{}, {"adapter.lora.alpha": 0.0}])
def test_without_alpha_the_scale_is_one(
    keys: dict[str, float], base: BaseModel, tmp_path: Path
) -> None:
    found = load_adapter(tiny_lora.write_gguf(tmp_path / "a.gguf", halves(), metadata=keys), base)
    assert found.pairs[Q].scale == 1.0


@pytest.mark.parametrize("stated", ["lora", "adapter.lora"])
def test_oxillamas_keys_are_read_except_its_rank(
    stated: str, base: BaseModel, tmp_path: Path
) -> None:
    """OxiLLaMa divides alpha by the stated rank, default 8; the tensors have rank 4."""
    keys = {
        "general.type": None,
        "adapter.type": None,
        "general.architecture": None,
        f"{stated}.r": 8,
        f"{stated}.alpha": 16,
    }
    found = load_adapter(tiny_lora.write_gguf(tmp_path / "a.gguf", halves(), metadata=keys), base)
    assert found.pairs[Q].scale == 16 / 4
    assert len(found.notes) == 1
    assert f"'{stated}.r' is 8" in found.notes[0]


def test_the_embeddings_factors_are_transposed(path: Path, base: BaseModel, tmp_path: Path) -> None:
    pairs = tiny_lora.pairs_for(path, rank=3, targets=("token_embd",))
    file = tiny_lora.write_gguf(tmp_path / "a.gguf", tiny_lora.stored(pairs))
    with GGUFFile.open(file) as opened:
        vocabulary = base.shapes["token_embd.weight"][0]
        assert opened.tensors["token_embd.weight.lora_a"].shape == (vocabulary, 3)
        assert opened.tensors["token_embd.weight.lora_b"].shape == (64, 3)
    found = load_adapter(file, base).pairs["token_embd.weight"]
    a, b = pairs["token_embd.weight"]
    assert np.array_equal(found.a.numpy(), a)
    assert np.array_equal(found.b.numpy(), b)


@pytest.mark.parametrize("format", ["F16", "BF16", "Q8_0", "Q4_0", "Q5_1"])
def test_halves_may_have_any_weight_format(format: str, tmp_path: Path) -> None:
    """Rows of b are as long as the rank, so that quantized ones are possible from 32 on."""
    path = tiny.write(tmp_path / "m.gguf")
    with GGUFFile.open(path) as file:
        base = architecture(file)(file, Weights(file, read=False), 64).base
    exact = tiny_lora.pairs_for(path, rank=32)
    found = load_adapter(tiny_lora.write(tmp_path / "a.gguf", path, rank=32, format=format), base)
    with GGUFFile.open(tmp_path / "a.gguf") as file:
        assert {info.format.name for info in file.tensors.values()} == {format}
    for name, pair in found.pairs.items():
        for half, original in zip((pair.a, pair.b), exact[name], strict=True):
            assert half.dtype == torch.float32
            error = np.square(half.numpy() - original).sum() / np.square(original).sum()
            assert error <= {"F16": 1e-6, "BF16": 1e-5, "Q8_0": 1e-4}.get(format, 0.02)


def test_a_rank_1_matrix_may_be_stored_as_a_vector(base: BaseModel, tmp_path: Path) -> None:
    """ggml's own writer drops dimensions of 1 at the end."""
    tensors = halves(rank=1)
    row = tensors[f"{Q}.lora_a"]
    tensors[f"{Q}.lora_a"] = row[0]
    found = load_adapter(tiny_lora.write_gguf(tmp_path / "a.gguf", tensors), base)
    assert np.array_equal(found.pairs[Q].a.numpy(), row)


def test_norm_tensors_are_ignored_with_a_note(base: BaseModel, tmp_path: Path) -> None:
    tensors = halves() | {"blk.0.attn_norm.weight": np.ones(64, np.float32)}
    found = load_adapter(tiny_lora.write_gguf(tmp_path / "a.gguf", tensors), base)
    assert list(found.pairs) == [Q]
    assert "'blk.0.attn_norm.weight'" in found.notes[0]


# --- errors -------------------------------------------------------------------------------------


def test_a_model_file_is_refused(path: Path, base: BaseModel) -> None:
    error = refused(path, base, "tiny.gguf", "a complete model", "not an adapter")
    assert "Open" in error.remedy


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"general.type": "mmproj"}, ["'mmproj'"]),
        ({"adapter.type": "control_vector"}, ["'control_vector'", "'lora'"]),
        ({"adapter.alora.invocation_tokens": [1, 2]}, ["adapter.alora.invocation_tokens"]),
        ({"general.architecture": "qwen3"}, ["'qwen3'", "'llama'"]),
        ({"adapter.lora.alpha": "sixteen"}, ["adapter.lora.alpha", "'sixteen'"]),
        ({"adapter.lora.alpha": float("nan")}, ["adapter.lora.alpha", "finite"]),
        ({"adapter.lora.alpha": 1e30}, ["adapter.lora.alpha"]),
        ({"general.type": 3}, ["general.type"]),
    ],
)
def test_unsupported_keys_are_named(
    keys: dict[str, object], words: list[str], base: BaseModel, tmp_path: Path
) -> None:
    file = tiny_lora.write_gguf(tmp_path / "a.gguf", halves(), metadata=keys)
    refused(file, base, *words)


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        (halves("blk.2.attn_q.weight"), ["'blk.2.attn_q.weight'"]),
        (halves("blk.0.ffn_gate_exps.weight"), ["'blk.0.ffn_gate_exps.weight'"]),
        (halves(columns=96), [Q, "[64, 96]", "[64, 64]"]),
        (halves(rows=32), [Q, "[32, 64]", "[64, 64]"]),
        ({f"{Q}.lora_a": halves()[f"{Q}.lora_a"]}, ["lora_a", f"'{Q}.lora_b'"]),
        ({f"{Q}.lora_b": halves()[f"{Q}.lora_b"]}, ["lora_b", f"'{Q}.lora_a'"]),
        (
            {f"{Q}.lora_a": np.zeros((4, 64), "f"), f"{Q}.lora_b": np.zeros((64, 5), "f")},
            [Q, "4", "5"],
        ),
        (
            {f"{Q}.lora_a": np.zeros((2, 4, 64), "f"), f"{Q}.lora_b": np.zeros((2, 64, 4), "f")},
            [Q, "[2, 4, 64]"],
        ),
        (halves() | {"blk.0.attn_q.bias": np.zeros(64, "f")}, ["'blk.0.attn_q.bias'"]),
        (halves() | {Q: np.zeros((64, 64), "f")}, [f"'{Q}'"]),
        (halves(".lora_a"), ["'.lora_a'"]),
        ({"x_norm.weight": np.zeros(4, "f")}, ["no LoRA pairs"]),
        ({}, ["no LoRA pairs"]),
        ({f"{Q}.lora_a": np.zeros((64, 4), "f"), f"{Q}.lora_b": np.zeros((4, 64), "f")}, [Q]),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tensors: dict[str, np.ndarray], words: list[str], base: BaseModel, tmp_path: Path
) -> None:
    refused(tiny_lora.write_gguf(tmp_path / "a.gguf", tensors), base, *words)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("half", ["lora_a", "lora_b"])
def test_nan_and_infinity_are_refused(
    value: float, half: str, base: BaseModel, tmp_path: Path
) -> None:
    tensors = halves()
    tensors[f"{Q}.{half}"][3, 2] = value
    refused(tiny_lora.write_gguf(tmp_path / "a.gguf", tensors), base, Q, "finite")


def test_large_finite_values_are_accepted(base: BaseModel, tmp_path: Path) -> None:
    """Their sum overflows although every value is finite."""
    tensors = halves()
    tensors[f"{Q}.lora_a"][:2] = 3e38
    assert load_adapter(tiny_lora.write_gguf(tmp_path / "a.gguf", tensors), base).rank == 4


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"\0" * 4096, "zeros"),
        (b"<!doctype html>" + b"x" * 99, "web page"),
        (b"PK\3\4" + b"x" * 99, "ZIP"),
        (b"GGUF\3\0\0\0" + b"\xff" * 16, "claims"),
    ],
)
def test_other_file_formats_are_named(
    content: bytes, word: str, base: BaseModel, tmp_path: Path
) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(content)
    refused(file, base, word)


def test_a_missing_file_is_named(base: BaseModel, tmp_path: Path) -> None:
    refused(tmp_path / "gone.gguf", base, "gone.gguf")


def test_a_split_adapter_is_refused(base: BaseModel, tmp_path: Path) -> None:
    """An adapter is identified by the hash of one file."""
    for part, tensors in enumerate((halves(), halves(UP, rows=128))):
        keys = {"split.count": 2, "split.no": part, "split.tensors.count": 4}
        file = tmp_path / f"a-0000{part + 1}-of-00002.gguf"
        tiny_lora.write_gguf(file, tensors, metadata=keys)
    refused(file, base, "2 parts")


def test_a_truncated_adapter_is_refused(path: Path, base: BaseModel, tmp_path: Path) -> None:
    file = tiny_lora.write(tmp_path / "a.gguf", path)
    file.write_bytes(file.read_bytes()[:-100])
    refused(file, base, "ends at byte")


def test_an_unsupported_weight_format_is_named(path: Path, base: BaseModel, tmp_path: Path) -> None:
    file = tiny_lora.write(tmp_path / "a.gguf", path, rank=1)
    stored = bytearray(file.read_bytes())
    place = stored.index(b"lora_a") + 6 + 4 + 16
    stored[place : place + 4] = (24).to_bytes(4, "little")
    assert 24 not in FORMATS
    file.write_bytes(stored)
    refused(file, base, "lora_a")


def test_an_adapter_larger_than_memory_is_refused_before_it_is_read(
    base: BaseModel, tmp_path: Path
) -> None:
    """Two halves of a huge rank, in a sparse file."""
    from gguf import GGUFWriter
    from gguf.constants import GGMLQuantizationType

    file, rank = tmp_path / "huge.gguf", 1 << 33
    writer = GGUFWriter(file, "llama")
    writer.add_string("general.type", "adapter")
    for half, shape in (("a", (rank, 64)), ("b", (64, rank))):
        writer.add_tensor_info(
            f"{Q}.lora_{half}", shape, np.dtype(np.float32), 4 * rank * 64, GGMLQuantizationType.F32
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size + 2 * 4 * rank * 64 + 4096)
    with pytest.raises(OutOfMemory, match="GB") as caught:
        load_adapter(file, base)
    assert caught.value.remedy


@given(st.data())
def test_a_damaged_file_loads_or_is_refused(
    path: Path, base: BaseModel, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Random changes to the header or truncation give an adapter or an error of one sentence."""
    folder = tmp_path_factory.mktemp("damage")
    file = tiny_lora.write(folder / "a.gguf", path, targets=("attn_q",))
    stored = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        stored[data.draw(st.integers(0, min(900, len(stored) - 1)))] = data.draw(
            st.integers(0, 255)
        )
    file.write_bytes(stored[: data.draw(st.integers(1, len(stored)))])
    problem: EngineError | None = None
    try:
        load_adapter(file, base)
    except EngineError as error:
        problem = error
    assert problem is None or (str(problem).isprintable() and problem.remedy)


def test_errors_have_codes(path: Path, base: BaseModel, tmp_path: Path) -> None:
    def kind(file: Path) -> FaultKind:
        return refused(file, base).fault.kind

    whole = tiny_lora.write(tmp_path / "whole.gguf", path)
    cut, text = tmp_path / "cut.gguf", tmp_path / "text.gguf"
    cut.write_bytes(whole.read_bytes()[:-100])
    text.write_bytes(b"This is a letter, and no adapter.")
    other = tiny_lora.write_gguf(
        tmp_path / "other.gguf", halves(), metadata={"general.architecture": "qwen2"}
    )
    wide = tiny_lora.write_gguf(tmp_path / "wide.gguf", halves(columns=96))
    half = {name: data for name, data in halves().items() if name.endswith("a")}
    assert kind(cut) is FaultKind.INCOMPLETE
    assert kind(text) is FaultKind.NO_ADAPTER
    assert kind(path) is FaultKind.NO_ADAPTER  # a complete model
    assert kind(tmp_path / "none.gguf") is FaultKind.NO_FILE
    assert kind(other) is FaultKind.OTHER_MODEL
    assert kind(wide) is FaultKind.OTHER_MODEL
    assert kind(tiny_lora.write_gguf(tmp_path / "half.gguf", half)) is FaultKind.DAMAGED
    dora = tiny_lora.write_gguf(tmp_path / "dora.gguf", halves(), metadata={"adapter.type": "dora"})
    assert kind(dora) is FaultKind.ADAPTER
