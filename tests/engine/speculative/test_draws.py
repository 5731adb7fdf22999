"""The distribution of answers with drafts: exactly the model's, by a chi-square test.

A model that looks at the last token alone, over six tokens: the exact distribution of the fifth
token of an answer is known. Planted bugs must be found by the same test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from answers import Request
from drafters import FreeDrafts
from engine.core.request import SequenceGroup
from engine.core.sequence import RunningSequence
from engine.messages import Sampling
from engine.sampling import Sampler
from engine.speculative.drafter import Draft, Drafter
from engine.speculative.lookup import LookupDrafter

V = 6
LENGTH = 5  # tokens of an answer; the last one is counted
ANSWERS = 12_500  # of which each draws at least four tokens more: 50,000 draws and more
PROMPT = (0, 3, 1, 0, 3, 1, 0)  # in which lookup finds a match at once
P_001 = 15.09  # chi-square with 5 degrees of freedom at p = 0.01
TABLE = torch.randn(V, V, generator=torch.Generator().manual_seed(1)) * 1.5
OTHERS = TABLE + torch.randn(V, V, generator=torch.Generator().manual_seed(2))  # the draft model's
SAMPLINGS = {
    "plain": Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0),
    "top-p": Sampling(0.8, top_k=0, top_p=0.85, min_p=0.0),
    "top-k": Sampling(1.3, top_k=4, top_p=1.0, min_p=0.0),
    "biased": Sampling(1.0, top_k=0, top_p=1.0, min_p=0.0, logit_bias=((2, -np.inf), (1, 0.7))),
}


class Texts:
    """Takes the place of the tokenizer: tokens have no text."""

    end_tokens = suppressed = frozenset[int]()
    size = V

    def piece(self, token: int) -> bytes:
        return b""

    shown_piece = piece

    def is_control(self, token: int) -> bool:
        return False


class Cached:
    """Takes the place of the pages: counts tokens."""

    context = 1_000

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def commit_accepted(self, tokens: Sequence[int], processed: int) -> None:
        self.tokens += tokens


class OtherModel:
    """Drafts with another model, as `ModelDrafter` does."""

    costs_nothing = False
    priors = (0.9,)

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def draft(self, text: Sequence[int], most: int) -> Draft:
        drafted = list(text)
        for _ in range(min(most, 3)):
            candidates = self._sampler.distribution(OTHERS[drafted[-1]], drafted)
            drafted.append(self._sampler.pick(candidates, len(drafted)))
        return Draft(drafted[len(text) :])

    def rewind(self, length: int) -> None:
        pass

    def close(self) -> None:
        pass


class Fixed(OtherModel):
    """Always drafts the same tokens."""

    def draft(self, text: Sequence[int], most: int) -> Draft:
        return Draft([0, 1, 3][:most])


DRAFTERS: dict[str, Callable[[Sampler], Drafter] | None] = {
    "none": None,
    "lookup": lambda _: LookupDrafter(),
    "model": OtherModel,
    "fixed": Fixed,
}


def answer(
    sampling: Sampling,
    seed: int,
    drafter: Callable[[Sampler], Drafter] | None,
    break_rows: Callable[[Tensor], Tensor],
    break_sampler: Callable[[RunningSequence], None],
) -> tuple[int, int]:
    """The last token of an answer, and how many drafted ones were accepted."""
    options: dict[str, Any] = {**{name: getattr(sampling, name) for name in sampling.__slots__}}
    sampled = Sampling(**options | {"seed": seed})
    request = Request(PROMPT, sampled, drafter=drafter, stop_loops=False)
    cached: Any = Cached(PROMPT)
    texts: Any = Texts()
    one = RunningSequence(SequenceGroup(request), texts, cached, FreeDrafts())
    one.is_prefilling, one.pending = False, [cached.tokens.pop()]
    break_sampler(one)
    while one.generated < LENGTH:
        one.propose(1)
        rows = TABLE[[one.pending[-1], *one.draft]]
        if not one.draft:
            cached.tokens += one.pending  # as the runner does
        one.accept(break_rows(rows), 0.0)
    speculation = one.speculation
    return one.text[len(PROMPT) + LENGTH - 1], speculation.accepted if speculation else 0


def expected(sampling: Sampling) -> NDArray[np.float64]:
    """The exact distribution of the last token."""
    sampler, step = Sampler(sampling), np.zeros((V, V))
    for token in range(V):
        found = sampler.distribution(TABLE[token], [token])
        step[token, found.ids] = found.probabilities / found.probabilities.sum()
    return np.linalg.matrix_power(step, LENGTH)[0]


def statistic(
    sampling: Sampling,
    drafter: Callable[[Sampler], Drafter] | None,
    break_rows: Callable[[Tensor], Tensor] = lambda rows: rows,
    break_sampler: Callable[[RunningSequence], None] = lambda one: None,
    answers: int = ANSWERS,
) -> tuple[float, int]:
    """Chi-square against the exact distribution, and the number of accepted tokens."""
    found = [answer(sampling, seed, drafter, break_rows, break_sampler) for seed in range(answers)]
    counts = np.bincount([token for token, _ in found], minlength=V)
    wanted = expected(sampling) * answers
    possible = wanted > 0
    if counts[~possible].any():
        return np.inf, 0
    chi = float(((counts - wanted)[possible] ** 2 / wanted[possible]).sum())
    return chi, sum(accepted for _, accepted in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_answers_have_the_distribution_of_the_model(name: str, sampling: Sampling) -> None:
    chi, accepted = statistic(sampling, DRAFTERS[name])
    assert chi < P_001
    assert (accepted > ANSWERS / 20) == (name != "none")


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["lookup", "model"])
@pytest.mark.parametrize("sampling", ["top-p", "biased"])
def test_a_few_answers_have_the_distribution_of_the_model(name: str, sampling: str) -> None:
    chi, accepted = statistic(SAMPLINGS[sampling], DRAFTERS[name], answers=1_000)
    assert chi < P_001
    assert accepted > 50


def _accept_always(one: RunningSequence) -> None:
    draw, sampler = one._sampler.draw, one._sampler

    def broken(row: Tensor, text: Sequence[int], *options: Any) -> int:
        drawn = draw(row, text, *options)
        start = one.request.prompt
        at = len(text) - len(start) - broken_at[0]
        return one.draft[at] if 0 <= at < len(one.draft) else drawn

    propose, broken_at = one.propose, [0]

    def proposed(rows: int) -> None:
        propose(rows)
        broken_at[0] = one.generated

    sampler.draw = broken  # pyright: ignore[reportAttributeAccessIssue]
    one.propose = proposed  # pyright: ignore[reportAttributeAccessIssue]


def _next_position(rows: Tensor) -> Tensor:
    """The distribution after the draft's next token is used for each but the last."""
    return torch.cat([rows[1:], rows[-1:]])


