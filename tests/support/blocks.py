"""Random quantization blocks of every weight format, and an independent decoder for them.

gguf-py decodes most formats. For the others (its release 0.19 lists Q1_0, Q8_1 and Q8_K without a
decoder, and lacks Q2_0 and all formats that are not ggml's) this module has scalar decoders,
written without looking at those of `kernels`: one weight at a time, by the formula that the
format's authors published.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kernels import cpu
from kernels.weights.formats import FORMATS, Format

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

# The formats with native kernels, by GGUF type number.
PACKED = {id: row for id, row in FORMATS.items() if row.name in cpu.FORMATS}

# Byte offsets of the half-precision floats in a block, the scale before the minimum.
_HALVES = {
    **dict.fromkeys(("F16", "Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "Q1_0", "Q2_0"), (0,)),
    **dict.fromkeys(("PQ2_0", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q8_1", "Q4_K", "Q5_K"), (0, 2)),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "TQ2_0_G128"), (32,)),
    "PTQ1_0": (26,), "TQ1_0": (52,), "TQ2_0": (64,), "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,),
}  # fmt: skip
# Other floats that may be infinite or NaN: offset of the exponent's byte, mask of its bits.
_OTHER = {
    "F32": ((3, 0x7F),),
    "BF16": ((1, 0x7F),),
    "Q8_K": ((3, 0x7F),),
    "IQ1_M": ((55, 0x70),),  # the part of the scale that holds sign and exponent, of four
    "F8_E4M3": tuple((byte, 0x7F) for byte in range(32)),
    "F8_E5M2": tuple((byte, 0x7C) for byte in range(32)),
}
_F16_EXPONENT = 0x7C  # exponent bits in the upper byte


def random_blocks(format: Format, count: int, random: torch.Generator) -> Tensor:
    """uint8 [count, size]: random bytes whose floats are finite; the first block is all zero."""
    blocks = torch.randint(0, 256, (count, format.size), dtype=torch.uint8, generator=random)
    halves = tuple((start + 1, _F16_EXPONENT) for start in _HALVES.get(format.name, ()))
    for byte, exponent in (*halves, *_OTHER.get(format.name, ())):
        full = blocks[:, byte] & exponent == exponent
        blocks[full, byte] &= 0xBF
    if format.name == "Q8_K":
        blocks[:, 3] = blocks[:, 3] & 0x87 | 0x38
    if format.name == "MXFP4":  # keep 16 of 256 powers of two, or one block outweighs all others
        blocks[:, 0] = 112 + blocks[:, 0] % 16
    blocks[0] = 0
    return blocks


def similar_scale_blocks(format: Format, count: int, random: torch.Generator) -> Tensor:
    """Random blocks with scales of similar magnitude, so that every weight affects the result.

    Scales lie between 1 and 2, minimums between 0.5 and 1, of either sign. Scales differ between
    blocks, so that a kernel that uses a neighbour's scale fails.
    """
    blocks = random_blocks(format, count, random)
    for start, exponent in zip(_HALVES.get(format.name, ()), (0x3C, 0x38), strict=False):
        blocks[:, start + 1] = blocks[:, start + 1] & 0x83 | exponent
    if format.name in ("F32", "BF16"):
        blocks[:, -1] = blocks[:, -1] & 0x80 | 0x3F
    elif format.name == "MXFP4":
        blocks[:, 0] = 126 + blocks[:, 0] % 2
    elif format.name == "NVFP4":
        blocks[:, :4] = blocks[:, :4] & 7 | 0x38
    elif format.name == "Q8_K":
        blocks[:, 3] = blocks[:, 3] & 0x80 | 0x3F
    elif format.name == "IQ1_M":  # upper bits of the scale, which is stored in four parts
        blocks[:, 55] = blocks[:, 55] & 0x0F | 0x30
        blocks[:, 53] = blocks[:, 53] & 0x3F | 0xC0
    elif format.name == "F8_E5M2":  # the middle ones of its 31 exponents
        blocks[:, :32] = blocks[:, :32] & 0x8F | 0x30
    return blocks


def decoded(format: Format, blocks: Bytes) -> Floats:
    """Reference weights of the blocks, f32 [n, block]: gguf-py's, or those of a scalar decoder."""
    decode = _SCALAR_DECODERS.get(format.name)
    if decode is None:
        found: NDArray[Any] = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(format.id))
        return found.reshape(len(blocks), -1)
    return np.array([decode(block.tobytes()) for block in blocks], dtype=np.float32)


