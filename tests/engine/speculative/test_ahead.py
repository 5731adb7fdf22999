"""Drafting ahead: answers stay what they are, whatever the thread has drafted by then."""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

import tiny
from answers import Request, answered, check_nothing_leaked, prompt, run_all
from drafters import FreeDrafts
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel, load
from engine.messages import Sampling
from engine.sampling import Sampler
from engine.speculative import draft_model
from engine.speculative.ahead import AheadDrafter, AheadWorker
from engine.speculative.draft_model import DraftModel
from engine.speculative.vocabulary import VocabularyMap
from kernels import backends

CONTEXT = 600
GREEDY = Sampling(temperature=0, seed=0)
SEEDED = Sampling(temperature=0.3, top_k=0, top_p=1.0, min_p=0.0, seed=3)
PATIENCE_SECONDS = 60.0


@pytest.fixture(autouse=True)
def draft_unlikely_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token of a tiny model is likely."""
    monkeypatch.setattr(draft_model, "_LEAST_PROBABILITY", 0.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(tiny.write(folder / "target.gguf", context=CONTEXT))


@pytest.fixture
def scheduler(model: LoadedModel) -> Scheduler:
    """It verifies whatever there is, and measures no pass alone."""
    made = model.new_scheduler()
    made._costs, made._busy_costs = Always(), Always()
    return made


class Always(FreeDrafts):
    """Costs with which drafting beside the passes pays."""

    def count(self, rows: int) -> int:
        return 100


@pytest.fixture
def worker(model: LoadedModel) -> Iterator[AheadWorker]:
    made = beside(model, model)
    yield made
    made.close()


def beside(target: LoadedModel, model: LoadedModel, context: int = CONTEXT) -> AheadWorker:
    vocabulary = VocabularyMap(target.tokenizer, model.tokenizer)
    return AheadWorker(DraftModel(model.new_runner(), context, vocabulary))


def wait_until_idle(worker: AheadWorker) -> None:
    """Until the thread has nothing to draft or give back."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        with worker.condition:
            waiting = [one for one in worker._drafters if one.is_closed or one.needs_work]
            if not waiting and not worker._is_serving:
                return
        time.sleep(0.001)
    pytest.fail("the drafting thread does not end its work")


def check(
    model: LoadedModel, scheduler: Scheduler, worker: AheadWorker, requests: Sequence[Request]
) -> int:
    """Compare answers with those without drafts; returns how many tokens were accepted."""
    plain = [model.new_scheduler().run(dataclasses.replace(one)).answers for one in requests]
    for one in requests:
        one.drafter = worker.drafter
    tickets = run_all(scheduler, *requests)
    assert [ticket.answers for ticket in tickets] == plain
    check_nothing_leaked(scheduler)
    wait_until_idle(worker)
    worker.model.tree.clear()
    assert worker.model.pool.used_bytes == 0
    return sum(answered(one, at).finished.accepted_tokens for one in tickets for at in one.answers)


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_answers_are_those_without_drafts(
    model: LoadedModel, scheduler: Scheduler, worker: AheadWorker, sampling: Sampling
) -> None:
    requests = [
        Request(prompt(length, at), sampling, number=at, max_tokens=60, count=1 + at % 2)
        for at, length in enumerate((1, 30, 255, 256, 300))
    ]
    check(model, scheduler, worker, requests)


def test_another_model_of_the_family_drafts(
    folder: Path, model: LoadedModel, scheduler: Scheduler
) -> None:
    other = load(tiny.write(folder / "other.gguf", context=CONTEXT, layers=1, seed=0))
    worker = beside(model, other)
    requests = [Request(prompt(300, at), GREEDY, max_tokens=60) for at in range(2)]
    check(model, scheduler, worker, requests)
    worker.close()


def test_what_is_drafted_is_what_the_target_draws(model: LoadedModel, worker: AheadWorker) -> None:
    """The same model drafts for itself, and has all the time it wants."""
    wanted = model.new_scheduler().run(Request(prompt(80), GREEDY, max_tokens=70)).answers[0]
    drafter = worker.drafter(Sampler(GREEDY))
    text, found = list(prompt(80)), list[int]()
    while len(found) < 64:
        drafter.draft(text, 16)
        wait_until_idle(worker)
        drafted = drafter.draft(text, 5)
        assert len(drafted.tokens) == 5
        assert not drafted.is_behind
        text += drafted.tokens
        found += drafted.tokens
    assert found == wanted[: len(found)]
    drafter.close()
    wait_until_idle(worker)
    worker.model.tree.clear()
    assert worker.model.pool.used_bytes == 0


