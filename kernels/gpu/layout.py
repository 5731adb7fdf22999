"""Layout of quantized weights for GPU kernels: bit planes of codes, and arrays of their scales.

A row is cut in units of 32 columns, and a unit in 8 lanes of 4 columns that follow each other. A
plane of b bits stores a unit as b words of 32 bits. A word has 8 / b lanes: lane i of it is
`word >> b * i & mask`, whose four bytes are the codes of the lane's four columns, ready for a dot
product of bytes (dp4a). So a code takes one shift and one mask for four weights, and a kernel loads
the same word of neighbouring units together, 16 bytes at once:

    planes   [rows, b words, units] i32; formats of 3, 5 and 6 bits have a second plane of high bits
    scales   [rows, groups of columns], of one or two levels; see `Scales`

The units are padded to a multiple of 4, with scales of zero. A weight is
`d * (multiplier * code - offset) - m`, with the same bits as the decoder of its format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import torch
from torch import Tensor

from kernels.weights import decoders, formats
from kernels.weights.formats import Format

UNIT = 32  # columns
LANES = 8  # of a unit, 4 columns each
SUPER = 256  # columns of a block with scales of two levels
_ALIGNMENT = 16  # bytes


class Scales(IntEnum):
    """Scales of groups of columns."""

    HALF = 0  # d f16
    HALF_MINIMUM = 1  # d and m f16
    SINGLE = 2  # d f32
    SIGNED = 3  # d = f16 of 256 columns times i8
    PAIR = 4  # d and m: f16 of 256 columns times u8
    NIBBLES = 5  # as PAIR, both numbers in one byte, that of d in the low bits


class Codes(IntEnum):
    """What codes are."""

    UNSIGNED = 0
    SIGNED = 1  # bytes
    E4M3 = 2  # floats of 8 bits
    E5M2 = 3

    @property
    def are_floats(self) -> bool:
        """Whether products read x as floats, not its quantized copy."""
        return self in (Codes.E4M3, Codes.E5M2)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of n blocks: codes u8 [n, columns], and scales [n, groups or 1]."""

    codes: Tensor
    d: Tensor  # of HALF, HALF_MINIMUM and SINGLE of each group, else of the block
    m: Tensor | None = None  # as d
    scales: Tensor | None = None  # i8 or u8 [n, groups]
    minimums: Tensor | None = None  # u8 [n, groups]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a format is stored, and how its blocks are taken apart."""

    parts: Callable[[Tensor], Parts]
    bits: int
    group: int  # columns with one scale: 16, 32, 64, 128 or 256
    scales: Scales = Scales.HALF
    high_bits: int = 0  # of the second plane
    multiplier: int = 1
    offset: int = 0
    read_as: Codes = Codes.UNSIGNED


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of a stored weight; those that its layout does not have are empty."""

    codes: Tensor  # [rows, bits, units] i32
    high: Tensor  # [rows, high bits, units] i32
    d: Tensor  # [rows, groups] f16 or f32; [rows, blocks of 256] f16
    m: Tensor  # as d
    scales: Tensor  # [rows, groups] i8 or u8; for groups of 16 columns [rows, halves * units]
    minimums: Tensor  # u8, as scales


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    dtype: torch.dtype
    columns: int  # elements of a row
    start: int = field(default=0)  # bytes


def units(columns: int) -> int:
    """Units of a row, padded."""
    return -(-columns // (4 * UNIT)) * 4


def stored_bytes(layout: Layout, rows: int, columns: int) -> int:
    """Bytes of a stored weight."""
    last = _sections(layout, rows, columns)[-1]
    return last.start + _aligned(rows * last.columns * last.dtype.itemsize)


def arrays(layout: Layout, memory: Tensor, rows: int, columns: int) -> Arrays:
    """The arrays of a weight stored in `memory` u8."""
    U = units(columns)
    views: dict[str, Tensor] = {}
    for one in _sections(layout, rows, columns):
        count = rows * one.columns * one.dtype.itemsize
        view = memory[one.start : one.start + count].view(one.dtype)
        views[one.name] = view.view(rows, one.columns)
    empty = memory[:0]
    codes = views["codes"].view(rows, layout.bits, U)
    high = views["high"].view(rows, layout.high_bits, U) if layout.high_bits else empty
    names = ("d", "m", "scales", "minimums")
    return Arrays(codes, high, *(views.get(name, empty) for name in names))


def store(layout: Layout, blocks: Tensor, to: Arrays, columns: int) -> None:
    """Write rows: `blocks` u8 [rows * blocks of a row, size] to the same rows of the arrays."""
    rows = to.codes.shape[0]
    parts = layout.parts(blocks)
    codes = _padded(parts.codes.reshape(rows, columns), units(columns) * UNIT)
    to.codes.copy_(_plane(codes & (1 << layout.bits) - 1, layout.bits))
    if layout.high_bits:
        to.high.copy_(_plane(codes >> layout.bits, layout.high_bits))
    scales, minimums = (_by_half(layout, one, rows) for one in (parts.scales, parts.minimums))
    pairs = ((to.d, parts.d), (to.m, parts.m), (to.scales, scales), (to.minimums, minimums))
    for array, values in pairs:
        if values is not None:
            array.copy_(_padded(values.reshape(rows, -1), array.shape[1]))


def _by_half(layout: Layout, numbers: Tensor | None, rows: int) -> Tensor | None:
    """Numbers of groups of 16 columns: those of all first halves of units, then of the second."""
    if numbers is None or layout.group != UNIT // 2:
        return numbers
    return numbers.reshape(rows, -1, 2).transpose(1, 2)


def _sections(layout: Layout, rows: int, columns: int) -> list[_Section]:
    U = units(columns)
    groups, blocks = U * UNIT // layout.group, -(-U * UNIT // SUPER)
    sections = [_Section("codes", torch.int32, layout.bits * U)]
    if layout.high_bits:
        sections.append(_Section("high", torch.int32, layout.high_bits * U))
    match layout.scales:
        case Scales.HALF | Scales.HALF_MINIMUM | Scales.SINGLE:
            exact = layout.scales is Scales.SINGLE
            dtype, per_row = torch.float32 if exact else torch.float16, groups
        case Scales.SIGNED | Scales.PAIR | Scales.NIBBLES:
            dtype, per_row = torch.float16, blocks
            number = torch.int8 if layout.scales is Scales.SIGNED else torch.uint8
            sections.append(_Section("scales", number, groups))
            if layout.scales is Scales.PAIR:
                sections.append(_Section("minimums", torch.uint8, groups))
    sections.append(_Section("d", dtype, per_row))
    if layout.scales in (Scales.HALF_MINIMUM, Scales.PAIR, Scales.NIBBLES):
        sections.append(_Section("m", dtype, per_row))
    placed: list[_Section] = []
    start = 0
    for one in sections:
        placed.append(_Section(one.name, one.dtype, one.columns, start))
        start += _aligned(rows * one.columns * one.dtype.itemsize)
    return placed


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _padded(values: Tensor, columns: int) -> Tensor:
    return torch.nn.functional.pad(values, (0, columns - values.shape[1]))


def _plane(codes: Tensor, bits: int) -> Tensor:
    """Codes u8 [rows, columns] of so many bits → words i32 [rows, bits, units]."""
    rows = codes.shape[0]
    lanes = codes.view(rows, -1, bits, LANES // bits, 4)  # of the words of a unit
    word = torch.zeros_like(lanes[:, :, :, 0])
    for lane in range(LANES // bits):
        word |= lanes[:, :, :, lane] << bits * lane
    return word.view(torch.int32)[..., 0].transpose(1, 2)


# --- formats ------------------------------------------------------------------------------------


def _half16(blocks: Tensor, start: int) -> Tensor:
    return blocks[:, start : start + 2].contiguous().view(torch.float16)


def _signed(values: Tensor) -> Tensor:
    """Small whole numbers as the bytes of i8."""
    return values.to(torch.int8).view(torch.uint8)


def _q4_0(blocks: Tensor) -> Parts:
    return Parts(decoders.nibbles(blocks[:, 2:]), _half16(blocks, 0))


def _q4_1(blocks: Tensor) -> Parts:
    return Parts(decoders.nibbles(blocks[:, 4:]), _half16(blocks, 0), -_half16(blocks, 2))


def _q5_0(blocks: Tensor) -> Parts:
    codes = decoders.nibbles(blocks[:, 6:]) | decoders.bits(blocks[:, 2:6]) << 4
    return Parts(codes, _half16(blocks, 0))


def _q5_1(blocks: Tensor) -> Parts:
    codes = decoders.nibbles(blocks[:, 8:]) | decoders.bits(blocks[:, 4:8]) << 4
    return Parts(codes, _half16(blocks, 0), -_half16(blocks, 2))


def _q8_0(blocks: Tensor) -> Parts:
    return Parts(blocks[:, 2:], _half16(blocks, 0))


def _iq4_nl(blocks: Tensor) -> Parts:
    levels = decoders.looked_up(decoders.nibbles(blocks[:, 2:]), decoders.IQ4_LEVELS)
    return Parts(_signed(levels), _half16(blocks, 0))


def _mxfp4(blocks: Tensor) -> Parts:
    codes = decoders.looked_up(decoders.nibbles(blocks[:, 1:]), decoders.E2M1)
    return Parts(_signed(codes), decoders.looked_up(blocks[:, :1], decoders.E8M0))


def _f8(blocks: Tensor) -> Parts:
    return Parts(blocks[:, :32], _half16(blocks, 32))


def _q1_0(blocks: Tensor) -> Parts:
    return Parts(decoders.bits(blocks[:, 2:]), _half16(blocks, 0))


def _q2_0(blocks: Tensor) -> Parts:
    shifts = decoders.on_device(decoders.PAIRS, blocks.device)
    return Parts((blocks[:, 2:].unsqueeze(-1) >> shifts & 3).flatten(1), _half16(blocks, 0))


def _tq2_0_g128(blocks: Tensor) -> Parts:
    shifts = decoders.on_device(decoders.PAIRS, blocks.device)
    codes = (blocks[:, :32].unsqueeze(-1) >> shifts & 3).flatten(1)
    return Parts(codes.masked_fill(codes == 3, 1), _half16(blocks, 32))


def _tq2_0(blocks: Tensor) -> Parts:
    return Parts(decoders.quarters(blocks[:, :64]).flatten(1), _half16(blocks, 64))


def _tq1_0(blocks: Tensor) -> Parts:
    pieces = ((0, 32, 5), (32, 48, 5), (48, 52, 4))
    return _trits(blocks, pieces, 52)


def _ptq1_0(blocks: Tensor) -> Parts:
    pieces = ((0, 16, 5), (16, 24, 5), (24, 26, 4))
    return _trits(blocks, pieces, 26)


def _trits(blocks: Tensor, pieces: Sequence[tuple[int, int, int]], scale: int) -> Parts:
    codes = [decoders.trits(blocks[:, first:end], digits) for first, end, digits in pieces]
    return Parts(torch.cat(codes, dim=1).to(torch.uint8), _half16(blocks, scale))


def _q2_k(blocks: Tensor) -> Parts:
    codes = decoders.quarters(blocks[:, 16:80]).flatten(1)
    return Parts(codes, _half16(blocks, 80), _half16(blocks, 82), blocks[:, :16])


def _q3_k(blocks: Tensor) -> Parts:
    low = decoders.nibbles(blocks[:, 96:104])
    shifts = decoders.on_device(decoders.PAIRS, blocks.device)
    high = (blocks[:, 104:108].unsqueeze(1) >> shifts[:, None] & 3).flatten(1)
    codes = decoders.quarters(blocks[:, 32:96]).view(-1, 8, 32)
    codes = codes | decoders.planes(blocks[:, :32]) << 2
    scales = (low | high << 4).to(torch.int8) - 32
    return Parts(codes.flatten(1), _half16(blocks, 108), scales=scales)


def _q4_k(blocks: Tensor) -> Parts:
    codes = decoders.nibbles(blocks[:, 16:].view(-1, 4, 32)).flatten(1)
    return Parts(codes, _half16(blocks, 0), _half16(blocks, 2), *decoders.k_numbers(blocks))


def _q5_k(blocks: Tensor) -> Parts:
    low = decoders.nibbles(blocks[:, 48:].view(-1, 4, 32)).view(-1, 8, 32)
    codes = (low | decoders.planes(blocks[:, 16:48]) << 4).flatten(1)
    return Parts(codes, _half16(blocks, 0), _half16(blocks, 2), *decoders.k_numbers(blocks))


def _q6_k(blocks: Tensor) -> Parts:
    low = decoders.nibbles(blocks[:, :128].view(-1, 2, 64)).view(-1, 2, 4, 32)
    codes = (low | decoders.quarters(blocks[:, 128:192]) << 4).flatten(1)
    scales = blocks[:, 192:208].view(torch.int8)
    return Parts(codes, _half16(blocks, 208), scales=scales)


def _iq4_xs(blocks: Tensor) -> Parts:
    halves, pairs = (
        decoders.on_device(shifts, blocks.device) for shifts in (decoders.HALVES, decoders.PAIRS)
    )
    high = (blocks[:, 2:4].unsqueeze(-1) >> pairs & 3).flatten(1)
    low = (blocks[:, 4:8].unsqueeze(-1) >> halves & 15).flatten(1)
    nibbles = decoders.nibbles(blocks[:, 8:].view(-1, 8, 16)).flatten(1)
    levels = decoders.looked_up(nibbles, decoders.IQ4_LEVELS)
    scales = (low | high << 4).to(torch.int8) - 32
    return Parts(_signed(levels), _half16(blocks, 0), scales=scales)


# By name of the format: those with kernels. Formats that are floats are stored as in the file.
LAYOUTS: dict[str, Layout] = {
    "Q4_0": Layout(_q4_0, 4, 32, offset=8),
    "Q4_1": Layout(_q4_1, 4, 32, Scales.HALF_MINIMUM),
    "Q5_0": Layout(_q5_0, 4, 32, high_bits=1, offset=16),
    "Q5_1": Layout(_q5_1, 4, 32, Scales.HALF_MINIMUM, high_bits=1),
    "Q8_0": Layout(_q8_0, 8, 32, read_as=Codes.SIGNED),
    "IQ4_NL": Layout(_iq4_nl, 8, 32, read_as=Codes.SIGNED),
    "IQ4_XS": Layout(_iq4_xs, 8, 32, Scales.SIGNED, read_as=Codes.SIGNED),
    "MXFP4": Layout(_mxfp4, 8, 32, Scales.SINGLE, read_as=Codes.SIGNED),
    "F8_E4M3": Layout(_f8, 8, 32, read_as=Codes.E4M3),
    "F8_E5M2": Layout(_f8, 8, 32, read_as=Codes.E5M2),
    "Q2_K": Layout(_q2_k, 2, 16, Scales.NIBBLES),
    "Q3_K": Layout(_q3_k, 2, 16, Scales.SIGNED, high_bits=1, offset=4),
    "Q4_K": Layout(_q4_k, 4, 32, Scales.PAIR),
    "Q5_K": Layout(_q5_k, 4, 32, Scales.PAIR, high_bits=1),
    "Q6_K": Layout(_q6_k, 4, 16, Scales.SIGNED, high_bits=2, offset=32),
    "Q1_0": Layout(_q1_0, 1, 128, multiplier=2, offset=1),
    "Q2_0": Layout(_q2_0, 2, 64, offset=1),
    "PQ2_0": Layout(_q2_0, 2, 128, offset=1),
    "TQ1_0": Layout(_tq1_0, 2, 256, offset=1),
    "TQ2_0": Layout(_tq2_0, 2, 256, offset=1),
    "PTQ1_0": Layout(_ptq1_0, 2, 128, offset=1),
    "TQ2_0_G128": Layout(_tq2_0_g128, 2, 128, offset=1),
}
FORMATS = (*(row.name for row in formats.FORMATS.values() if not row.packed), *LAYOUTS)


def layout_of(format: Format) -> Layout | None:
    """The layout of a format; None: stored as in the file."""
    return LAYOUTS.get(format.name)


def weight_bytes(format: Format, shape: Sequence[int]) -> int:
    """Bytes of a stored matrix."""
    rows, columns = math.prod(shape[:-1]), shape[-1]
    layout = layout_of(format)
    if layout is None:
        return rows * format.row_bytes(columns)
    format.row_bytes(columns)  # raises ValueError unless columns fill whole blocks
    return stored_bytes(layout, rows, columns)
