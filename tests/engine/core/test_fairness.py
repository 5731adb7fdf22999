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
from engine.core.request import SequenceGroup
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel
from engine.messages import Priority, PromptProgress

TOKEN_SECONDS = 1 / 128  # of the simulated model: exact in binary


class Passes:
    """A simulated clock that only passes of the model advance, and the tokens of each pass."""

    def __init__(self, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.tokens = 1.0, []
        step = scheduler.runner.step

        def timed(batch: list, checkpoint: object) -> list:
            counts = [len(rows.tokens) for rows in batch]
            made = step(batch, checkpoint)
            self.now += TOKEN_SECONDS * sum(counts)
            self.tokens.append(counts)
            return made

        monkeypatch.setattr(scheduler.runner, "step", timed)
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
