"""The prefill time estimate: the work of a prompt, and costs fitted to measured prefills."""

from __future__ import annotations

import random

import pytest

from engine.core.prefill_time import (
    MeasuredPrefill,
    PrefillCosts,
    PrefillShape,
    PrefillTimes,
    PrefillWork,
    fitted,
)

SHAPE = PrefillShape(128, (0, 64, 0, 512))
COSTS = PrefillCosts(2e-3, 1e-3, 1e-4, 1e-7)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 64), (10, 700), (600, 601), (63, 66)])
def test_work_counts_what_each_token_attends_to(start: int, end: int) -> None:
    pairs = sum(
        min(position + 1, window or position + 1)
        for window in SHAPE.windows
        for position in range(start, end)
    )
    work = SHAPE.work(start, end)
    assert work.attended == pytest.approx(pairs / len(SHAPE.windows))
    assert work.tokens == end - start
    assert work.chunks == -(-(end - start) // 128)
    assert work.prompts == 1


def test_work_of_a_prompt_is_the_sum_of_its_chunks() -> None:
    parts = SHAPE.work(0, 128, complete=False) + SHAPE.work(128, 200)
    assert parts == SHAPE.work(0, 200)


def test_without_measured_prefills_the_calibration_holds() -> None:
    assert fitted(COSTS, []) == COSTS


@pytest.mark.parametrize("factor", [0.3, 1.0, 4.0])
def test_measured_prefills_correct_all_costs_by_a_common_factor(factor: float) -> None:
    runs = [_run(0, 512, factor)]
    found = fitted(COSTS, runs).seconds(SHAPE.work(0, 4_096))
    assert found == pytest.approx(factor * COSTS.seconds(SHAPE.work(0, 4_096)), rel=0.05)


def test_measured_prefills_show_that_attention_costs_more() -> None:
    true = PrefillCosts(COSTS.prompt, COSTS.chunk, COSTS.token, COSTS.attended * 3)
    runs = [
        MeasuredPrefill(SHAPE.work(at, at + 512), true.seconds(SHAPE.work(at, at + 512)))
        for at in range(0, 8_192, 512)
    ]
    for length in (512, 1_000, 8_000):
        work = SHAPE.work(0, length)
        assert fitted(COSTS, runs).seconds(work) == pytest.approx(true.seconds(work), rel=0.2)


def test_outliers_do_not_spoil_the_estimate() -> None:
    chance = random.Random(5)
    runs = [_run(0, 512, 1 + chance.uniform(-0.05, 0.05)) for _ in range(12)]
    runs[3], runs[9] = _run(0, 512, 9.0), _run(0, 512, 5.0)
    work = SHAPE.work(0, 1_024)
    assert fitted(COSTS, runs).seconds(work) == pytest.approx(COSTS.seconds(work), rel=0.2)


def test_costs_stay_positive_whatever_was_measured() -> None:
    chance = random.Random(7)
    for _ in range(50):
        runs = [
            MeasuredPrefill(
                SHAPE.work(start := chance.randrange(9_000), start + chance.randint(16, 2_000)),
                10 ** chance.uniform(-5, 2),
            )
            for _ in range(chance.randint(1, 48))
        ]
        found = fitted(COSTS, runs)
        assert min(found.prompt, found.chunk, found.token, found.attended) > 0


def test_long_prompts_count_as_few_prefills_and_short_ones_as_none() -> None:
    times = PrefillTimes(COSTS)
    times.add([_run(at, at + 128, 1.0) for at in range(0, 12_800, 128)])
    assert len(times.runs) == 4
    assert sum(run.work.tokens for run in times.runs) == 12_800
    assert not times.add([_run(0, 8, 50.0)])
    assert not times.add([])
    assert len(times.runs) == 4


def test_only_the_last_prefills_are_kept() -> None:
    times = PrefillTimes(COSTS)
    for _ in range(200):
        times.add([_run(0, 128, 1.0)])
    assert len(times.runs) == 48


def test_no_estimate_before_the_calibration() -> None:
    assert PrefillTimes().seconds(PrefillWork(1, 1, 100, 100)) == 0


def _run(start: int, end: int, factor: float) -> MeasuredPrefill:
    work = SHAPE.work(start, end)
    return MeasuredPrefill(work, factor * COSTS.seconds(work))
