"""GGUF metadata values: bounds-checked parsing of numbers, strings and arrays, decoded lazily.

The file is untrusted: every length is compared with the remaining bytes before it is used. Strings
and arrays stay in the mapped file until they are accessed, since 150,000 tokens take several times
as much memory as Python strings.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from mmap import mmap

from engine.errors import Fault, FaultKind, ModelFileError

Value = bool | int | float | str | list["Value"]

MAX_ELEMENTS = 1 << 22  # of all arrays together; the largest vocabularies need about 3 million
MAX_DEPTH = 4  # of nested arrays
DOWNLOAD_AGAIN = "It is cut short or damaged; download it again."
DAMAGED = "The file is damaged or made by a faulty converter; get another copy."


class Kind(IntEnum):
    """GGUF metadata value type."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


INTEGERS = frozenset(
    {Kind.UINT8, Kind.INT8, Kind.UINT16, Kind.INT16, Kind.UINT32, Kind.INT32, Kind.UINT64, Kind.INT64}
)  # fmt: skip
FLOATS = frozenset({Kind.FLOAT32, Kind.FLOAT64})

_CODES = {
    Kind.UINT8: "B", Kind.INT8: "b", Kind.UINT16: "H", Kind.INT16: "h", Kind.UINT32: "I",
    Kind.INT32: "i", Kind.FLOAT32: "f", Kind.BOOL: "B", Kind.UINT64: "Q", Kind.INT64: "q",
    Kind.FLOAT64: "d",
}  # fmt: skip
_FIXED = {kind: struct.Struct("<" + code) for kind, code in _CODES.items()}
_LENGTH = struct.Struct("<Q")
_LIST_HEAD = struct.Struct("<IQ")
_KINDS = {int(kind): kind for kind in Kind}
_SMALLEST = {**{kind: code.size for kind, code in _FIXED.items()}, Kind.STRING: 8, Kind.ARRAY: 12}


