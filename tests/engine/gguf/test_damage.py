"""GGUF reader errors: other file formats, damaged files, unsupported versions and types."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path
from random import Random

import pytest

import fuzz_gguf
import tiny
from engine.errors import FaultKind, ModelFileError, UnsupportedModel
from engine.gguf.reader import GGUFFile
from engine.gguf.values import MAX_ELEMENTS
from gguf_bytes import (
    ARRAY,
    BOOL,
    F64,
    STRING,
    TYPE_Q4_0,
    TYPE_Q4_K,
    U8,
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


# --- files of other formats ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "it is empty"),
        (bytes(100), "only zeros"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
        (b"PK\3\4rest of it", "a ZIP archive"),
        (struct.pack("<Q", 80) + b'{"__metadata__":{}}', "a safetensors file"),
        (b"  <!DOCTYPE html><html>", "a web page"),
        (b"tjgg\1\0\0\0", "the GGML format that GGUF replaced"),
        (b"FUGG\3\0\0\0", "begins with 'FUGG' instead of 'GGUF'"),
        (b"\x1b[2J", r"begins with '\\x1b[2J' instead of 'GGUF'"),
        (b"GGU", "begins with 'GGU' instead of 'GGUF'"),
    ],
)
def test_other_file_formats_are_recognized(data: bytes, expected: str, path: Path) -> None:
    assert expected.replace("\\\\", "\\") in str(refusal(path, data))


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="is not a file"):
        GGUFFile.open(tmp_path)
    with pytest.raises(ModelFileError, match=r"There is no file '.*none.gguf'"):
        GGUFFile.open(tmp_path / "none.gguf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_named_pipe_is_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(ModelFileError, match="is not a file"):
        GGUFFile.open(tmp_path / "pipe.gguf")


@pytest.mark.parametrize(
    ("version", "kind", "expected"),
    [
        (0, ModelFileError, "version 0, which does not exist"),
        (1, UnsupportedModel, "version 1"),
        (4, UnsupportedModel, "version 4; this program reads versions 2 and 3"),
        (0x03000000, UnsupportedModel, "big-endian"),
        (0x02000000, UnsupportedModel, "big-endian"),
        (0x01000000, UnsupportedModel, "big-endian"),
        (100, ModelFileError, "version 100, which does not exist"),
        (0x00030000, ModelFileError, "version 196,608, which does not exist"),
        (0x7A3B0000, ModelFileError, "which does not exist"),
        (0x7A3B11C9, ModelFileError, "which does not exist"),
    ],
)
def test_unsupported_versions_are_named(
    version: int, kind: type[ModelFileError], expected: str, path: Path
) -> None:
    error = refusal(path, model(version=version))
    assert type(error) is kind
    assert expected in str(error)


@pytest.mark.parametrize("beginning", [b"GGUF", b"GGUF" + struct.pack("<I", 3)])
def test_noise_behind_a_good_magic_is_damage(beginning: bytes, path: Path) -> None:
    """Not a variant that is not supported yet, as the window would call it."""
    random = Random(45)
    for _ in range(200):
        error = refusal(path, beginning + random.randbytes(2_000))
        assert error.fault.kind is FaultKind.DAMAGED


# --- damaged files ------------------------------------------------------------------------------

KEY = entry("a.key", U8, b"\1")
HUGE = 1 << 63


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (model(KEY, key_count=10**12), "1,000,000,000,000 keys"),
        (model(KEY, key_count=2**64 - 1), "18,446,744,073,709,551,615 keys"),
        (model(tensor_count=10**12), "1,000,000,000,000 tensors"),
        (model(KEY, KEY), "The key 'a.key' is in the file twice"),
        (model(entry("", U64, bytes(8))), "key number 1 is 0 bytes long"),
        (model(entry("k" * 1025, U8, b"\1")), "key number 1 is 1,025 bytes long"),
        (model(struct.pack("<Q", HUGE) + bytes(20)), "key number 1 is 9,223,372,036,854,775,808"),
        (model(entry(b"\xff\xfe", U8, b"\1")), "The name of key number 1 is not text"),
        (model(entry("odd", 13, bytes(8))), "the key 'odd' has the unknown kind 13"),
        (model(entry("b", BOOL, b"\2")), "the key 'b' should be true or false (1 or 0) but is 2"),
        (model(entry("b", ARRAY, array(BOOL, 2, b"\1\7"))), "should be true or false"),
        (model(entry("t", STRING, struct.pack("<Q", HUGE))), "but the key 't' needs bytes up to"),
        (model(entry("l", ARRAY, array(U8, 10**12))), "list in the key 'l' claims 1,000,000,000,000"),
        (model(entry("l", ARRAY, array(STRING, 10**12))), "claims 1,000,000,000,000 elements"),
        (model(entry("l", ARRAY, array(F64, 3, bytes(16)))), "claims 3 elements"),
        (model(entry("l", ARRAY, array(99, 1, bytes(16)))), "unknown kind 99"),
        (
            model(entry("l", ARRAY, array(STRING, 2, text("a") + struct.pack("<Q", HUGE)))),
            "but the key 'l' needs bytes up to 9,223,372,036,854,775,",
        ),
        (
            model(entry("l", ARRAY, array(STRING, 2, struct.pack("<Q", 40) + bytes(12)))),
            "but text 1 of the key 'l' needs bytes up to",
        ),
        (
            model(entry("deep", ARRAY, array(ARRAY, 1) * 4 + array(U8, 1, b"\1"))),
            "the key 'deep' has lists nested more than 4 deep",
        ),
        (model(entry("a.key", U8, b"")), "but the key 'a.key' needs bytes up to"),
    ],
)  # fmt: skip
def test_damaged_metadata_is_named(data: bytes, expected: str, path: Path) -> None:
    assert expected in str(refusal(path, data))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (entry("general.alignment", U32, struct.pack("<I", 0)), "'general.alignment' is 0"),
        (entry("general.alignment", U32, struct.pack("<I", 4)), "'general.alignment' is 4"),
        (entry("general.alignment", U32, struct.pack("<I", 48)), "'general.alignment' is 48"),
        (entry("general.alignment", U32, struct.pack("<I", 1 << 31)), "is 2,147,483,648"),
        (entry("general.alignment", U64, struct.pack("<Q", 32)), "stored as kind 10"),
        (entry("general.alignment", STRING, text("32")), "it must be UINT32"),
    ],
)
def test_an_invalid_alignment_is_named(value: bytes, expected: str, path: Path) -> None:
    assert expected in str(refusal(path, model(value)))


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ((tensor("x", count=0),), "'x' has 0 dimensions"),
        ((tensor("x", 1, 1, 1, 1, 1),), "'x' has 5 dimensions"),
        ((tensor("x", 1, count=2**32 - 1),), "'x' has 4,294,967,295 dimensions"),
        ((tensor("x", 4, 0),), "'x' has the shape [0, 4]"),
        ((tensor("x", HUGE),), "'x' has the shape [9223372036854775808]"),
        ((tensor("x", 1 << 32, 1 << 32),), "'x' has the shape [4294967296, 4294967296]"),
        ((tensor("x", 33, 2, type=TYPE_Q4_0),), "'x' has rows of 33 weights, which Q4_0"),
        ((tensor("x", 128, 2, type=TYPE_Q4_K),), "packs 256 at a time"),
        ((tensor("", 4),), "The name of tensor number 1 is 0 bytes"),
        ((tensor("n" * 65, 4),), "tensor number 1 is 65 bytes long"),
        ((tensor(b"\xff", 4),), "The name of tensor number 1 is not text"),
        ((tensor("x", 8), tensor("x", 8, offset=32)), "The tensor 'x' is in the file twice"),
        ((tensor("x", 8, offset=8),), "'x' has offset 8, but the header ends at 0"),
        ((tensor("x", 8, offset=32),), "'x' has offset 32, but the header ends at 0"),
        ((tensor("x", 8), tensor("y", 8)), "'y' has offset 0, but the tensor 'x' ends at 32"),
        ((tensor("x", 8), tensor("y", 8, offset=64)), "'y' has offset 64, but the tensor 'x'"),
        ((tensor("x", 8, offset=2**64 - 32),), "'x' has offset 18,446,744,073,709,551,584"),
        ((tensor("x", 1 << 40),), "but the tensor 'x' needs bytes up to 4,398,046,511,168"),
    ],
)  # fmt: skip
def test_a_damaged_tensor_is_named(tensors: tuple[bytes, ...], expected: str, path: Path) -> None:
    assert expected in str(refusal(path, model(tensors=tensors, data=bytes(96))))


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (24, "'two' is stored as I8, which"),
        (31, "'two' is stored as Q4_0_4_4 (Q4_0 in an order"),
        (43, "'two' has the unknown type number 43"),
        (77, "'two' has the unknown type number 77"),
    ],
)
def test_an_unsupported_format_is_named(type: int, expected: str, path: Path) -> None:
    tensors = (tensor("one", 8), tensor("two", 256, type=type, offset=32))
    error = refusal(path, model(tensors=tensors, data=bytes(4096)))
    assert isinstance(error, UnsupportedModel)
    assert expected in str(error)


@pytest.mark.parametrize("type", [1_000, 1_042, 2**32 - 1])
def test_a_type_number_that_no_program_writes_is_damage(type: int, path: Path) -> None:
    error = refusal(path, model(tensors=(tensor("one", 256, type=type),), data=bytes(4096)))
    assert f"'one' has the unknown type number {type:,}" in str(error)
    assert error.fault.kind is FaultKind.DAMAGED


def test_limits_apply_even_if_the_file_is_large_enough(path: Path) -> None:
    half = MAX_ELEMENTS // 2 + 1
    lists = [entry(key, ARRAY, array(U8, half, bytes(half))) for key in ("one", "two")]
    path.write_bytes(model(lists[0]))
    GGUFFile.open(path).close()
    assert "The list in the key 'two' claims 2,097,153 elements" in str(
        refusal(path, model(*lists))
    )
    keys = [entry(f"key.{number}", U8, b"\1") for number in range(16_385)]
    assert "claims to hold 16,385 keys" in str(refusal(path, model(*keys)))


def test_a_truncated_file_is_refused_with_the_missing_size(path: Path) -> None:
    whole = tiny.write(path).read_bytes()
    with GGUFFile.open(path) as file:
        last = list(file.tensors.values())[-1]
    cut = whole[: last.offset + last.size_bytes - 1]
    error = refusal(path, cut)
    assert f"ends at byte {len(cut):,}" in str(error)
    assert f"'{last.name}' needs bytes up to {len(cut) + 1:,}" in str(error)
    assert "download it again" in error.remedy


def test_truncation_anywhere_in_the_header_is_refused(path: Path) -> None:
    whole = tiny.write(path, layers=1).read_bytes()
    header = fuzz_gguf.fields_of(whole)[1]
    for end in {*range(200), *range(200, header, 37)}:
        refusal(path, whole[:end])


def test_a_huge_stated_length_allocates_no_memory(path: Path) -> None:
    data = model(entry("l", ARRAY, array(STRING, 10**12)))
    path.write_bytes(data)
    tracemalloc.start()
    try:
        refused, peak = fuzz_gguf.check(path)
    finally:
        tracemalloc.stop()
    assert refused is not None
    assert peak < 16_384


def test_a_large_vocabulary_is_not_decoded_by_opening(path: Path) -> None:
    tokens = b"".join(text(f"token{number}") for number in range(50_000))
    path.write_bytes(model(entry("tokens", ARRAY, array(STRING, 50_000, tokens))))
    tracemalloc.start()
    try:
        refused, peak = fuzz_gguf.check(path)
    finally:
        tracemalloc.stop()
    assert refused is None
    assert peak < 16_384
