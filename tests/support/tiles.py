"""Independent numpy decoder of packed weight tiles, from the structs of kernels/cpu/native/formats.

Field offsets are parsed from them. The order of codes in vectors and the use of scales are
implemented a second time here, after the header's comments, not after the packing code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blocks import f8_e4m3, f8_e5m2
from kernels.weights.formats import Format

Array = NDArray[Any]

_FOLDER = Path(__file__).parents[2] / "kernels" / "cpu" / "native" / "formats"
_TYPES = {"half_t": "<u2", "uint16_t": "<u2", "uint8_t": "u1", "int8_t": "i1"}
_STEPS = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
_E2M1 = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
_PLAIN = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Those whose tile has another name than the format.
_TILES = {
    "IQ4_NL": "q4_0", "TQ1_0": "tq2", "TQ2_0": "tq2", "PQ2_0": "pq2", "PTQ1_0": "pq2", "TQ2_0_G128": "pq2", "F8_E4M3": "f8", "F8_E5M2": "f8",
}  # fmt: skip


@cache
def tile_type(format: Format) -> np.dtype[Any]:
    """The tile struct of a format as a numpy dtype, with the fields that it declares."""
    if format.name in _PLAIN:
        return np.dtype([("x", _PLAIN[format.name], (16,))])
    name = _TILES.get(format.name, format.name.lower())
    text = "".join(path.read_text(encoding="utf-8") for path in _FOLDER.glob("*.inc"))
    declared = re.search(rf"struct tile_{name} {{(.*?)}};", text)
    assert declared
    fields: list[tuple[str, str, tuple[int, ...]]] = []
    for kind, names in re.findall(r"(\w+) ([^;]+);", declared[1]):
        for name, sizes in re.findall(r"(\w+)((?:\[\d+\])+)", names):
            fields.append((name, _TYPES[kind], tuple(map(int, re.findall(r"\d+", sizes)))))
    return np.dtype(fields)


def group_rows(format: Format) -> int:
    """Rows packed into one group of tiles."""
    return 64 if format.name == "Q1_0" else 16


def tile_columns(format: Format) -> int:
    """Columns of one tile."""
    return 32 if format.name.startswith("F8") else format.block


def tiles_of(format: Format, packed: Array, columns: int) -> Array:
    """Packed bytes u8 [n] → tiles [row groups, tiles per row]."""
    return packed.view(tile_type(format)).reshape(-1, columns // tile_columns(format))


def weights(format: Format, packed: Array, columns: int) -> Array:
    """Packed bytes u8 [n] → f32 [rows, columns], including the padding rows of the last group."""
    tiles = tiles_of(format, packed, columns)
    values: Array = _DECODERS[format.name](tiles.reshape(-1))  # [tiles, rows, tile columns]
    values = values.reshape(*tiles.shape, *values.shape[1:]).transpose(0, 2, 1, 3)
    return values.reshape(-1, columns)


def codes(vectors: Array, bits: int) -> Array:
    """Unpack vectors u8 [tiles, ..., 64] of codes of 1 to 8 bits → i32 [tiles, 16, columns]."""
    vectors = vectors.reshape(len(vectors), -1, 1, 64)
    parts = vectors >> (np.arange(0, 8, bits, dtype=np.uint8)[:, None]) & (2**bits - 1)
    quads = parts.reshape(len(vectors), -1, 16, 4).transpose(0, 2, 1, 3)
    return quads.reshape(len(vectors), 16, -1).astype(np.int32)


def _half(field: Array) -> Array:
    """u2 [tiles, rows] → f32 [tiles, rows, 1]."""
    return field.view("<f2").astype(np.float32)[:, :, None]


def _brain(field: Array) -> Array:
    return (field.astype(np.uint32) << 16).view(np.float32)


def _spread(scales: Array, columns: int = 256) -> Array:
    """Group scales [tiles, groups, 16] → f32 [tiles, 16, columns], repeated for each column."""
    by_row = scales.astype(np.float32).transpose(0, 2, 1)
    return np.repeat(by_row, columns // scales.shape[1], axis=2)


def _q1_0(t: Array) -> Array:
    place = np.arange(64)
    row = 16 * (place // 8 % 2 * 2 + place // 32) + place // 16 % 2 * 8 + place % 8
    bits = t["q"][..., None] >> np.arange(8, dtype=np.uint8) & 1  # [tiles, 16, 64, 8]
    signs = np.empty((len(t), 64, 128), np.float32)
    signs[:, row] = bits.transpose(0, 2, 1, 3).reshape(len(t), 64, 128) * 2.0 - 1
    return signs * _half(t["d"])


def _f8(value: Callable[[int], float]) -> Callable[[Array], Array]:
    table = np.array([value(code) for code in range(256)], np.float32)
    return lambda t: table[t["q"].transpose(0, 2, 1)] * _half(t["d"])


def _small(bits: int, offset: int) -> Callable[[Array], Array]:
    return lambda t: (codes(t["q"], bits) - offset).astype(np.float32) * _half(t["d"])


def _ternary(t: Array) -> Array:
    """Decode ternary tiles: vector v of 128 columns holds quad v of each of their four blocks."""
    vectors = t["q"].reshape(len(t), -1, 1, 8, 64)
    parts = vectors >> (np.arange(0, 8, 2, dtype=np.uint8)[:, None, None]) & 3
    quads = parts.reshape(len(t), -1, 16, 4).transpose(0, 2, 1, 3)  # of 128 columns, block, vector
    return (quads.reshape(len(t), 16, -1).astype(np.int32) - 1).astype(np.float32) * _half(t["d"])


def _five(t: Array) -> Array:
    return codes(t["q"], 4) + 16 * codes(t["h"], 1)


def _with_minimum(q: Array, t: Array) -> Array:
    scale, minimum = _spread(t["s"]) * _half(t["d"]), _spread(t["n"]) * _half(t["m"])
    return q.astype(np.float32) * scale - minimum


def _signed(q: Array, t: Array) -> Array:
    return q.astype(np.float32) * (_spread(t["s"]) * _half(t["d"]))


def _q2_k(t: Array) -> Array:
    scale, minimum = _spread(t["s"] & 15) * _half(t["d"]), _spread(t["s"] >> 4) * _half(t["m"])
    return codes(t["q"], 2).astype(np.float32) * scale - minimum


def _looked_up(table: list[int], t: Array) -> Array:
    return np.array(table)[codes(t["q"], 4)]


_DECODERS: dict[str, Callable[[Array], Array]] = {
    "F32": lambda t: t["x"][:, :, None],
    "F16": lambda t: t["x"].astype(np.float32)[:, :, None],
    "BF16": lambda t: _brain(t["x"])[:, :, None],
    "F8_E4M3": _f8(f8_e4m3),
    "F8_E5M2": _f8(f8_e5m2),
    "Q1_0": _q1_0,
    "Q2_0": _small(2, 1),
    "TQ1_0": _ternary,
    "TQ2_0": _ternary,
    "PQ2_0": _ternary,
    "PTQ1_0": _ternary,
    "TQ2_0_G128": _ternary,
    "Q4_0": _small(4, 8),
    "Q8_0": _small(8, 128),
    "Q4_1": lambda t: codes(t["q"], 4).astype(np.float32) * _half(t["d"]) + _half(t["m"]),
    "Q5_0": lambda t: (_five(t) - 16).astype(np.float32) * _half(t["d"]),
    "Q5_1": lambda t: _five(t).astype(np.float32) * _half(t["d"]) + _half(t["m"]),
    "IQ4_NL": lambda t: _looked_up(_STEPS, t).astype(np.float32) * _half(t["d"]),
    "MXFP4": lambda t: _looked_up(_E2M1, t).astype(np.float32) * _brain(t["d"])[:, :, None],
    "Q2_K": _q2_k,
    "Q3_K": lambda t: _signed(codes(t["q"], 2) + 4 * codes(t["h"], 1) - 4, t),
    "Q4_K": lambda t: _with_minimum(codes(t["q"], 4), t),
    "Q5_K": lambda t: _with_minimum(_five(t), t),
    "Q6_K": lambda t: _signed(codes(t["q"], 4) + 16 * codes(t["h"], 2) - 32, t),
    "IQ4_XS": lambda t: _signed(_looked_up(_STEPS, t), t),
}
