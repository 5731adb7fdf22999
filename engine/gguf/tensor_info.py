"""GGUF tensor directory: type number to weight format, and validation of tensor offsets.

Writers use some type numbers for different formats, so a number alone is not trusted: 42 has three
layouts (two_bit.py); 43 and 44 are used only by OxiBonsai, and ggml may reassign them. A format is
accepted only with evidence in the file: a key of the writer, or offsets that fit one layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.errors import Fault, FaultKind, ModelFileError, UnsupportedModel
from engine.gguf.values import DAMAGED, DOWNLOAD_AGAIN, Stored, Text, shown
from kernels.weights import formats
from kernels.weights.formats import Format

_FIRST_INTERNAL_ID = 1_000  # type numbers from here on occur in no file: some are ours
_OXIBONSAI_KEYS = "oxibonsai."
_FORMAT_KEY = "oxibonsai.quant_format"
_VERSION_KEY = "general.quantization_version"  # a string only in OxiBonsai's older files
_TERNARY = "TQ2_0_G128"
_ANOTHER = "Choose another quantization of this model, such as Q4_K_M or Q8_0."


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, shape, format and file location of a tensor."""

    name: str
    shape: tuple[int, ...]  # rows first: ggml's order reversed
    format: Format
    offset: int  # bytes from the start of its part
    size_bytes: int
    part: int  # index into the file's parts


@dataclass(frozen=True, slots=True)
class Marks:
    """Metadata that identifies the program that wrote a file."""

    oxibonsai: bool  # the file has a key of OxiBonsai
    ternary: bool  # type number 42 means OxiBonsai's layout


def marks_of(metadata: Mapping[str, Stored]) -> Marks:
    """Find the marks among a file's keys; called once, since there may be thousands of keys."""
    version = metadata.get(_VERSION_KEY)
    is_text = isinstance(version, Text)
    ternary = is_text and version.size == len(_TERNARY) and version.read() == _TERNARY
    return Marks(
        oxibonsai=is_text or any(key.startswith(_OXIBONSAI_KEYS) for key in metadata),
        ternary=ternary or _FORMAT_KEY in metadata,
    )


def format_of(name: str, number: int, marks: Marks) -> Format:
    """The format of the tensor `name`; raises UnsupportedModel if there is no support for it.

    42 is taken as ggml's Q2_0 here; `resolve_layout` decides once all tensors are known.
    """
    found = formats.FORMATS.get(number) if number < _FIRST_INTERNAL_ID else None
    if found is not None and (marks.oxibonsai or not found.oxibonsai):
        return found
    known = formats.UNSUPPORTED.get(number)
    if known is None:
        error = UnsupportedModel if number < _FIRST_INTERNAL_ID else ModelFileError
        raise error(
            f"The tensor {shown(name)} has the unknown type number {number:,}.",
            "The file is damaged, or newer than this program; update it or get another copy.",
        )
    layout = f"{known.name} ({known.words})" if known.words else known.name
    raise UnsupportedModel(
        f"The tensor {shown(name)} is stored as {layout}, which this version cannot run.",
        _ANOTHER,
        Fault(FaultKind.FORMAT, known.name),
    )


def place(infos: Sequence[TensorInfo], start: int, end: int, alignment: int) -> list[TensorInfo]:
    """Convert offsets relative to `start` to file offsets and check them; the file ends at `end`.

    Tensors must be packed without gaps or overlaps: either means that the writer used another block
    layout than ggml for a type number, and the weights would be noise. Returns the tensors in file
    order; raises ModelFileError or UnsupportedModel.
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
                f"{expected:,}: the file is damaged or uses another layout for its formats.",
                "Download it again, or choose another quantization of this model.",
            )
        if start + expected + info.size_bytes > end:
            raise ModelFileError(
                f"The file ends at byte {end:,}, but the tensor {shown(info.name)} needs "
                f"bytes up to {start + expected + info.size_bytes:,}.",
                DOWNLOAD_AGAIN,
                Fault(FaultKind.INCOMPLETE),
            )
        placed.append(_moved(info, start + info.offset))
        before = f"the tensor {shown(info.name)}"
        expected = padded(expected + info.size_bytes, alignment)
    return placed


def extent(infos: Sequence[TensorInfo], sizes: Sequence[int], alignment: int) -> int | None:
    """The end of the last tensor, given these sizes; None if the offsets do not match them."""
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
