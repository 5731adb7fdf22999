"""Filters on four-token distributions, with the vectors of llama.cpp's test-sampling.cpp."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from engine.messages import Sampling
from engine.sampling import Candidates
from engine.sampling.candidates import shortlist
from engine.sampling.filters import (
    dynamic_temperature,
    min_p,
    temperature,
    top_n_sigma,
    top_p,
    typical,
    xtc,
)

FOUR = [0.1, 0.2, 0.3, 0.4]


def candidates(probabilities: list[float]) -> Candidates:
    logits = np.log(np.array(probabilities, np.float32))
    ids = np.argsort(-logits, stable=True)
    return Candidates(ids, logits[ids])


def same(found: Candidates, expected: list[float]) -> None:
    assert found.probabilities.tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("k", "expected"),
    [(1, [1.0]), (3, [4 / 9, 3 / 9, 2 / 9]), (4, [0.4, 0.3, 0.2, 0.1]), (0, [0.4, 0.3, 0.2, 0.1])],
)
def test_top_k_keeps_the_most_likely(k: int, expected: list[float]) -> None:
    row = candidates(FOUR).logits
    same(shortlist(row, Sampling(top_k=k, top_p=1.0, min_p=0.0)), expected)


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (0.0, [1.0]),
        (0.7, [4 / 7, 3 / 7]),
        (0.8, [4 / 9, 3 / 9, 2 / 9]),
        (1.0, [0.4, 0.3, 0.2, 0.1]),
    ],
)
def test_top_p_keeps_the_nucleus(p: float, expected: list[float]) -> None:
    same(top_p(candidates(FOUR), p), expected)


@pytest.mark.parametrize(
    ("p", "kept"),
    [(0.0, 4), (0.24, 4), (0.26, 3), (0.49, 3), (0.51, 2), (0.74, 2), (0.76, 1), (1.0, 1)],
)
def test_min_p_compares_with_the_most_likely(p: float, kept: int) -> None:
    survivors = [0.4, 0.3, 0.2, 0.1][:kept]
    same(min_p(candidates(FOUR), p), [value / sum(survivors) for value in survivors])


def test_typical_keeps_tokens_with_surprisal_near_the_entropy() -> None:
    same(typical(candidates([0.97, 0.01, 0.01, 0.01]), 0.5), [1.0])
    same(typical(candidates([0.4, 0.2, 0.2, 0.2]), 0.5), [1 / 3, 1 / 3, 1 / 3])


def test_temperature_sharpens_and_flattens() -> None:
    same(temperature(candidates(FOUR), 1.0), [0.4, 0.3, 0.2, 0.1])
    cold = temperature(candidates(FOUR), 0.5).probabilities
    assert cold[0] > 0.4
    assert temperature(candidates(FOUR), 2.0).probabilities[0] < 0.4


@pytest.mark.parametrize("value", [0.0, 1e-7])
def test_temperature_zero_keeps_the_most_likely(value: float) -> None:
    same(temperature(candidates(FOUR), value), [1.0])
    by_id = Candidates(np.arange(4), np.log(np.array(FOUR, np.float32)), ordered=False)
    assert temperature(by_id, value).ids.tolist() == [3]


@pytest.mark.parametrize(("value", "expected"), [(1.0, 1.0), (0.0, 0.0)])
def test_dynamic_temperature_without_a_range_is_the_temperature(
    value: float, expected: float
) -> None:
    assert dynamic_temperature(candidates(FOUR), value, 0.0, 1.0) == expected


def test_dynamic_temperature_follows_the_entropy() -> None:
    certain, even = candidates([0.999999, 1e-6]), candidates([0.25] * 4)
    assert dynamic_temperature(certain, 1.0, 0.5, 1.0) == pytest.approx(0.5, abs=1e-4)
    assert dynamic_temperature(even, 1.0, 0.5, 1.0) == pytest.approx(1.5)
    assert dynamic_temperature(even, 0.2, 0.5, 1.0) == pytest.approx(0.7)
    assert dynamic_temperature(candidates([1.0]), 1.0, 0.5, 1.0) == 1.0
    share = sum(-p * math.log(p) for p in FOUR) / math.log(4)
    found = dynamic_temperature(candidates(FOUR), 1.0, 0.5, 2.0)
    assert found == pytest.approx(0.5 + share**2)
    below = dynamic_temperature(certain, 0.2, 0.5, 1.0)
    assert below == pytest.approx(0, abs=1e-4)  # never negative


@pytest.mark.parametrize(
    ("threshold", "kept"),
    [(0.09, [0.1]), (0.19, [0.2, 0.1]), (0.29, [0.3, 0.2, 0.1]), (0.39, FOUR)],
)
def test_xtc_keeps_the_least_likely_of_those_above_the_threshold(
    threshold: float, kept: list[float]
) -> None:
    expected = sorted((value / sum(kept) for value in kept), reverse=True)
    same(xtc(candidates(FOUR), threshold), expected)
    by_id = Candidates(np.arange(4), np.log(np.array(FOUR, np.float32)), ordered=False)
    same(xtc(by_id, threshold), sorted(expected))


def test_xtc_keeps_the_highest_id_of_a_tie() -> None:
    by_id = Candidates(np.arange(4), np.log(np.array([0.25] * 4, np.float32)), ordered=False)
    assert xtc(by_id, 0.2).ids.tolist() == [3]
    assert xtc(candidates([0.25] * 4), 0.2).ids.tolist() == [3]


@pytest.mark.parametrize(
    ("n", "expected"), [(1.0, [0, 0, 3 / 7, 4 / 7]), (3.0, FOUR), (0.0, [0, 0, 0, 1.0])]
)
def test_top_n_sigma_keeps_logits_near_the_largest(n: float, expected: list[float]) -> None:
    weights = np.exp(top_n_sigma(np.log(np.array(FOUR, np.float32)), n))
    assert (weights / weights.sum()).tolist() == pytest.approx(expected, abs=1e-5)


def test_top_n_sigma_ignores_tokens_that_are_not_allowed() -> None:
    row = np.array([*map(math.log, FOUR), -math.inf, -math.inf], np.float32)
    assert np.isfinite(top_n_sigma(row, 1.0)).tolist() == [False, False, True, True, False, False]


# The queues of test-sampling.cpp: of ten thousand tokens, each as likely as its id is large.
TOKENS = 10_000


@pytest.mark.parametrize(
    ("queue", "k", "p", "least"),
    [
        *[("k", k, 1.0, 1.0) for k in (TOKENS, 1, 100)],
        *[("p", TOKENS, p, 1.0) for p in (1.0, 0.0, 0.0003, 0.8)],
        *[("m", TOKENS, 1.0, least) for least in (1.0, 1e-12, 9997.9 / 9999, 0.1)],
        *[("".join(order), 100, 0.8, 0.1) for order in itertools.permutations("kpm", 2)],
        *[("".join(order), 100, 0.8, 0.1) for order in itertools.permutations("kpm", 3)],
        ("mp", 100, 0.8, 9997.9 / 9999),
    ],
)
def test_queues_of_filters_keep_a_run_of_the_likeliest(
    queue: str, k: int, p: float, least: float
) -> None:
    ids = np.arange(TOKENS - 1, 0, -1)  # token 0 is impossible
    found = Candidates(ids, np.log(ids.astype(np.float32)))
    kept = TOKENS - 1
    for step in queue:
        if step == "k":
            found, kept = found.keep(slice(k)), min(kept, k)
        elif step == "p":
            found = top_p(found, p)
            weights = list(itertools.accumulate(ids[:kept].tolist()))
            wanted = math.ceil(Fraction(str(p)) * weights[-1])
            kept = next(count for count, sum_ in enumerate(weights, 1) if sum_ >= wanted)
        else:
            found = min_p(found, least)
            kept = sum(token >= least * (TOKENS - 1) - 1e-9 for token in ids[:kept].tolist())
        assert found.ids.tolist() == ids[:kept].tolist()
