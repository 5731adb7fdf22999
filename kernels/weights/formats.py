"""Weight formats: table of names, GGUF type ids and block sizes.

A GGUF tensor is rows of blocks; a block packs a fixed number of weights into a fixed number of
bytes. Everything that depends on a format takes it from its row: the file reader, the memory
estimate, the window, the support matrix, the C header, tests. What a row cannot say is found by
its name. A new format is
- its row here, a decoder of its name in decoders.py, and a quantizer in quantizers.py if files are
  to be made in it; on every backend it now runs, on the reference;
- its kernels: blocks, tiles, packing and unpacking in a file of kernels/cpu/native/formats, listed
  by `python -m kernels.cpu.header`; for CUDA and Metal a row in kernels/gpu/layout.py;
- in the tests, a second decoder of its blocks in tests/support/blocks.py, of its tiles in tiles.py.

Importing this module loads no torch: the window reads the names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_GGML = "https://github.com/ggml-org/ggml/blob/ffa4e8b80930029a35991f94e7c8a93cd67730ab/src/"
_PRISM = "https://github.com/PrismML-Eng/llama.cpp/blob/397c0876/ggml/"
_OXIBONSAI = (
    "https://github.com/cool-japan/oxibonsai/blob/5c1c874acda173c272168e8f7a76a43cb442df9d/"
)

Decoder = Callable[["Tensor"], "Tensor"]
Quantizer = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True, slots=True)
class Format:
    """A supported weight format."""

    name: str
    # GGUF tensor type id: ggml's, or PrismML's and OxiBonsai's for their formats.
    # Ids from 1,000 on are internal: layouts stored under another format's id.
    id: int
    block: int  # weights per block
    size: int  # bytes per block
    tolerance: float  # largest normalized squared error of a kernel's product, see below
    words: str  # description for users
    source: str  # reference definition
    # llama.cpp's `general.file_type` of a file that has most of its matrices in this format.
    file_type: int | None = None
    dtype: str = "uint8"  # torch's type of stored values; uint8: blocks
    oxibonsai: bool = False  # of files with that program's keys
    stored_id: int = -1  # the id in files where it is another one

    @property
    def file_id(self) -> int:
        """The type id in files."""
        return self.id if self.stored_id < 0 else self.stored_id

    @property
    def packed(self) -> bool:
        """Whether values are stored in blocks; else as floats of `dtype`."""
        return self.dtype == "uint8"

    def decode(self, blocks: Tensor) -> Tensor:
        """Weights f32 [n, block] of contiguous blocks uint8 [n, size]: the decoder of its name."""
        from kernels.weights import codebooks, decoders  # noqa: PLC0415  # they load torch

        name = self.name.lower()
        decoder: Decoder = getattr(decoders, name, None) or getattr(codebooks, name)
        return decoder(blocks)

    @property
    def quantize(self) -> Quantizer | None:
        """The quantizer of its name, weights f32 [n, block] → blocks uint8 [n, size], if any."""
        from kernels.weights import quantizers  # noqa: PLC0415  # it loads torch

        return getattr(quantizers, self.name.lower(), None)

    @property
    def bits_per_weight(self) -> float:
        """Bits per weight in the file, scales included."""
        return 8 * self.size / self.block

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row; raises ValueError when `columns` does not fill whole blocks."""
        return _row_bytes(self.name, self.block, self.size, columns)


