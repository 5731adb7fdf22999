"""Answers of hybrid models: together, forked, preempted, cancelled, saved: the same ids as alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import tiny
from answers import Request, run_all
from drafters import PartlyRight, verify_every_draft
from engine.adapters.stack import NO_ADAPTERS
from engine.core.handle import RequestHandle
from engine.core.scheduler import Scheduler
from engine.loading.identity import ModelFiles, stamps
from engine.loading.loader import LoadedModel, load
from engine.messages import (
    Constraint,
    ConstraintKind,
    Finished,
    FinishReason,
    Sampling,
    Save,
    SnapshotSaved,
)
from engine.sampling import Sampler
from engine.speculative.drafter import Drafter
from engine.state.disk.disk_tier import DiskTier, RestoreResult
from engine.state.disk.saver import Saver
from engine.state.disk.store import PageStore
from engine.state.pages import bytes_for
from hybrids import FIXED, HYBRIDS

CONTEXT = 900
SAMPLING = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7, ignore_end=True)

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("one_torch_thread")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model whose tokenizer and files the hybrids have."""
    return load(tiny.write(tmp_path_factory.mktemp("model") / "tiny.gguf", context=CONTEXT))


@pytest.fixture(params=HYBRIDS)
def model(plain: LoadedModel, request: pytest.FixtureRequest) -> LoadedModel:
    return hybrid(plain, request.param)


def hybrid(plain: LoadedModel, name: str) -> LoadedModel:
    return replace(plain, decoder=HYBRIDS[name](plain.config.vocabulary))


def prompt(length: int, number: int = 0) -> list[int]:
    """Prompts with a common beginning of 270 tokens."""
    return [5 + at * (11 if at < 270 else 13 + number) % 180 for at in range(length)]


def asked(length: int, number: int = 0, most: int = 12, count: int = 1) -> Request:
    sampling = replace(SAMPLING, seed=number)
    return Request(prompt(length, number), sampling, max_tokens=most, count=count)


def alone(model: LoadedModel, request: Request) -> dict[int, list[int]]:
    """The ids of each answer on a new scheduler; the request is not used up."""
    return model.new_scheduler().run(replace(request)).answers


def drafter_of(texts: list[list[int]], model: LoadedModel) -> Callable[[Sampler], Drafter]:
    return lambda _: PartlyRight(texts, model.config.vocabulary)


def test_constrained_answers_with_drafts_are_those_without(model: LoadedModel) -> None:
    """Several forced tokens are pending beside a draft."""
    text = r"(the (dog|fox) [a-z]{1,4}, ){2,4}then [0-9]{1,3}!"
    for number, banned in enumerate(((), ("fox",), (", ",))):
        request = asked(300, number, most=80, count=2)
        request.constraint = Constraint(ConstraintKind.REGEX, text)
        request.sampling = replace(request.sampling, banned=banned, ignore_end=False)
        if banned == (", ",):
            request.constraint = Constraint(ConstraintKind.REGEX, "[a-z ,]{1,30}!")
        wanted = alone(model, request)
        scheduler = model.new_scheduler()
        verify_every_draft(scheduler)
        texts = [[*request.prompt, *tokens] for tokens in wanted.values()]
        request.drafter = drafter_of(texts, model)
        ticket = scheduler.run(request)
        assert ticket.answers == wanted
        made = [one for one in ticket.request.events if isinstance(one, Finished)]
        assert sum(end.accepted_tokens for end in made) > 0
        assert not any(end.incomplete for end in made)


def test_answers_with_drafts_are_those_without(model: LoadedModel) -> None:
    """Of a draft that is partly wrong, states of fixed size are computed again."""
    requests = [asked(250, 0, 20, 2), asked(300, 1, 40), asked(511, 2, 25), asked(270, 3, 12)]
    wanted = [alone(model, request) for request in requests]
    scheduler = model.new_scheduler()
    verify_every_draft(scheduler)
    for request, answers in zip(requests, wanted, strict=True):
        texts = [[*request.prompt, *tokens] for tokens in answers.values()]
        request.drafter = drafter_of(texts, model)
    tickets = run_all(scheduler, *requests)
    assert [ticket.answers for ticket in tickets] == wanted
    ends = [
        event
        for ticket in tickets
        for event in ticket.request.events
        if isinstance(event, Finished)
    ]
    assert 0 < sum(end.accepted_tokens for end in ends) < sum(end.drafted_tokens for end in ends)
    scheduler.tree.clear()
    assert scheduler.pool.used_bytes == 0


def test_answers_that_run_together_are_those_of_each_alone(model: LoadedModel) -> None:
    requests = [asked(250, 0, 20, 2), asked(300, 1), asked(511, 2, 5), asked(270, 3, 1, 3)]
    wanted = [alone(model, request) for request in requests]
    scheduler = model.new_scheduler()
    tickets = run_all(scheduler, *requests)
    assert [ticket.answers for ticket in tickets] == wanted
    again = [replace(request, resume=None) for request in requests]  # with what is cached now
    assert [ticket.answers for ticket in run_all(scheduler, *again)] == wanted
    assert scheduler.tree.evict(scheduler.pool.budget_bytes) or not scheduler.pool.used_bytes
    scheduler.tree.clear()
    assert scheduler.pool.used_bytes == 0


def test_answers_with_the_memory_of_one_wait_or_start_again(model: LoadedModel) -> None:
    requests = [asked(500, number, 30, 1 + number % 2) for number in range(4)]
    wanted = [alone(model, request) for request in requests]
    layout = model.new_runner().layout
    scheduler = model.new_scheduler(bytes_for(layout, 600) + 2 * layout.bytes_per_page)
    tickets = run_all(scheduler, *requests)
    assert [ticket.answers for ticket in tickets] == wanted
    assert scheduler.pool.used_bytes <= scheduler.pool.budget_bytes


