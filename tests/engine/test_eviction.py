"""Eviction to disk by a running engine: a conversation that memory has no room for is not lost."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tiny
import tiny_lora
from engine import (
    CacheType,
    Finished,
    Save,
    SnapshotSaved,
    delete_snapshots,
    snapshots_folder,
    snapshots_size,
)
from engine.model_session import ModelSession
from engine.state.disk import page_file
from engine.state.disk.sequence_file import conversation_prefix
from engine.state.pages import bytes_for
from engine_bench import (
    AMPLE_BYTES,
    TIMEOUT_SECONDS,
    Bench,
    answer_text,
    computed_prompt_tokens,
    finished,
    with_printable_output,
)

CONTEXT = 1024
ONE, OTHER = "tell me of the quick brown fox " * 42, "how are you under the old tree today " * 42


@pytest.fixture(params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    keys = {"gemma3.attention.sliding_window": 200} if request.param == "gemma3" else None
    path = tmp_path / "tiny.gguf"
    tiny.write(path, architecture=request.param, layers=6, context=CONTEXT, metadata=keys)
    return with_printable_output(path)


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return with_printable_output(tiny.write(tmp_path / "tiny.gguf", context=CONTEXT))


def host_of(bench: Bench) -> ModelSession:
    host = bench.engine._loop._residents.main.session
    assert host is not None
    return host


def load_small(bench: Bench, path: Path, cache: CacheType = CacheType.F16) -> None:
    """Load a model whose pages hold one conversation only."""
    bench.load(path, cache=cache)
    pool = host_of(bench)._scheduler.pool
    pool.budget_bytes = bytes_for(pool.layout, CONTEXT) + 2 * pool.layout.bytes_per_page
    pool.most_lent_bytes = 8 * pool.layout.bytes_per_page


def bench_of(bench: Bench, path: Path) -> Bench:
    load_small(bench, path)
    return bench


def ask(
    bench: Bench,
    request: int,
    *texts: str,
    conversation: str = "one",
    budget: int | None = AMPLE_BYTES,
    tokens: int = 12,
) -> tuple[str, Finished, int]:
    """Answer, how it ended, and the number of tokens that were computed."""
    events = bench.generate(
        request, *texts, conversation=conversation, budget_bytes=budget, max_tokens=tokens
    )
    return answer_text(events), finished(events), computed_prompt_tokens(events)


def written(bench: Bench) -> int:
    """Number of evicted pages on the disk, once all are written."""
    host = host_of(bench)
    assert bench.engine._loop._saver is not None
    bench.engine._loop._saver.wait()
    assert host._scheduler.pool.lent_bytes == 0
    return host._disk.evicted.written_pages


def files() -> list[Path]:
    return [path for path in snapshots_folder().rglob("*") if path.suffix != ".lock"]


@pytest.mark.parametrize("cache", list(CacheType), ids=lambda cache: cache.value)
def test_an_evicted_conversation_is_restored_from_disk(
    bench: Bench, model: Path, cache: CacheType
) -> None:
    ample = Bench()
    ample.load(model, cache=cache)
    begun, *_ = ask(ample, 2, ONE)
    wanted, *_ = ask(ample, 3, ONE, begun, "and then?", tokens=30)
    ample.engine.stop()
    assert not snapshots_size()
    load_small(bench, model, cache)
    assert ask(bench, 2, ONE)[0] == begun
    tree = host_of(bench)._scheduler.tree
    (leaf,) = tree.leaves("")
    tokens = leaf.all_tokens()
    ask(bench, 3, OTHER, conversation="two")
    ask(bench, 4, OTHER[4:], conversation="three")
    assert tree.match("", tokens).length < 512
    assert written(bench) > 2
    text, end, computed = ask(bench, 5, ONE, begun, "and then?", tokens=30)
    assert text == wanted
    assert end.reused_tokens >= len(tokens) - 1
    assert computed < 40


def test_pages_of_a_conversation_are_written_once(bench: Bench, llama: Path) -> None:
    load_small(bench, llama)
    begun, *_ = ask(bench, 2, ONE)
    ask(bench, 3, OTHER, conversation="two")
    ask(bench, 4, OTHER[4:], conversation="three")
    written(bench)
    names = {path: path.stat().st_mtime_ns for path in snapshots_folder().rglob("*.page")}
    assert ask(bench, 5, ONE, begun, "more")[1].reused_tokens > 512
    ask(bench, 6, OTHER[4:], conversation="three")
    written(bench)
    again = {path: path.stat().st_mtime_ns for path in snapshots_folder().rglob("*.page")}
    assert {path: again.get(path) for path in names if path in again}.items() <= names.items()
    assert set(again) - set(names), "the page that was extended"


def test_a_branch_is_continued_from_the_pages_that_memory_still_has(
    bench: Bench, llama: Path
) -> None:
    load_small(bench, llama)
    begun, end, _ = ask(bench, 2, ONE)
    tree, pool = host_of(bench)._scheduler.tree, host_of(bench)._scheduler.pool
    (leaf,) = tree.leaves("")
    tokens, size = leaf.all_tokens(), pool.layout.bytes_per_page
    tree.evict(pool.budget_bytes - pool.used_bytes + 2 * size)
    written(bench)
    left = tree.match("", tokens).length
    assert 0 < left < len(tokens)
    text, end, computed = ask(bench, 3, ONE, begun, "more")
    assert end.reused_tokens >= len(tokens) - 1
    assert computed < 40
    assert text


def test_without_a_budget_nothing_is_written(bench: Bench, llama: Path) -> None:
    load_small(bench, llama)
    for request, budget in enumerate((None, 0, None)):
        for text in (ONE, OTHER, ONE[5:]):
            ask(bench, 10 * request + len(text), text, budget=budget)
    assert written(bench) == 0
    assert not snapshots_folder().exists()


def test_nothing_is_written_any_more_once_the_budget_is_0(bench: Bench, llama: Path) -> None:
    load_small(bench, llama)
    ask(bench, 2, ONE)
    ask(bench, 3, OTHER, conversation="two")
    done, before = written(bench), files()
    assert done
    ask(bench, 4, ONE[5:], conversation="three", budget=0)
    ask(bench, 5, OTHER[5:], conversation="four", budget=None)
    assert written(bench) == done
    assert files() == before
    pool = host_of(bench)._scheduler.pool
    assert pool.lent_bytes == 0


def test_pages_of_a_conversation_without_a_name_are_not_written_until_it_has_one(
    bench: Bench, llama: Path
) -> None:
    load_small(bench, llama)
    ask(bench, 2, ONE, conversation="")
    ask(bench, 3, OTHER, conversation="")
    assert written(bench) == 0
    bench.expect(4, Save("named", AMPLE_BYTES, answer=2), SnapshotSaved)
    ask(bench, 5, ONE, conversation="")
    assert written(bench) == 0, "this text has no name"
    assert {path.suffix for path in files() if path.is_file()} <= {".page", ".sequence", ""}


@pytest.mark.parametrize("everything", [False, True])
def test_a_deleted_conversation_is_not_written_later(
    bench: Bench, llama: Path, everything: bool
) -> None:
    load_small(bench, llama)
    begun, *_ = ask(bench, 2, ONE)
    ask(bench, 3, "hello", conversation="two")  # the budget is known, and nothing was evicted
    assert written(bench) == 0
    delete_snapshots(None if everything else ["one"])
    ask(bench, 4, OTHER, conversation="three")
    ask(bench, 5, OTHER[5:], conversation="four")
    written(bench)
    assert not list(snapshots_folder().glob(f"{conversation_prefix('one')}*"))
    assert list(snapshots_folder().glob(f"{conversation_prefix('three')}*"))
    _, end, _ = ask(bench, 6, ONE, begun, "more")
    assert end.reused_tokens < 512
    ask(bench, 7, OTHER, conversation="three")  # it has continued, so it is written again
    ask(bench, 8, OTHER[5:], conversation="four")
    written(bench)
    assert list(snapshots_folder().glob(f"{conversation_prefix('one')}*"))
    delete_snapshots(["one", "two", "three", "four"])
    assert snapshots_size() == 0


def test_files_stay_within_the_budget(bench: Bench, llama: Path) -> None:
    load_small(bench, llama)
    page = host_of(bench)._scheduler.pool.layout.bytes_per_page
    budget = 6 * page + 20_000
    for number in range(6):
        ask(bench, 2 + number, ONE[number:], conversation=str(number), budget=budget)
        written(bench)
        assert snapshots_size() <= budget
    assert snapshots_size() > 2 * page
    ask(bench, 20, OTHER, conversation="x", budget=page)
    ask(bench, 21, ONE, conversation="y", budget=page)
    written(bench)
    assert not list(snapshots_folder().glob(f"{conversation_prefix('x')}*")), (
        "it is larger than the budget"
    )


class Panic(BaseException):
    """Like the exception of a panic in a Rust library: not an `Exception`."""


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), Panic("index")])
def test_a_full_disk_costs_the_pages_and_one_line_in_the_log(
    bench: Bench,
    llama: Path,
    fault: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*arguments: object) -> int:
        raise fault

    caplog.set_level(logging.INFO)
    wanted = ask(bench_of(bench, llama), 2, ONE)[0]
    with monkeypatch.context() as patch:
        patch.setattr("engine.state.disk.page_file.write", fail)
        ask(bench, 3, OTHER, conversation="two")
        ask(bench, 4, OTHER[4:], conversation="three")
        assert written(bench) == 0
    assert host_of(bench)._disk.evicted.dropped_pages > 0
    assert caplog.text.count("evicted pages are not written") == 1
    assert ask(bench, 5, ONE)[0] == wanted
    ask(bench, 6, OTHER, conversation="two")
    assert written(bench) > 0, "the disk works again"
    assert not list(snapshots_folder().rglob("*.tmp"))


def test_a_slow_disk_delays_no_answer(
    bench: Bench,
    llama: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    go = threading.Event()
    write = page_file.write

    def slow(*arguments: Any) -> int:
        assert go.wait(TIMEOUT_SECONDS)
        return write(*arguments)

    caplog.set_level(logging.INFO)
    monkeypatch.setattr("engine.state.disk.page_file.write", slow)
    pool = host_of(bench_of(bench, llama))._scheduler.pool
    pool.most_lent_bytes = 2 * pool.layout.bytes_per_page
    texts = {f"{number} {ONE}": "" for number in range(6)}
    for number, text in enumerate(texts):
        texts[text] = ask(bench, 2 + number, text, conversation=str(number))[0]
        assert pool.lent_bytes <= pool.most_lent_bytes
        assert pool.used_bytes <= pool.budget_bytes
    assert pool.lent_bytes == pool.most_lent_bytes
    assert host_of(bench)._disk.evicted.dropped_pages > 2
    assert caplog.text.count("evicted pages are not written: the disk is too slow") == 1
    go.set()
    assert written(bench) == 2
    for number, (text, wanted) in enumerate(texts.items()):
        assert ask(bench, 20 + number, text, conversation=str(number))[0] == wanted


def test_a_prompt_waits_for_its_pages_that_are_being_written(
    bench: Bench, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = page_file.write

    def slow(*arguments: Any) -> int:
        time.sleep(0.05)
        return write(*arguments)

    monkeypatch.setattr("engine.state.disk.page_file.write", slow)
    load_small(bench, llama)
    begun, end, _ = ask(bench, 2, ONE)
    ask(bench, 3, OTHER, conversation="two")
    assert host_of(bench)._scheduler.pool.lent_bytes
    assert ask(bench, 4, ONE, begun, "more")[1].reused_tokens >= end.context_used - 1


def test_a_conversation_deleted_while_its_pages_are_written_leaves_none(
    bench: Bench, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.state.disk.folder._WAIT_SECONDS", 0.1)
    begun, go = threading.Event(), threading.Event()
    write = page_file.write

    def slow(*arguments: Any) -> int:
        begun.set()
        assert go.wait(TIMEOUT_SECONDS)
        return write(*arguments)

    monkeypatch.setattr("engine.state.disk.page_file.write", slow)
    load_small(bench, llama)
    ask(bench, 2, ONE)
    ask(bench, 3, OTHER, conversation="two")
    assert begun.wait(TIMEOUT_SECONDS)
    delete_snapshots(["one"])
    go.set()
    written(bench)
    assert snapshots_size() == 0


def test_pages_of_a_model_whose_file_was_replaced_are_not_written(
    bench: Bench, llama: Path
) -> None:
    load_small(bench, llama)
    ask(bench, 2, ONE)
    tiny.write(llama, seed=5, context=CONTEXT)
    ask(bench, 3, OTHER, conversation="two")
    assert written(bench) == 0
    assert snapshots_size() == 0


def test_adapters_have_pages_of_their_own_on_the_disk(bench: Bench, llama: Path) -> None:
    leaf = tiny_lora.write(llama.with_name("leaf.gguf"), llama, rank=4)
    load_small(bench, llama)
    begun, *_ = ask(bench, 2, ONE)
    bench.set_adapters(3, (leaf, 1.0))
    adapted, *_ = ask(bench, 4, ONE)
    ask(bench, 5, OTHER, conversation="two")
    ask(bench, 6, OTHER[4:], conversation="three")
    written(bench)
    assert ask(bench, 7, ONE, adapted, "more")[1].reused_tokens > 600
    ask(bench, 8, OTHER[4:], conversation="three")
    bench.set_adapters(9)
    written(bench)
    assert ask(bench, 10, ONE, begun, "more")[1].reused_tokens > 600


def test_unloading_does_not_wait_for_evicted_pages(bench: Bench, llama: Path) -> None:
    load_small(bench, llama)
    ask(bench, 2, ONE)
    ask(bench, 3, OTHER, conversation="two")
    assert bench.load(llama, request=4).held_bytes
    assert ask(bench, 5, ONE)[0]
