"""Reader of safetensors files through one open file: what is hashed is what was read.

The library maps a file that it opens by name: it cannot say which file that was, and one that is
truncated meanwhile ends the process.

Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from engine.adapters.delta import DAMAGED
from engine.errors import DamagedAdapter
from engine.machine.open_file import OpenFile

_MAX_HEADER_BYTES = 100_000_000  # as the library
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor of the file, by its header."""

    dtype: str  # "F32", and others that `tensor` does not read
    shape: tuple[int, ...]
    start: int  # bytes from the start of the file
    size_bytes: int


class TensorFile:
    """A safetensors file, open until `close`."""

    def __init__(self, path: Path) -> None:
        """Raises OSError, and DamagedAdapter for a header that is not valid."""
        self._file = OpenFile(path)
        try:
            self.tensors = _header(self._file)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def tensor(self, name: str) -> Tensor:
        """The values of a tensor of floats, in its shape and type."""
        stored = self.tensors[name]
        data = self._file.read(stored.start, stored.size_bytes)
        if not data:
            return torch.empty(stored.shape, dtype=_TYPES[stored.dtype])
        return torch.frombuffer(data, dtype=_TYPES[stored.dtype]).view(stored.shape)

    def sha256(self, checkpoint: Callable[[], None]) -> str:
        """SHA-256 of the file; raises ModelFileError if it was written to since it was opened."""
        found = self._file.sha256(checkpoint)
        self._file.check()
        return found


def _header(file: OpenFile) -> dict[str, Stored]:
    if file.size_bytes < 8:
        raise _invalid(file)
    length = int.from_bytes(file.read(0, 8), "little")
    if length > min(_MAX_HEADER_BYTES, file.size_bytes - 8):
        raise _invalid(file)
    try:
        entries: object = json.loads(bytes(file.read(8, length)))
    except (ValueError, RecursionError):
        raise _invalid(file) from None
    if not isinstance(entries, dict):
        raise _invalid(file)
    found: dict[str, Stored] = {}
    for name, entry in cast("dict[str, Any]", entries).items():
        if name != "__metadata__":
            found[name] = _stored(file, entry, 8 + length)
    return found


def _stored(file: OpenFile, entry: object, data: int) -> Stored:
    """A tensor by its entry in the header, where the data begins at byte `data`."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(end)]}:
            sizes = cast("list[object]", shape)
        case _:
            raise _invalid(file)
    if not all(type(one) is int and 0 <= one < 1 << 48 for one in (*sizes, start, end)):
        raise _invalid(file)
    rows = cast("tuple[int, ...]", tuple(sizes))
    wanted = math.prod(rows) * _TYPES[dtype].itemsize if dtype in _TYPES else end - start
    if end - start != wanted or start > end or data + end > file.size_bytes:
        raise _invalid(file)
    return Stored(dtype, rows, data + start, end - start)


def _invalid(file: OpenFile) -> DamagedAdapter:
    return DamagedAdapter(f"'{file.path.name}' is not a valid safetensors file.", DAMAGED)
