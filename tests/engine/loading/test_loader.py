"""Model loader: options, refusal before memory is allocated, cancellation, freed memory."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import tiny
from answers import Request
from engine.errors import Cancelled, OutOfMemory, RequestError
from engine.gguf.reader import GGUFFile
from engine.loading.loader import load
from engine.machine.device import resident_memory, trim_heap
from engine.messages import CacheType, Sampling

MB = 1_000_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "tiny.gguf", format="Q8_0")


@pytest.mark.parametrize("cache", CacheType)
def test_the_cache_type_is_used_and_planned_for(path: Path, cache: CacheType) -> None:
    loaded = load(path, context=64, cache=cache)
    assert loaded.cache is cache
    session = loaded.new_session()
    for _ in session.prefill(range(3, 60)):
        pass
    page = session.pool.layout.bytes_per_page
    assert session.pool.allocated_bytes == page  # the last page of a context is rounded up
    assert loaded.plan.cache_bytes == 64 * page // 256
    assert loaded.plan.scratch_bytes > page


def test_a_smaller_cache_type_reduces_the_planned_memory(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "wide.gguf", head_dim=64)  # codes are in blocks of 32 channels
    sizes = [load(path, cache=cache).plan.cache_bytes for cache in CacheType]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_a_context_beyond_the_training_context_can_be_requested(path: Path) -> None:
    loaded = load(path, context=1_000)
    assert (loaded.config.context, loaded.plan.context) == (256, 1_000)
    session = loaded.new_session()
    for _ in session.prefill([5] * 1_000):
        pass
    assert len(session.tokens) == session.context == 1_000


def test_a_negative_context_is_refused(path: Path) -> None:
    with pytest.raises(RequestError, match="-1 tokens"):
        load(path, context=-1)


def test_a_model_that_does_not_fit_is_refused_before_the_old_one_is_unloaded(path: Path) -> None:
    dropped: list[str] = []
    with pytest.raises(OutOfMemory, match="tokens needs"):
        load(path, context=1 << 34, before_weights=lambda: dropped.append("the old model"))
    assert dropped == []


def test_a_misshapen_tensor_is_refused_before_the_old_model_is_unloaded(tmp_path: Path) -> None:
    faulty = tiny.write(tmp_path / "m.gguf", metadata={"llama.feed_forward_length": 77})
    dropped: list[str] = []
    with pytest.raises(Exception, match="ffn_gate"):
        load(faulty, before_weights=lambda: dropped.append("the old model"))
    assert dropped == []


def test_progress_counts_every_byte_of_the_tensors(path: Path) -> None:
    seen: list[tuple[int, int]] = []
    load(path, progress=lambda done, total: seen.append((done, total)))
    with GGUFFile.open(path) as file:
        total = sum(info.size_bytes for info in file.tensors.values())
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)
    assert len(seen) == 21


def test_a_load_can_be_cancelled_between_tensors(path: Path) -> None:
    seen: list[int] = []

    def checkpoint() -> None:
        if len(seen) == 4:
            raise Cancelled

    with pytest.raises(Cancelled):
        load(path, progress=lambda done, total: seen.append(done), checkpoint=checkpoint)
    assert len(seen) == 4


def test_dropped_pages_can_be_read_again(path: Path) -> None:
    with GGUFFile.open(path) as file:
        for name in file.tensors:
            before = bytes(file.data(name))
            file.drop_pages(name)
            assert bytes(file.data(name)) == before


@pytest.mark.sweep
@pytest.mark.real
@pytest.mark.parametrize("model", ["starter_model", "gemma_model"])
def test_unloading_a_model_frees_its_memory(model: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(model)
    gc.collect()  # models of earlier tests, which would be freed during the load
    trim_heap()
    before = resident_memory()
    after_load = _memory_after_an_answer(path)
    trim_heap()
    assert after_load - before > 0.9 * path.stat().st_size
    assert resident_memory() - before < 60 * MB


def _memory_after_an_answer(path: Path) -> int:
    loaded = load(path, context=512)
    prompt = loaded.tokenizer.encode("Tell me of the sea.")
    answer = loaded.new_scheduler().run(Request(prompt, Sampling(seed=1), max_tokens=8))
    assert len(answer.request.events) > 1
    return resident_memory()
