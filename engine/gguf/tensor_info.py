"""Which format a tensor's type number means in its file, and whether the tensors lie as that says.

Some numbers are used for different things by different writers, so a number alone is never
trusted: 42 has three layouts (two_bit.py); 43 and 44 are OxiBonsai's alone, and ggml will give them
away again. Only what the file itself proves is read: an own key of the writer, or offsets that fit
one layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.errors import ModelFileError, UnsupportedModel
from engine.gguf.values import DAMAGED, DOWNLOAD_AGAIN, Stored, Text, shown
from kernels import formats
from kernels.formats import Format

_OWN_NUMBERS = 1_000  # from here on formats have numbers that stand in no file
_MARKED = frozenset({43, 44})  # numbers that mean something only in OxiBonsai's files
_OWN_KEYS = "oxibonsai."
_FORMAT_KEY = "oxibonsai.quant_format"
_VERSION_KEY = "general.quantization_version"  # a number everywhere but in OxiBonsai's older files
_TERNARY = "TQ2_0_G128"
_ANOTHER = "Choose another quantization of this model, such as Q4_K_M or Q8_0."


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies and what it is."""

    name: str
    shape: tuple[int, ...]  # rows first: ggml's order reversed
    format: Format
    offset: int  # bytes from the start of its part
    size_bytes: int
    part: int  # index into the file's parts


@dataclass(frozen=True, slots=True)
class Marks:
    """What a file says itself of who wrote it."""

    oxibonsai: bool  # an own key of OxiBonsai's is there
    ternary: bool  # so that the number 42 means OxiBonsai's order


def marks_of(metadata: Mapping[str, Stored]) -> Marks:
    """The marks among a file's keys; looked for once, as a file may have thousands of keys."""
    version = metadata.get(_VERSION_KEY)
    written = isinstance(version, Text)
    ternary = written and version.size == len(_TERNARY) and version.read() == _TERNARY
    return Marks(
        oxibonsai=written or any(key.startswith(_OWN_KEYS) for key in metadata),
        ternary=ternary or _FORMAT_KEY in metadata,
    )


def format_of(name: str, number: int, marks: Marks) -> Format:
    """The format of the tensor `name`; UnsupportedModel where the number's meaning is not run.

    42 is taken for ggml's here, and looked at again when all tensors are known.
    """
    found = formats.FORMATS.get(number) if number < _OWN_NUMBERS else None
    if found is not None and (marks.oxibonsai or number not in _MARKED):
        return found
    known = formats.UNSUPPORTED.get(number)
    if known is None:
        raise UnsupportedModel(
            f"The tensor {shown(name)} has the unknown type number {number:,}.",
            "The file is damaged, or newer than this program; update it or get another copy.",
        )
    layout = f"{known.name} ({known.words})" if known.words else known.name
    raise UnsupportedModel(
        f"The tensor {shown(name)} is stored as {layout}, which this version cannot run.", _ANOTHER
    )


def place(infos: Sequence[TensorInfo], start: int, end: int, alignment: int) -> list[TensorInfo]:
    """Turn offsets from `start` of the data into places in a file that ends at byte `end`.

    Every byte of the data must belong to one tensor. A gap or an overlap is how a file shows that
    its writer meant another layout than ggml's by a format's number: reading on would give noise.
    Returns the tensors in the order they lie; raises ModelFileError or UnsupportedModel.
    """
    ordered = sorted(infos, key=lambda info: info.offset)
    expected = 0
    names: set[str] = set()
    placed: list[TensorInfo] = []
    before = "the header"
    for info in ordered:
        if info.name in names:
            raise ModelFileError(f"The tensor {shown(info.name)} is in the file twice.", DAMAGED)
        names.add(info.name)
        if info.offset != expected:
            raise ModelFileError(
                f"The tensor {shown(info.name)} has offset {info.offset:,}, but {before} ends at "
                f"{expected:,}: the file is damaged or lays out its formats in another way.",
                "Download it again, or choose another quantization of this model.",
            )
        if start + expected + info.size_bytes > end:
            raise ModelFileError(
                f"The file ends at byte {end:,}, but the tensor {shown(info.name)} needs "
                f"bytes up to {start + expected + info.size_bytes:,}.",
                DOWNLOAD_AGAIN,
            )
        placed.append(_moved(info, start + info.offset))
        before = f"the tensor {shown(info.name)}"
        expected = padded(expected + info.size_bytes, alignment)
    return placed


def extent(infos: Sequence[TensorInfo], sizes: Sequence[int], alignment: int) -> int | None:
    """Bytes up to the last tensor's end were they of these sizes; None where offsets disagree."""
    end = 0
    for info, size in zip(infos, sizes, strict=True):
        if info.offset != padded(end, alignment):
            return None
        end = info.offset + size
    return end


def _moved(info: TensorInfo, offset: int) -> TensorInfo:
    return TensorInfo(info.name, info.shape, info.format, offset, info.size_bytes, info.part)


def padded(position: int, alignment: int) -> int:
    """The next multiple of `alignment`, a power of two, at or after `position`."""
    return (position + alignment - 1) & -alignment
