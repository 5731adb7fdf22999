"""Metrics: histograms and quantiles by their definitions, and what answers add to them."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from answers import Request, answered, prompt, run_all
from drafters import PartlyRight, verify_every_draft
from engine import Finished, FinishReason, Metrics, MetricsRead, Sampling, Text
from engine.core.metrics import (
    FIRST_TOKEN_SECONDS,
    TOKEN_SECONDS,
    TOKENS_PER_SECOND,
    Counts,
    TokenTimes,
    bounds,
)
from engine.core.scheduler import Scheduler
from engine.loading.loader import LoadedModel
from engine.loading.metrics import read_metrics
from engine.messages import Chat
from engine_bench import GREEDY, Bench, turns_of

values_of = st.lists(st.floats(0, 1e6) | st.floats(0, 1e-3), max_size=60)
SHARES = (0.01, 0.25, 0.5, 0.95, 1.0)


def counted(values: list[float]) -> Counts:
    counts = Counts()
    for value in values:
        counts.add(value)
    return counts


@given(values=values_of)
def test_a_histogram_counts_each_value_once(values: list[float]) -> None:
    counts = counted(values)
    for powers in (FIRST_TOKEN_SECONDS, TOKEN_SECONDS, TOKENS_PER_SECOND):
        read = counts.read(powers)
        assert list(read.bounds) == [2.0**power for power in powers]
        edges = [-1.0, *read.bounds, float("inf")]
        wanted = [
            sum(low < value <= high for value in values) for low, high in itertools.pairwise(edges)
        ]
        assert list(read.counts) == wanted
        assert read.sum == pytest.approx(sum(values))
        assert (read.p50, read.p95) == (counts.quantile(0.5), counts.quantile(0.95))


@given(value=st.floats(0, 1e6))
def test_a_value_is_inside_the_bounds_of_its_bucket(value: float) -> None:
    counts = counted([value])
    (bucket,) = (at for at, count in enumerate(counts._counts) if count)
    low, high = bounds(bucket)
    assert low < value <= high or (value == 0 and bucket == 0)
    assert high <= low * 17 / 16 or bucket in (0, len(counts._counts) - 1)


@pytest.mark.parametrize("power", [-17, -10, 0, 16])
def test_bounds_are_included(power: int) -> None:
    for part in range(16):
        bound = 2.0**power * (1 + part / 16)
        below, above = math.nextafter(bound, 0), math.nextafter(bound, math.inf)
        (at,) = (bucket for bucket, count in enumerate(counted([bound])._counts) if count)
        assert bounds(at)[1] == bound
        assert counted([below])._counts[at] == 1
        assert counted([above])._counts[at + 1] == 1


@given(values=values_of, share=st.sampled_from(SHARES))
def test_quantiles_are_those_of_numpy_within_their_bucket(
    values: list[float], share: float
) -> None:
    found = counted(values).quantile(share)
    if not values:
        assert found == 0
        return
    exact = float(np.quantile(values, share, method="inverted_cdf"))
    (bucket,) = (at for at, count in enumerate(counted([exact])._counts) if count)
    low, high = bounds(bucket)
    assert low <= found <= high
    if 1e-5 < exact < 1e5:
        assert found == pytest.approx(exact, rel=1 / 16)


@given(one=values_of, other=values_of)
def test_merged_histograms_are_those_of_all_values(one: list[float], other: list[float]) -> None:
    merged = counted(one)
    merged.merge(counted(other))
    together = counted(one + other)
    assert merged._counts == together._counts
    assert merged.count == len(one) + len(other)
    assert merged.sum == pytest.approx(together.sum)


def test_odd_values_are_counted() -> None:
    counts = counted([-1.0, 0.0, 1e300])
    read = counts.read(TOKEN_SECONDS)
    assert (read.counts[0], read.counts[-1], counts.count) == (2, 1, 3)
    assert counts.sum == 1e300


# --- token times --------------------------------------------------------------------------------


@given(passes=st.lists(st.integers(-3, 6), min_size=1, max_size=30))
def test_shares_add_up_to_the_time_between_the_first_tokens_and_the_last(
    passes: list[int],
) -> None:
    """Passes that add tokens, draft several, or take some back."""
    times, generated, known = TokenTimes(time.perf_counter()), 0, []
    for change in passes:
        generated = max(generated + change, 0)
        times.on_tokens(generated)
        known.append(generated)
    first = next((tokens for tokens in known if tokens), 0)
    assert times.between.count == max([*known, first]) - first
    assert (times.first_token_seconds > 0) == bool(first)
    assert times.between.sum <= time.perf_counter() - times._arrived
    assert times.between.sum == pytest.approx(
        times._last - times._arrived - times.first_token_seconds if first else 0.0, abs=1e-6
    )


def test_tokens_of_a_pass_share_its_time() -> None:
    times = TokenTimes(time.perf_counter())
    times.on_tokens(1)
    time.sleep(0.04)
    times.on_tokens(5)
    assert times.between.count == 4
    assert 0.04 <= times.between.sum < 4
    assert times.quantile(0.95) == pytest.approx(times.between.sum / 4, rel=1 / 16)


# --- answers ------------------------------------------------------------------------------------


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
    assert found.first_token.count == len(waits)
    assert found.first_token.sum == pytest.approx(sum(waits))


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
    tokens = scheduler.metrics.token
    # The first token of each answer is not timed; here no first pass adds more to it.
    assert tokens.count == scheduler.metrics.generated_tokens - len(ended)
    assert tokens.sum <= sum(one.decode_seconds for one in ended)
    assert scheduler.metrics.decode.count == len(ended)


def test_an_answer_without_tokens_has_no_first_one(model: LoadedModel) -> None:
    end = next(iter(model.tokenizer.end_tokens))
    sampling = Sampling(temperature=0, logit_bias=((end, 1e6),))
    scheduler = model.new_scheduler()
    (ticket,) = run_all(scheduler, Request(prompt(5), sampling))
    ended = answered(ticket).finished
    assert (ended.generated_tokens, ended.first_token_seconds, ended.token_seconds_p95) == (0, 0, 0)
    assert scheduler.metrics.first_token.count == 0
    assert scheduler.metrics.answers[FinishReason.END] == 1


def test_tokens_that_are_taken_back_are_timed_once(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    banned = tuple(
        chr(first) + chr(second) for first in range(97, 103) for second in range(32, 127)
    )
    sampling = Sampling(temperature=1, seed=2, ignore_end=True, top_k=0, banned=banned)
    (ticket,) = run_all(scheduler, Request(prompt(30), sampling, max_tokens=60))
    assert answered(ticket).finished.generated_tokens == 60
    assert scheduler.metrics.token.count == 59


class Broken(Counts):
    """A histogram with a planted fault."""

    def add(self, value: float, times: int = 1) -> None:
        raise ZeroDivisionError("planted")

    def quantile(self, share: float) -> float:
        raise ZeroDivisionError("planted")


def test_faults_of_the_metrics_end_no_answer(
    model: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = answered(
        run_all(model.new_scheduler(), Request(prompt(9), GREEDY, max_tokens=9))[0]
    ).tokens
    scheduler = model.new_scheduler()
    scheduler.metrics.first_token = Broken()
    for _ in range(2):
        ticket = scheduler.submit(Request(prompt(9), GREEDY, max_tokens=9))
        while not ticket.done:
            scheduler.step()
            for generation in scheduler._running:
                generation.times.between = Broken()
        made = answered(ticket)
        assert made.tokens == wanted
        assert made.finished.token_seconds_p50 == 0
    faults = [one for one in caplog.records if one.levelno >= logging.ERROR]
    messages = [one.message for one in faults]
    assert messages.count("answers are not measured any more") == 1  # not for every answer
    assert messages.count("the times of an answer are not measured any more") == 2
    assert all("planted" in str(one.exc_info) for one in faults)


def test_a_prompt_that_was_never_looked_up_is_not_counted(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.submit(Request(prompt(300), cancelled=lambda: True))
    scheduler.step()
    assert scheduler.metrics.answers[FinishReason.CANCELLED] == 1
    assert (scheduler.metrics.prompt_tokens, scheduler.metrics.prefill.count) == (0, 0)


def test_a_prompt_that_was_cancelled_half_way_has_no_speed(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    scheduler.runner.chunk = 64
    stop: list[bool] = []
    ticket = scheduler.submit(Request(prompt(300), cancelled=lambda: bool(stop)))
    scheduler.step()
    stop.append(True)
    scheduler.step()
    ended = answered(ticket).finished
    assert ended.reason is FinishReason.CANCELLED
    assert ended.prefill_seconds > 0
    assert scheduler.metrics.prefill.count == 0
    scheduler.run(Request(prompt(300), GREEDY, max_tokens=2))
    assert scheduler.metrics.prefill.count == 1
    assert scheduler.metrics.prompt_tokens == 600  # it began to be read


def test_pages_that_are_being_written_are_in_memory(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    pool = scheduler.pool
    pool.most_lent_bytes = 1 << 30
    page = pool.take(0)
    assert pool.lend([page])
    read = read_metrics(model, scheduler, 1)
    assert read.cached_page_bytes == pool.lent_bytes == pool.layout.page_bytes[0]


def test_waiting_counts_from_the_arrival(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    request = Request(prompt(5), max_tokens=2, arrived=time.perf_counter() - 5)
    assert answered(scheduler.run(request)).finished.first_token_seconds == pytest.approx(5, abs=2)


def test_pages_are_active_while_an_answer_runs_then_cached(model: LoadedModel) -> None:
    scheduler = model.new_scheduler()
    whole = Sampling(ignore_end=True)  # neither ends at its first token
    tickets = [scheduler.submit(Request(prompt(300), whole, max_tokens=40, count=2))]
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
    found = bench.expect(1, Metrics(), MetricsRead)
    assert found.resident_bytes > 1_000_000
    assert replace(found, resident_bytes=0) == MetricsRead(1)
    bench.load(tiny.write(tmp_path / "tiny.gguf", context=512), 2)
    bench.generate(3, "hello", max_tokens=10)
    bench.send(4, Chat(turns_of("again"), sampling=GREEDY, max_tokens=400))
    bench.until(Text)
    assert bench.expect(5, Metrics(), MetricsRead).running == 1
    bench.cancel(4)
    bench.until(Finished)
    read = bench.expect(6, Metrics(), MetricsRead)
    assert dict(read.answers)["length"] == 1
    assert dict(read.answers)["cancelled"] == 1
    assert read.generated_tokens >= 11
