"""Formats: sizes, ids and every decoded bit against gguf-py and a second decoder of our own."""

from __future__ import annotations

import re
from collections.abc import Callable

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from blocks import decoded, f8_e4m3, f8_e5m2
from kernels.weights.formats import FORMATS, UNSUPPORTED, Format, by_name
from kernels.weights.weight import decode_rows

Blocks = Callable[[Format, int], Tensor]
LayerKV = Callable[[Format, int, int], Tensor]

# Sums of the codes, which spare ggml's products an addition.
IGNORED = {"Q8_1": {2, 3}, "Q8_K": set(range(260, 292))}

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda row: row.name)


def bits(values: np.ndarray) -> np.ndarray:
    """The floats as integers, so that equality sees signed zeros."""
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)


@every_format
def test_decodes_the_same_bits_as_the_oracle(format: Format, random_blocks: Blocks) -> None:
    blocks = random_blocks(format, 2000)
    got = format.decode(blocks)
    assert got.dtype == torch.float32
    assert got.shape == (2000, format.block)
    assert got.isfinite().all()
    assert np.array_equal(bits(got.numpy()), bits(decoded(format, blocks.numpy())))


@every_format
def test_every_byte_of_a_block_counts(format: Format, random_blocks: Blocks) -> None:
    blocks = random_blocks(format, 30)  # in a single one a large minimum can hide a small scale
    before = format.decode(blocks)
    for byte in sorted(set(range(format.size)) - IGNORED.get(format.name, set())):
        changed = blocks.clone()
        changed[:, byte] ^= 0x21
        after = format.decode(changed)
        assert not torch.equal(before, after), f"byte {byte} of {format.name} is ignored"


def one_block(name: str, packed: str) -> Tensor:
    """The weights of one block given in hexadecimal, f32 [block]."""
    return by_name(name).decode(torch.tensor([list(bytes.fromhex(packed))], dtype=torch.uint8))[0]


def test_q1_0_decodes_a_frozen_block() -> None:
    # ggml's quantize_row_q1_0_ref of +0.5 at 0, 9 and 127 and -0.5 elsewhere: scale 0.5, LSB first.
    wanted = torch.full((128,), -0.5)
    wanted[[0, 9, 127]] = 0.5
    assert torch.equal(one_block("Q1_0", "0038 01020000000000000000000000000080"), wanted)


def test_q2_0_decodes_a_frozen_block() -> None:
    # ggml's dequantize_row_q2_0: scale first, weight 4i in the lowest bits of byte i, 3 is +2d.
    # -0.5 0 +0.5 +1 in the first byte, zeros after it, -0.5 the last weight.
    wanted = torch.zeros(64)
    wanted[[0, 1, 2, 3, 63]] = torch.tensor([-0.5, 0.0, 0.5, 1.0, -0.5])
    assert torch.equal(one_block("Q2_0", "0038 E4" + 14 * "55" + "15"), wanted)


@pytest.mark.parametrize(
    ("name", "codes", "values"),
    [  # smallest, one, largest, negative: OxiBonsai's BlockFP8E4M3 and BlockFP8E5M2, scale last
        ("F8_E4M3", "01 08 38 3C 7E BC", [2.0**-9, 2.0**-6, 1.0, 1.5, 448.0, -1.5]),
        ("F8_E5M2", "01 04 3C 3E 7B BE", [2.0**-16, 2.0**-14, 1.0, 1.5, 57344.0, -1.5]),
    ],
)
def test_fp8_decodes_a_frozen_block(name: str, codes: str, values: list[float]) -> None:
    wanted = torch.zeros(32)
    wanted[:6] = torch.tensor(values) * 0.5
    assert torch.equal(one_block(name, codes + 26 * "00" + "0038"), wanted)


@pytest.mark.parametrize(("name", "value"), [("F8_E4M3", f8_e4m3), ("F8_E5M2", f8_e5m2)])
def test_fp8_decodes_every_code(name: str, value: Callable[[int], float]) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(8, 32)
    one = torch.tensor([[0x00, 0x3C]], dtype=torch.uint8).expand(8, 2)
    got = by_name(name).decode(torch.cat((codes, one), dim=1)).flatten()
    wanted = torch.tensor([value(code) for code in range(256)])
    assert torch.equal(got.isnan(), wanted.isnan())
    known = ~wanted.isnan()
    assert np.array_equal(bits(got[known].numpy()), bits(wanted[known].numpy()))
    special = {"F8_E4M3": ({0x7F, 0xFF}, set[int]()), "F8_E5M2": (
        {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}, {0x7C, 0xFC}
    )}  # fmt: skip
    found = set(wanted.isnan().nonzero().flatten().tolist())
    assert (found, set(got.isinf().nonzero().flatten().tolist())) == special[name]


def test_mxfp4_decodes_every_exponent_and_code() -> None:
    exponents = torch.arange(256, dtype=torch.uint8)[:, None]
    codes = torch.arange(16, dtype=torch.uint8) * 17  # each in the low and in the high half
    blocks = torch.cat((exponents, codes.expand(256, 16)), dim=1)
    got = by_name("MXFP4").decode(blocks)
    with np.errstate(over="ignore"):  # 2**127 times 12, as ggml computes it
        wanted = decoded(by_name("MXFP4"), blocks.numpy())
    assert np.array_equal(bits(got.numpy()), bits(wanted))
    assert got[0, 1] == 2.0**-128


