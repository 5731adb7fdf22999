"""GGUF reader for whole and split models: typed metadata and memory-mapped tensor data.

`GGUFFile.open` checks everything against the file's size, so a getter can only fail for a key that
is missing or of another type, and `data` cannot fail for a name in `tensors`.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from engine.errors import Fault, FaultKind, ModelFileError
from engine.gguf.part import Part, read_part
from engine.gguf.saved import without_unset
from engine.gguf.tensor_info import TensorInfo
from engine.gguf.values import DAMAGED, Array, Metadata, Stored, Text, Value, describe, shown

__all__ = ["GGUFFile", "Metadata", "TensorInfo", "Value"]

_PART_NAME = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)
_COUNT_KEY = "split.count"
_NUMBER_KEY = "split.no"
_TENSORS_KEY = "split.tensors.count"

Number = TypeVar("Number", int, float)


class GGUFFile:
    """An open GGUF file; it stays mapped until `close` and until the last view of its data is gone.

    `metadata` is that of the first part, see `engine.gguf.saved` for what it leaves out; its strings
    and arrays can be read until `close`. Of a file that is written to meanwhile anything may be
    read, also zeros: what was read counts only after `check`.
    """

    def __init__(self, path: Path, parts: tuple[Part, ...]) -> None:
        self.path = path
        self._parts = parts
        self.paths = tuple(part.path for part in parts)
        self.version = parts[0].version
        self.metadata = without_unset(parts[0].metadata)
        self.tensors = {info.name: info for part in parts for info in part.tensors}
        self.two_bit = next((part.two_bit for part in parts if part.two_bit), None)
        self.file_bytes = sum(len(part.buffer) for part in parts)
        self._closed = False

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a GGUF file of version 2 or 3; any part of a split model opens all parts.

        Raises ModelFileError for a missing or damaged file or another format, UnsupportedModel for
        a valid file this version cannot read. A vocabulary-only file without tensors is accepted.
        """
        given = read_part(path, 0)
        try:
            count = _part_count(given)
        except ModelFileError:
            given.close()
            raise
        if count == 1:
            return cls(path, (given,))
        given.close()
        return cls(path, _read_parts(path, count))

    def data(self, name: str) -> memoryview:
        """A read-only, zero-copy view of the bytes of a tensor: [size_bytes] u8.

        Raises ModelFileError when the file has no such tensor.
        """
        assert not self._closed, "data of a closed file"
        info = self.tensors.get(name)
        if info is None:
            raise ModelFileError(
                f"The tensor {shown(name)} is missing from the file.",
                "The file is incomplete; download it again or choose another.",
            )
        view = memoryview(self._parts[info.part].buffer)
        return view[info.offset : info.offset + info.size_bytes]

    def entries(self) -> dict[str, bytes]:
        """The raw bytes of every metadata entry (key and value) of the first part, by key."""
        part = self._parts[0]
        return {key: part.buffer[where] for key, where in part.entries.items()}

    def drop_pages(self, name: str, start: int = 0, end: int | None = None) -> None:
        """Drop the resident pages of a tensor's bytes from `start` to `end`.

        They are read from the file again on the next access.
        """
        info = self.tensors[name]
        end = info.size_bytes if end is None else end
        self._parts[info.part].drop_pages(info.offset + start, end - start)

    def length(self, key: str) -> int:
        """The length of an array, without decoding it; 0 if the key is missing or not an array."""
        found = self.metadata.stored.get(key)
        return found.length if isinstance(found, Array) else 0

    def check(self, *, names: bool = False) -> None:
        """Raise ModelFileError if a file was written to since it was opened, or could not be read.

        With `names` also if another file has the name of one now, by which it may be opened again.
        """
        for part in self._parts:
            part.check()
            if names:
                part.source.check_name()

    def sha256(self, checkpoint: Callable[[], None]) -> str:
        """SHA-256 of the file in hexadecimal; of several files, the hash of their joined hashes.

        Raises ModelFileError as `check`, OSError, and what `checkpoint` raises.
        """
        found = [part.source.sha256(checkpoint) for part in self._parts]
        self.check()
        return found[0] if len(found) == 1 else hashlib.sha256("".join(found).encode()).hexdigest()

    def close(self) -> None:
        """Close the file; live views stay valid and keep it mapped."""
        self._closed = True
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Each getter raises ModelFileError naming the key if it is missing and there is no default, or
    # if its value has another type or is out of range.

    def integer(
        self,
        key: str,
        default: int | None = None,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> int:
        """An integer value."""
        found = _stored_or_default(self.metadata, key, default)
        if isinstance(found, bool) or not isinstance(found, int):
            raise _wrong_kind(key, found, "a whole number")
        return _in_range(key, found, minimum, maximum)

    def number(
        self,
        key: str,
        default: float | None = None,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> float:
        """A finite number, as float."""
        found = _stored_or_default(self.metadata, key, default)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise _wrong_kind(key, found, "a number")
        if not math.isfinite(found):
            raise _wrong_kind(key, found, "a finite number")
        return _in_range(key, float(found), minimum, maximum)

    def string(self, key: str, default: str | None = None) -> str:
        """A string value."""
        found = _stored_or_default(self.metadata, key, default)
        if isinstance(found, Text):
            return found.read()
        if isinstance(found, str):
            return found
        raise _wrong_kind(key, found, "a text")


Default = TypeVar("Default", int, float, str)


def _stored_or_default(metadata: Metadata, key: str, default: Default | None) -> Stored | Default:
    found = metadata.stored.get(key, default)
    if found is None:
        raise ModelFileError(
            f"The key {shown(key)} is missing from the file.",
            "The file is incomplete or made by a faulty converter; get another copy.",
        )
    return found


def _wrong_kind(key: str, found: object, wanted: str) -> ModelFileError:
    assert isinstance(found, bool | int | float | Text | Array)
    return ModelFileError(
        f"The key {shown(key)} holds {describe(found)}, but {wanted} is wanted.", DAMAGED
    )


def _in_range(key: str, found: Number, minimum: Number | None, maximum: Number | None) -> Number:
    if minimum is not None and found < minimum:
        raise ModelFileError(
            f"The key {shown(key)} is {found:,}; at least {minimum:,} is wanted.", DAMAGED
        )
    if maximum is not None and found > maximum:
        raise ModelFileError(
            f"The key {shown(key)} is {found:,}; at most {maximum:,} is wanted.", DAMAGED
        )
    return found


# --- split models -------------------------------------------------------------------------------


def _part_count(part: Part) -> int:
    """The number of parts (`split.count`); 1 if the file does not have the key."""
    count = part.metadata.stored.get(_COUNT_KEY, 1)
    if isinstance(count, bool) or not isinstance(count, int):
        raise _wrong_kind(_COUNT_KEY, count, "a whole number")
    return _in_range(_COUNT_KEY, count, 1, 99_999) if count else 1


def _read_parts(path: Path, count: int) -> tuple[Part, ...]:
    """Open all parts of a split model from the folder of `path` and check their consistency."""
    paths = _part_paths(path, count)
    parts: list[Part] = []
    try:
        for index, part_path in enumerate(paths):
            parts.append(read_part(part_path, index, parts[0].marks if parts else None))
            _check_part(parts[-1], index, count)
        _check_together(parts)
    except BaseException:
        for part in parts:
            part.close()
        raise
    return tuple(parts)


def _part_paths(path: Path, count: int) -> list[Path]:
    found = _PART_NAME.search(path.name)
    if found is None or int(found[2]) != count:
        raise ModelFileError(
            f"{shown(path.name)} is one of {count:,} parts of a model, but its name has no number.",
            f"Rename the parts so that they end in -00001-of-{count:05}.gguf and so on.",
        )
    stem = path.name[: found.start()]
    paths = [
        path.with_name(f"{stem}-{index:05}-of-{count:05}{found[3]}")
        for index in range(1, count + 1)
    ]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        raise ModelFileError(
            f"The model is in {count:,} parts, and {shown(missing[0])} is missing"
            + (f", as are {len(missing) - 1:,} more." if len(missing) > 1 else "."),
            "Download every part into the same folder.",
            Fault(FaultKind.PART_MISSING, missing[0]),
        )
    return paths


def _check_part(part: Part, index: int, count: int) -> None:
    """Raise ModelFileError unless the part's own keys state this index and count."""
    name = shown(part.path.name)
    if _part_count(part) != count:
        raise ModelFileError(
            f"{name} states that its model is in {_part_count(part):,} parts; the others state "
            f"{count:,}.",
            "The parts belong to different models; download them again.",
        )
    number = part.metadata.stored.get(_NUMBER_KEY)
    if number != index:
        found = "missing" if number is None else repr(number)
        raise ModelFileError(
            f"The key '{_NUMBER_KEY}' of {name} should be {index}, but is {found}.",
            "The parts were renamed or mixed up; download them again.",
        )


def _check_together(parts: list[Part]) -> None:
    """Raise unless the parts agree, with unique tensors and the count the first part states."""
    names: set[str] = set()
    layouts = {part.two_bit.layout.name for part in parts if part.two_bit}
    if len(layouts) > 1:
        raise ModelFileError(
            f"The 2-bit tensors of the model's parts have different layouts: {', '.join(sorted(layouts))}.",
            "The parts belong to different models; download them again.",
        )
    for part in parts:
        if part.version != parts[0].version:
            raise ModelFileError(
                f"{shown(part.path.name)} is GGUF version {part.version}, the first part is "
                f"version {parts[0].version}.",
                "The parts belong to different models; download them again.",
            )
        for info in part.tensors:
            if info.name in names:
                raise ModelFileError(
                    f"The tensor {shown(info.name)} is in two parts of the model.", DAMAGED
                )
            names.add(info.name)
    stated = parts[0].metadata.stored.get(_TENSORS_KEY, len(names))
    if stated != len(names):
        raise ModelFileError(
            f"The key '{_TENSORS_KEY}' is {describe(stated)}, but the parts hold "
            f"{len(names):,} tensors.",
            "The parts belong to different models; download them again.",
        )