def f8_e4m3(code: int) -> float:
    """Value of an E4M3 code: sign, 4 exponent, 3 mantissa bits; all ones is NaN, no infinity."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    size = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
    return -size if code & 0x80 else size


def f8_e5m2(code: int) -> float:
    """Value of an E5M2 code: sign, 5 exponent, 2 mantissa bits; NaN and infinity as IEEE 754."""
    exponent, mantissa = code >> 2 & 31, code & 3
    if exponent == 31:
        size = float("nan") if mantissa else float("inf")
    else:
        size = (4 + mantissa) * 2.0 ** (exponent - 17) if exponent else mantissa * 2.0**-16
    return -size if code & 0x80 else size


def _scale(block: bytes, start: int) -> np.float32:
    return np.frombuffer(block, "<f2", 1, start)[0].astype(np.float32)


def _q1_0(block: bytes) -> list[np.float32]:
    scale, bits = _scale(block, 0), int.from_bytes(block[2:], "little")
    return [scale if bits >> weight & 1 else -scale for weight in range(128)]


def _q2_0(block: bytes) -> list[np.float32]:
    scale, bits = _scale(block, 0), int.from_bytes(block[2:], "little")
    return [np.float32((bits >> 2 * weight) % 4 - 1) * scale for weight in range(64)]


def _q8_1(block: bytes) -> list[np.float32]:
    return [_scale(block, 0) * np.float32(code) for code in np.frombuffer(block, np.int8, 32, 4)]


def _q8_k(block: bytes) -> list[np.float32]:
    scale = np.frombuffer(block, "<f4", 1)[0]
    return [scale * np.float32(code) for code in np.frombuffer(block, np.int8, 256, 4)]


def _pq2_0(block: bytes) -> list[np.float32]:
    scale, bits = _scale(block, 0), int.from_bytes(block[2:], "little")
    return [np.float32((bits >> 2 * weight) % 4 - 1) * scale for weight in range(128)]


def _tq2_0_g128(block: bytes) -> list[np.float32]:
    scale, bits = _scale(block, 32), int.from_bytes(block[:32], "little")
    return [np.float32((-1, 0, 1, 0)[(bits >> 2 * weight) % 4]) * scale for weight in range(128)]


def _ptq1_0(block: bytes) -> list[np.float32]:
    scale, values = _scale(block, 26), [np.float32(0)] * 128
    for start, count, digits, first in ((0, 16, 5, 0), (16, 8, 5, 80), (24, 2, 4, 120)):
        for byte in range(count):
            left = block[start + byte]
            for digit in range(digits):
                values[first + digit * count + byte] = np.float32(left * 3 // 256 - 1) * scale
                left = left * 3 % 256
    return values


def _fp8(value: Callable[[int], float]) -> Callable[[bytes], list[np.float32]]:
    return lambda block: [np.float32(value(code)) * _scale(block, 32) for code in block[:32]]


_SCALAR_DECODERS: dict[str, Callable[[bytes], list[np.float32]]] = {
    "Q1_0": _q1_0,
    "Q2_0": _q2_0,
    "Q8_1": _q8_1,
    "Q8_K": _q8_k,
    "PQ2_0": _pq2_0,
    "PTQ1_0": _ptq1_0,
    "TQ2_0_G128": _tq2_0_g128,
    "F8_E4M3": _fp8(f8_e4m3),
    "F8_E5M2": _fp8(f8_e5m2),
}
