"""The table of weight formats: names, ids, block sizes, and the decoder that defines each one.

A GGUF tensor is rows of blocks; a block packs a fixed number of weights into a fixed number of
bytes. Everything that needs a number of a layout reads it here: file reader, memory estimate,
kernels, tests. The decoders are definitions, so they repeat ggml's float operations one by one, in
ggml's order: the same bytes give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_GGML = "https://github.com/ggml-org/ggml/blob/ffa4e8b80930029a35991f94e7c8a93cd67730ab/src/"

# Weights decoded at once: their temporaries stay in a core's cache, some 10 MB at most.
_CHUNK = 1 << 18

Decoder = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store weights that this project runs."""

    name: str
    id: int  # ggml's number, as tensors in a file carry it
    block: int  # weights per block
    size: int  # bytes per block
    decode: Decoder  # blocks uint8 [n, size] → weights f32 [n, block]
    tolerance: float  # largest normalized squared error of a kernel's product, see below
    words: str  # for people
    source: str  # the definition this one must equal

    @property
    def bits_per_weight(self) -> float:
        """Bits one weight costs in the file, scales included."""
        return 8 * self.size / self.block

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row; raises ValueError when `columns` does not fill whole blocks."""
        return _row_bytes(self.name, self.block, self.size, columns)


@dataclass(frozen=True, slots=True)
class KnownFormat:
    """A format that is recognised, so that it can be measured and named, but not run."""

    name: str
    block: int  # weights per block
    size: int  # bytes per block
    words: str = ""  # for people, where the name alone would mislead

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row; raises ValueError when `columns` does not fill whole blocks."""
        return _row_bytes(self.name, self.block, self.size, columns)


def decode_rows(
    data: Tensor, format: Format, columns: int, out: Tensor | None = None, chunk: int = _CHUNK
) -> Tensor:
    """Decode packed rows: data uint8 [rows, row_bytes] → f32 [rows, columns].

    `out` f32 [rows, columns], contiguous, is filled and returned when given. `chunk` is how many
    weights are decoded at once; temporary memory is some 40 bytes for each. Raises ValueError
    for a shape or dtype that does not match.
    """
    rows, row_bytes = data.shape[0], format.row_bytes(columns)
    if data.dtype != torch.uint8 or data.shape != (rows, row_bytes):
        raise ValueError(
            f"decode_rows: {format.name} rows of {columns} weights are uint8 [rows, {row_bytes}], "
            f"got {data.dtype} {list(data.shape)}"
        )
    if out is None:
        out = torch.empty(rows, columns, device=data.device)
    if out.dtype != torch.float32 or out.shape != (rows, columns) or not out.is_contiguous():
        raise ValueError(
            f"decode_rows: out must be contiguous float32 [{rows}, {columns}], "
            f"got {out.dtype} {list(out.shape)}"
        )
    packed = data.reshape(-1, format.size)
    decoded = out.view(-1, format.block)
    step = max(chunk // format.block, 1)
    for start in range(0, packed.shape[0], step):
        decoded[start : start + step] = format.decode(packed[start : start + step])
    return out


def _row_bytes(name: str, block: int, size: int, columns: int) -> int:
    if columns % block:
        raise ValueError(f"{name} packs {block} weights to a block; {columns} is not a multiple")
    return columns // block * size


# Decoders. Names follow ggml's structs: d scale, m minimum, ql and qh low and high bits.


def _f32(blocks: Tensor) -> Tensor:
    return blocks.view(torch.float32)


def _f16(blocks: Tensor) -> Tensor:
    return blocks.view(torch.float16).to(torch.float32)


def _bf16(blocks: Tensor) -> Tensor:
    return blocks.view(torch.bfloat16).to(torch.float32)


def _half(blocks: Tensor, start: int) -> Tensor:
    """The float16 at byte `start` of every block, f32 [n, 1]."""
    return blocks[:, start : start + 2].view(torch.float16).to(torch.float32)


def _nibbles(qs: Tensor) -> Tensor:
    """uint8 [..., w] → uint8 [..., 2w]: all low halves, then all high halves."""
    return torch.cat((qs & 15, qs >> 4), dim=-1)


# The eight bits of every byte, lowest first, as eight bytes seen as one int64: [256].
_EVERY_BYTE, _SHIFTS = torch.arange(256, dtype=torch.uint8), torch.arange(8, dtype=torch.uint8)
_BITS = (_EVERY_BYTE[:, None] >> _SHIFTS & 1).view(torch.int64).view(256)


def _bits(qs: Tensor) -> Tensor:
    """uint8 [n, w] → uint8 [n, 8w]: the bits of each byte, lowest first."""
    # Looked up, not shifted: six times faster, and Q5_0 and Q1_0 spend most of their time here.
    found = _BITS.to(qs.device).index_select(0, qs.reshape(-1).to(torch.int32))
    return found.view(torch.uint8).view(qs.shape[0], -1)


def _q4_0(blocks: Tensor) -> Tensor:
    q = _nibbles(blocks[:, 2:]).to(torch.float32)
    return q.sub_(8).mul_(_half(blocks, 0))


def _q4_1(blocks: Tensor) -> Tensor:
    q = _nibbles(blocks[:, 4:]).to(torch.float32)
    return q.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q5_0(blocks: Tensor) -> Tensor:
    q = _nibbles(blocks[:, 6:]) | _bits(blocks[:, 2:6]) << 4
    return q.to(torch.float32).sub_(16).mul_(_half(blocks, 0))


def _q5_1(blocks: Tensor) -> Tensor:
    q = _nibbles(blocks[:, 8:]) | _bits(blocks[:, 4:8]) << 4
    return q.to(torch.float32).mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].view(torch.int8).to(torch.float32).mul_(_half(blocks, 0))


