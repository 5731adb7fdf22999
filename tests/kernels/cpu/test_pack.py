"""Packing: every weight of a file is in its tile, comes back bit for bit, and nothing else is touched."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import Tensor

import tiles
from blocks import PACKED
from kernels.cpu import library
from kernels.cpu.schema import NativeWeight
from kernels.weights.formats import Format, by_name
from kernels.weights.weight import decode_rows

LayerKV = Callable[[Format, int, int], Tensor]
Pieces = list[tuple[int, int]]

pytestmark = pytest.mark.skipif(not library.available(), reason=library.reason())
every_format = pytest.mark.parametrize("format", PACKED.values(), ids=lambda row: row.name)

ROWS = (1, 15, 16, 17, 63, 64, 65, 100)
BLOCKS = (1, 2, 3, 9)
GUARD = 64  # bytes before and after, which nothing may write
NO_FORMAT = 9  # Q8_1: ggml has it, no file should


def packed_bytes(format: Format, rows: int, columns: int) -> int:
    return library.native().nk_packed_bytes(format.id, rows, columns)


def packed(
    format: Format, source: Tensor, columns: int, pieces: Pieces | None = None, fill: int = 0xFF
) -> Tensor:
    """The packed matrix, uint8 [bytes], made in the pieces asked for, at once if there are more."""
    rows = source.shape[0]
    whole = torch.full((packed_bytes(format, rows, columns) + 2 * GUARD,), fill, dtype=torch.uint8)
    to = whole.data_ptr() + GUARD

    def pack(piece: tuple[int, int]) -> None:
        library.call("pack", format.id, source.data_ptr(), rows, columns, *piece, to)

    with ThreadPoolExecutor(max_workers=3) as pool:
        list(pool.map(pack, pieces or [(0, rows)]))
    assert torch.all(whole[:GUARD] == fill)
    assert torch.all(whole[-GUARD:] == fill)
    return whole[GUARD:-GUARD].clone()  # apart, so that a check sees reads beyond it


def rows_of(format: Format, data: Tensor, rows: int, columns: int, ids: Tensor) -> Tensor:
    """The rows asked for, f32 [count, columns]."""
    found = torch.full((len(ids) + 1, columns), torch.nan)
    weight = NativeWeight(data.data_ptr(), format.id, rows, columns)
    library.call("rows_of", ctypes.byref(weight), ids.data_ptr(), len(ids), found.data_ptr())
    assert torch.all(found[-1].isnan())
    return found[:-1]


def shapes(format: Format) -> Iterator[tuple[int, int]]:
    """Rows and columns: full groups and not, one block and more."""
    for rows in ROWS:
        for blocks in BLOCKS:
            yield rows, blocks * format.block


def assert_same_bits(found: Tensor, wanted: Tensor) -> None:
    """Equal bit for bit, save which of the many NaNs one is."""
    same = (found.view(torch.int32) == wanted.view(torch.int32)) | (found.isnan() & wanted.isnan())
    assert torch.all(same)


# --- what is in the tiles


@every_format
def test_tiles_hold_every_weight_where_the_header_says(
    format: Format, random_rows: LayerKV
) -> None:
    for rows, columns in shapes(format):
        source = random_rows(format, rows, columns)
        found = tiles.weights(format, packed(format, source, columns).numpy(), columns)
        assert_same_bits(torch.from_numpy(found)[:rows], decode_rows(source, format, columns))


@every_format
def test_rows_that_fill_the_last_group_are_empty(format: Format, even_rows: LayerKV) -> None:
    columns = 2 * format.block
    source = even_rows(format, 2, columns)[1:]  # the first begins with a block of zeros
    data = packed(format, source, columns).numpy()
    found = tiles.weights(format, data, columns)
    assert found.shape[0] == tiles.group_rows(format)
    assert np.any(found[0])
    assert not np.any(found[1:])
    tile = tiles.tiles_of(format, data, columns)
    for name in tile.dtype.names or ():
        # Byte 4 * row + column of a quad; elsewhere the last index is the row, and row 0 is first.
        quads = tile[name].shape[-1] == 64 and format.name != "Q1_0"
        beyond = tile[name][..., 4 if quads else 1 :]
        assert np.all(beyond == (128 if (format.name, name) == ("Q8_0", "q") else 0)), name


@every_format
def test_every_byte_is_written_and_none_beyond(format: Format, random_rows: LayerKV) -> None:
    for rows, columns in shapes(format):
        source = random_rows(format, rows, columns)
        over_ones = packed(format, source, columns, fill=0xFF)
        assert torch.equal(over_ones, packed(format, source, columns, fill=0))


@every_format
def test_pieces_packed_at_once_equal_the_whole(format: Format, random_rows: LayerKV) -> None:
    group = tiles.group_rows(format)
    for rows in (*ROWS, 5 * group + 1):
        source = random_rows(format, rows, 3 * format.block)
        cuts = list(range(0, rows, group))
        pieces = list(zip(cuts, [*cuts[1:], rows], strict=True))
        whole = packed(format, source, 3 * format.block)
        assert torch.equal(packed(format, source, 3 * format.block, pieces[::-1]), whole)
        assert torch.equal(packed(format, source, 3 * format.block, [(0, 0), *pieces]), whole)


@every_format
def test_a_matrix_may_begin_at_any_byte_of_a_file(format: Format, random_rows: LayerKV) -> None:
    rows, columns = 17, 2 * format.block
    source = random_rows(format, rows, columns)
    wanted = packed(format, source, columns)
    for start in (1, 2, 3, 5):
        file = torch.zeros(start + source.numel(), dtype=torch.uint8)
        file[start:] = source.flatten()
        moved = file[start:].view(rows, -1)
        assert torch.equal(packed(format, moved, columns), wanted)


@every_format
def test_bytes_are_those_of_the_tiles_of_whole_groups(format: Format) -> None:
    group, width = tiles.group_rows(format), tiles.tile_columns(format)
    assert library.native().nk_group_rows(format.id) == group
    assert format.block % width == 0
    for rows, columns in shapes(format):
        count = -(-rows // group) * (columns // width)
        assert packed_bytes(format, rows, columns) == count * tiles.tile_type(format).itemsize


# --- what comes back


@every_format
def test_rows_come_back_bit_for_bit(
    format: Format, random_rows: LayerKV, random: torch.Generator
) -> None:
    for rows, columns in shapes(format):
        source = random_rows(format, rows, columns)
        ids = torch.cat((torch.randperm(rows, generator=random), torch.tensor([rows - 1, 0, 0])))
        found = rows_of(format, packed(format, source, columns), rows, columns, ids)
        assert_same_bits(found, decode_rows(source, format, columns)[ids])


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_each_of_all_halves_comes_back(name: str) -> None:
    every = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.uint8).view(16, -1)
    found = rows_of(by_name(name), packed(by_name(name), every, 4096), 16, 4096, torch.arange(16))
    assert_same_bits(found, decode_rows(every, by_name(name), 4096))


@pytest.mark.parametrize("name", ["F8_E4M3", "F8_E5M2"])
def test_each_of_all_short_floats_comes_back(name: str) -> None:
    format = by_name(name)
    source = torch.zeros(256 // 32, format.size, dtype=torch.uint8)
    source[:, :32] = torch.arange(256).to(torch.uint8).view(-1, 32)
    source[:, 33] = 0x3C  # one
    source = source.view(1, -1)
    found = rows_of(format, packed(format, source, 256), 1, 256, torch.zeros(1, dtype=torch.int64))
    assert_same_bits(found, decode_rows(source, format, 256))


def test_each_power_of_two_comes_back() -> None:
    format = by_name("MXFP4")
    source = torch.arange(256).to(torch.uint8)[:, None].repeat(1, format.size)
    source[:, 1:] = torch.arange(16).to(torch.uint8) * 17
    found = rows_of(format, packed(format, source, 32), 256, 32, torch.arange(256))
    assert found.count_nonzero() == 256 * 28
    assert_same_bits(found, decode_rows(source, format, 32))


def test_no_rows_may_be_asked_for(random_rows: LayerKV) -> None:
    format = by_name("Q4_0")
    data = packed(format, random_rows(format, 3, 32), 32)
    assert rows_of(format, data, 3, 32, torch.zeros(0, dtype=torch.int64)).shape == (0, 32)


# --- what is refused


@every_format
def test_rows_that_are_not_there_are_refused(format: Format, random_rows: LayerKV) -> None:
    rows, columns = 17, 2 * format.block
    data = packed(format, random_rows(format, rows, columns), columns)
    for row in (-1, rows, 1 << 40, -(1 << 63)):
        found = torch.full((2, columns), torch.nan)
        weight = NativeWeight(data.data_ptr(), format.id, rows, columns)
        ids = torch.tensor([0, row])
        with pytest.raises(IndexError, match="outside a table"):
            library.call("rows_of", ctypes.byref(weight), ids.data_ptr(), 2, found.data_ptr())
        assert torch.all(found.isnan())


@every_format
def test_columns_that_do_not_fill_blocks_are_refused(format: Format) -> None:
    odd = [0, -format.block, *([format.block + 1, format.block // 2] if format.block > 1 else [])]
    for columns in odd:
        assert packed_bytes(format, 16, columns) == 0
        with pytest.raises(ValueError, match="size"):
            library.call("pack", format.id, 0, 16, columns, 0, 16, 0)
        weight = NativeWeight(0, format.id, 16, columns)
        with pytest.raises(ValueError, match="size"):
            library.call("rows_of", ctypes.byref(weight), 0, 0, 0)


@every_format
def test_ranges_that_cut_a_group_are_refused(format: Format) -> None:
    group = tiles.group_rows(format)
    rows = 2 * group + 3
    for first, end in (
        (1, group),
        (0, group - 1),
        (-group, group),
        (2 * group, group),
        (0, rows + 1),
    ):
        with pytest.raises(ValueError, match="size"):
            library.call("pack", format.id, 0, rows, format.block, first, end, 0)


@every_format
def test_a_size_past_counting_is_refused(format: Format) -> None:
    assert packed_bytes(format, 0, format.block) == 0
    assert packed_bytes(format, 1 << 62, format.block << 10) == 0
    with pytest.raises(ValueError, match="size"):
        library.call("pack", format.id, 0, 1 << 62, format.block << 10, 0, 16, 0)


def test_a_format_without_tiles_is_refused() -> None:
    assert library.native().nk_group_rows(NO_FORMAT) == 0
    assert library.native().nk_packed_bytes(NO_FORMAT, 16, 32) == 0
    with pytest.raises(ValueError, match="format"):
        library.call("pack", NO_FORMAT, 0, 16, 32, 0, 16, 0)
    with pytest.raises(ValueError, match="format"):
        library.call("rows_of", ctypes.byref(NativeWeight(0, NO_FORMAT, 1, 32)), 0, 0, 0)
