"""Page pool: references, budget, reuse of memory, and what the rounding of each type costs."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from engine.messages import CacheType
from engine.state.pages import OutOfPages, PagePool, bytes_for, storage_dtype
from engine.state.sequence import Sequence
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, LayerShape
from kernels.states.quantized_kv import QuantizedKV, hadamard
from kv_writing import write
from poisoned_pool import PoisonedPool, poisoned

K = 3  # key/value heads
TYPES = list(CacheType)
LAYOUT = KVLayout([LayerShape(1, 16), LayerShape(1, 32, 512)], torch.float16)


def test_used_bytes_are_those_of_pages_with_references() -> None:
    pool, (one, other) = PagePool(LAYOUT), LAYOUT.page_bytes
    assert one != other
    first, second = pool.take(0), pool.take(1)
    assert (first.group, second.group) == (0, 1)
    assert pool.used_bytes == one + other
    assert first.data.nbytes == one
    pool.retain(first)
    pool.release(first)
    assert pool.used_bytes == one + other
    pool.release(first)
    assert pool.used_bytes == other
    pool.release(second)
    assert pool.used_bytes == 0
    assert pool.allocated_bytes == one + other
    assert pool.used_pages == 0


def test_a_freed_page_is_used_again_before_memory_is_allocated() -> None:
    sizes: list[int] = []

    def memory(size: int) -> Tensor:
        sizes.append(size)
        return poisoned(size)

    pool = PagePool(LAYOUT, memory)
    page = pool.take(0)
    address = page.data.data_ptr()
    pool.release(page)
    assert pool.take(0).data.data_ptr() == address
    pool.take(1)
    pool.take(0)
    assert sizes == [LAYOUT.page_bytes[group] for group in (0, 1, 0)]


def test_a_page_that_its_taker_fills_is_not_zeroed_first() -> None:
    """Zeroing is a quarter of the time in which a saved session is read."""
    pool = PagePool(LAYOUT, poisoned)
    page = pool.take(0)
    assert not page.data.any()
    page.data.fill_(7)
    pool.release(page)
    again = pool.take_undefined(0)
    assert bool((again.data == 7).all())
    assert pool.used_bytes == LAYOUT.page_bytes[0]
    pool.release(again)
    assert not pool.take(0).data.any()


def test_spare_pages_of_another_group_are_freed_before_memory_exceeds_the_budget() -> None:
    one, other = LAYOUT.page_bytes
    pool = PagePool(LAYOUT, budget_bytes=6 * max(one, other))
    for group, size in enumerate((one, other)):
        pages = [pool.take(group) for _ in range(pool.budget_bytes // size)]
        assert pool.allocated_bytes <= pool.budget_bytes
        for page in pages:
            pool.release(page)
    assert pool.allocated_bytes > pool.budget_bytes - other, "spare pages within it stay"


def test_trimming_returns_spare_memory_only() -> None:
    pool = PagePool(LAYOUT)
    kept, spare = pool.take(0), pool.take(0)
    kept.data.fill_(7)
    pool.release(spare)
    pool.trim()
    assert pool.allocated_bytes == pool.used_bytes == LAYOUT.page_bytes[0]
    assert bool((kept.data == 7).all())


def test_the_budget_limits_used_bytes() -> None:
    size = LAYOUT.page_bytes[0]
    pool = PagePool(LAYOUT, budget_bytes=2 * size)
    pages = [pool.take(0), pool.take(0)]
    assert not pool.has_room(1)
    with pytest.raises(OutOfPages):
        pool.take(0)
    with pytest.raises(OutOfPages):
        pool.copy(pages[0])
    assert pool.used_bytes == 2 * size
    pool.release(pages[0])
    assert pool.has_room(size)
    pool.take(0)


def test_a_failed_allocation_changes_nothing() -> None:
    def memory(size: int) -> Tensor:
        raise MemoryError(size)

    pool = PagePool(LAYOUT, memory)
    with pytest.raises(MemoryError):
        pool.take(1)
    assert pool.used_bytes == pool.allocated_bytes == 0


def test_a_copy_has_the_contents_and_one_reference() -> None:
    pool = PoisonedPool(LAYOUT)
    page = pool.retain(pool.take(1))
    page.data.copy_(torch.arange(page.data.numel()) % 251)
    copy = pool.copy(page)
    assert torch.equal(copy.data, page.data)
    assert copy.data.data_ptr() != page.data.data_ptr()
    assert (copy.group, copy.references, page.references) == (1, 1, 2)


def test_use_after_free_and_double_free_are_refused() -> None:
    pool = PagePool(LAYOUT)
    page = pool.take(0)
    pool.release(page)
    with pytest.raises(AssertionError, match="freed twice"):
        pool.release(page)
    with pytest.raises(AssertionError, match="after it was freed"):
        pool.retain(page)
    assert pool.used_bytes == 0


def test_references_are_counted_across_threads() -> None:
    pool, failed = PagePool(LAYOUT), list[BaseException]()
    shared = pool.take(0)

    def work() -> None:
        try:
            for _ in range(500):
                page = pool.take(1)
                pool.retain(shared)
                pool.release(page)
                pool.release(shared)
        except BaseException as error:  # noqa: BLE001  the test reports it
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert shared.references == 1
    assert pool.used_bytes == LAYOUT.page_bytes[0]
    assert pool.allocated_bytes <= LAYOUT.page_bytes[0] + 4 * LAYOUT.page_bytes[1]


@pytest.mark.parametrize("tokens", [1, 255, 256, 257, 1_000, 100_000])
def test_bytes_for_a_text_are_what_a_sequence_takes_at_most(tokens: int) -> None:
    wide, windowed = LAYOUT.page_bytes
    pages = -(-tokens // PAGE_TOKENS)
    assert bytes_for(LAYOUT, tokens) == pages * wide + min(pages, 4) * windowed
    pool, sequence, most = PagePool(LAYOUT), None, 0
    sequence = Sequence(pool, min(tokens, 3_000))
    while len(sequence) < sequence.context:
        count = min(PAGE_TOKENS, sequence.context - len(sequence))
        sequence.reserve(count)
        most = max(most, pool.used_bytes)
        sequence.commit([0] * count)
    assert most <= bytes_for(LAYOUT, sequence.context)


# --- what is stored -----------------------------------------------------------------------------


def rows(tokens: int, width: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    return torch.randn(tokens, K, width, generator=torch.Generator().manual_seed(seed)) * spread


def written(type: CacheType, keys: Tensor, values: Tensor) -> list[Tensor]:
    """Write rows to a new sequence; returns the values attention reads."""
    layout = KVLayout([LayerShape(K, keys.shape[2])], storage_dtype(type))
    sequence = Sequence(PoisonedPool(layout), len(keys))
    read = write(layout, sequence, 0, keys, values)
    return [rows.dense() if isinstance(rows, QuantizedKV) else rows for rows in read]


@pytest.mark.parametrize("width", [1, 16, 31, 32, 33, 64, 80, 128])
@pytest.mark.parametrize("type", TYPES)
def test_read_values_are_within_the_rounding_error_of_the_type(type: CacheType, width: int) -> None:
    keys, values = rows(300, width, 1), rows(300, width, 2, spread=30)
    for read, wanted in zip(written(type, keys, values), (keys, values), strict=True):
        assert read.shape == wanted.shape
        found = read.float()
        if type is CacheType.Q8_0:  # quantized after the Hadamard rotation
            found, wanted = hadamard(found), hadamard(wanted)
        step = {CacheType.F32: 0.0, CacheType.F16: 2**-11, CacheType.Q8_0: 0.502 / 127}[type]
        blocks = torch.nn.functional.pad(wanted, (0, -width % 32)).unflatten(-1, (-1, 32))
        reach = blocks.abs().amax(-1, keepdim=True).expand_as(blocks).flatten(-2)[..., :width]
        bound = wanted.abs() if type is CacheType.F16 else reach
        # The f16 scale is itself rounded, by up to 2^-11.
        most = bound * (step * (1 + 2**-10)) + (1e-4 if type is CacheType.Q8_0 else 1e-7)
        assert ((found - wanted).abs() <= most).all()


def test_an_outlier_channel_barely_affects_the_other_channels() -> None:
    """One key channel is often 50 times the others, which a shared scale would round to 0."""
    keys = rows(40, 64)
    keys[..., 5] = 60.0
    read = written(CacheType.Q8_0, keys, keys)[0]
    assert (read - keys)[..., :5].square().mean() <= 0.03**2  # 0.14 without rotation


def test_f32_is_exact() -> None:
    keys = rows(10, 24)
    assert torch.equal(written(CacheType.F32, keys, keys)[0], keys)


@pytest.mark.parametrize("type", TYPES)
def test_values_beyond_the_float16_range_stay_finite(type: CacheType) -> None:
    keys = rows(4, 32, spread=1e9)
    read = written(type, keys, keys)[0]
    assert torch.isfinite(read.float()).all()
    assert torch.equal(read.float().sign(), keys.sign())


@pytest.mark.parametrize("type", TYPES)
def test_zeros_and_denormals_stay_finite(type: CacheType) -> None:
    zeros, tiny = torch.zeros(3, K, 32), torch.full((3, K, 32), 1e-30)
    assert written(type, zeros, tiny)[0].abs().max() == 0
    read = written(type, rows(3, 32) * 1e-6, rows(3, 32) * 1e-44)
    assert torch.isfinite(read[1].float()).all()


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("width", [16, 40, 64])
def test_bytes_per_position_are_those_of_the_type(type: CacheType, width: int) -> None:
    layout = KVLayout([LayerShape(K, width)] * 3, storage_dtype(type))
    padded = -(-width // 32) * 32
    each = {
        CacheType.F32: 4 * (width + -(-width // 16) * 16),
        CacheType.F16: 2 * (width + -(-width // 16) * 16),
        CacheType.Q8_0: 2 * (padded + padded // 16),  # codes and f16 scales
    }[type]
    assert layout.bytes_per_page == 3 * K * PAGE_TOKENS * each


def test_lent_pages_are_beside_the_budget_until_they_are_written() -> None:
    pool, (one, other) = PagePool(LAYOUT), LAYOUT.page_bytes
    pages = [pool.take(0), pool.take(1)]
    pool.budget_bytes = one + other
    assert not pool.lend(pages), "nothing may be lent"
    assert (pool.used_bytes, pool.lent_bytes) == (one + other, 0)
    pool.most_lent_bytes = one + other
    assert pool.lend(pages)
    for page in pages:
        pool.release(page)  # by the one who evicts it
    assert (pool.used_bytes, pool.lent_bytes) == (0, one + other)
    assert pool.allocated_bytes == one + other
    more = [pool.take(0), pool.take(1)]
    assert not pool.lend(more[:1])
    pool.release(pages[0])
    assert pool.lent_bytes == other
    assert pool.lend(more[:1])
    for page in (more[0], more[0], more[1], pages[1]):
        pool.release(page)
    assert (pool.used_bytes, pool.lent_bytes) == (0, 0)
    assert pool.allocated_bytes == 2 * (one + other)
    page = pool.retain(pool.take(0))
    with pytest.raises(AssertionError, match="others use"):
        pool.lend([page])
