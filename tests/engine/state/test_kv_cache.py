"""KV cache: reads return the stored values, for every cache type, after any append and trim."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine import CacheType
from engine.state.kv_cache import Cache
from kernels.quantized_kv import QuantizedKV, hadamard
from kv_writing import write

TYPES = list(CacheType)
K = 2  # key/value heads


def rows(tokens: int, width: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    return torch.randn(tokens, K, width, generator=torch.Generator().manual_seed(seed)) * spread


def written(cache: Cache, layer: int, keys: Tensor, values: Tensor) -> list[Tensor]:
    """Write one layer; returns the values attention reads from it."""
    read = write(cache, layer, keys, values)
    return [rows.dense() if isinstance(rows, QuantizedKV) else rows for rows in read]


def fill(cache: Cache, keys: Tensor, values: Tensor, layers: int = 2) -> list[Tensor]:
    """Append to every layer; returns the values attention reads from each."""
    read = [each for layer in range(layers) for each in written(cache, layer, keys, values)]
    cache.advance(len(keys))
    return read


@pytest.mark.parametrize("width", [1, 16, 31, 32, 33, 64, 80, 128])
@pytest.mark.parametrize("type", TYPES)
def test_read_values_are_within_the_rounding_error_of_the_type(type: CacheType, width: int) -> None:
    cache = Cache(2, K, width, 64, type)
    keys, values = rows(40, width, 1), rows(40, width, 2, spread=30)
    read_keys, read_values = fill(cache, keys, values)[:2]
    for read, wanted in ((read_keys, keys), (read_values, values)):
        assert read.shape == wanted.shape
        read = read.float()
        if type is CacheType.Q8_0:  # quantized after the Hadamard rotation
            read, wanted = hadamard(read), hadamard(wanted)
        step = {CacheType.F32: 0.0, CacheType.F16: 2**-11, CacheType.Q8_0: 0.502 / 127}[type]
        blocks = torch.nn.functional.pad(wanted, (0, -width % 32)).unflatten(-1, (-1, 32))
        reach = blocks.abs().amax(-1, keepdim=True).expand_as(blocks).flatten(-2)[..., :width]
        bound = wanted.abs() if type is CacheType.F16 else reach
        # The f16 scale is itself rounded, by up to 2^-11.
        most = bound * (step * (1 + 2**-10)) + (1e-4 if type is CacheType.Q8_0 else 1e-7)
        assert ((read - wanted).abs() <= most).all()


def test_an_outlier_channel_barely_affects_the_other_channels() -> None:
    """One key channel is often 50 times the others, which a shared scale would round to 0."""
    cache, keys = Cache(1, K, 64, 64, CacheType.Q8_0), rows(40, 64)
    keys[..., 5] = 60.0
    read = written(cache, 0, keys, keys)[0]
    assert (read - keys)[..., :5].square().mean() <= 0.03**2  # 0.14 without rotation


def test_f32_is_exact() -> None:
    cache, keys = Cache(1, K, 24, 64), rows(10, 24)
    assert torch.equal(written(cache, 0, keys, keys)[0], keys)


@pytest.mark.parametrize("type", TYPES)
def test_values_beyond_the_float16_range_stay_finite(type: CacheType) -> None:
    cache, keys = Cache(1, K, 32, 64, type), rows(4, 32, spread=1e9)
    read = written(cache, 0, keys, keys)[0]
    assert torch.isfinite(read.float()).all()
    assert torch.equal(read.float().sign(), keys.sign())


@pytest.mark.parametrize("type", TYPES)
def test_zeros_and_denormals_stay_finite(type: CacheType) -> None:
    cache = Cache(1, K, 32, 64, type)
    assert (
        written(cache, 0, torch.zeros(3, K, 32), torch.full((3, K, 32), 1e-30))[0].abs().max() == 0
    )
    assert torch.isfinite(
        written(cache, 0, rows(3, 32) * 1e-6, rows(3, 32) * 1e-44)[1].float()
    ).all()


@pytest.mark.parametrize("type", TYPES)
@given(steps=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 70)), min_size=1, max_size=8))
def test_trim_then_append_equals_fresh(type: CacheType, steps: list[tuple[int, int]]) -> None:
    cache, kept = Cache(2, K, 40, 600, type), torch.empty(0, K, 40)
    for seed, (back, tokens) in enumerate(steps):
        length = max(cache.length - back, 0)
        cache.trim(length)
        new = rows(tokens, 40, seed)
        kept = torch.cat([kept[:length], new])
        read = fill(cache, new, -new)
    fresh = Cache(2, K, 40, 600, type)
    for one, other in zip(read, fill(fresh, kept, -kept), strict=True):
        assert torch.equal(one, other)
    stored, expected = cache.tensors(cache.length), fresh.tensors(fresh.length)
    for one, other in zip(stored, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("type", TYPES)
def test_an_uncommitted_write_changes_nothing(type: CacheType) -> None:
    cache, keys = Cache(2, K, 32, 64, type), rows(5, 32)
    fill(cache, keys, keys)
    written(cache, 0, rows(9, 32, 7), rows(9, 32, 8))
    assert cache.length == 5
    new = rows(2, 32, 9)
    read = fill(cache, new, new)[0]
    fresh = Cache(2, K, 32, 64, type)
    assert torch.equal(read, fill(fresh, torch.cat([keys, new]), torch.cat([keys, new]))[0])


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("width", [16, 40, 64])
def test_bytes_per_token_equals_the_allocated_bytes(type: CacheType, width: int) -> None:
    cache = Cache(3, K, width, 512, type)
    fill(cache, rows(512, width), rows(512, width), layers=3)
    assert cache.size_bytes == 512 * Cache.bytes_per_token(3, K, width, type)
    stored = sum(tensor.nbytes for tensor in cache.tensors(512))
    assert stored == cache.size_bytes
    assert Cache.bytes_per_token(1, 1, 64, CacheType.F32) == 512
    assert Cache.bytes_per_token(1, 1, 64, CacheType.F16) == 256
    assert Cache.bytes_per_token(1, 1, 64, CacheType.Q8_0) == 2 * (64 + 4)


@pytest.mark.parametrize("type", TYPES)
def test_memory_is_allocated_as_the_cache_fills(type: CacheType) -> None:
    cache = Cache(1, K, 32, 100_000, type)
    assert cache.size_bytes == 0
    fill(cache, rows(1, 32), rows(1, 32), layers=1)
    assert cache.size_bytes <= 256 * Cache.bytes_per_token(1, K, 32, type)
    fill(cache, rows(256, 32), rows(256, 32), layers=1)
    assert cache.size_bytes <= 512 * Cache.bytes_per_token(1, K, 32, type)


@pytest.mark.parametrize("type", TYPES)
def test_a_cache_restored_from_tensors_reads_the_same_bits(type: CacheType) -> None:
    cache, keys, values = Cache(2, K, 48, 300, type), rows(70, 48, 1), rows(70, 48, 2)
    fill(cache, keys, values)
    copy = Cache(2, K, 48, 300, type)
    layout = cache.layout(70)
    names = list(zip(layout.items(), cache.tensors(70), copy.tensors(70), strict=True))
    for (_, (dtype, shape)), stored, empty in names:
        assert (stored.dtype, tuple(stored.shape)) == (dtype, shape)
        empty.copy_(stored)
    copy.advance(70)
    new = rows(3, 48, 3)
    for one, other in zip(fill(cache, new, new), fill(copy, new, new), strict=True):
        assert torch.equal(one, other)
