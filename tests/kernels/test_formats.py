"""Formats: sizes, ids and every decoded bit against gguf-py and a second decoder of our own."""

from __future__ import annotations

import re
from collections.abc import Callable

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.formats import FORMATS, UNSUPPORTED, Format, by_name, decode_rows

Blocks = Callable[[Format, int], Tensor]
Rows = Callable[[Format, int, int], Tensor]

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda row: row.name)


def q1_0_by_hand(blocks: np.ndarray) -> np.ndarray:
    """A second decoder of Q1_0, written apart from the first: one weight at a time."""
    out = np.empty((len(blocks), 128), dtype=np.float32)
    for row, block in zip(out, blocks, strict=True):
        scale = np.frombuffer(block[:2].tobytes(), dtype="<f2")[0].astype(np.float32)
        bits = int.from_bytes(block[2:].tobytes(), "little")
        for weight in range(128):
            row[weight] = scale if bits >> weight & 1 else -scale
    return out


def by_oracle(format: Format, blocks: np.ndarray) -> np.ndarray:
    """What gguf-py decodes; its release 0.19 lists Q1_0 but cannot decode it."""
    if format.name == "Q1_0":
        return q1_0_by_hand(blocks)
    return gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType(format.id))


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
    wanted = by_oracle(format, blocks.numpy()).reshape(2000, -1)
    assert np.array_equal(bits(got.numpy()), bits(wanted))


@every_format
def test_every_byte_of_a_block_counts(format: Format, random_blocks: Blocks) -> None:
    blocks = random_blocks(format, 30)  # in a single one a large minimum can hide a small scale
    before = format.decode(blocks)
    for byte in range(format.size):
        changed = blocks.clone()
        changed[:, byte] ^= 0x21
        after = format.decode(changed)
        assert not torch.equal(before, after), f"byte {byte} of {format.name} is ignored"


def test_q1_0_decodes_a_frozen_block() -> None:
    # ggml's quantize_row_q1_0_ref of +0.5 at 0, 9 and 127 and -0.5 elsewhere: scale 0.5, LSB first.
    block = bytes.fromhex("0038 01020000000000000000000000000080")
    wanted = torch.full((1, 128), -0.5)
    wanted[0, [0, 9, 127]] = 0.5
    assert torch.equal(
        by_name("Q1_0").decode(torch.tensor([list(block)], dtype=torch.uint8)), wanted
    )


@every_format
def test_id_and_sizes_are_those_of_gguf_py(format: Format) -> None:
    kind = gguf.GGMLQuantizationType(format.id)
    assert kind.name == format.name
    assert gguf.GGML_QUANT_SIZES[kind] == (format.block, format.size)
    assert format.bits_per_weight == 8 * format.size / format.block


def test_every_format_gguf_py_knows_is_run_or_named() -> None:
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        if kind in FORMATS:
            continue
        known = UNSUPPORTED[kind]
        assert known.name == kind.name
        # gguf-py counts 40 bytes for Q8_1, ggml's struct has 36; neither occurs in files.
        assert (known.block, known.size) == ((32, 36) if kind.name == "Q8_1" else sizes)


def test_no_id_or_name_is_listed_twice() -> None:
    assert not set(FORMATS) & set(UNSUPPORTED)
    names = [row.name for row in (*FORMATS.values(), *UNSUPPORTED.values())]
    assert len(set(names)) == len(names)


@every_format
def test_source_is_a_permalink(format: Format) -> None:
    assert re.match(r"https://github\.com/ggml-org/ggml/blob/[0-9a-f]{40}/src/", format.source)


def test_finds_formats_by_name() -> None:
    assert by_name("Q4_K") is FORMATS[12]
    with pytest.raises(KeyError):
        by_name("Q2_0")


@every_format
@pytest.mark.parametrize("chunk", [1, 300, 1 << 18])
def test_rows_decode_alike_in_chunks_of_any_size(
    format: Format, chunk: int, random_rows: Rows
) -> None:
    rows, columns = 7, 3 * format.block
    data = random_rows(format, rows, columns)
    wanted = format.decode(data.view(-1, format.size)).view(rows, columns)
    assert torch.equal(decode_rows(data, format, columns, chunk=chunk), wanted)


def test_rows_decode_into_the_given_tensor(random_rows: Rows) -> None:
    format = by_name("Q4_1")
    data = random_rows(format, 4, 64)
    whole = torch.full((6, 64), torch.nan)
    out = decode_rows(data, format, 64, out=whole[1:5])
    assert out.data_ptr() == whole[1:5].data_ptr()
    assert torch.equal(whole[1:5], decode_rows(data, format, 64))
    assert whole[0].isnan().all()
    assert whole[5].isnan().all()


def test_rows_that_are_not_adjacent_decode(random_rows: Rows) -> None:
    format = by_name("Q6_K")
    data = random_rows(format, 6, 512)
    assert torch.equal(decode_rows(data[::2], format, 512), decode_rows(data, format, 512)[::2])


def test_refuses_columns_that_do_not_fill_blocks() -> None:
    with pytest.raises(ValueError, match="Q4_K packs 256 weights to a block; 300 is not"):
        by_name("Q4_K").row_bytes(300)
    with pytest.raises(ValueError, match="Q2_0 packs 64 weights to a block; 100 is not"):
        UNSUPPORTED[42].row_bytes(100)


def test_measures_a_format_it_does_not_run() -> None:
    assert UNSUPPORTED[42].row_bytes(128) == 36
    assert UNSUPPORTED[10].row_bytes(512) == 168


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
