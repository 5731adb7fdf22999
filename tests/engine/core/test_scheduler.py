"""Scheduler: requests together give the answers of each alone, whatever happens to the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tiny
import tiny_lora
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
from engine.adapters.stack import NO_ADAPTERS, Stack, load_adapter
from engine.core.request import SamplerState, SequenceGroup
from engine.core.scheduler import MOST_RUNNING, Scheduler
from engine.loading.loader import LoadedModel, load
from engine.messages import Finished, FinishReason, Priority, PromptProgress, Sampling

pytestmark = pytest.mark.usefixtures("no_turns")

# --- together -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_requests_together_give_the_answers_of_each_alone(
    model: LoadedModel, scheduler: Scheduler, sampling: Sampling
) -> None:
    lengths = (1, 20, 255, 256, 300, 700)
    requests = [
        Request(prompt(length, at), sampling, number=at, max_tokens=10 + 7 * at)
        for at, length in enumerate(lengths)
    ]
    for request, ticket in zip(requests, run_all(scheduler, *requests), strict=True):
        wanted = alone(model, request)
        made = answered(ticket)
        assert (made.tokens, made.text) == (wanted.tokens, wanted.text)
        assert {event.request for event in made.events} == {request.number}
        assert ticket.tokens == [*request.prompt, *wanted.tokens]
    check_nothing_leaked(scheduler)


def test_answers_stream_at_the_same_time(scheduler: Scheduler) -> None:
    tickets = [scheduler.submit(Request(prompt(10, at), GREEDY, max_tokens=20)) for at in range(3)]
    step_until(scheduler, lambda: all(texts(ticket) >= 5 for ticket in tickets))
    assert not any(ticket.done for ticket in tickets)
    assert max(map(texts, tickets)) <= 10, "each pass gives every answer one token"
    step_until(scheduler, lambda: not scheduler.is_busy)
    check_nothing_leaked(scheduler)


def test_a_request_submitted_later_joins(model: LoadedModel, scheduler: Scheduler) -> None:
    one = Request(prompt(30), GREEDY, max_tokens=40)
    other = Request([*prompt(30), *prompt(60, 2)], GREEDY, max_tokens=10)
    first = scheduler.submit(one)
    step_until(scheduler, lambda: texts(first) == 7)
    second = scheduler.submit(other)
    step_until(scheduler, lambda: second.done)
    assert not first.done
    step_until(scheduler, lambda: first.done)
    for request, ticket in ((one, first), (other, second)):
        assert answered(ticket).tokens == alone(model, request).tokens
    check_nothing_leaked(scheduler)


def test_several_answers_to_one_prompt(model: LoadedModel, scheduler: Scheduler) -> None:
    request = Request(prompt(300), SEEDED, max_tokens=30, count=4)
    ticket = scheduler.run(request)
    for number in range(4):
        sampling = Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3 + number)
        wanted = answer(model, request.prompt, sampling, max_tokens=30)
        made = answered(ticket, number)
        assert (made.tokens, made.text) == (wanted.tokens, wanted.text)
        assert made.finished.seed == 3 + number
    assert len({tuple(tokens) for tokens in ticket.answers.values()}) == 4
    progress = [event for event in ticket.request.events if isinstance(event, PromptProgress)]
    assert progress[-1].done_tokens == 300, "the prompt is read once"
    check_nothing_leaked(scheduler)


def test_answers_to_one_prompt_may_end_at_their_first_token(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    ticket = scheduler.run(Request(prompt(20), SEEDED, max_tokens=1, count=3))
    assert [len(ticket.answers[number]) for number in range(3)] == [1, 1, 1]
    check_nothing_leaked(scheduler)


def test_answers_with_different_adapters_run_together(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "tiny.gguf", context=600)
    model = load(path)
    base = model.decoder.base
    stacks = [Stack(())] + [
        Stack([(load_adapter(tiny_lora.write(tmp_path / f"{n}.gguf", path, seed=n), base), 1.0)])
        for n in (1, 2, 3, 4, 5)
    ]
    scheduler = model.new_scheduler()
    requests = [Request(prompt(280), GREEDY, max_tokens=15, stack=stack) for stack in stacks]
    tickets = run_all(scheduler, *requests)
    for request, ticket in zip(requests, tickets, strict=True):
        assert answered(ticket).tokens == alone(model, request).tokens
        assert answered(ticket).finished.reused_tokens == 0
    assert len({tuple(ticket.tokens) for ticket in tickets}) == len(stacks)
    scheduler.tree.clear()
    assert scheduler.pool.used_bytes == 0


# --- cancelling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("at", ["waiting", "prefill", "decode"])
def test_cancelling_one_leaves_the_others_alone(
    model: LoadedModel, scheduler: Scheduler, at: str, count: int
) -> None:
    pressed = False
    others = [Request(prompt(40, at), GREEDY, max_tokens=30) for at in (1, 2)]
    sampling = replace(SEEDED, ignore_end=True)  # none ends before it is cancelled
    cut = Request(prompt(700), sampling, max_tokens=400, count=count, cancelled=lambda: pressed)
    scheduler.runner.chunk = 64
    tickets = [scheduler.submit(request) for request in others]
    ticket = scheduler.submit(cut)
    if at == "prefill":
        step_until(scheduler, lambda: len(ticket.request.events) > 2)
        assert texts(ticket) == 0
    elif at == "decode":
        step_until(scheduler, lambda: texts(ticket) >= 4 * count)
    pressed = True
    step_until(scheduler, lambda: ticket.done)
    finished = [event for event in ticket.request.events if isinstance(event, Finished)]
    assert [event.reason for event in finished] == [FinishReason.CANCELLED] * len(finished)
    assert len(finished) == (count if at == "decode" else 1)
    step_until(scheduler, lambda: not scheduler.is_busy)
    for request, one in zip(others, tickets, strict=True):
        assert answered(one).tokens == alone(model, request).tokens
    pressed = False
    again = scheduler.run(Request(prompt(700), SEEDED, max_tokens=9))
    assert again.answers[0] == answer(model, prompt(700), SEEDED, max_tokens=9).tokens
    check_nothing_leaked(scheduler)


def test_a_request_cancelled_in_its_prompt_has_no_state_to_resume(scheduler: Scheduler) -> None:
    """The next one draws other numbers, and several answers differ."""
    sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
    scheduler.run(Request(prompt(20), sampling, cancelled=lambda: True))
    ticket = scheduler.run(Request(prompt(20), sampling, max_tokens=20, count=3))
    assert len({tuple(tokens) for tokens in ticket.answers.values()}) == 3
    assert all(answered(ticket, number).finished.seed >= 0 for number in range(3))


def test_several_answers_that_continue_an_interrupted_one_differ(scheduler: Scheduler) -> None:
    made = scheduler.run(Request(prompt(20), SEEDED, max_tokens=10))
    whole = scheduler.run(Request(prompt(20), SEEDED, max_tokens=30)).answers[0]
    scheduler.remember("", made.tokens, _state_after(scheduler, made))
    ticket = scheduler.run(Request(made.tokens, SEEDED, max_tokens=20, count=3))
    assert [*made.answers[0], *ticket.answers[0]] == whole
    assert len({tuple(tokens) for tokens in ticket.answers.values()}) == 3


def _state_after(scheduler: Scheduler, ticket: SequenceGroup) -> SamplerState:
    state = scheduler.interrupted("", ticket.tokens)
    assert state is not None
    return state


# --- order --------------------------------------------------------------------------------------


def test_no_more_than_a_fixed_number_of_answers_runs(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    counts = (1, 7, 16, 3, 13, 1, 1)
    tickets = [
        scheduler.submit(Request(prompt(9, at), SEEDED, max_tokens=6, count=count))
        for at, count in enumerate(counts)
    ]
    most = 0
    while scheduler.is_busy:
        scheduler.step()
        most = max(most, scheduler.running)
    assert most == MOST_RUNNING
    assert [len(ticket.answers) for ticket in tickets] == list(counts)
    check_nothing_leaked(scheduler)


def test_a_model_may_be_loaded_for_fewer_answers_at_once(model: LoadedModel) -> None:
    """Those to one prompt run together, however many they are."""
    scheduler = replace(model, parallel=2).new_scheduler()
    counts = (1, 1, 1, 3, 2, 1)
    tickets = [
        scheduler.submit(Request(prompt(9, at), SEEDED, max_tokens=6, count=count))
        for at, count in enumerate(counts)
    ]
    most = 0
    while scheduler.is_busy:
        scheduler.step()
        most = max(most, scheduler.running)
    assert most == 3
    assert [len(ticket.answers) for ticket in tickets] == list(counts)


def test_two_long_prompts_are_processed_in_turns(scheduler: Scheduler) -> None:
    scheduler.runner.chunk = 64
    tickets = [scheduler.submit(Request(prompt(640, at), max_tokens=1)) for at in (1, 2)]

    def done(ticket: SequenceGroup) -> int:
        return max(
            (one.done_tokens for one in ticket.request.events if isinstance(one, PromptProgress)),
            default=0,
        )

    while not all(ticket.done for ticket in tickets):
        scheduler.step()
        assert abs(done(tickets[0]) - done(tickets[1])) <= 64


def test_a_short_prompt_need_not_wait_for_a_long_one(scheduler: Scheduler) -> None:
    scheduler.runner.chunk = 64
    long = scheduler.submit(Request(prompt(1_400), max_tokens=1))
    scheduler.step()
    short = scheduler.submit(Request(prompt(20, 4), GREEDY, max_tokens=3))
    for _ in range(5):
        scheduler.step()
    assert short.done
    assert texts(long) == 0


def test_an_answer_goes_on_while_a_prompt_is_processed(scheduler: Scheduler) -> None:
    first = scheduler.submit(Request(prompt(20), GREEDY, max_tokens=200))
    step_until(scheduler, lambda: texts(first) == 1)
    second = scheduler.submit(Request(prompt(1_000, 3), max_tokens=1))
    passes = 0
    while not second.done:
        before = texts(first)
        scheduler.step()
        assert texts(first) == before + 1
        passes += 1
    assert passes > 1
    assert not second.was_alone


def read(ticket: SequenceGroup) -> int:
    """How many tokens of a prompt were processed for it, and not found in the cache."""
    progress = [event for event in ticket.request.events if isinstance(event, PromptProgress)]
    return progress[-1].done_tokens - progress[0].reused_tokens


@pytest.mark.parametrize("length", [20, 255, 256, 257, 700])
def test_equal_prompts_are_processed_once(
    model: LoadedModel, scheduler: Scheduler, length: int
) -> None:
    scheduler.runner.chunk = 64
    requests = [
        Request(prompt(length), replace(SEEDED, seed=at), number=at, max_tokens=12)
        for at in range(3)
    ]
    first, *others = run_all(scheduler, *requests)
    assert read(first) == length
    assert [read(ticket) for ticket in others] == [1, 1], "the last token gives the first logits"
    for request, ticket in zip(requests, (first, *others), strict=True):
        wanted = alone(model, request)
        assert (answered(ticket).tokens, answered(ticket).text) == (wanted.tokens, wanted.text)
    check_nothing_leaked(scheduler)


def test_prompts_with_a_common_beginning_share_it(model: LoadedModel, scheduler: Scheduler) -> None:
    scheduler.runner.chunk = 64
    begin = prompt(400)
    requests = [
        Request([*begin, *prompt(500, 7 + at)], GREEDY, number=at, max_tokens=8) for at in range(2)
    ]
    first, second = [scheduler.submit(request) for request in requests]
    step_until(scheduler, lambda: second.request.events)
    assert not texts(first), "it need not wait for more than what they share"
    step_until(scheduler, lambda: first.done and second.done)
    assert read(first) == 900
    assert read(second) == 500
    for request, ticket in zip(requests, (first, second), strict=True):
        assert answered(ticket).tokens == alone(model, request).tokens
    check_nothing_leaked(scheduler)


def test_an_equal_prompt_joins_an_answer_in_progress(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    requests = [Request(prompt(100), GREEDY, number=at, max_tokens=40) for at in range(2)]
    first = scheduler.submit(requests[0])
    step_until(scheduler, lambda: texts(first) == 9)
    second = scheduler.submit(requests[1])
    step_until(scheduler, lambda: first.done and second.done)
    assert read(second) == 1
    assert answered(second).tokens == answered(first).tokens == alone(model, requests[0]).tokens
    check_nothing_leaked(scheduler)


def test_an_equal_prompt_is_processed_when_the_first_is_cancelled(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    scheduler.runner.chunk = 64
    stops: list[int] = []
    one = Request(prompt(700), GREEDY, max_tokens=8, cancelled=lambda: bool(stops))
    other = Request(prompt(700), GREEDY, number=1, max_tokens=8)
    first, second = scheduler.submit(one), scheduler.submit(other)
    for _ in range(3):
        scheduler.step()
    assert not second.request.events
    stops.append(1)
    step_until(scheduler, lambda: second.done)
    assert first.done
    assert answered(second).tokens == alone(model, other).tokens
    check_nothing_leaked(scheduler)


def test_equal_prompts_with_other_adapters_share_nothing(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "tiny.gguf", context=600)
    model = load(path)
    scheduler = model.new_scheduler()
    adapter = load_adapter(tiny_lora.write(tmp_path / "a.gguf", path), model.decoder.base)
    requests = [
        Request(prompt(100), GREEDY, number=at, max_tokens=8, stack=stack)
        for at, stack in enumerate((NO_ADAPTERS, Stack([(adapter, 1.0)])))
    ]
    tickets = [scheduler.submit(request) for request in requests]
    step_until(scheduler, lambda: all(ticket.done for ticket in tickets))
    assert [read(ticket) for ticket in tickets] == [100, 100]
    scheduler.tree.clear()
    assert scheduler.pool.used_bytes == 0


def test_a_prompt_does_not_wait_for_one_in_the_background(scheduler: Scheduler) -> None:
    scheduler.runner.chunk = 32
    slow = scheduler.submit(Request(prompt(600), max_tokens=1, priority=Priority.BACKGROUND))
    scheduler.step()
    quick = scheduler.submit(Request(prompt(600), GREEDY, max_tokens=1))
    step_until(scheduler, lambda: quick.done)
    assert not slow.done
    step_until(scheduler, lambda: slow.done)


def test_background_requests_yield(scheduler: Scheduler) -> None:
    scheduler.runner.chunk = 32
    slow = scheduler.submit(Request(prompt(600), max_tokens=1, priority=Priority.BACKGROUND))
    scheduler.step()
    before = len(slow.request.events)
    quick = scheduler.submit(Request(prompt(600, 2), GREEDY, max_tokens=1))
    step_until(scheduler, lambda: quick.done)
    assert len(slow.request.events) == before, "no chunk of it ran meanwhile"
    step_until(scheduler, lambda: slow.done)
    answered(slow)


def test_waiting_background_requests_start_last(scheduler: Scheduler) -> None:
    for at in range(MOST_RUNNING):
        scheduler.submit(Request(prompt(5), max_tokens=9 + at))
    slow = scheduler.submit(
        Request(prompt(9, 2), GREEDY, max_tokens=1, priority=Priority.BACKGROUND)
    )
    quick = scheduler.submit(Request(prompt(9, 2), GREEDY, max_tokens=1))
    step_until(scheduler, lambda: quick.request.events)
    assert not slow.request.events
    step_until(scheduler, lambda: quick.done)
    assert not slow.done
    step_until(scheduler, lambda: slow.done)
