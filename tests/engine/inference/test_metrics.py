"""Metrics: histograms and quantiles by their definitions, and what answers add to them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from answers import answered, prompt, run_all
from drafters import PartlyRight, verify_every_draft
from engine import Finished, FinishReason, MetricsRead, ReadMetrics, Sampling, Text
from engine.inference.generate import Request
from engine.inference.metrics import (
    FIRST_TOKEN_SECONDS,
    TOKEN_SECONDS,
    TOKENS_PER_SECOND,
    Counts,
    quantile,
)
from engine.inference.scheduler import Scheduler
from engine.loading.loader import LoadedModel
from engine.loading.metrics import read_metrics
from engine.messages import Cancel, Generate
from engine_bench import GREEDY, Bench, turns_of

numbers = st.lists(st.floats(0, 1e5), max_size=60)


@given(values=numbers)
def test_a_histogram_counts_each_value_once(values: list[float]) -> None:
    for bounds in (FIRST_TOKEN_SECONDS, TOKEN_SECONDS, TOKENS_PER_SECOND):
        assert list(bounds) == sorted(set(bounds))
        counts = Counts(bounds)
        for value in values:
            counts.add(value)
        read = counts.read()
        edges = [-1.0, *bounds, float("inf")]
        wanted = [
            sum(low < value <= high for value in values) for low, high in itertools.pairwise(edges)
        ]
        assert list(read.counts) == wanted
        assert read.sum == pytest.approx(sum(values))


@given(values=numbers, share=st.floats(0.01, 1))
def test_quantiles_are_those_of_numpy(values: list[float], share: float) -> None:
    wanted = np.quantile(values, share, method="inverted_cdf") if values else 0.0
    assert quantile(values, share) == wanted


def check(scheduler: Scheduler, ended: list[Finished]) -> None:
    """Compare the sums with those of the final events."""
    found = scheduler.metrics
    for name in ("generated_tokens", "drafted_tokens", "accepted_tokens"):
        assert getattr(found, name) == sum(getattr(one, name) for one in ended)
    firsts = [one for one in ended if one.answer == 0]
    assert found.prompt_tokens == sum(one.prompt_tokens for one in firsts)
    assert found.reused_tokens == sum(one.reused_tokens for one in firsts)
    for reason in FinishReason:
        assert found.answers[reason] == sum(one.reason is reason for one in ended)
    waits = [one.first_token_seconds for one in ended if one.first_token_seconds]
    assert sum(found.first_token.read().counts) == len(waits)
    assert found.first_token.read().sum == pytest.approx(sum(waits))


def test_answers_add_up(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    verify_every_draft(scheduler)
    plain = [Request(prompt(300, at), Sampling(temperature=0), max_tokens=20) for at in range(3)]
    several = Request(prompt(40), Sampling(temperature=1, seed=3), max_tokens=30, count=3)
    tickets = run_all(scheduler, *plain, several)
    text = [*plain[0].prompt, *tickets[0].answers[0]]
    again = Request(plain[0].prompt, Sampling(temperature=0), max_tokens=20)
    again.drafter = lambda _: PartlyRight([text], model.config.vocabulary)
    tickets += run_all(scheduler, again)
    ended = [answered(one, at).finished for one in tickets for at in one.answers]
    assert len(ended) == 7
    check(scheduler, ended)
    assert scheduler.metrics.reused_tokens >= 299
    assert 0 < scheduler.metrics.accepted_tokens < scheduler.metrics.drafted_tokens
    for one in ended:
        assert 0 < one.first_token_seconds < 60
        assert 0 < one.token_seconds_p50 <= one.token_seconds_p95
        assert one.token_seconds_p50 <= one.decode_seconds
    tokens = scheduler.metrics.token.read()
    # The first token of each answer is not timed, nor what its first pass adds to it.
    assert sum(tokens.counts) <= scheduler.metrics.generated_tokens - len(ended)
    assert tokens.sum <= sum(one.decode_seconds for one in ended)


def test_waiting_counts_from_the_arrival(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    request = Request(prompt(5), max_tokens=2, arrived=time.perf_counter() - 5)
    assert answered(scheduler.run(request)).finished.first_token_seconds == pytest.approx(5, abs=2)


def test_pages_are_active_while_an_answer_runs_then_cached(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    tickets = [scheduler.submit(Request(prompt(300), max_tokens=40, count=2))]
    while not tickets[0].forked:
        scheduler.step()
    scheduler.step()
    read = read_metrics(model, scheduler, 4)
    page = scheduler.pool.layout.bytes_per_page
    assert (read.request, read.model, read.running) == (4, model.name, 2)
    assert read.active_page_bytes == 3 * page  # the first is shared
    while not tickets[0].done:
        scheduler.step()
    read = read_metrics(model, scheduler, 5, saved_page_bytes=7)
    assert (read.running, read.active_page_bytes, read.saved_page_bytes) == (0, 0, 7)
    assert read.cached_page_bytes == scheduler.pool.used_bytes > 0
    assert read.resident_bytes > 1_000_000
    assert sum(read.first_token_seconds.counts) == 2


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench()
    yield made
    made.engine.stop()


def test_the_engine_reads_them_with_and_without_a_model(bench: Bench, tmp_path: Path) -> None:
    assert bench.expect(ReadMetrics(1), MetricsRead) == MetricsRead(1)
    bench.load(tiny.write(tmp_path / "tiny.gguf", context=512), 2)
    bench.generate(3, "hello", max_tokens=10)
    bench.engine.send(Generate(4, turns_of("again"), sampling=GREEDY, max_tokens=400))
    bench.until(Text)
    assert bench.expect(ReadMetrics(5), MetricsRead).running == 1
    bench.engine.send(Cancel(4))
    bench.until(Finished)
    read = bench.expect(ReadMetrics(6), MetricsRead)
    assert dict(read.answers)["length"] == 1
    assert dict(read.answers)["cancelled"] == 1
    assert read.generated_tokens >= 11
