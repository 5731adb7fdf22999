"""Expert routing: the softmax of the highest scores, on every backend."""

from __future__ import annotations

import pytest
import torch

from chosen_backend import ops
from kernels.ops.routing import Routing

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize(("experts", "chosen"), [(1, 1), (8, 2), (60, 4), (128, 8), (1500, 3)])
def test_shares_are_the_softmax_of_the_highest_scores(
    experts: int, chosen: int, random: torch.Generator
) -> None:
    scores = torch.randn(20, experts, generator=random) * 4
    shares = ops.route(scores, Routing(chosen))
    values, highest = scores.double().topk(chosen)
    wanted = torch.zeros(20, experts).double().scatter_(1, highest, values.softmax(1))
    torch.testing.assert_close(shares.double(), wanted, rtol=1e-5, atol=1e-7)
    assert ((shares > 0) == (wanted > 0)).all()


def test_of_equal_scores_the_first_is_chosen() -> None:
    shares = ops.route(torch.tensor([[1.0, 3.0, 3.0, 3.0, 0.0]]), Routing(2))
    assert shares.tolist() == [[0.0, 0.5, 0.5, 0.0, 0.0]]


def test_large_scores_stay_finite() -> None:
    shares = ops.route(torch.tensor([[3e38, -3e38, 1e38]]), Routing(2))
    assert shares.tolist() == [[1.0, 0.0, 0.0]]


def test_a_score_that_is_no_number_is_not_hidden() -> None:
    assert ops.route(torch.tensor([[1.0, torch.nan, 2.0, 0.0]]), Routing(2)).isnan().any()


@pytest.mark.parametrize("chosen", [0, 5])
def test_an_impossible_choice_is_refused(chosen: int) -> None:
    with pytest.raises(ValueError, match="route: "):
        ops.route(torch.zeros(1, 4), Routing(chosen))


def test_scores_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="route: "):
        ops.route(torch.zeros(4), Routing(1))