@pytest.mark.parametrize("name", ["TQ1_0", "TQ2_0"])
def test_ternary_blocks_decode_in_the_order_ggml_packs_them(name: str, seed: int) -> None:
    weights = np.random.default_rng(seed).integers(-1, 2, (50, 256)).astype(np.float32)
    weights[:, 0] = 1  # the scale is the largest magnitude
    packed = gguf.quantize(weights, gguf.GGMLQuantizationType[name])
    assert torch.equal(by_name(name).decode(torch.from_numpy(packed)), torch.from_numpy(weights))


def test_ids_and_sizes_are_those_of_gguf_py() -> None:
    for format in FORMATS.values():
        assert format.bits_per_weight == 8 * format.size / format.block
        if format.id > 41:  # newer than its release, or not ggml's
            assert format.id not in set(gguf.GGMLQuantizationType)
            continue
        kind = gguf.GGMLQuantizationType(format.id)
        assert kind.name == format.name
        # gguf-py counts 40 bytes for Q8_1, ggml's struct has 36; it does not occur in files.
        known = (32, 36) if kind.name == "Q8_1" else gguf.GGML_QUANT_SIZES[kind]
        assert known == (format.block, format.size)


def test_every_format_gguf_py_knows_is_run_or_named() -> None:
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        if kind in FORMATS:
            continue
        known = UNSUPPORTED[kind]
        assert known.name == kind.name
        assert (known.block, known.size) == sizes


def test_no_id_or_name_is_listed_twice() -> None:
    assert not set(FORMATS) & set(UNSUPPORTED)
    names = [row.name for row in (*FORMATS.values(), *UNSUPPORTED.values())]
    assert len(set(names)) == len(names)


def test_sources_are_permalinks() -> None:
    for format in FORMATS.values():
        owner = "ggml-org/ggml"
        if format.name.startswith(("F8_", "TQ2_0_G")):
            owner = "cool-japan/oxibonsai"
        elif format.name.startswith("P"):
            owner = "PrismML-Eng/llama.cpp"
        assert re.match(rf"https://github\.com/{owner}/blob/[0-9a-f]{{8,40}}/\w", format.source)


def test_finds_formats_by_name() -> None:
    assert by_name("Q4_K") is FORMATS[12]
    with pytest.raises(KeyError):
        by_name("I8")


@every_format
def test_rows_decode_alike_in_chunks_of_any_size(format: Format, random_rows: LayerKV) -> None:
    rows, columns = 7, 3 * format.block
    data = random_rows(format, rows, columns)
    wanted = format.decode(data.view(-1, format.size)).view(rows, columns)
    for chunk in (1, 300, 1 << 18):
        assert torch.equal(decode_rows(data, format, columns, chunk=chunk), wanted), chunk


def test_rows_decode_into_the_given_tensor(random_rows: LayerKV) -> None:
    format = by_name("Q4_1")
    data = random_rows(format, 4, 64)
    whole = torch.full((6, 64), torch.nan)
    out = decode_rows(data, format, 64, out=whole[1:5])
    assert out.data_ptr() == whole[1:5].data_ptr()
    assert torch.equal(whole[1:5], decode_rows(data, format, 64))
    assert whole[0].isnan().all()
    assert whole[5].isnan().all()


def test_rows_that_are_not_adjacent_decode(random_rows: LayerKV) -> None:
    format = by_name("Q6_K")
    data = random_rows(format, 6, 512)
    assert torch.equal(decode_rows(data[::2], format, 512), decode_rows(data, format, 512)[::2])


def test_refuses_columns_that_do_not_fill_blocks() -> None:
    with pytest.raises(ValueError, match="Q4_K packs 256 weights to a block; 300 is not"):
        by_name("Q4_K").row_bytes(300)
    with pytest.raises(ValueError, match="Q4_0_4_4 packs 32 weights to a block; 100 is not"):
        UNSUPPORTED[31].row_bytes(100)


def test_measures_a_format_it_does_not_run() -> None:
    assert UNSUPPORTED[31].row_bytes(128) == 72
    assert UNSUPPORTED[28].row_bytes(2) == 16


@pytest.mark.parametrize(
    ("data", "out", "words"),
    [
        (torch.zeros(2, 35, dtype=torch.uint8), None, r"uint8 \[rows, 36\], got .*\[2, 35\]"),
        (torch.zeros(2, 36, dtype=torch.int8), None, r"got torch.int8 \[2, 36\]"),
        (torch.zeros(2, 36, dtype=torch.uint8), torch.zeros(2, 32), r"float32 \[2, 64\], got"),
        (torch.zeros(2, 36, dtype=torch.uint8), torch.zeros(64, 2).T, "contiguous"),
        (torch.zeros(2, 36, dtype=torch.uint8), torch.zeros(2, 64).double(), "float64"),
    ],
)
def test_refuses_rows_of_the_wrong_shape(data: Tensor, out: Tensor | None, words: str) -> None:
    with pytest.raises(ValueError, match=f"^decode_rows: .*{words}"):
        decode_rows(data, by_name("Q4_0"), 64, out=out)
