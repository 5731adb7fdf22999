"""KV pages: layout, exact round trips of rows, groups by window, page tables."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import Tensor

from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, LayerShape, PagedKV, PageTable, encoded
from kernels.states.quantized_kv import QuantizedKV

DTYPES = (torch.float32, torch.float16, torch.int8)
SHAPES = (
    LayerShape(1, 64),
    LayerShape(3, 80),
    LayerShape(2, 7),
    LayerShape(2, 256),
    LayerShape(1, 72, values_are_keys=True),
    LayerShape(2, 40, values_are_keys=True),
)


def paged(layout: KVLayout, layer: int, pages: int, fill: int = 0xFF) -> PagedKV:
    """Pages filled with a byte; 0xFF gives NaN in every float type."""
    table = PageTable()
    place = layout.layers[layer]
    for _ in range(pages):
        size = layout.page_bytes[place.group]
        table.append(torch.full((size,), fill, dtype=torch.uint8))
    return PagedKV(place, table)


def dense(rows: Tensor | QuantizedKV) -> Tensor:
    return rows.dense() if isinstance(rows, QuantizedKV) else rows.float()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_rows_come_back_as_stored(
    shape: LayerShape, dtype: torch.dtype, random: torch.Generator
) -> None:
    layout = KVLayout([shape, shape], dtype)
    keys, values = (
        torch.randn(600, shape.kv_heads, shape.head_width, generator=random) for _ in range(2)
    )
    layers = [paged(layout, layer, 3) for layer in range(2)]
    table = layers[0].table
    layers[1] = PagedKV(layers[1].layer, table)
    for start, end in ((0, 1), (1, 255), (255, 258), (258, 600)):
        layers[0].append(keys[start:end], values[start:end], start)
        layers[1].append(values[start:end], keys[start:end], start)
    stored = [(keys, values), (values, keys)]
    if shape.values_are_keys:
        stored = [(keys, keys), (values, values)]
    for layer, wanted in zip(layers, stored, strict=True):
        for found, rows in zip(layer.rows(3, 599), wanted, strict=True):
            codes, *scales = (
                part.transpose(0, 1)[3:599] for part in encoded(rows.transpose(0, 1), dtype)
            )
            if isinstance(found, QuantizedKV):
                assert torch.equal(found.codes, codes.to(torch.int8))
                assert torch.equal(found.scales, scales[0])
            else:
                assert torch.equal(found, codes.to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_a_page_do_not_overlap(dtype: torch.dtype) -> None:
    once = LayerShape(1, 72, values_are_keys=True)
    shapes = [LayerShape(3, 80), once, LayerShape(1, 64, 512), once, LayerShape(2, 40)]
    layout = KVLayout(shapes, dtype)
    for group, size in enumerate(layout.page_bytes):
        owner = torch.full((size,), -1)
        for number, layer in enumerate(layout.layers):
            if layer.group != group:
                continue
            page = paged(layout, number, 1, fill=0)
            page.append(*(torch.full((PAGE_TOKENS, *_row(layer.shape)), 0.5) for _ in range(2)), 0)
            written = page.table.pages[0]
            assert written is not None
            assert bool((owner[written != 0] == -1).all())
            owner[written != 0] = number


def _row(shape: LayerShape) -> tuple[int, int]:
    return shape.kv_heads, shape.head_width


def test_layers_of_one_window_share_a_group() -> None:
    shapes = [LayerShape(2, 64, window) for window in (512, 0, 512, 0, 1024)]
    layout = KVLayout(shapes, torch.float16)
    assert [layer.group for layer in layout.layers] == [0, 1, 0, 1, 2]
    assert layout.windows == (512, 0, 1024)
    one = 2 * 2 * 64 * PAGE_TOKENS * 2
    assert layout.page_bytes == (2 * one, 2 * one, one)
    assert layout.bytes_per_page == 5 * one


def test_layers_of_one_group_have_one_place() -> None:
    shapes = [
        LayerShape(2, 64, window, place)
        for window, place in ((0, "a"), (0, "b"), (9, "a"), (0, "a"), (9, "b"))
    ]
    layout = KVLayout(shapes, torch.float16)
    assert [layer.group for layer in layout.layers] == [0, 1, 2, 0, 3]
    assert layout.windows == (0, 0, 9, 9)
    assert layout.places == ("a", "b", "a", "b")


def test_the_name_of_a_layout_tells_groups_apart() -> None:
    """Sizes alone do not: these layers are of one shape."""

    def name(places: str) -> str:
        return KVLayout([LayerShape(2, 64, 0, place) for place in places], torch.float32).name

    assert name("aabb") == name("bbaa") == name("ccdd")
    assert len({name("aabb"), name("abab"), name("aaaa")}) == 3
    assert name("aaaa") == name("b")  # as before layers had a place


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_that_are_keys_are_stored_once(dtype: torch.dtype) -> None:
    pairs, once = (
        KVLayout([LayerShape(1, 576, values_are_keys=once)], dtype) for once in (False, True)
    )
    assert 2 * once.bytes_per_page == pairs.bytes_per_page
    assert once.name != pairs.name


def test_missing_values_are_refused() -> None:
    page = paged(KVLayout([LayerShape(1, 16)], torch.float32), 0, 1)
    with pytest.raises(AssertionError, match="values are missing"):
        page.append(torch.zeros(1, 1, 16), None, 0)


def test_a_table_has_no_address_of_a_page_elsewhere() -> None:
    table = PageTable()
    table.append(torch.empty(8, dtype=torch.uint8, device="meta"))
    table.append(page := torch.zeros(8, dtype=torch.uint8))
    found = (ctypes.c_int64 * 2).from_address(table.address)
    assert list(found) == [0, page.data_ptr()]


def test_dropped_and_truncated_pages() -> None:
    table = PageTable()
    pages = [torch.zeros(8, dtype=torch.uint8) for _ in range(40)]
    for page in pages:
        table.append(page)
    table.set(3, None)
    table.truncate(20)
    assert len(table) == 20
    assert table.pages[3] is None
    assert table.pages[19] is pages[19]


def test_rows_of_a_dropped_page_are_refused() -> None:
    page = paged(KVLayout([LayerShape(1, 16)], torch.float32), 0, 2)
    page.table.set(0, None)
    with pytest.raises(AssertionError):
        page.rows(0, 300)
