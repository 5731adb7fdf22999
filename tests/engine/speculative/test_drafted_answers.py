"""Answers with drafts are those without: tokens, text, reasons, keys and values; in fewer passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
import torch

import tiny
from answers import (
    Answered,
    Request,
    alone,
    answered,
    cached_rows,
    check_nothing_leaked,
    prompt,
    run_all,
)
from drafters import PartlyRight, verify_every_draft
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, FinishReason, Sampling
from engine.sampling import Sampler
from engine.speculative.drafter import Drafter
from engine.speculative.lookup import LookupDrafter

GREEDY = Sampling(temperature=0, seed=0)
SEEDED = Sampling(temperature=0.6, top_k=0, top_p=0.9, min_p=0.0, repeat_penalty=1.1, seed=3)
CONTEXT = 600


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=CONTEXT)
    return load(path, cache=getattr(request, "param", CacheType.Q8_0))


@pytest.fixture
def scheduler(model: LoadedModel) -> Scheduler:
    made = model.new_scheduler()
    verify_every_draft(made)
    return made


def known(model: LoadedModel, request: Request) -> Callable[[Sampler], Drafter]:
    """Drafters that know the answer to a request, and now and then propose a wrong token."""
    wanted = [*request.prompt, *alone(model, request).tokens]
    return lambda _: PartlyRight([wanted], model.config.vocabulary)


def drafted(model: LoadedModel, scheduler: Scheduler, request: Request) -> Answered:
    """The answer with drafts, which must be the one without."""
    wanted = answered(model.new_scheduler().run(dataclasses.replace(request, drafter=None)))
    drafter = request.drafter or known(model, request)
    made = answered(scheduler.run(dataclasses.replace(request, drafter=drafter)))
    assert (made.tokens, made.text) == (wanted.tokens, wanted.text)
    for field in ("reason", "prompt_tokens", "generated_tokens", "seed"):
        assert getattr(made.finished, field) == getattr(wanted.finished, field)
    # The keys and values of an accepted token are there already when it ends the answer.
    assert made.finished.context_used - wanted.finished.context_used in (0, 1)
    return made


@pytest.mark.parametrize("model", list(CacheType), ids=lambda one: one.value, indirect=True)
@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("length", [1, 200, 255, 256, 300])
def test_an_answer_with_drafts_is_the_one_without_in_fewer_passes(
    model: LoadedModel, scheduler: Scheduler, sampling: Sampling, length: int
) -> None:
    request = Request(prompt(length), sampling, max_tokens=90)
    plain = model.new_scheduler()
    plain.run(dataclasses.replace(request))
    passes, step = 0, scheduler.runner.step

    def counted(*arguments: object) -> object:
        nonlocal passes
        passes += 1
        return step(*arguments)  # pyright: ignore[reportArgumentType]

    scheduler.runner.step = counted  # pyright: ignore[reportAttributeAccessIssue]
    made = drafted(model, scheduler, request)
    finished = made.finished
    assert 0 < finished.accepted_tokens < finished.drafted_tokens
    drawn = finished.generated_tokens + (finished.reason is FinishReason.END)
    assert passes == drawn - finished.accepted_tokens  # the first token is the prompt's
    text = [*request.prompt, *made.tokens][:-1]
    both = zip(cached_rows(plain, text), cached_rows(scheduler, text), strict=True)
    assert all(torch.equal(a, b) for a, b in both)
    check_nothing_leaked(scheduler)


def test_lookup_drafts_find_a_text_that_repeats_itself(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    request = Request([*prompt(40), *prompt(40), *prompt(20)], GREEDY, max_tokens=200)
    made = drafted(
        model, scheduler, dataclasses.replace(request, drafter=lambda _: LookupDrafter())
    )
    assert made.finished.accepted_tokens > 10  # a tiny model repeats itself
    check_nothing_leaked(scheduler)


def test_several_answers_to_one_prompt_have_drafts_each(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    request = Request(prompt(300), SEEDED, max_tokens=40, count=3)
    wanted = model.new_scheduler().run(dataclasses.replace(request)).answers
    texts = [[*request.prompt, *tokens] for tokens in wanted.values()]
    request.drafter = lambda _: PartlyRight(texts, model.config.vocabulary)
    ticket = scheduler.run(request)
    assert ticket.answers == wanted
    assert all(answered(ticket, number).finished.accepted_tokens for number in wanted)
    check_nothing_leaked(scheduler)


def test_requests_with_and_without_drafts_run_together(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    requests = [
        Request(prompt(length, at), SEEDED if at % 2 else GREEDY, number=at, max_tokens=30 + at)
        for at, length in enumerate((20, 250, 256, 300))
    ]
    wanted = [alone(model, request) for request in requests]
    for request in requests[1:]:
        request.drafter = known(model, request)
    for ticket, one in zip(run_all(scheduler, *requests), wanted, strict=True):
        assert answered(ticket).tokens == one.tokens
    check_nothing_leaked(scheduler)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 11])
def test_a_draft_ends_at_the_limit_of_tokens(
    model: LoadedModel, scheduler: Scheduler, most: int
) -> None:
    made = drafted(model, scheduler, Request(prompt(20), GREEDY, max_tokens=most))
    assert made.finished.reason is FinishReason.LENGTH


@pytest.mark.parametrize("left", [1, 2, 3, 9, 30])
def test_a_draft_ends_at_the_end_of_the_context(
    model: LoadedModel, scheduler: Scheduler, left: int
) -> None:
    made = drafted(model, scheduler, Request(prompt(CONTEXT - left), GREEDY))
    assert made.finished.reason is FinishReason.CONTEXT
    check_nothing_leaked(scheduler)


def test_a_stop_string_ends_the_answer_inside_a_draft(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    whole = alone(model, Request(prompt(20), GREEDY, max_tokens=60)).text
    for at in range(10, 40, 3):
        stop = whole[at : at + 4]
        made = drafted(model, scheduler, Request(prompt(20), GREEDY, max_tokens=60, stop=(stop,)))
        assert made.finished.reason is FinishReason.STOP
    check_nothing_leaked(scheduler)


def test_an_end_token_ends_the_answer_inside_a_draft(
    model: LoadedModel, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = alone(model, Request(prompt(20), GREEDY, max_tokens=60)).tokens
    first = {token: at for at, token in reversed(list(enumerate(tokens)))}
    for token, at in sorted(first.items(), key=lambda one: one[1])[2:8]:
        monkeypatch.setattr(model.tokenizer, "end_tokens", frozenset([token]))
        texts = [[*prompt(20), *tokens]]  # the drafts go on behind the end
        request = Request(prompt(20), GREEDY, max_tokens=60)
        request.drafter = lambda _, texts=texts: PartlyRight(texts, model.config.vocabulary)
        made = drafted(model, scheduler, request)
        assert made.finished.reason is FinishReason.END
        assert made.tokens == tokens[:at]
    check_nothing_leaked(scheduler)


def test_an_answer_is_cancelled_between_drafts(model: LoadedModel, scheduler: Scheduler) -> None:
    request = Request(prompt(300), GREEDY, max_tokens=200)
    wanted = alone(model, request).tokens
    request.drafter = known(model, request)
    ticket = scheduler.submit(request)
    for _ in range(12):
        scheduler.step()
    request.cancellation.cancel()
    scheduler.step()
    made = answered(ticket)
    assert made.finished.reason is FinishReason.CANCELLED
    assert len(made.tokens) > 8
    assert made.tokens == wanted[: len(made.tokens)]
    check_nothing_leaked(scheduler)


def test_a_draft_without_memory_is_dropped_and_no_answer_preempted(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    requests = [Request(prompt(250, at), GREEDY, max_tokens=6) for at in range(2)]
    wanted = [alone(model, request).tokens for request in requests]
    # The answers end at position 256: a draft beyond it would need another page.
    scheduler.pool.budget_bytes = 2 * scheduler.pool.layout.bytes_per_page
    preempted: list[object] = []
    scheduler._preempt = lambda: preempted.append(1)  # pyright: ignore[reportAttributeAccessIssue]
    for request in requests:
        request.drafter = known(model, request)
    tickets = run_all(scheduler, *requests)
    assert [answered(ticket).tokens for ticket in tickets] == wanted
    assert not preempted
    check_nothing_leaked(scheduler)


def test_an_answer_that_fails_in_a_draft_leaves_the_pages_of_its_text(
    model: LoadedModel, scheduler: Scheduler
) -> None:
    request = Request(prompt(250), GREEDY, max_tokens=60)
    request.drafter = known(model, request)
    step = scheduler.runner.step

    def broken(*arguments: object) -> object:
        rows = step(*arguments)  # pyright: ignore[reportArgumentType]
        return [
            row.clone().index_fill_(0, torch.tensor(1), torch.nan) if len(row) > 1 else row
            for row in rows
        ]

    ticket = scheduler.submit(request)
    scheduler.runner.step = broken  # pyright: ignore[reportAttributeAccessIssue]
    while not ticket.done:
        scheduler.step()
    assert ticket.error is not None
    scheduler.runner.step = step
    check_nothing_leaked(scheduler)
    assert answered(scheduler.run(Request(prompt(250), GREEDY, max_tokens=60))).tokens == (
        alone(model, request).tokens
    )
