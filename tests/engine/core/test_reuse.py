"""Answers are bit-identical however a prompt was read: fresh, reused, restored, beside others.

The tests compare every stored key and value and the logits after the last token besides the ids of
the answer, since two greedy answers may be equal by chance. The starter model attends to all
tokens, gemma-3 in most of its layers only to the last 512.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest
from torch import Tensor

from answers import GREEDY, Request, answer, answered, cached_rows, next_logits, run_all
from chosen_backend import ops
from engine import Event, Failed, snapshots_folder
from engine.adapters.stack import NO_ADAPTERS
from engine.core.handle import RequestHandle
from engine.core.scheduler import Scheduler
from engine.loading.identity import ModelFiles, stamps
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, FinishReason, Sampling, Save
from engine.state.disk.disk_tier import DiskTier
from engine.state.disk.saver import Saver
from engine.state.disk.store import PageStore
from kernels.cpu import library
from kv_writing import equal_rows

pytestmark = [pytest.mark.sweep, pytest.mark.real]

ANSWER = 8  # tokens
AMPLE_BYTES = 1 << 40  # budget of the disk
LENGTHS = (2, 3, 4, 5, 6, 9, 17, 33, 64, 65, 129, 200, 257, 300, 400, 513, 514, 700)
SOME = (3, 257, 513)  # the last two are pages and one token; 513 is also a chunk and one
OTHER = [3, 4, 5]  # tokens after the shared prefix that are not reused
CACHES = pytest.mark.parametrize(
    "type",
    [
        CacheType.Q8_0,
        pytest.param(CacheType.F16, marks=pytest.mark.slow),
        pytest.param(CacheType.F32, marks=pytest.mark.slow),
    ],
    ids=lambda type: type.value,
)
SEEDED = Sampling(temperature=0.9, top_k=0, top_p=1.0, min_p=0.0, seed=7)


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    if not library.available():
        pytest.skip(library.reason())
    with ops.only("cpu"):
        yield


@pytest.fixture
def threads() -> Iterator[None]:
    """Restores the number of kernel threads."""
    yield
    ops.set_threads(2)


@cache
def model(path: Path, type: CacheType) -> LoadedModel:
    with ops.only("cpu"):
        return load(path, context=2048, cache=type)


@cache
def ids(path: Path, text: Path) -> list[int]:
    return model(path, CacheType.F16).tokenizer.encode(text.read_text(encoding="utf-8"))


def prompt(path: Path, golden: Path, length: int, start: int | None = None) -> list[int]:
    first = length % 13 if start is None else start  # so that none is a prefix of another
    found = ids(path, golden / "ppl_text.txt")[first : first + length]
    assert len(found) == length
    return found


def state(scheduler: Scheduler, tokens: Sequence[int]) -> list[Tensor]:
    """Every key and value of the tokens as stored, and the logits after the last one."""
    return [*cached_rows(scheduler, tokens), next_logits(scheduler, tokens)]


def text_of(tokens: Sequence[int], made: Sequence[int]) -> list[int]:
    """The cached tokens after an answer that did not end: its last one was not processed."""
    return [*tokens, *made][:-1]


def prefixes(length: int) -> list[int]:
    """Lengths of the cached prefix: all of a prompt, all but a few tokens, half, whole pages."""
    whole = range(256, length, 256)
    return sorted({length, length - 1, length - 3, length // 2, *whole} & {*range(1, length + 1)})


def check_cuts(path: Path, golden: Path, type: CacheType, length: int) -> None:
    """Compare the answer after each reused prefix with that of an empty scheduler."""
    loaded, tokens = model(path, type), prompt(path, golden, length)
    fresh = loaded.new_scheduler()
    wanted = answer(fresh, tokens, max_tokens=ANSWER)
    assert wanted.finished.reused_tokens == 0
    text = text_of(tokens, wanted.tokens)
    expected = state(fresh, text)
    for prefix in prefixes(length):
        scheduler = loaded.new_scheduler()
        answer(scheduler, [*tokens[:prefix], *OTHER], max_tokens=2)
        made = answer(scheduler, tokens, max_tokens=ANSWER)
        assert made.finished.reused_tokens == min(prefix, length - 1)
        assert made.tokens == wanted.tokens, f"{prefix} of {length} tokens reused"
        assert equal_rows(state(scheduler, text), expected), f"{prefix} of {length} tokens reused"


class Disk:
    """Saved pages of a model in an empty folder."""

    def __init__(self, loaded: LoadedModel, folder: Path) -> None:
        self.events: list[Event] = []
        self._loaded, self._saver = loaded, Saver()
        self._files = ModelFiles([loaded.path], stamps([loaded.path]), folder / "hash.json")

    def _tier(self, scheduler: Scheduler) -> DiskTier:
        pages = PageStore(snapshots_folder())
        return DiskTier(pages, self._saver, scheduler, self._files, self._loaded)

    def save(self, scheduler: Scheduler, text: Sequence[int], name: str) -> None:
        """Save the cached pages of a text."""
        tier = self._tier(scheduler)
        tier.note(1, name, NO_ADAPTERS, list(text))
        save = Save(name, AMPLE_BYTES, 1)
        tier.save(save, RequestHandle(save, self.events.append))
        self._saver.wait()
        assert not [event for event in self.events if isinstance(event, Failed)]

    def restored(self, tokens: Sequence[int], name: str) -> Scheduler:
        """A new scheduler with what was saved of these tokens."""
        scheduler = self._loaded.new_scheduler()
        for _ in self._tier(scheduler).restore(NO_ADAPTERS, tokens, name, lambda: None):
            time.sleep(0.001)
        return scheduler


def check_restored(path: Path, golden: Path, type: CacheType, length: int, folder: Path) -> None:
    """Compare the answer after a prefix restored from disk with that of an empty scheduler."""
    loaded, tokens = model(path, type), prompt(path, golden, length)
    fresh, disk = loaded.new_scheduler(), Disk(loaded, folder)
    wanted = answer(fresh, tokens, max_tokens=ANSWER)
    text = text_of(tokens, wanted.tokens)
    expected = state(fresh, text)
    for prefix in sorted({length, max(length // 2, 1)}):
        begun, asked = loaded.new_scheduler(), [*tokens[:prefix], *OTHER]
        made = answer(begun, asked, max_tokens=2).tokens
        disk.save(begun, text_of(asked, made), str(prefix))
        scheduler = disk.restored(tokens, str(prefix))
        again = answer(scheduler, tokens, max_tokens=ANSWER)
        assert again.finished.reused_tokens == min(prefix, length - 1)
        assert again.tokens == wanted.tokens, f"{prefix} of {length} tokens restored"
        assert equal_rows(state(scheduler, text), expected), f"{prefix} of {length} restored"


@CACHES
@pytest.mark.parametrize("length", SOME)
def test_an_answer_does_not_depend_on_what_was_restored_from_disk(
    starter_model: Path, golden: Path, tmp_path: Path, type: CacheType, length: int
) -> None:
    check_restored(starter_model, golden, type, length, tmp_path)


@pytest.mark.slow
@CACHES
@pytest.mark.parametrize("length", [length for length in LENGTHS if length not in SOME])
def test_an_answer_does_not_depend_on_what_was_restored_from_disk_at_any_length(
    starter_model: Path, golden: Path, tmp_path: Path, type: CacheType, length: int
) -> None:
    check_restored(starter_model, golden, type, length, tmp_path)


@CACHES
@pytest.mark.parametrize("length", SOME)
def test_an_answer_does_not_depend_on_which_prefix_was_reused(
    starter_model: Path, golden: Path, type: CacheType, length: int
) -> None:
    check_cuts(starter_model, golden, type, length)


@pytest.mark.slow
@CACHES
@pytest.mark.parametrize("length", [length for length in LENGTHS if length not in SOME])
def test_an_answer_does_not_depend_on_which_prefix_was_reused_at_any_length(
    starter_model: Path, golden: Path, type: CacheType, length: int
) -> None:
    check_cuts(starter_model, golden, type, length)


@CACHES
def test_an_answer_of_a_sliding_window_model_does_not_depend_on_which_prefix_was_reused(
    gemma_model: Path, golden: Path, type: CacheType
) -> None:
    check_cuts(gemma_model, golden, type, 600)


@CACHES
@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_answer_does_not_depend_on_the_number_of_threads(
    starter_model: Path, golden: Path, type: CacheType, count: int, threads: None
) -> None:
    loaded, tokens = model(starter_model, type), prompt(starter_model, golden, 300)
    alone = loaded.new_scheduler()
    wanted = answer(alone, tokens, max_tokens=ANSWER).tokens
    expected = state(alone, text_of(tokens, wanted))
    ops.set_threads(count)
    scheduler = loaded.new_scheduler()
    answer(scheduler, [*tokens[:200], *OTHER], max_tokens=2)
    assert answer(scheduler, tokens, max_tokens=ANSWER).tokens == wanted
    assert equal_rows(state(scheduler, text_of(tokens, wanted)), expected)


@CACHES
@pytest.mark.parametrize("chunk", [16, 100, 256])
def test_an_answer_does_not_depend_on_the_chunks_of_its_prompt(
    starter_model: Path, golden: Path, type: CacheType, chunk: int
) -> None:
    loaded, tokens = model(starter_model, type), prompt(starter_model, golden, 300)
    whole, cut = loaded.new_scheduler(), loaded.new_scheduler()
    cut.runner.chunk = chunk
    wanted = answer(whole, tokens, max_tokens=ANSWER).tokens
    assert answer(cut, tokens, max_tokens=ANSWER).tokens == wanted
    text = text_of(tokens, wanted)
    assert equal_rows(state(cut, text), state(whole, text))


@CACHES
@pytest.mark.parametrize("length", [65, 256, 300])
def test_each_of_several_answers_is_the_one_that_its_seed_gives_alone(
    starter_model: Path, golden: Path, type: CacheType, length: int
) -> None:
    loaded, tokens = model(starter_model, type), prompt(starter_model, golden, length)
    scheduler = loaded.new_scheduler()
    request = Request(tokens, SEEDED, max_tokens=ANSWER, count=3)
    answers = scheduler.run(request).answers
    assert sorted(answers) == [0, 1, 2]
    assert len({tuple(made) for made in answers.values()}) == 3
    for number, made in answers.items():
        alone = loaded.new_scheduler()
        numbered = Sampling(0.9, top_k=0, top_p=1.0, min_p=0.0, seed=7 + number)
        assert answer(alone, tokens, numbered, max_tokens=ANSWER).tokens == made
        text = text_of(tokens, made)
        assert equal_rows(state(scheduler, text), state(alone, text))


def check_beside(loaded: LoadedModel, requests: Sequence[Request]) -> None:
    """Compare each of several answers at once with that of an empty scheduler."""
    together = loaded.new_scheduler()
    for request, ticket in zip(requests, run_all(together, *requests), strict=True):
        alone = loaded.new_scheduler()
        wanted = answer(alone, request.prompt, max_tokens=request.max_tokens).tokens
        assert ticket.answers[0] == wanted
        text = text_of(request.prompt, wanted)
        assert equal_rows(state(together, text), state(alone, text))


@CACHES
def test_an_answer_does_not_depend_on_those_beside_it(
    starter_model: Path, golden: Path, type: CacheType
) -> None:
    prompts = [prompt(starter_model, golden, length) for length in (5, 40, 257, 300, 513)]
    prompts.append([*prompts[3][:270], *OTHER])
    requests = [Request(tokens, GREEDY, max_tokens=6 + 5 * at) for at, tokens in enumerate(prompts)]
    check_beside(model(starter_model, type), requests)


def test_an_answer_of_a_sliding_window_model_does_not_depend_on_those_beside_it(
    gemma_model: Path, golden: Path
) -> None:
    prompts = [prompt(gemma_model, golden, length) for length in (5, 257, 800)]
    requests = [Request(tokens, GREEDY, max_tokens=12) for tokens in prompts]
    check_beside(model(gemma_model, CacheType.Q8_0), requests)


@CACHES
def test_cancelled_prefill_does_not_change_a_later_answer(
    starter_model: Path, golden: Path, type: CacheType
) -> None:
    loaded, tokens = model(starter_model, type), prompt(starter_model, golden, 700)
    fresh, scheduler = loaded.new_scheduler(), loaded.new_scheduler()
    scheduler.runner.chunk = 300
    wanted = answer(fresh, tokens, max_tokens=ANSWER).tokens
    calls = 0

    def cancelled() -> bool:
        """In the second chunk: asked before it and between its layers."""
        nonlocal calls
        calls += len(ticket.request.events) > 1
        return calls > 3

    ticket = scheduler.submit(Request(tokens, GREEDY, cancelled=cancelled))
    while not ticket.done:
        scheduler.step()
    cut = answered(ticket)
    assert cut.finished.reason is FinishReason.CANCELLED
    assert cut.finished.context_used == 300
    made = answer(scheduler, tokens, max_tokens=ANSWER)
    assert (made.tokens, made.finished.reused_tokens) == (wanted, 300)
    text = text_of(tokens, wanted)
    assert equal_rows(state(scheduler, text), state(fresh, text))


@CACHES
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_interrupted_answer_continues_with_the_same_bits(
    starter_model: Path, golden: Path, type: CacheType, sampling: Sampling
) -> None:
    loaded, tokens = model(starter_model, type), prompt(starter_model, golden, 65)
    whole, scheduler = loaded.new_scheduler(), loaded.new_scheduler()
    wanted = answer(whole, tokens, sampling, max_tokens=24).tokens
    made = answer(scheduler, tokens, sampling, max_tokens=9).tokens
    for most in (1, 6, 8):
        made += answer(scheduler, [*tokens, *made], sampling, max_tokens=most).tokens
    assert made == wanted
    text = text_of(tokens, wanted)
    assert equal_rows(state(scheduler, text), state(whole, text))


@CACHES
def test_next_answer_does_not_depend_on_a_text_that_parted_before(
    starter_model: Path, golden: Path, type: CacheType
) -> None:
    """The next turn reuses the pages of the generated answer, here of 24 tokens."""
    loaded, first = model(starter_model, type), prompt(starter_model, golden, 300)
    scheduler = loaded.new_scheduler()
    chat = [*first, *answer(scheduler, first, max_tokens=24).tokens]
    question = [*chat, *prompt(starter_model, golden, 33)]
    wanted = answer(scheduler, question, max_tokens=ANSWER)
    text = text_of(question, wanted.tokens)
    expected = state(scheduler, text)
    assert wanted.finished.reused_tokens == len(chat) - 1  # its last token was not processed
    answer(scheduler, [*chat, *OTHER], max_tokens=ANSWER)
    again = answer(scheduler, question, max_tokens=ANSWER)
    assert again.tokens == wanted.tokens
    assert again.finished.reused_tokens == len(question) - 1
    assert equal_rows(state(scheduler, text), expected)
    fresh = loaded.new_scheduler()
    assert answer(fresh, question, max_tokens=ANSWER).tokens == wanted.tokens
    assert equal_rows(state(fresh, text), expected)
