"""Packed weights: made on all threads, read by their own backend only, and given back."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernels.backends import BACKENDS
from kernels.cpu import library, weights
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

pytestmark = pytest.mark.skipif(not library.available(), reason=library.reason())

MIB = 1 << 20


def resident_bytes() -> int:
    """Memory this process holds now that is no file's."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    pytest.skip("this system does not tell kinds of memory apart")


def matrix(rows: int, columns: int = 1024, name: str = "Q8_0") -> Weight:
    format = by_name(name)
    return Weight.from_bytes(bytes(rows * format.row_bytes(columns)), format, (rows, columns))


@pytest.mark.parametrize(
    "misread",
    [
        lambda weight: weight.dense(),
        lambda weight: weight.rows(torch.tensor([0])),
        lambda weight: weight.decode(0, 1, torch.empty(1, 1024)),
    ],
    ids=["dense", "rows", "decode"],
)
def test_no_other_backend_misreads_a_packed_weight(misread: Callable[[Weight], object]) -> None:
    packed = weights.prepare(matrix(5))
    with pytest.raises(ValueError, match=r"Q8_0 \[5, 1024\] is packed for the backend 'cpu'"):
        misread(packed)


def test_a_model_that_was_loaded_for_the_kernels_is_refused_by_the_reference() -> None:
    packed = weights.prepare(matrix(5))
    with pytest.raises(ValueError, match="load the model again"):
        BACKENDS["reference"].ops.linear(torch.ones(1, 1024), packed)


def test_what_is_packed_is_not_packed_again() -> None:
    packed = weights.prepare(matrix(5))
    assert weights.prepare(packed) is packed


def test_a_vector_stays_as_it_is_and_unprepared_weights_run_on_the_reference() -> None:
    vector = weights.prepare(Weight(torch.arange(8.0)[None], by_name("F32"), (8,)))
    assert torch.equal(vector.dense().view(8), torch.arange(8.0))
    half = Weight(torch.ones(3, 8), by_name("F32"), (3, 8))
    ops = BACKENDS["cpu"].ops
    assert torch.equal(ops.linear(torch.ones(2, 8), half), torch.full((2, 3), 8.0))
    assert torch.equal(ops.embed(torch.tensor([2]), half), torch.ones(1, 8))


def test_an_id_outside_the_table_is_refused() -> None:
    packed = weights.prepare(matrix(5))
    for id in (-1, 5):
        with pytest.raises(IndexError):
            BACKENDS["cpu"].ops.embed(torch.tensor([0, id]), packed)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells kinds of memory apart")
def test_memory_is_given_back_when_the_last_weight_in_it_is_dropped() -> None:
    """In a process of its own: what other tests have dropped would be counted too."""
    root = str(Path(__file__).parents[3])
    process = subprocess.run(
        [sys.executable, __file__],
        env=os.environ | {"PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr


def drop_weights_one_after_the_other() -> None:
    source = matrix(100_000, name="Q4_0")
    weights.prepare(matrix(5))  # threads and allocator are warm
    gc.collect()
    before = resident_bytes()
    large = weights.prepare(source)
    small = [weights.prepare(matrix(500)) for _ in range(40)]
    held = large.size_bytes + sum(weight.size_bytes for weight in small)
    assert resident_bytes() - before > held - 4 * MIB
    kept = small.pop().data  # keeps what it shares, and nothing else
    del large, small
    gc.collect()
    assert resident_bytes() - before < 36 * MIB
    assert int(kept.to(torch.int64).sum()) > 0
    del kept
    gc.collect()
    assert resident_bytes() - before < 4 * MIB


def test_small_weights_share_a_page_and_begin_at_lines_of_the_cache() -> None:
    small = [weights.prepare(matrix(1, 32)) for _ in range(20)]
    places = [weight.data.data_ptr() for weight in small]
    assert max(places) - min(places) < MIB
    assert all(place % 64 == 0 for place in places)
    assert sum(weight.size_bytes for weight in small) < MIB


@pytest.mark.parametrize("threads", [1, 3])
def test_packing_looks_at_the_checkpoint_on_the_callers_thread(threads: int) -> None:
    seen: set[str] = set()
    looks = 0

    def checkpoint() -> None:
        nonlocal looks
        looks += 1
        seen.add(threading.current_thread().name)

    before = library.threads()
    library.set_threads(threads)
    try:
        source = matrix(20_000)
        packed = weights.prepare(source, checkpoint)
    finally:
        library.set_threads(before)
    assert seen == {threading.current_thread().name}
    pieces = source.size_bytes / (4 * MIB)
    assert looks >= (
        pieces if threads == 1 else 1
    )  # other threads may be done before it looks again
    assert packed.size_bytes == weights.held_bytes(source.format, source.shape)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_packed_row_is_reported_once(threads: int) -> None:
    ranges: list[tuple[int, int]] = []
    before = library.threads()
    library.set_threads(threads)
    try:
        weights.prepare(matrix(20_000), done=lambda first, end: ranges.append((first, end)))
    finally:
        library.set_threads(before)
    ranges.sort()
    assert len(ranges) > 1
    assert [first for first, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == 20_000


def test_a_checkpoint_that_raises_ends_all_threads() -> None:
    class StopError(Exception):
        pass

    def checkpoint() -> None:
        raise StopError

    before = library.threads()
    library.set_threads(3)
    try:
        with pytest.raises(StopError):
            weights.prepare(matrix(50_000), checkpoint)
    finally:
        library.set_threads(before)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("packing")]


if __name__ == "__main__":
    drop_weights_one_after_the_other()
