"""Fairness: a long prompt delays others by one chunk at most, and answers keep their speed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from answers import (
    GREEDY,
    Request,
    alone,
    answered,
    check_nothing_leaked,
    prompt,
    step_until,
    texts,
)
from engine.core import scheduler as scheduling
from engine.core.handle import RequestHandle
from engine.core.reading import TextReading
from engine.core.request import SequenceGroup
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel
from engine.messages import Embed, Priority, PromptProgress, Sampling
from sessions import finish

ENDLESS = Sampling(temperature=0, ignore_end=True)
TOKEN_SECONDS = 1 / 128  # of the simulated model: exact in binary


class Passes:
    """A simulated clock that only passes of the model advance, and the tokens of each of answers."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.tokens = 1.0, []
        self.texts: list[int] = []  # passes of answers before each over given texts
        step, hidden = scheduler.runner.step, scheduler.runner.hidden

        def timed(batch: list, checkpoint: object) -> list:
            counts = [len(rows.tokens) for rows in batch]
            made = step(batch, checkpoint)
            self.now += TOKEN_SECONDS * sum(counts)
            self.tokens.append(counts)
            return made

        def timed_texts(batch: list, checkpoint: object) -> list:
            self.now += TOKEN_SECONDS * sum(len(rows.tokens) for rows in batch)
            self.texts.append(len(self.tokens))
            return hidden(batch, checkpoint)

        monkeypatch.setattr(scheduler.runner, "step", timed)
        monkeypatch.setattr(scheduler.runner, "hidden", timed_texts)
        clock = SimpleNamespace(perf_counter=lambda: self.now, monotonic=lambda: self.now)
        monkeypatch.setattr(scheduling, "time", clock)
        scheduler._token_seconds = TOKEN_SECONDS


def chunks(ticket: SequenceGroup) -> int:
    """Chunks of a prompt that were processed."""
    return sum(isinstance(event, PromptProgress) for event in ticket.request.events) - 1


def test_a_short_question_waits_for_one_chunk_of_a_long_text_at_most(
    model: LoadedModel, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(scheduler, monkeypatch)
    long = Request(prompt(1_400), GREEDY, max_tokens=5)
    short = Request(prompt(20, 9), GREEDY, max_tokens=30)
    reading = scheduler.submit(long)
    arrivals = iter([False, True])
    scheduler.step(lambda: next(arrivals, False))
    assert chunks(reading) == 0, "its long chunk is abandoned, and nothing of it counts"
    question = scheduler.submit(short)
    step_until(scheduler, lambda: texts(question) == 1)
    assert chunks(reading) <= 1
    step_until(scheduler, lambda: reading.done and question.done)
    limit = scheduling._CHUNK_SECONDS / TOKEN_SECONDS
    beside = [counts for counts in passes.tokens if len(counts) > 1]
    assert all(max(counts) <= limit for counts in beside)
    for request, ticket in ((long, reading), (short, question)):
        assert answered(ticket).tokens == alone(model, request).tokens
    check_nothing_leaked(scheduler)


def test_two_long_texts_take_turns_in_chunks_of_a_second(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(scheduler, monkeypatch)
    tickets = [scheduler.submit(Request(prompt(700, at), max_tokens=1)) for at in (1, 2)]
    for _ in range(6):
        scheduler.step()
    assert passes.tokens == [[128]] * 6
    assert [chunks(ticket) for ticket in tickets] == [3, 3]


def test_an_answer_beside_a_long_text_has_half_of_the_time(
    model: LoadedModel, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(scheduler, monkeypatch)
    monkeypatch.setattr(scheduling, "_BURST_SECONDS", 0.0)  # the text is short for this clock
    short = Request(prompt(10, 9), GREEDY, max_tokens=60)
    question = scheduler.submit(short)
    step_until(scheduler, lambda: texts(question) == 1)
    before, start = len(passes.tokens), passes.now
    reading = scheduler.submit(Request(prompt(1_400), max_tokens=1))
    step_until(scheduler, lambda: question.done or reading.done)
    assert question.done, "the answer ended while the text was read"
    made = passes.tokens[before:]
    alone_seconds = TOKEN_SECONDS * sum(len(counts) == 1 for counts in made)
    assert 0.4 <= alone_seconds / (passes.now - start) <= 0.6
    assert chunks(reading) >= 3, "the text goes on too"
    assert answered(question).tokens == alone(model, short).tokens


def test_a_text_in_the_background_yields_to_answers_and_not_the_reverse(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(scheduler, monkeypatch)
    other = scheduler.submit(
        Request(prompt(10, 9), GREEDY, max_tokens=200, priority=Priority.BACKGROUND)
    )
    step_until(scheduler, lambda: texts(other) == 1)
    before = len(passes.tokens)
    reading = scheduler.submit(Request(prompt(200), max_tokens=1))
    step_until(scheduler, lambda: reading.done)
    assert all(len(counts) == 2 for counts in passes.tokens[before:])


def reading(
    scheduler: Scheduler, tokens: int, priority: Priority = Priority.NORMAL, texts: int = 1
) -> TextReading:
    """Given texts, whose states nobody looks at."""
    handle = RequestHandle(Embed(()), print, priority=priority)
    given = [prompt(tokens, first) for first in range(texts)]
    operands = scheduler.runner, scheduler.context, given, lambda *_: None
    return TextReading(*operands, equal_bits=True, handle=handle)


def test_answers_have_as_much_time_as_given_texts_beside_them(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(scheduler, monkeypatch)
    answer = scheduler.submit(Request(prompt(20), ENDLESS, max_tokens=900, stop_loops=False))
    step_until(scheduler, lambda: texts(answer))
    finish(scheduler.read(reading(scheduler, 320, texts=2)), scheduler)
    between = [
        after - before for before, after in zip(passes.texts, passes.texts[1:], strict=False)
    ]
    assert len(between) > 20, "a pass over given texts is a chunk beside answers"
    assert set(between[3:]) == {16}, "of 16 tokens, whose time the answer then has alone"


def test_given_texts_take_turns_with_prompts_and_each_other(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(scheduler, monkeypatch)
    long = scheduler.submit(Request(prompt(1_400), GREEDY, max_tokens=1))
    both = [reading(scheduler, 1_000), reading(scheduler, 900)]
    work = [scheduler.read(one) for one in both]
    for one in work:
        next(one)
    for _ in range(9):
        scheduler.step()
    assert chunks(long) == 3
    assert [one.served > 3 for one in both] == [True, True]
    assert len(passes.texts) == 6


def test_given_texts_in_the_background_wait_for_prompts_and_urgent_ones_do_not(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Passes(scheduler, monkeypatch)
    answer = scheduler.submit(Request(prompt(1_000), ENDLESS, max_tokens=30, stop_loops=False))
    work = scheduler.read(reading(scheduler, 400, Priority.BACKGROUND))
    next(work)
    step_until(scheduler, lambda: texts(answer))
    assert not passes.texts
    before = len(passes.tokens)
    finish(scheduler.read(reading(scheduler, 100, Priority.WINDOW)), scheduler)
    assert len(passes.tokens) == before