def test_a_line_that_the_text_leaves_is_dropped(model: LoadedModel, worker: AheadWorker) -> None:
    drafter = worker.drafter(Sampler(GREEDY))
    for text in (list(prompt(80)), [*prompt(80), 5], [*prompt(60), 9, 9]):
        scheduler = model.new_scheduler()
        wanted = scheduler.run(Request(text, GREEDY, max_tokens=8)).answers[0]
        drafter.draft(text, 8)
        wait_until_idle(worker)
        assert list(drafter.draft(text, 8).tokens) == wanted
        drafter.rewind(60)
    drafter.pause()
    wait_until_idle(worker)
    assert list(drafter.draft(list(prompt(50)), 8).tokens) == []


def test_a_line_stops_until_it_is_used(worker: AheadWorker) -> None:
    drafter = worker.drafter(Sampler(GREEDY))
    text = list(prompt(20))
    drafter.draft(text, 1)
    wait_until_idle(worker)
    drafted = drafter.draft(text, 1_000).tokens
    assert len(drafted) == 32
    text += drafted[:10]
    drafter.draft(text, 1)
    wait_until_idle(worker)
    again = drafter.draft(text, 1_000).tokens
    assert len(again) == 32
    assert list(again[:22]) == list(drafted[10:])


def test_a_full_context_of_the_draft_model_ends_the_drafts(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    worker = beside(model, model, 160)
    check(model, scheduler, worker, [Request(prompt(100), GREEDY, max_tokens=120)])
    worker.close()


def test_an_error_on_the_thread_ends_the_drafts_of_its_answer(
    model: LoadedModel, scheduler: Scheduler, worker: AheadWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, likely = 0, draft_model.DraftSequence.likely

    def failing(self: object, *arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise RuntimeError("planted")
        return likely(self, *arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(draft_model.DraftSequence, "likely", failing)
    drafter = worker.drafter(Sampler(GREEDY))
    drafter.draft(list(prompt(20)), 4)
    wait_until_idle(worker)
    with pytest.raises(RuntimeError, match="planted"):
        drafter.draft(list(prompt(20)), 4)
    drafter.close()
    check(model, scheduler, worker, [Request(prompt(40), GREEDY, max_tokens=30)])


def test_cancelled_answers_and_a_closed_worker_wedge_nothing(
    model: LoadedModel, scheduler: Scheduler, worker: AheadWorker
) -> None:
    stop = threading.Event()
    tickets = [
        scheduler.submit(
            Request(
                prompt(200, at),
                GREEDY,
                max_tokens=200,
                drafter=worker.drafter,
                cancelled=stop.is_set,
            )
        )
        for at in range(3)
    ]
    for _ in range(20):
        scheduler.step()
    worker.close()
    for _ in range(5):
        scheduler.step()
    stop.set()
    while not all(ticket.done for ticket in tickets):
        scheduler.step()
    check_nothing_leaked(scheduler)
    assert not worker._thread.is_alive()


def test_programs_of_a_thread_alone_have_the_bits_of_others(model: LoadedModel) -> None:
    """Beside programs on the thread pool, with prompts and single tokens, again and again."""
    texts = [prompt(1 + 37 * at % 290, at) for at in range(8)]

    def logits(text: Sequence[int]) -> torch.Tensor:
        session = model.new_session()
        session.read(text)
        return torch.stack([session.step(token) for token in range(10, 20)])

    wanted = [logits(text) for text in texts]
    errors: list[str] = []

    def compare(seed: int) -> None:
        order = random.Random(seed).sample(range(len(texts)), len(texts))
        for at in (*order, *order):
            if not torch.equal(logits(texts[at]), wanted[at]):
                errors.append(f"thread {seed}, text {at}")

    def beside() -> None:
        with backends.alone():
            compare(1)

    others = [threading.Thread(target=beside) for _ in range(2)]
    for each in others:
        each.start()
    compare(0)
    for each in others:
        each.join()
    assert errors == []


def test_drafters_are_served_in_turn(worker: AheadWorker) -> None:
    drafters = [worker.drafter(Sampler(GREEDY)) for _ in range(3)]
    assert all(isinstance(one, AheadDrafter) for one in drafters)
    for at, one in enumerate(drafters):
        one.draft(list(prompt(150, at)), 1)
    wait_until_idle(worker)
    for at, one in enumerate(drafters):
        assert len(one.draft(list(prompt(150, at)), 100).tokens) == 32
