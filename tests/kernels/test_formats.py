"""Formats: sizes, ids and every decoded bit against gguf-py and a second decoder of our own."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch

from kernels.formats import FORMATS, Format

# Bytes at which a block holds float16 numbers; their exponents are kept finite in random blocks.
HALVES = {
    "F16": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "Q1_0": (0,),
}

every_format = pytest.mark.parametrize("format", FORMATS.values(), ids=lambda row: row.name)


def random_blocks(format: Format, count: int) -> tuple[torch.Tensor, int]:
    """Random blocks uint8 [count, size] with finite scales, and the seed that made them."""
    seed = int(torch.randint(1 << 31, ()))
    blocks = np.random.default_rng(seed).integers(0, 256, (count, format.size), dtype=np.uint8)
    high = [start + 1 for start in HALVES.get(format.name, ())]
    for byte in high:  # an exponent of all ones is infinite or not a number
        blocks[:, byte] &= np.where((blocks[:, byte] & 0x7C) == 0x7C, 0xBF, 0xFF).astype(np.uint8)
    if format.name in ("F32", "BF16"):
        blocks[:, -1] &= 0xBF
    blocks[0] = 0
    return torch.from_numpy(blocks), seed


def q1_0_by_hand(blocks: np.ndarray) -> np.ndarray:
    """A second decoder of Q1_0, written apart from the first: one weight at a time."""
    out = np.empty((len(blocks), 128), dtype=np.float32)
    for row, block in zip(out, blocks, strict=True):
        scale = np.frombuffer(block[:2].tobytes(), dtype="<f2")[0].astype(np.float32)
        bits = int.from_bytes(block[2:].tobytes(), "little")
        for weight in range(128):
            row[weight] = scale if bits >> weight & 1 else -scale
    return out


def bits_of(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint32)


@every_format
def test_decodes_the_same_bits_as_gguf_py(format: Format) -> None:
    blocks, seed = random_blocks(format, 4096)
    if format.name == "Q1_0":  # gguf-py 0.19 lists it but cannot decode it
        wanted = q1_0_by_hand(blocks.numpy())
    else:
        wanted = gguf.quants.dequantize(blocks.numpy(), gguf.GGMLQuantizationType(format.id))
    got = format.decode(blocks)
    assert got.dtype == torch.float32
    assert got.shape == (4096, format.block)
    assert np.array_equal(bits_of(got.numpy()), bits_of(wanted).reshape(4096, -1)), f"seed {seed}"