@dataclass(frozen=True, slots=True)
class Text:
    """A string in the file; `read` decodes it without caching."""

    buffer: mmap | bytes
    start: int  # bytes from the start of the file
    size: int  # bytes

    def read(self) -> str:
        """Decode the string; invalid UTF-8 becomes U+FFFD.

        Some vocabularies contain such bytes. Lone surrogates would be lossless, but the tokenizers
        library, terminals and Qt do not accept them.
        """
        return str(self.buffer[self.start : self.start + self.size], "utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Array:
    """An array in the file; `read` decodes it without caching."""

    buffer: mmap | bytes
    start: int  # bytes from the start of the file
    kind: Kind
    length: int

    def read(self) -> list[Value]:
        """Decode the whole array; `Cursor.array` has already checked all bounds."""
        if self.kind is Kind.STRING:
            return list(self._texts())
        if self.kind is Kind.ARRAY:
            return [inner.read() for inner in self._lists()]
        code = _CODES[self.kind]
        numbers = struct.unpack_from(f"<{self.length}{code}", self.buffer, self.start)
        return [n != 0 for n in numbers] if self.kind is Kind.BOOL else list(numbers)

    def _texts(self) -> Iterator[str]:
        buffer, position, unpack = self.buffer, self.start, _LENGTH.unpack_from
        for _ in range(self.length):
            start = position + 8
            position = start + unpack(buffer, position)[0]
            yield str(buffer[start:position], "utf-8", "replace")

    def _lists(self) -> Iterator[Array]:
        cursor = Cursor(self.buffer, self.start)
        for _ in range(self.length):
            yield cursor.array()


Stored = bool | int | float | Text | Array


class Cursor:
    """A bounds-checked read position in a file's header.

    `subject` names the item being read, for error messages.
    """

    __slots__ = ("buffer", "elements_left", "end", "position", "subject")

    def __init__(self, buffer: mmap | bytes, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self.subject = "the header"
        self.elements_left = MAX_ELEMENTS

    def value(self, number: int) -> Stored:
        """Read a value of the type with this number."""
        kind = self._kind(number)
        if kind is Kind.STRING:
            return self.text()
        if kind is Kind.ARRAY:
            return self.array()
        stored = self.fixed(_FIXED[kind])
        if kind is Kind.BOOL:
            self._check_truth(stored)
            return stored == 1
        return stored

    def fixed(self, layout: struct.Struct) -> int | float:
        """Read one number of a fixed layout."""
        start = self._take(layout.size)
        return layout.unpack_from(self.buffer, start)[0]

    def u32(self) -> int:
        """Read an unsigned 32-bit integer."""
        return int(self.fixed(_FIXED[Kind.UINT32]))

    def u64(self) -> int:
        """Read an unsigned 64-bit integer."""
        return int(self.fixed(_LENGTH))

    def count(self, what: str, least_bytes: int, most: int) -> int:
        """Read an item count; refused if above `most` or if `least_bytes` each exceed the file."""
        count = self.u64()
        if count > most or count * least_bytes > self.end - self.position:
            raise ModelFileError(
                f"The file claims to hold {count:,} {what}, more than a model needs or its "
                f"{self.end:,} bytes can contain.",
                DOWNLOAD_AGAIN,
                Fault(FaultKind.DAMAGED if count > most else FaultKind.INCOMPLETE),
            )
        return count

    def name(self, longest: int) -> str:
        """Read a key or tensor name: not empty, valid UTF-8, at most `longest` bytes."""
        size = self.u64()
        if not 0 < size <= longest:
            raise ModelFileError(
                f"The name of {self.subject} is {size:,} bytes long; 1 to {longest:,} are allowed.",
                DAMAGED,
            )
        start = self._take(size)
        try:
            return str(self.buffer[start : self.position], "utf-8")
        except UnicodeDecodeError:
            raise ModelFileError(f"The name of {self.subject} is not text.", DAMAGED) from None

    def text(self) -> Text:
        """Read a string without decoding it."""
        size = self.u64()
        return Text(self.buffer, self._take(size), size)

    def array(self, depth: int = 1) -> Array:
        """Read an array without decoding it, checking all bounds so that decoding cannot fail."""
        start = self._take(_LIST_HEAD.size)
        number, length = _LIST_HEAD.unpack_from(self.buffer, start)
        kind = self._kind(number)
        if length > self.elements_left or length * _SMALLEST[kind] > self.end - self.position:
            raise ModelFileError(
                f"The list in {self.subject} claims {length:,} elements, more than a model needs "
                f"or the file's {self.end:,} bytes can contain.",
                DOWNLOAD_AGAIN,
                Fault(FaultKind.DAMAGED if length > self.elements_left else FaultKind.INCOMPLETE),
            )
        self.elements_left -= length
        found = Array(self.buffer, self.position, kind, length)
        if kind is Kind.STRING:
            self._skip_texts(length)
        elif kind is Kind.ARRAY:
            self._skip_lists(length, depth)
        else:
            self._skip_numbers(kind, length)
        return found

    def _skip_texts(self, length: int) -> None:
        buffer, position, unpack = self.buffer, self.position, _LENGTH.unpack_from
        last = self.end - 8  # the last possible position of a length
        for index in range(length):
            if position > last:
                self.position = position
                self.subject = f"text {index:,} of {self.subject}"
                self._take(8)
            position += 8 + unpack(buffer, position)[0]
        self._take(position - self.position)

    def _skip_lists(self, length: int, depth: int) -> None:
        if depth == MAX_DEPTH:
            raise ModelFileError(
                f"The value of {self.subject} has lists nested more than {MAX_DEPTH} deep.",
                DAMAGED,
            )
        for _ in range(length):
            self.array(depth + 1)

    def _skip_numbers(self, kind: Kind, length: int) -> None:
        start = self._take(length * _FIXED[kind].size)
        if kind is Kind.BOOL:
            with memoryview(self.buffer) as view, view[start : self.position] as stored:
                self._check_truth(max(stored, default=0))

    def _check_truth(self, stored: int | float) -> None:
        if stored > 1:
            raise ModelFileError(
                f"The value of {self.subject} should be true or false (1 or 0) but is {stored}.",
                DAMAGED,
            )

    def _kind(self, number: int) -> Kind:
        kind = _KINDS.get(number)
        if kind is None:
            raise ModelFileError(
                f"The value of {self.subject} has the unknown kind {number:,}.", DAMAGED
            )
        return kind

    def _take(self, size: int) -> int:
        """Advance by `size` bytes; returns their start."""
        start = self.position
        if size > self.end - start:
            raise ModelFileError(
                f"The file ends at byte {self.end:,}, but {self.subject} needs bytes up to "
                f"{start + size:,}.",
                DOWNLOAD_AGAIN,
                Fault(FaultKind.INCOMPLETE),
            )
        self.position = start + size
        return start


class Metadata(Mapping[str, Value]):
    """A file's metadata; strings and arrays are decoded on every access."""

    def __init__(self, stored: dict[str, Stored]) -> None:
        self.stored = stored

    def __getitem__(self, key: str) -> Value:
        found = self.stored[key]
        return found.read() if isinstance(found, Text | Array) else found

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def describe(value: Stored) -> str:
    """A short description of a value for an error message."""
    match value:
        case Text():
            start = Text(value.buffer, value.start, min(value.size, 256))
            return f"the text {shown(start.read())}"
        case Array(kind=Kind.STRING):
            return f"a list of {value.length:,} texts"
        case Array():
            return f"a list of {value.length:,} values ({value.kind.name})"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"


def shown(name: str) -> str:
    """A name or string from the file for an error message: quoted, shortened, escaped."""
    return repr(name if len(name) <= 64 else name[:61] + "...")
