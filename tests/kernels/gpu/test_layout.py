"""Re-laid weights: the decoder's values, bit for bit, from the arrays that kernels read."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_products import MakeRows
from kernels.cuda import weights
from kernels.gpu.layout import LANES, LAYOUTS, UNIT, Codes, Scales, arrays, stored_bytes, units
from kernels.gpu.weights import held_bytes
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

every_layout = pytest.mark.parametrize("name", LAYOUTS)


def numbers(weight: Weight) -> Tensor:
    """The values of a stored weight [rows, columns], read as the layout's text says."""
    name, (rows, columns) = weight.format.name, weight.shape
    layout = LAYOUTS[name]
    found = arrays(layout, weight.data, rows, columns)
    width = units(columns)

    def plane(words: Tensor, bits: int) -> Tensor:
        mask = (1 << bits) - 1
        codes = torch.empty(rows, width, LANES, 4, dtype=torch.int64)
        for lane in range(LANES):
            word, shift = divmod(lane, LANES // bits)
            for byte in range(4):
                value = words[:, word].to(torch.int64) >> (bits * shift + 8 * byte)
                codes[:, :, lane, byte] = value & mask
        return codes.view(rows, width * UNIT)

    codes = plane(found.codes, layout.bits)
    if layout.high_bits:
        codes |= plane(found.high, layout.high_bits) << layout.bits
    if layout.read_as is Codes.SIGNED:
        codes = (codes ^ 128) - 128
    if layout.read_as is Codes.E4M3:
        values = codes.to(torch.uint8).view(torch.float8_e4m3fn).float()
    elif layout.read_as is Codes.E5M2:
        values = codes.to(torch.uint8).view(torch.float8_e5m2).float()
    else:
        values = codes.float() * layout.multiplier - layout.offset
    group = layout.group
    d, m = found.d.float(), found.m.float()
    scales = found.scales
    if group == UNIT // 2:
        scales = scales.view(rows, 2, width).transpose(1, 2).reshape(rows, -1)
    match layout.scales:
        case Scales.SIGNED:
            d = scales.float() * d.repeat_interleave(256 // group, 1)[:, : width * UNIT // group]
        case Scales.PAIR:
            d = scales.float() * d.repeat_interleave(256 // group, 1)
            m = found.minimums.float() * m.repeat_interleave(256 // group, 1)
        case Scales.NIBBLES:
            d = (scales & 15).float() * d.repeat_interleave(256 // group, 1)
            m = (scales >> 4).float() * m.repeat_interleave(256 // group, 1)
        case _:
            pass
    values = values * d.repeat_interleave(group, 1)
    if m.numel():
        values = values - m.repeat_interleave(group, 1)
    return values[:, :columns]


@every_layout
def test_a_stored_weight_has_the_bits_of_its_decoder(name: str, random_rows: MakeRows) -> None:
    format = by_name(name)
    for blocks in (1, 3):
        rows, columns = 5, blocks * max(format.block, 32)
        data = random_rows(format, rows, columns)
        weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (rows, columns))
        stored = weights.STORE.prepare(weight)
        assert stored.size_bytes == held_bytes(format, (rows, columns))
        assert torch.equal(numbers(stored), weight.dense())


@every_layout
def test_rows_are_written_in_pieces(name: str, random_rows: MakeRows) -> None:
    format = by_name(name)
    rows, columns = 7, 2 * max(format.block, 32)
    data = random_rows(format, rows, columns)
    weight = Weight.from_bytes(data.numpy().data.cast("B"), format, (rows, columns))
    memory = torch.full((held_bytes(format, (rows, columns)) + 64,), 0xA5, dtype=torch.uint8)
    made = weights.STORE.empty(format, (rows, columns), memory)
    for first, end in ((3, 7), (0, 1), (1, 3)):
        weights.fill(made, first, end, data[first:end])
    assert torch.equal(numbers(made), weight.dense())
    assert bool((memory[made.size_bytes :] == 0xA5).all())


def test_a_stored_weight_takes_little_more_than_the_file() -> None:
    """Its sizes per weight, in bits, at the width of an 8B model."""
    bits = {
        name: 8 * stored_bytes(layout, 64, 4096) / (64 * 4096) for name, layout in LAYOUTS.items()
    }
    for name, found in bits.items():
        format = by_name(name)
        most = {"IQ4_NL": 8.5, "IQ4_XS": 8.32, "MXFP4": 9.0}  # their codes are looked up at load
        most |= {"TQ1_0": 2.07, "PTQ1_0": 2.13}  # two bits a weight, not five to a byte
        assert found <= most.get(name, 1.05 * format.bits_per_weight), (name, found)
