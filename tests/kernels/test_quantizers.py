"""Quantizers: what they write is read back within the errors ggml asks of its own."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.weights.formats import FORMATS, by_name

# Root of the squared error over the number of values, of a cosine, as ggml's own test measures it.
LIMITS = {
    **dict.fromkeys(("F32", "F16", "BF16"), 1e-4),
    **dict.fromkeys(("TQ1_0", "TQ2_0", "Q2_0", "PQ2_0", "PTQ1_0", "TQ2_0_G128"), 0.01),
    "Q1_0": 0.025,
    "MXFP4": 0.003,
    "NVFP4": 0.003,
    "Q2_K": 0.0075,
    "Q3_K": 0.004,
}
# Those whose reference is a formula that gguf-py has too.
SAME = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "BF16")

QUANTIZED = [row.name for row in FORMATS.values() if row.quantize]

every_quantizer = pytest.mark.parametrize("name", QUANTIZED)


def quantized(name: str, x: Tensor) -> Tensor:
    """Blocks of x [n, any], flattened into whole blocks."""
    format = by_name(name)
    assert format.quantize
    blocks = format.quantize(x.reshape(-1, format.block))
    assert blocks.dtype == torch.uint8
    assert blocks.shape == (x.numel() // format.block, format.size)
    return blocks


@every_quantizer
def test_what_is_written_is_read_back(name: str) -> None:
    x = 0.1 + 2 * torch.cos(torch.arange(4096, dtype=torch.float32))
    found = by_name(name).decode(quantized(name, x)).flatten()
    error = float((found - x).double().square().sum().sqrt()) / x.numel()
    assert error <= LIMITS.get(name, 0.002)


@every_quantizer
def test_zeros_stay_zero_and_sizes_do_not_matter(name: str, random: torch.Generator) -> None:
    format = by_name(name)
    zeros = format.decode(quantized(name, torch.zeros(3, format.block)))
    assert torch.equal(zeros.abs(), torch.zeros(3, format.block))
    x = torch.randn(20, 256, generator=random)
    relative = [
        float((format.decode(quantized(name, x * size)).view_as(x) / size - x).square().mean())
        # NVFP4's own scales are floats of 8 bits: small weights want a scale of the whole tensor.
        for size in ((1.0, 30.0) if name == "NVFP4" else (1e-2, 1.0, 30.0))
    ]
    assert max(relative) <= 1.3 * min(relative) + 1e-12


@every_quantizer
def test_blocks_do_not_look_at_each_other(name: str, random: torch.Generator) -> None:
    x = torch.randn(4, by_name(name).block, generator=random)
    assert torch.equal(quantized(name, x), torch.cat([quantized(name, row) for row in x]))


@pytest.mark.parametrize("name", SAME)
def test_formulas_are_ggmls(name: str, random: torch.Generator) -> None:
    x = torch.randn(64, 256, generator=random)
    x[5] = 0
    wanted = gguf.quantize(x.numpy(), gguf.GGMLQuantizationType[name]).reshape(-1)
    found = quantized(name, x).numpy().reshape(-1)
    # Rounding at a tie, and fused additions, may differ by one code in a thousand.
    assert np.mean(found != wanted) < 2e-3


@pytest.mark.parametrize("name", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ4_NL"])
def test_searches_beat_plain_rounding(name: str, random: torch.Generator) -> None:
    """As good as the plain format of as many bits, on weights such as models have."""
    x = torch.randn(200, 256, generator=random)
    plain = {"Q2_K": "Q2_0", "Q3_K": "Q2_K", "Q4_K": "Q4_0", "Q5_K": "Q5_0"}.get(name, "Q4_0")

    def error(of: str) -> float:
        return float((by_name(of).decode(quantized(of, x)).view_as(x) - x).square().mean())

    assert error(name) < error(plain)


def test_formats_without_a_quantizer_are_those_that_need_data() -> None:
    missing = {row.name for row in FORMATS.values()} - set(QUANTIZED)
    assert missing == {
        *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"),
        *("Q8_1", "Q8_K"),  # activations', not weights'
    }
