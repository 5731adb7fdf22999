"""Scheduler short of memory, and with broken passes: the answers that go on do not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from answers import (
    GREEDY,
    SEEDED,
    Request,
    alone,
    answer,
    answered,
    check_nothing_leaked,
    prompt,
    run_all,
    step_until,
    texts,
)
from engine.adapters.stack import Stack
from engine.core.runner import Rows
from engine.core.scheduler import Scheduler
from engine.errors import EngineError, ModelFileError, OutOfMemory
from engine.loading.loader import LoadedModel
from engine.messages import FinishReason, Sampling

pytestmark = pytest.mark.usefixtures("no_turns")

# --- memory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pages", [6, 7, 9])
def test_preempted_answers_do_not_change(model: LoadedModel, pages: int) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool.budget_bytes = pages * scheduler.pool.layout.bytes_per_page
    requests = [Request(prompt(240, at), SEEDED, max_tokens=40 + at) for at in range(6)]
    tickets = [scheduler.submit(request) for request in requests]
    most, preempted, before = 0, False, 0
    while scheduler.is_busy:
        scheduler.step()
        most = max(most, scheduler.pool.used_bytes)
        preempted |= scheduler.running < before and not any(ticket.done for ticket in tickets)
        before = scheduler.running
    assert preempted, "the budget must be too small for all answers"
    assert most <= scheduler.pool.budget_bytes
    for request, ticket in zip(requests, tickets, strict=True):
        assert answered(ticket).tokens == alone(model, request).tokens
    check_nothing_leaked(scheduler)


def test_preempted_answers_to_one_prompt_do_not_change(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool.budget_bytes = 7 * scheduler.pool.layout.bytes_per_page
    ticket = scheduler.run(Request(prompt(240), SEEDED, max_tokens=300, count=4))
    for number in range(4):
        sampling = Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3 + number)
        wanted = answer(model, prompt(240), sampling, max_tokens=300)
        assert ticket.answers[number] == wanted.tokens
    check_nothing_leaked(scheduler)


def test_cached_texts_make_room_for_new_ones(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool.budget_bytes = 7 * scheduler.pool.layout.bytes_per_page
    for at in range(12):
        request = Request(prompt(600, at), GREEDY, max_tokens=4)
        assert scheduler.run(request).answers[0] == alone(model, request).tokens
        assert scheduler.pool.used_bytes <= scheduler.pool.budget_bytes
    assert (
        scheduler.run(Request(prompt(600, 11), max_tokens=1)).request.events[0].reused_tokens == 599
    )
    check_nothing_leaked(scheduler)


def test_a_chunk_may_need_several_pages_where_there_is_one(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool.budget_bytes = 5 * scheduler.pool.layout.bytes_per_page
    scheduler._token_seconds = 1e-6  # of a fast model: chunks beside other answers are long
    requests = [Request(prompt(length, 3), GREEDY, max_tokens=30) for length in (600, 400, 300)]
    requests = [replace(one, prompt=[at, *one.prompt]) for at, one in enumerate(requests)]
    for request, ticket in zip(requests, run_all(scheduler, *requests), strict=True):
        assert answered(ticket).tokens == alone(model, request).tokens
    check_nothing_leaked(scheduler)


def test_an_answer_alone_may_fill_the_context(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool.budget_bytes = 7 * scheduler.pool.layout.bytes_per_page
    answer(scheduler, prompt(700, 5), max_tokens=4)
    made = answer(scheduler, prompt(1_480), SEEDED)
    assert made.finished.reason is FinishReason.CONTEXT
    assert made.finished.context_used == 1_500
    check_nothing_leaked(scheduler)


class Refusing:
    """Page memory that is refused after so many pages, as often as told."""

    def __init__(self, after: int, times: int) -> None:
        self.after, self.times = after, times

    def __call__(self, size: int) -> Tensor:
        self.after -= 1
        if self.after < 0 and self.times > 0:
            self.times -= 1
            raise MemoryError(size)
        return torch.empty(size, dtype=torch.uint8)


@pytest.mark.parametrize("after", range(1, 9))
def test_memory_refused_for_a_moment_changes_no_answer(model: LoadedModel, after: int) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool._memory = [Refusing(after, 1)]
    requests = [Request(prompt(240, at), SEEDED, max_tokens=30) for at in range(4)]
    for request, ticket in zip(requests, run_all(scheduler, *requests), strict=True):
        assert answered(ticket).tokens == alone(model, request).tokens
    check_nothing_leaked(scheduler)


def test_memory_that_stays_refused_fails_each_request(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool._memory = [Refusing(2, 10_000)]
    requests = [Request(prompt(600, at), GREEDY, max_tokens=3) for at in range(3)]
    tickets = run_all(scheduler, *requests)
    assert [type(ticket.error) for ticket in tickets] == [OutOfMemory] * 3, tickets[0].error
    check_nothing_leaked(scheduler)
    scheduler.pool._memory = [Refusing(0, 0)]
    assert scheduler.run(requests[0]).answers[0] == alone(model, requests[0]).tokens


@pytest.mark.parametrize("method", ["hidden", "logits", "step"])
@pytest.mark.parametrize("failing", range(1, 12))
def test_memory_refused_within_a_pass_changes_no_answer(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch, method: str, failing: int
) -> None:
    """Also after keys and values were stored: the head of the model fails alone."""
    scheduler = model.new_scheduler()
    scheduler.runner.chunk = 100
    recorded = scheduler.runner.recorded(Stack(()))
    run, calls = getattr(recorded, method), iter(range(1, 10_000))

    def refused(*arguments: object) -> Tensor:
        if next(calls) == failing:
            raise MemoryError
        return run(*arguments)

    requests = [Request(prompt(230, at), SEEDED, max_tokens=30, count=1 + at) for at in (0, 1)]
    tickets = [scheduler.submit(request) for request in requests]
    monkeypatch.setattr(recorded, method, refused, raising=False)
    step_until(scheduler, lambda: not scheduler.is_busy)
    monkeypatch.undo()
    for request, ticket in zip(requests, tickets, strict=True):
        if ticket.error is not None:  # it ran alone, so that nobody could make room
            assert isinstance(ticket.error, OutOfMemory)
            continue
        wanted = model.new_scheduler().run(
            Request(request.prompt, SEEDED, max_tokens=30, count=request.count)
        )
        assert ticket.answers == wanted.answers
    check_nothing_leaked(scheduler)


# --- faults -------------------------------------------------------------------------------------


def broken(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, number: int, at: int) -> None:
    """Make logits NaN for a row whose sequence begins with token `number` and has `at` tokens."""
    run = scheduler.runner.step

    def step(batch: Sequence[Rows], checkpoint: Callable[[], None]) -> list[Tensor]:
        rows = run(batch, checkpoint)
        return [
            torch.full_like(row, torch.nan)
            if one.sequence.tokens[0] == number and len(one.sequence) >= at
            else row
            for one, row in zip(batch, rows, strict=True)
        ]

    monkeypatch.setattr(scheduler.runner, "step", step)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_request_with_broken_logits_fails_alone(
    model: LoadedModel,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    place: int,
) -> None:
    requests = [Request(prompt(20, at), SEEDED, max_tokens=40) for at in range(3)]
    requests[place].count = count
    requests[place].prompt = [199, *prompt(20)]
    broken(scheduler, monkeypatch, 199, 26)
    tickets = run_all(scheduler, *requests)
    monkeypatch.undo()
    assert isinstance(tickets[place].error, ModelFileError)
    assert texts(tickets[place]) >= 5 * count
    for at, (request, ticket) in enumerate(zip(requests, tickets, strict=True)):
        if at != place:
            assert answered(ticket).tokens == alone(model, request).tokens
    check_nothing_leaked(scheduler)


def test_a_request_fails_as_a_whole_while_one_of_its_answers_waits(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool.budget_bytes = 6 * scheduler.pool.layout.bytes_per_page
    bad = Request([199, *prompt(236)], SEEDED, max_tokens=200, count=6)
    good = Request(prompt(9), GREEDY, max_tokens=60)
    broken(scheduler, monkeypatch, 199, 260)
    first, second = scheduler.submit(good), scheduler.submit(bad)
    preempted = 0
    while scheduler.is_busy:
        scheduler.step()
        preempted = max(preempted, 7 - scheduler.running if texts(second) > 30 else 0)
    monkeypatch.undo()
    assert preempted
    assert isinstance(second.error, ModelFileError)
    assert answered(first).tokens == alone(model, good).tokens
    check_nothing_leaked(scheduler)


def test_any_fault_of_a_pass_ends_every_running_request_once(
    model: LoadedModel, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> Tensor:
        raise ValueError("broken")

    tickets = [scheduler.submit(Request(prompt(20, at), GREEDY, max_tokens=9)) for at in (1, 2)]
    step_until(scheduler, lambda: texts(tickets[1]) > 2)
    monkeypatch.setattr(scheduler.runner, "step", fail)
    scheduler.step()
    monkeypatch.undo()
    assert [str(ticket.error) for ticket in tickets] == ["broken", "broken"]
    check_nothing_leaked(scheduler)
    request = Request(prompt(20, 1), GREEDY, max_tokens=9)
    assert scheduler.run(request).answers[0] == alone(model, request).tokens


def test_stopping_ends_running_waiting_and_preempted_requests(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.pool.budget_bytes = 6 * scheduler.pool.layout.bytes_per_page
    requests = [Request(prompt(250, at), SEEDED, max_tokens=90) for at in range(6)]
    tickets = [scheduler.submit(request) for request in requests]
    step_until(scheduler, lambda: texts(tickets[0]) > 12)
    assert scheduler.running < 6
    error = EngineError("stopped", "start again")
    scheduler.stop(error)
    assert all(ticket.error is error for ticket in tickets)
    check_nothing_leaked(scheduler)