def _k_scales(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scales and minimums of a Q4_K or Q5_K block's eight groups, f32 [n, 8, 1] each.

    Twelve bytes at offset 4 hold sixteen 6-bit numbers: the first four of each kind whole, the low
    bits of the others together in the last four bytes, their high bits on top of the first eight.
    """
    scales, minimums, low = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = torch.cat((scales & 63, low & 15 | scales >> 2 & 48), dim=1)
    minimums = torch.cat((minimums & 63, low >> 4 | minimums >> 2 & 48), dim=1)
    d = scales.to(torch.float32).mul_(_half(blocks, 0))
    m = minimums.to(torch.float32).mul_(_half(blocks, 2))
    return d[:, :, None], m[:, :, None]


def _q4_k(blocks: Tensor) -> Tensor:
    d, m = _k_scales(blocks)
    q = _nibbles(blocks[:, 16:].view(-1, 4, 32)).to(torch.float32)  # [n, 4, 64]
    return q.view(-1, 8, 32).mul_(d).sub_(m).flatten(1)


def _q5_k(blocks: Tensor) -> Tensor:
    d, m = _k_scales(blocks)
    ql = _nibbles(blocks[:, 48:].view(-1, 4, 32)).view(-1, 8, 32)
    shifts = torch.arange(8, dtype=torch.uint8, device=blocks.device)[:, None]
    qh = blocks[:, 16:48].unsqueeze(1) >> shifts & 1  # bit g of byte i: weight i of group g
    q = (ql | qh << 4).to(torch.float32)
    return q.mul_(d).sub_(m).flatten(1)


def _q6_k(blocks: Tensor) -> Tensor:
    ql = _nibbles(blocks[:, :128].view(-1, 2, 64)).view(-1, 2, 4, 32)
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=blocks.device)[:, None]
    qh = blocks[:, 128:192].view(-1, 2, 1, 32) >> shifts & 3  # [n, 2, 4, 32]
    q = (ql | qh << 4).to(torch.float32).sub_(32)
    d = blocks[:, 192:208].view(torch.int8).to(torch.float32).mul_(_half(blocks, 208))
    return q.view(-1, 16, 16).mul_(d[:, :, None]).flatten(1)


def _q1_0(blocks: Tensor) -> Tensor:
    sign = _bits(blocks[:, 2:]).to(torch.float32).mul_(2).sub_(1)  # bit 1: +d, bit 0: -d
    return sign.mul_(_half(blocks, 0))


# Tolerances. F32 leaves only the order of additions. The half types allow a kernel to round
# activations to the weights' own type, all others to 8 bits in groups of 32 to 256.
_EXACT, _HALF, _BRAIN, _PACKED = 1e-10, 1e-6, 1e-5, 1e-4


def _quants(lines: str) -> str:
    return f"{_GGML}ggml-quants.c#{lines}"


# fmt: off
_ROWS = (
    Format("F32",  0,  1,   4,   _f32,  _EXACT,  "32-bit floats",             f"{_GGML}ggml.c"),
    Format("F16",  1,  1,   2,   _f16,  _HALF,   "16-bit floats",             f"{_GGML}ggml-impl.h#L396"),
    Format("BF16", 30, 1,   2,   _bf16, _BRAIN,  "16-bit brain floats",       f"{_GGML}ggml-impl.h#L606"),
    Format("Q4_0", 2,  32,  18,  _q4_0, _PACKED, "4-bit, groups of 32",       _quants("L459-L477")),
    Format("Q4_1", 3,  32,  20,  _q4_1, _PACKED, "4-bit with minimum, groups of 32", _quants("L479-L498")),
    Format("Q5_0", 6,  32,  22,  _q5_0, _PACKED, "5-bit, groups of 32",       _quants("L500-L524")),
    Format("Q5_1", 7,  32,  24,  _q5_1, _PACKED, "5-bit with minimum, groups of 32", _quants("L526-L551")),
    Format("Q8_0", 8,  32,  34,  _q8_0, _PACKED, "8-bit, groups of 32",       _quants("L553-L567")),
    Format("Q4_K", 12, 256, 144, _q4_k, _PACKED, "4-bit, groups of 32 in blocks of 256", _quants("L1530-L1552")),
    Format("Q5_K", 13, 256, 176, _q5_k, _PACKED, "5-bit, groups of 32 in blocks of 256", _quants("L1732-L1757")),
    Format("Q6_K", 14, 256, 210, _q6_k, _PACKED, "6-bit, groups of 16 in blocks of 256", _quants("L1940-L1969")),
    Format("Q1_0", 41, 128, 18,  _q1_0, _PACKED, "1-bit, groups of 128",      _quants("L419-L437")),
)

# Sizes as ggml allocates them, so that a file with such tensors can still be measured.
UNSUPPORTED: dict[int, KnownFormat] = {
    9: KnownFormat("Q8_1", 32, 36),
    10: KnownFormat("Q2_K", 256, 84),
    11: KnownFormat("Q3_K", 256, 110),
    15: KnownFormat("Q8_K", 256, 292),
    16: KnownFormat("IQ2_XXS", 256, 66),
    17: KnownFormat("IQ2_XS", 256, 74),
    18: KnownFormat("IQ3_XXS", 256, 98),
    19: KnownFormat("IQ1_S", 256, 50),
    20: KnownFormat("IQ4_NL", 32, 18),
    21: KnownFormat("IQ3_S", 256, 110),
    22: KnownFormat("IQ2_S", 256, 82),
    23: KnownFormat("IQ4_XS", 256, 136),
    24: KnownFormat("I8", 1, 1),
    25: KnownFormat("I16", 1, 2),
    26: KnownFormat("I32", 1, 4),
    27: KnownFormat("I64", 1, 8),
    28: KnownFormat("F64", 1, 8),
    29: KnownFormat("IQ1_M", 256, 56),
    31: KnownFormat("Q4_0_4_4", 32, 18, "Q4_0 in an order for one kind of processor, since withdrawn"),
    32: KnownFormat("Q4_0_4_8", 32, 18, "Q4_0 in an order for one kind of processor, since withdrawn"),
    33: KnownFormat("Q4_0_8_8", 32, 18, "Q4_0 in an order for one kind of processor, since withdrawn"),
    34: KnownFormat("TQ1_0", 256, 54),
    35: KnownFormat("TQ2_0", 256, 66),
    36: KnownFormat("IQ4_NL_4_4", 32, 18, "IQ4_NL in an order for one kind of processor, since withdrawn"),
    37: KnownFormat("IQ4_NL_4_8", 32, 18, "IQ4_NL in an order for one kind of processor, since withdrawn"),
    38: KnownFormat("IQ4_NL_8_8", 32, 18, "IQ4_NL in an order for one kind of processor, since withdrawn"),
    39: KnownFormat("MXFP4", 32, 17),
    40: KnownFormat("NVFP4", 64, 36),
    42: KnownFormat("Q2_0", 64, 18, "2-bit, three layouts in circulation under one number"),
    142: KnownFormat("PQ2_0", 128, 34, "2-bit, groups of 128, PrismML's own number"),
    143: KnownFormat("PTQ1_0", 128, 28, "ternary, groups of 128, PrismML's own number"),
}
# fmt: on

FORMATS: dict[int, Format] = {row.id: row for row in _ROWS}


def by_name(name: str) -> Format:
    """The format called `name`, such as "Q4_K"; KeyError when there is none."""
    return _BY_NAME[name]


_BY_NAME = {row.name: row for row in _ROWS}
