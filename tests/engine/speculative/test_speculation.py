"""The length of drafts: most expected tokens for the time, off where none pays, and on again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from engine.speculative.costs import StepCosts
from engine.speculative.drafter import Draft
from engine.speculative.speculation import MOST_ROWS, Speculation


class Fixed:
    """Proposes the same tokens again and again."""

    def __init__(self, *, costs_nothing: bool, prior: float = 0.7) -> None:
        self.costs_nothing = costs_nothing
        self.priors = (prior,)
        self.calls = 0
        self.length = 0

    def draft(self, text: Sequence[int], most: int) -> Draft:
        self.calls += 1
        self.length = len(text)
        return Draft([1] * most)

    def rewind(self, length: int) -> None:
        self.length = length

    def close(self) -> None:
        pass


def measured(seconds: Sequence[float]) -> StepCosts:
    """Costs of passes with 1, 2, 3 ... rows, all measured."""
    costs = StepCosts()
    for rows, each in enumerate(seconds, 1):
        costs.learn(rows, each)
    return costs


FLAT = [1 + 0.05 * rows for rows in range(MOST_ROWS)]  # bound by memory
STEEP = [1.0 + rows for rows in range(MOST_ROWS)]  # bound by arithmetic


def test_costs_that_were_not_measured_are_estimated_from_the_nearest() -> None:
    costs = StepCosts()
    assert costs.seconds(3) == 0
    assert costs.ratio(5, 1) == pytest.approx(1.4)
    costs.learn(1, 2.0)
    assert costs.seconds(5) == pytest.approx(2.8)
    costs.learn(4, 10.0)
    assert costs.ratio(5, 1) == pytest.approx(10.0 * 1.4 / 1.3 / 2.0)


def test_a_pass_that_was_interrupted_changes_little() -> None:
    costs = measured([1.0])
    costs.learn(1, 1000.0)
    assert costs.seconds(1) < 1.2


def test_likely_tokens_are_drafted_far_where_rows_cost_little() -> None:
    one = Speculation(Fixed(costs_nothing=True, prior=0.95), measured(FLAT))
    assert len(one.propose([5], 1, 100)) == MOST_ROWS - 1
    assert len(one.propose([5], 1, 3)) == 3
    assert len(one.propose([5], MOST_ROWS - 2, 100)) == 2
    assert not one.propose([5], MOST_ROWS, 100)
    assert not one.propose([5], 1, 0)


def test_unlikely_or_costly_tokens_are_not_verified() -> None:
    assert not Speculation(Fixed(costs_nothing=True), measured(STEEP)).propose([5], 1, 100)
    unlikely = Speculation(Fixed(costs_nothing=True, prior=0.01), measured(FLAT))
    assert not unlikely.propose([5], 1, 100)


def test_the_length_is_that_of_most_tokens_for_the_time() -> None:
    steps = [1 + 0.3 * rows for rows in range(MOST_ROWS)]
    one = Speculation(Fixed(costs_nothing=True, prior=0.7), measured(steps))
    gains = [sum(0.7**at for at in range(count + 1)) / steps[count] for count in range(MOST_ROWS)]
    assert len(one.propose([5], 1, 100)) == gains.index(max(gains))


def test_rejections_end_the_drafts_and_matches_bring_them_back() -> None:
    one = Speculation(Fixed(costs_nothing=True), measured(FLAT))
    text = [5]
    while one.propose(text, 1, 100):
        text.append(9)  # another token than the draft's
        one.learn(0, 1, 1.0)
        assert len(text) < 200
    assert one.drafted
    assert not one.accepted
    off = len(text)
    while not one.propose(text, 1, 100):
        one.learn(0, 1, 1.0)
        text.append(1)  # as drafted
        assert len(text) < off + 200


def test_a_drafter_that_takes_time_pauses_longer_each_time() -> None:
    drafter = Fixed(costs_nothing=False)
    one = Speculation(drafter, measured(FLAT))
    text, tried = [5], list[int]()
    for _ in range(2000):
        before = drafter.calls
        found = one.propose(text, 1, 8)
        if drafter.calls > before:
            tried.append(len(text))
        one.learn(0, 1, 1.0)
        assert not found or drafter.calls > before
        text.append(9)
    pauses = [b - a for a, b in itertools.pairwise(tried) if b - a > 1]
    assert len(tried) < 100
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 8 * pauses[0]


def test_an_old_measurement_of_plain_steps_is_renewed() -> None:
    one = Speculation(Fixed(costs_nothing=True, prior=0.95), costs := measured(FLAT))
    plain = 0
    for _ in range(300):
        rows = 1 + len(one.propose([5], 1, 4))
        plain += rows == 1
        costs.learn(rows, FLAT[rows - 1])
        one.learn(rows - 1, rows, FLAT[rows - 1])
    assert 6 <= plain <= 12


def test_the_gain_is_the_time_saved() -> None:
    one = Speculation(Fixed(costs_nothing=True, prior=0.95), measured(FLAT))
    assert one.gain == 0
    assert len(one.propose([5], 1, 4)) == 4
    one.learn(2, 3, 1.2)  # two accepted and one more, in the time of 1.2 steps
    assert one.gain == pytest.approx(3 / 1.2)
    assert (one.drafted, one.accepted) == (4, 2)
    one.propose([5], 1, 4)
    one.shorten(0)
    one.learn(0, 1, 1.0)
    assert one.gain == pytest.approx(4 / 2.2)
    assert (one.drafted, one.accepted) == (4, 2)
