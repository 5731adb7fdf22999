"""Builds GGUF files byte by byte, also invalid ones that a GGUF writer would refuse to write."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import fuzz_gguf
from engine.errors import ModelFileError
from engine.gguf.reader import GGUFFile

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
TYPE_F32, TYPE_Q4_0, TYPE_Q4_K = 0, 2, 12


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def array(kind: int, length: int, payload: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, length) + payload


def tensor(
    name: str | bytes, *dims: int, type: int = TYPE_F32, offset: int = 0, count: int | None = None
) -> bytes:
    """A tensor info entry; `dims` in ggml's order, the row length first."""
    shape = b"".join(struct.pack("<Q", dim) for dim in dims)
    dimensions = len(dims) if count is None else count
    return text(name) + struct.pack("<I", dimensions) + shape + struct.pack("<IQ", type, offset)


def model(
    *entries: bytes,
    tensors: tuple[bytes, ...] = (),
    data: bytes = b"",
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    keys = len(entries) if key_count is None else key_count
    count = len(tensors) if tensor_count is None else tensor_count
    header = b"GGUF" + struct.pack("<IQQ", version, count, keys)
    header += b"".join(entries) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data if data else header


def refusal(path: Path, data: bytes) -> ModelFileError:
    """Open these bytes as a file, which must fail; returns the error, its sentences checked."""
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        GGUFFile.open(path)
    fuzz_gguf.check_sentence(caught.value)
    return caught.value