@dataclass(frozen=True, slots=True)
class KnownFormat:
    """A recognised but unsupported format: only name and size are known."""

    name: str
    block: int  # weights per block
    size: int  # bytes per block
    words: str = ""  # description for users, where the name is misleading

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row; raises ValueError when `columns` does not fill whole blocks."""
        return _row_bytes(self.name, self.block, self.size, columns)


def _row_bytes(name: str, block: int, size: int, columns: int) -> int:
    if columns % block:
        raise ValueError(f"{name} packs {block} weights to a block; {columns} is not a multiple")
    return columns // block * size


# Tolerances. F32 leaves only the order of additions. The half types allow a kernel to round
# activations to the weights' own type, all others to 8 bits in groups of 32 to 256.
_EXACT, _HALF, _BRAIN, _PACKED = 1e-10, 1e-6, 1e-5, 1e-4


def _quants(lines: str) -> str:
    return f"{_GGML}ggml-quants.c#{lines}"


def _withdrawn(name: str, base: str) -> KnownFormat:
    return KnownFormat(
        name, 32, 18, f"{base} in an order for one kind of processor, since withdrawn"
    )


_FP8 = f"{_OXIBONSAI}crates/oxibonsai-core/src/quant_fp8.rs"

# fmt: off
_ROWS = (
    Format("F32", 0, 1, 4, _EXACT,
           "32-bit floats", f"{_GGML}ggml.c", file_type=0, dtype="float32"),
    Format("F16", 1, 1, 2, _HALF,
           "16-bit floats", f"{_GGML}ggml-impl.h#L396", file_type=1, dtype="float16"),
    Format("BF16", 30, 1, 2, _BRAIN,
           "16-bit brain floats", f"{_GGML}ggml-impl.h#L606", file_type=32, dtype="bfloat16"),
    Format("Q4_0", 2, 32, 18, _PACKED,
           "4-bit, groups of 32", _quants("L459-L477"), file_type=2),
    Format("Q4_1", 3, 32, 20, _PACKED,
           "4-bit with minimum, groups of 32", _quants("L479-L498"), file_type=3),
    Format("Q5_0", 6, 32, 22, _PACKED,
           "5-bit, groups of 32", _quants("L500-L524"), file_type=8),
    Format("Q5_1", 7, 32, 24, _PACKED,
           "5-bit with minimum, groups of 32", _quants("L526-L551"), file_type=9),
    Format("Q8_0", 8, 32, 34, _PACKED,
           "8-bit, groups of 32", _quants("L553-L567"), file_type=7),
    Format("Q8_1", 9, 32, 36, _PACKED,
           "8-bit with sums, groups of 32", f"{_GGML}ggml-common.h#L257-L268"),
    Format("Q2_K", 10, 256, 84, _PACKED,
           "2-bit, groups of 16 in blocks of 256", _quants("L961-L991"), file_type=10),
    Format("Q3_K", 11, 256, 110, _PACKED,
           "3-bit, groups of 16 in blocks of 256", _quants("L1306-L1354"), file_type=12),
    Format("Q4_K", 12, 256, 144, _PACKED,
           "4-bit, groups of 32 in blocks of 256", _quants("L1530-L1552"), file_type=14),
    Format("Q5_K", 13, 256, 176, _PACKED,
           "5-bit, groups of 32 in blocks of 256", _quants("L1732-L1757"), file_type=16),
    Format("Q6_K", 14, 256, 210, _PACKED,
           "6-bit, groups of 16 in blocks of 256", _quants("L1940-L1969"), file_type=18),
    Format("Q8_K", 15, 256, 292, _PACKED,
           "8-bit with sums, groups of 256", _quants("L2808-L2818")),
    Format("IQ2_XXS", 16, 256, 66, _PACKED,
           "2-bit by a codebook, groups of 32 in blocks of 256", _quants("L2489-L2513")),
    Format("IQ2_XS", 17, 256, 74, _PACKED,
           "2-bit by a codebook, groups of 16 in blocks of 256", _quants("L2517-L2540")),
    Format("IQ3_XXS", 18, 256, 98, _PACKED,
           "3-bit by a codebook, groups of 32 in blocks of 256", _quants("L2576-L2604")),
    Format("IQ1_S", 19, 256, 50, _PACKED,
           "1.6-bit by a codebook, groups of 32 in blocks of 256", _quants("L2651-L2674")),
    Format("IQ4_NL", 20, 32, 18, _PACKED,
           "4-bit with uneven steps, groups of 32", _quants("L2726-L2742"), file_type=25),
    Format("IQ3_S", 21, 256, 110, _PACKED,
           "3-bit by a codebook, groups of 32 in blocks of 256", _quants("L2608-L2647")),
    Format("IQ2_S", 22, 256, 82, _PACKED,
           "2-bit by a codebook, groups of 16 in blocks of 256", _quants("L2544-L2572")),
    Format("IQ4_XS", 23, 256, 136, _PACKED,
           "4-bit with uneven steps, groups of 32 in blocks of 256", _quants("L2744-L2765"), file_type=30),
    Format("IQ1_M", 29, 256, 56, _PACKED,
           "1.8-bit by a codebook, groups of 16 in blocks of 256", _quants("L2676-L2724")),
    Format("TQ1_0", 34, 256, 54, _PACKED,
           "ternary, five to a byte, groups of 256", _quants("L2429-L2466"), file_type=36),
    Format("TQ2_0", 35, 256, 66, _PACKED,
           "ternary, four to a byte, groups of 256", _quants("L2468-L2485"), file_type=37),
    Format("MXFP4", 39, 32, 17, _PACKED,
           "4-bit floats, groups of 32", _quants("L569-L587"), file_type=38),
    Format("NVFP4", 40, 64, 36, _PACKED,
           "4-bit floats, groups of 16 in blocks of 64", _quants("L589-L612"), file_type=39),
    Format("Q1_0", 41, 128, 18, _PACKED,
           "1-bit, groups of 128", _quants("L419-L437"), file_type=40),
    Format("Q2_0", 42, 64, 18, _PACKED,
           "2-bit, groups of 64", _quants("L439-L457"), file_type=41),
    Format("F8_E4M3", 43, 32, 34, _PACKED,
           "8-bit floats to 448, groups of 32", _FP8, oxibonsai=True),
    Format("F8_E5M2", 44, 32, 34, _PACKED,
           "8-bit floats to 57344, groups of 32", _FP8, oxibonsai=True),
    Format("PQ2_0", 142, 128, 34, _PACKED,
           "2-bit, groups of 128", f"{_PRISM}src/ggml-quants.c"),
    Format("PTQ1_0", 143, 128, 28, _PACKED,
           "ternary, five to a byte, groups of 128", f"{_PRISM}src/ggml-quants.c"),
    Format("TQ2_0_G128", 1042, 128, 34, _PACKED,
           "ternary, four to a byte, groups of 128",
           f"{_OXIBONSAI}crates/oxibonsai-core/src/quant_ternary.rs", oxibonsai=True, stored_id=42),
)
# fmt: on

# Formats without kernels, with ggml's sizes, so that a file with such tensors can be measured.
UNSUPPORTED: dict[int, KnownFormat] = {
    24: KnownFormat("I8", 1, 1),
    25: KnownFormat("I16", 1, 2),
    26: KnownFormat("I32", 1, 4),
    27: KnownFormat("I64", 1, 8),
    28: KnownFormat("F64", 1, 8),
    31: _withdrawn("Q4_0_4_4", "Q4_0"),
    32: _withdrawn("Q4_0_4_8", "Q4_0"),
    33: _withdrawn("Q4_0_8_8", "Q4_0"),
    36: _withdrawn("IQ4_NL_4_4", "IQ4_NL"),
    37: _withdrawn("IQ4_NL_4_8", "IQ4_NL"),
    38: _withdrawn("IQ4_NL_8_8", "IQ4_NL"),
}

FORMATS: dict[int, Format] = {row.id: row for row in _ROWS}


def by_name(name: str) -> Format:
    """The format called `name`, such as "Q4_K"; KeyError when there is none."""
    return _BY_NAME[name]


_BY_NAME = {row.name: row for row in _ROWS}