@pytest.mark.parametrize("length", [200, 250, 505])
def test_a_cancelled_answer_goes_on_as_if_it_had_not_stopped(
    model: LoadedModel, length: int
) -> None:
    request = asked(length, most=24)
    (wanted,) = alone(model, request).values()
    scheduler = model.new_scheduler()
    other = scheduler.submit(asked(400, 1, 40))  # runs beside it
    for stop in (2, 5, 10):
        steps = itertools.count()
        # It is looked at once in a pass of tokens, several times in one of the prompt: one or two.
        ticket = scheduler.submit(
            replace(request, cancelled=lambda steps=steps, stop=stop: next(steps) > 2 * stop)
        )
        while not ticket.done:
            scheduler.step()
        found = ticket.tokens[length:]
        assert found == wanted[: len(found)]
        assert len(found) < len(wanted)
        rest = replace(request, prompt=ticket.tokens, max_tokens=24 - len(found), resume=None)
        assert [*found, *scheduler.run(rest).answers[0]] == wanted
    while not other.done:
        scheduler.step()
    assert other.answers == alone(model, asked(400, 1, 40))


def test_random_use_of_a_scheduler(model: LoadedModel, seed: int) -> None:
    choose = random.Random(seed)
    layout = model.new_runner().layout
    scheduler = model.new_scheduler(bytes_for(layout, CONTEXT) + 4 * layout.bytes_per_page)
    wanted: dict[tuple[int, int], list[int]] = {}
    for _ in range(6):
        requests: list[Request] = []
        cancelled: set[int] = set()
        for index in range(choose.randint(1, 3)):
            length, number = choose.choice((40, 256, 300, 512)), choose.randint(0, 2)
            if (length, number) not in wanted:
                wanted[length, number] = alone(model, asked(length, number))[0]
            request = asked(length, number, count=choose.randint(1, 2))
            requests.append(replace(request, cancelled=partial(cancelled.__contains__, index)))
        tickets = [scheduler.submit(request) for request in requests]
        while scheduler.is_busy:
            scheduler.step()
            if choose.random() < 0.03:
                cancelled.add(choose.randrange(3))
            if choose.random() < 0.1:
                scheduler.tree.evict(choose.randint(1, 6) * layout.bytes_per_page)
        for request, ticket in zip(requests, tickets, strict=True):
            number = request.sampling.seed
            found = ticket.answers.get(0, [])
            assert found == wanted[len(request.prompt), number][: len(found)]
    scheduler.tree.clear()
    assert scheduler.pool.used_bytes == 0


# --- disk tier ----------------------------------------------------------------------------------


def files_of(plain: LoadedModel, folder: Path) -> ModelFiles:
    return ModelFiles([plain.path], stamps([plain.path]), folder / "hashes")


def page_before(tokens: list[int]) -> int:
    """The last page boundary before the last of these tokens."""
    return (len(tokens) - 1) // 256 * 256


def restored(
    plain: LoadedModel, model: LoadedModel, folder: Path, text: list[int]
) -> tuple[Scheduler, RestoreResult]:
    """A new scheduler with what is saved of a text."""
    scheduler = model.new_scheduler()
    saver = Saver()
    tier = DiskTier(PageStore(folder), saver, scheduler, files_of(plain, folder), model)
    steps = tier.restore(NO_ADAPTERS, text, "talk", lambda: None)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return scheduler, end.value


@pytest.mark.parametrize("name", FIXED)
def test_a_saved_conversation_goes_on_and_its_last_turn_can_be_edited(
    plain: LoadedModel, name: str, tmp_path: Path
) -> None:
    model = hybrid(plain, name)
    scheduler = model.new_scheduler()
    events: list[object] = []
    saver = Saver()
    tier = DiskTier(PageStore(tmp_path), saver, scheduler, files_of(plain, tmp_path), model)
    first = scheduler.run(asked(280, 0, 30))
    turn = [*first.tokens, *prompt(240)]
    second = scheduler.run(Request(turn, SAMPLING, max_tokens=70))
    tier.note(1, "talk", NO_ADAPTERS, second.tokens)
    save = Save("talk", 1 << 30, answer=1)
    tier.save(save, RequestHandle(save, events.append))
    saver.wait()
    (event,) = events
    assert isinstance(event, SnapshotSaved), event
    for text, least in (
        ([*second.tokens, *prompt(20)], len(second.tokens) - 1),  # goes on
        ([*turn, 9, 9], page_before(turn)),  # its last answer again
        ([*first.tokens, *prompt(50, 4)[::-1]], page_before(first.tokens)),  # its last turn edited
    ):
        fresh, result = restored(plain, model, tmp_path, text)
        assert result.tokens >= least, result
        request = Request(text, SAMPLING, max_tokens=8)
        ticket = fresh.run(replace(request))
        assert ticket.answers == alone(model, request)
        reason = ticket.request.events[-1].reason  # pyright: ignore
        assert reason in (FinishReason.LENGTH, FinishReason.END)


def test_a_chunk_abandoned_for_another_request_changes_no_answer(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler._token_seconds = 10.0  # every chunk of a prompt alone is long
    first, second = asked(700), asked(300, 1)
    ticket = scheduler.submit(replace(first))
    arrivals = itertools.chain([False] * 3, itertools.repeat(True, 2))
    for _ in range(3):
        scheduler.step(lambda: next(arrivals, False))
    other = scheduler.submit(replace(second))
    while scheduler.is_busy:
        scheduler.step()
    assert ticket.answers == alone(model, first)
    assert other.answers == alone(model, second)
