"""GGUF reader: equals gguf-py on valid files, bounded memory on any; see also test_damage.py."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fuzz_gguf
import tiny
from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile
from gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    STRING,
    TYPE_Q4_0,
    U8,
    U16,
    U32,
    U64,
    array,
    entry,
    model,
    refusal,
    tensor,
    text,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.gguf"


# --- valid files --------------------------------------------------------------------------------


def assert_equals_gguf_py(path: Path) -> None:
    theirs = GGUFReader(path)
    with GGUFFile.open(path) as ours:
        fields = {k: f for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
        assert list(ours.metadata) == list(fields)
        for key, found in fields.items():
            assert ours.metadata[key] == found.contents(), key
        assert [t.name for t in theirs.tensors] == list(ours.tensors)
        for tensor in theirs.tensors:
            info = ours.tensors[tensor.name]
            assert info.shape == tuple(int(n) for n in tensor.shape[::-1])
            assert info.format.id == tensor.tensor_type
            assert (info.offset, info.size_bytes) == (tensor.data_offset, tensor.n_bytes)
            assert np.array_equal(
                np.frombuffer(ours.data(info.name), np.uint8), tensor.data.view(np.uint8).ravel()
            )
        assert ours.file_bytes == path.stat().st_size
        assert ours.version == 3


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma3"])
@pytest.mark.parametrize("format", ["F32", "Q4_1", "Q6_K", "Q1_0", "TQ1_0", "MXFP4"])
def test_metadata_and_tensors_equal_gguf_py(architecture: str, format: str, path: Path) -> None:
    assert_equals_gguf_py(tiny.write(path, architecture=architecture, format=format))


@pytest.mark.sweep
@pytest.mark.real
def test_the_starter_model_equals_gguf_py(starter_model: Path) -> None:
    assert_equals_gguf_py(starter_model)


@pytest.mark.real
@pytest.mark.slow  # gguf-py takes 20 seconds over 262,144 tokens
def test_the_gemma_model_equals_gguf_py(gemma_model: Path) -> None:
    assert_equals_gguf_py(gemma_model)


@pytest.mark.parametrize(
    ("kind", "code", "value"),
    [
        (U8, "B", 255), (I8, "b", -128), (U16, "H", 65535), (I16, "h", -32768),
        (U32, "I", 2**32 - 1), (I32, "i", -(2**31)), (F32, "f", 0.5), (BOOL, "B", True),
        (U64, "Q", 2**64 - 1), (I64, "q", -(2**63)), (F64, "d", 0.1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("version", [2, 3])
def test_every_value_type_is_read(
    kind: int, code: str, value: int | float, version: int, path: Path
) -> None:
    packed = struct.pack("<" + code, value)
    path.write_bytes(
        model(
            entry("one", kind, packed),
            entry("list", ARRAY, array(kind, 3, packed * 3)),
            version=version,
        )
    )
    with GGUFFile.open(path) as file:
        assert file.version == version
        assert file.metadata["one"] == value
        assert type(file.metadata["one"]) is type(value)
        assert file.metadata["list"] == [value] * 3


def test_arrays_of_strings_and_nested_arrays_are_read(path: Path) -> None:
    texts = array(STRING, 3, text("") + text("猫") + text("a b"))
    inner = array(U8, 2, b"\1\2") + array(STRING, 1, text("x"))
    path.write_bytes(
        model(
            entry("t", ARRAY, texts),
            entry("l", ARRAY, array(ARRAY, 2, inner)),
            entry("e", ARRAY, array(U8, 0)),
        )
    )
    with GGUFFile.open(path) as file:
        assert file.metadata["t"] == ["", "猫", "a b"]
        assert file.metadata["l"] == [[1, 2], ["x"]]
        assert file.metadata["e"] == []


def test_invalid_utf8_in_values_becomes_replacement_characters(path: Path) -> None:
    path.write_bytes(
        model(
            entry("general.name", STRING, text(b"a\xffb")),
            entry("tokens", ARRAY, array(STRING, 2, text(b"\xf0\x9f") + text("ok"))),
        )
    )
    with GGUFFile.open(path) as file:
        assert file.string("general.name") == "a\ufffdb"
        assert file.metadata["tokens"] == ["\ufffd", "ok"]


def test_a_vocabulary_only_file_opens(path: Path) -> None:
    path.write_bytes(model(entry("tokens", ARRAY, array(STRING, 1, text("a")))))
    with GGUFFile.open(path) as file:
        assert file.tensors == {}
        assert file.metadata["tokens"] == ["a"]


def test_alignment_is_honoured(path: Path) -> None:
    entries = (entry("general.alignment", U32, struct.pack("<I", 256)),)
    tensors = (tensor("a", 4), tensor("b", 4, offset=256))
    data = bytes(range(16)) + bytes(240) + bytes(range(16, 32))
    path.write_bytes(model(*entries, tensors=tensors, data=data, alignment=256))
    with GGUFFile.open(path) as file:
        assert file.tensors["b"].offset == 512
        assert bytes(file.data("b")) == bytes(range(16, 32))


def test_directory_order_may_differ_from_file_order(path: Path) -> None:
    tensors = (tensor("late", 8, offset=32), tensor("early", 8, offset=0))
    path.write_bytes(model(tensors=tensors, data=bytes(32) + b"\1" * 32))
    with GGUFFile.open(path) as file:
        assert bytes(file.data("late")) == b"\1" * 32


def test_shapes_are_rows_first(path: Path) -> None:
    path.write_bytes(model(tensors=(tensor("t", 32, 3, 2, type=TYPE_Q4_0),), data=bytes(108)))
    with GGUFFile.open(path) as file:
        assert file.tensors["t"].shape == (2, 3, 32)
        assert file.tensors["t"].size_bytes == 6 * 18


def test_data_is_read_only(path: Path) -> None:
    with GGUFFile.open(tiny.write(path)) as file, pytest.raises(TypeError):
        file.data("output_norm.weight")[0] = 1


def test_views_outlive_the_file(path: Path) -> None:
    file = GGUFFile.open(tiny.write(path))
    view = file.data("output_norm.weight")
    first = bytes(view[:4])
    file.close()
    assert bytes(view[:4]) == first
    file.close()


def test_a_missing_tensor_is_named(path: Path) -> None:
    with GGUFFile.open(tiny.write(path)) as file, pytest.raises(ModelFileError, match="'nope'"):
        file.data("nope")


# --- getters ------------------------------------------------------------------------------------


@pytest.fixture
def keys(path: Path) -> Iterator[GGUFFile]:
    path.write_bytes(
        model(
            entry("whole", U32, struct.pack("<I", 7)),
            entry("broken", F32, struct.pack("<f", 0.5)),
            entry("endless", F32, struct.pack("<f", float("inf"))),
            entry("name", STRING, text("x" * 300)),
            entry("flag", BOOL, b"\1"),
            entry("texts", ARRAY, array(STRING, 1, text("a"))),
            entry("halves", ARRAY, array(F32, 2, struct.pack("<ff", 0.5, 1.5))),
        )
    )
    with GGUFFile.open(path) as file:
        yield file


def test_getters_return_the_requested_type(keys: GGUFFile) -> None:
    assert keys.integer("whole") == 7
    assert (keys.number("broken"), keys.number("whole")) == (0.5, 7.0)
    assert keys.string("name") == "x" * 300


def test_getters_fall_back_to_their_default(keys: GGUFFile) -> None:
    assert keys.integer("no", 3) == 3
    assert keys.number("no", 0.25) == 0.25
    assert keys.string("no", "") == ""


@pytest.mark.parametrize("getter", ["integer", "number", "string"])
def test_a_missing_key_is_named(keys: GGUFFile, getter: str) -> None:
    with pytest.raises(ModelFileError, match="The key 'no' is missing"):
        getattr(keys, getter)("no")


@pytest.mark.parametrize(
    ("getter", "key", "expected"),
    [
        ("integer", "broken", "'broken' holds the number 0.5, but a whole number is wanted"),
        ("integer", "flag", "'flag' holds true, but a whole number is wanted"),
        ("integer", "texts", "'texts' holds a list of 1 texts, but a whole number is wanted"),
        ("number", "name", "'name' holds the text 'x{61}...', but a number is wanted"),
        ("number", "endless", "'endless' holds the number inf, but a finite number is wanted"),
        ("number", "flag", "'flag' holds true, but a number is wanted"),
        ("string", "whole", "'whole' holds the number 7, but a text is wanted"),
        ("string", "halves", r"'halves' holds a list of 2 values \(FLOAT32\), but a text"),
    ],
)
def test_a_key_of_the_wrong_type_is_named(
    keys: GGUFFile, getter: str, key: str, expected: str
) -> None:
    with pytest.raises(ModelFileError, match=expected):
        getattr(keys, getter)(key)


def test_a_number_out_of_range_is_named(keys: GGUFFile) -> None:
    assert keys.integer("whole", minimum=7, maximum=7) == 7
    with pytest.raises(ModelFileError, match="'whole' is 7; at least 8 is wanted"):
        keys.integer("whole", minimum=8)
    with pytest.raises(ModelFileError, match=r"'broken' is 0\.5; at most 0\.25 is wanted"):
        keys.number("broken", maximum=0.25)


# --- models in parts ----------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    return fuzz_gguf.write_split(tmp_path / "big.gguf")


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_opens_the_whole_model(parts: list[Path], given: int) -> None:
    with GGUFFile.open(parts[given]) as file:
        assert file.path == parts[given]
        assert list(file.paths) == parts
        assert list(file.tensors) == [f"t{number}" for number in range(5)]
        assert [info.part for info in file.tensors.values()] == [0, 0, 1, 1, 2]
        assert file.string("general.architecture") == "split"
        assert file.file_bytes == sum(part.stat().st_size for part in parts)
        for number in range(5):
            values = np.frombuffer(file.data(f"t{number}"), "<f4")
            assert values.tolist() == [number] * 64


def test_a_missing_part_is_named(parts: list[Path]) -> None:
    parts[1].unlink()
    for part in (parts[0], parts[2]):
        with pytest.raises(ModelFileError, match=r"'big-00002-of-00003.gguf' is missing"):
            GGUFFile.open(part)


def test_a_renamed_part_is_refused(parts: list[Path]) -> None:
    renamed = parts[0].rename(parts[0].with_name("model.gguf"))
    with pytest.raises(ModelFileError, match="one of 3 parts") as caught:
        GGUFFile.open(renamed)
    assert "-00001-of-00003.gguf" in caught.value.remedy


def test_swapped_parts_are_refused(parts: list[Path]) -> None:
    second = parts[1].read_bytes()
    parts[1].write_bytes(parts[2].read_bytes())
    parts[2].write_bytes(second)
    with pytest.raises(
        ModelFileError, match=r"'split.no' of 'big-00002-of-00003.gguf' should be 1"
    ):
        GGUFFile.open(parts[0])


def split_keys(number: int, count: int, tensors: int) -> tuple[bytes, ...]:
    return (
        entry("split.no", U16, struct.pack("<H", number)),
        entry("split.count", U16, struct.pack("<H", count)),
        entry("split.tensors.count", I32, struct.pack("<i", tensors)),
    )


@pytest.mark.parametrize(
    ("second", "stated", "expected"),
    [
        (model(*split_keys(1, 3, 2), tensors=(tensor("b", 8),), data=bytes(32)), 2, "in 3 parts"),
        (model(*split_keys(1, 2, 2), tensors=(tensor("a", 8),), data=bytes(32)), 2, "'a' is in two parts"),
        (model(*split_keys(1, 2, 9), tensors=(tensor("b", 8),), data=bytes(32)), 9, "is the number 9, but the parts hold 2 tensors"),
        (model(tensors=(tensor("b", 8),), data=bytes(32)), 2, "in 1 parts"),
        (model(*split_keys(1, 2, 2), tensors=(tensor("b", 8),), data=bytes(32), version=2), 2, "version 2"),
    ],
)  # fmt: skip
def test_inconsistent_parts_are_refused(
    second: bytes, stated: int, expected: str, tmp_path: Path
) -> None:
    first = model(*split_keys(0, 2, stated), tensors=(tensor("a", 8),), data=bytes(32))
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(second)
    assert expected in str(refusal(tmp_path / "m-00001-of-00002.gguf", first))


@pytest.mark.parametrize("payload", [(STRING, text("3")), (I32, struct.pack("<i", -1))])
def test_an_invalid_number_of_parts_is_named(payload: tuple[int, bytes], path: Path) -> None:
    assert "'split.count'" in str(refusal(path, model(entry("split.count", *payload))))


# --- fuzzing ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> list[fuzz_gguf.Seed]:
    return fuzz_gguf.seeds(tmp_path_factory.mktemp("seeds"))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(which=st.integers(0, 6), number=st.integers(0, 2**32))
def test_a_mutated_file_opens_or_is_refused(
    seeds: list[fuzz_gguf.Seed], tmp_path: Path, which: int, number: int
) -> None:
    seed = seeds[which]
    check_bounded(tmp_path, seed, fuzz_gguf.mutate(seed, random.Random(number)))


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tail=st.binary(max_size=300))
def test_any_bytes_after_the_magic_open_or_are_refused(
    seeds: list[fuzz_gguf.Seed], tmp_path: Path, tail: bytes
) -> None:
    check_bounded(tmp_path, seeds[0], b"GGUF\3\0\0\0" + tail)


def check_bounded(folder: Path, seed: fuzz_gguf.Seed, data: bytes) -> None:
    """Opening allocates at most twice the file size more than for an empty file."""
    for name, whole in seed.files.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).write_bytes(data if name == seed.mutated else whole)
    size = sum((folder / name).stat().st_size for name in seed.files)
    tracemalloc.start()
    try:
        _, peak = fuzz_gguf.check(folder / seed.mutated)
    finally:
        tracemalloc.stop()
    assert peak <= 2 * size + fuzz_gguf.SLACK_BYTES


def small_model() -> dict[str, Any]:
    return {"layers": 1, "hidden": 32, "heads": 2, "kv_heads": 1, "head_dim": 16, "ffn": 32}


def test_the_same_arguments_write_the_same_bytes(tmp_path: Path) -> None:
    first = tiny.write(tmp_path / "a.gguf", **small_model()).read_bytes()
    assert tiny.write(tmp_path / "b.gguf", **small_model()).read_bytes() == first
    assert tiny.write(tmp_path / "c.gguf", seed=1, **small_model()).read_bytes() != first


def test_keys_can_be_replaced_added_and_removed(path: Path) -> None:
    changed = {"llama.context_length": 8, "general.name": None, "new.key": ["x"]}
    with GGUFFile.open(tiny.write(path, metadata=changed, **small_model())) as file:
        assert file.integer("llama.context_length") == 8
        assert "general.name" not in file.metadata
        assert file.metadata["new.key"] == ["x"]