def _forget_bias_on_the_last(one: RunningSequence) -> None:
    draw, plain = one._sampler.draw, Sampler(SAMPLINGS["plain"])
    propose, last = one.propose, [0]

    def broken(row: Tensor, text: Sequence[int], *options: Any) -> int:
        plain.seed = one._sampler.seed
        return (plain.draw if len(text) == last[0] else draw)(row, text, *options)

    def proposed(rows: int) -> None:
        propose(rows)
        last[0] = len(one.text) + len(one.draft) if one.draft else 0

    one._sampler.draw = broken  # pyright: ignore[reportAttributeAccessIssue]
    one.propose = proposed  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["lookup", "model", "fixed"])
def test_accepting_every_draft_is_found(name: str) -> None:
    chi, _ = statistic(
        SAMPLINGS["plain"], DRAFTERS[name], break_sampler=_accept_always, answers=700
    )
    assert chi > P_001


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["model", "fixed"])
def test_drawing_from_another_position_is_found(name: str) -> None:
    chi, _ = statistic(SAMPLINGS["plain"], DRAFTERS[name], break_rows=_next_position, answers=2_000)
    assert chi > P_001


@pytest.mark.parametrize("name", ["model", "fixed"])
def test_forgetting_a_bias_on_the_token_after_a_draft_is_found(name: str) -> None:
    chi, _ = statistic(
        SAMPLINGS["biased"],
        DRAFTERS[name],
        break_sampler=_forget_bias_on_the_last,
        answers=700,
    )
    assert chi > P_001
