"""The processed distribution: masks, extremes, and draws that follow it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import ModelFileError, RequestError, Sampling
from engine.sampling import Candidates, Sampler
from engine.sampling.dry import Dry
from engine.sampling.filters import (
    dynamic_temperature,
    min_p,
    temperature,
    top_n_sigma,
    top_p,
    typical,
    xtc,
)
from engine.sampling.penalties import Mask, penalize

PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=7)
DRAWS = 50_000
# Each kind of step alone and together.
OPTIONS = {
    "temperature": replace(PLAIN, temperature=0.8),
    "dynamic temperature": replace(PLAIN, temperature_range=0.5, temperature_exponent=1.2),
    "defaults": Sampling(seed=7),
    "top-k": replace(PLAIN, top_k=5),
    "top-p": replace(PLAIN, top_p=0.8),
    "min-p": replace(PLAIN, min_p=0.1),
    "typical": replace(PLAIN, typical_p=0.7),
    "top-n-sigma": replace(PLAIN, top_n_sigma=1.0),
    "xtc": replace(PLAIN, xtc_probability=1.0, xtc_threshold=0.1),
    "penalties": replace(PLAIN, repeat_penalty=1.3, frequency_penalty=0.2, presence_penalty=0.1),
    "dry": replace(PLAIN, dry_multiplier=0.8, dry_allowed_length=1),
    "bias": replace(PLAIN, logit_bias=((2, 1.5), (5, -float("inf")))),
    "mirostat 1": replace(PLAIN, mirostat=1, mirostat_tau=3.0),
    "mirostat 2": replace(PLAIN, mirostat=2, mirostat_tau=3.0),
    "greedy": replace(PLAIN, temperature=0.0),
    "all": replace(
        PLAIN, temperature=1.2, temperature_range=0.3, top_k=30, top_p=0.95, min_p=0.01,
        typical_p=0.98, top_n_sigma=3.0, xtc_probability=0.5, repeat_penalty=1.1,
        dry_multiplier=0.8, logit_bias=((1, 1.0),),
    ),
}  # fmt: skip


def packed(allowed: list[bool]) -> Mask:
    """The mask of tokens, as grammar libraries deliver it."""
    padded = np.zeros(-(-len(allowed) // 32) * 32, np.bool_)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view(np.uint32)


def random_logits(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 2


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPTIONS)
def test_draws_follow_the_distribution(name: str) -> None:
    sampler = Sampler(OPTIONS[name])
    candidates = sampler.distribution(random_logits(24), [3, 4, 3, 4, 9, 3])
    counts = np.bincount([sampler.pick(candidates, at) for at in range(DRAWS)], minlength=24)
    expected = np.zeros(24)
    expected[candidates.ids] = candidates.probabilities * DRAWS
    likely = expected >= 5
    assert not counts[expected == 0].any()
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    freedom = max(np.count_nonzero(likely) - 1, 1)
    # Wilson and Hilferty's approximation; a p of 0.0005.
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.29 * (2 / (9 * freedom)) ** 0.5) ** 3


@pytest.mark.parametrize("name", OPTIONS)
def test_draw_is_the_pick_at_the_position_of_the_token(name: str) -> None:
    one, two = Sampler(OPTIONS[name]), Sampler(OPTIONS[name])
    logits, tokens = random_logits(300), [8, 9, 8, 9, 8]
    for _ in range(20):
        candidates = two.distribution(logits, tokens)
        token = two.pick(candidates, len(tokens))
        two.accept(candidates, token)
        assert one.draw(logits, tokens) == token
        tokens.append(token)
    assert one.mu == two.mu


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPTIONS)
@given(st.data())
def test_the_distribution_is_one_over_allowed_tokens(name: str, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 100))
    values = st.floats(-30, 30, width=32) | st.just(-np.inf)
    logits = data.draw(st.lists(values, min_size=size, max_size=size))
    logits[data.draw(st.integers(0, size - 1))] = 0.5  # at least one is finite
    allowed = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    tokens = data.draw(st.lists(st.integers(0, size - 1), max_size=12))
    sampling = OPTIONS[name]
    kept = [token for token, _ in enumerate(logits) if allowed[token] and logits[token] > -np.inf]
    sampling = replace(sampling, logit_bias=tuple(b for b in sampling.logit_bias if b[0] < size))
    kept = [token for token in kept if (token, -np.inf) not in sampling.logit_bias]
    sampler = Sampler(sampling)
    row = torch.tensor(logits)
    if not kept:
        with pytest.raises(RequestError, match="No token is left"):
            sampler.draw(row, tokens, packed(allowed))
        return
    found = sampler.distribution(row, tokens, packed(allowed))
    assert set(found.ids.tolist()) <= set(kept)
    assert len(set(found.ids.tolist())) == len(found.ids) > 0
    assert np.isfinite(found.logits).all()
    assert found.probabilities.sum() == pytest.approx(1)
    if found.ordered:
        pairs = [(-value, token) for value, token in zip(found.logits, found.ids, strict=True)]
        assert pairs == sorted(pairs)
    token = sampler.draw(row, tokens, packed(allowed))
    assert token in found.ids
    assert found.probability(token) > 0


def composed(
    logits: torch.Tensor, tokens: list[int], allowed: list[bool], sampling: Sampling
) -> Candidates:
    """Every step in the order of llama.cpp's default chain, without a shortlist."""
    row = np.where(allowed, logits.numpy(), np.float32(-np.inf))
    for token, bias in sampling.logit_bias:
        row[token] += np.float32(bias)
    penalize(row, tokens[-sampling.penalty_window :], sampling)
    Dry(sampling, None).apply(row, tokens)
    row = top_n_sigma(row, sampling.top_n_sigma)
    order = [int(token) for token in np.argsort(-row, stable=True) if row[token] > -np.inf]
    found = Candidates(np.array(order), row[order])
    found = typical(found.keep(slice(sampling.top_k or None)), sampling.typical_p)
    found = xtc(min_p(top_p(found, sampling.top_p), sampling.min_p), sampling.xtc_threshold)
    span, exponent = sampling.temperature_range, sampling.temperature_exponent
    return temperature(found, dynamic_temperature(found, sampling.temperature, span, exponent))


@given(
    st.integers(0, 10_000),
    st.builds(
        partial(Sampling, xtc_probability=1.0, seed=1),
        temperature=st.floats(0.3, 2),
        top_k=st.integers(1, 300),
        top_p=st.floats(0.05, 0.999),
        min_p=st.floats(0.001, 0.5),
        typical_p=st.floats(0.05, 0.999),
        repeat_penalty=st.floats(0.8, 1.5),
        frequency_penalty=st.floats(-1, 1),
        presence_penalty=st.floats(-1, 1),
        penalty_window=st.integers(1, 40),
        logit_bias=st.just(((3, 2.0), (4, -np.inf), (3, 0.5))),
        dry_multiplier=st.floats(0.1, 2),
        dry_window=st.integers(-1, 40),
        top_n_sigma=st.floats(0.5, 5),
        xtc_threshold=st.floats(0.01, 0.5),
        temperature_range=st.floats(0.01, 1),
        temperature_exponent=st.floats(0.5, 2),
    ),
)
def test_the_steps_come_in_the_order_of_the_field(seed: int, sampling: Sampling) -> None:
    random = np.random.default_rng(seed)
    logits, allowed = random_logits(300, seed), random.random(300) < 0.8
    tokens = random.integers(0, 8, 30).tolist()
    expected = composed(logits, tokens, allowed.tolist(), sampling)
    found = Sampler(sampling).distribution(logits, tokens, packed(allowed.tolist()))
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.logits.tolist() == pytest.approx(expected.logits.tolist(), rel=1e-6)


@pytest.mark.parametrize("name", OPTIONS)
def test_one_allowed_token_is_drawn(name: str) -> None:
    allowed = [token == 77 for token in range(150)]
    assert Sampler(OPTIONS[name]).draw(random_logits(150), [1, 2], packed(allowed)) == 77


@pytest.mark.parametrize("name", OPTIONS)
def test_a_vocabulary_of_one_token(name: str) -> None:
    sampling = replace(OPTIONS[name], logit_bias=())
    assert Sampler(sampling).draw(torch.tensor([-3.0]), [0, 0]) == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", OPTIONS)
def test_values_that_are_not_numbers_are_refused(name: str, bad: float) -> None:
    logits = random_logits(200)
    logits[150] = bad
    allowed = packed([token < 100 for token in range(200)])
    for mask in (None, allowed):
        with pytest.raises(ModelFileError, match="not numbers"):
            Sampler(OPTIONS[name]).draw(logits, [4, 5], mask)


@pytest.mark.parametrize("name", OPTIONS)
def test_nothing_allowed_is_a_sentence(name: str) -> None:
    with pytest.raises(RequestError, match="No token is left"):
        Sampler(OPTIONS[name]).draw(random_logits(60), [4], np.zeros(2, np.uint32))


@pytest.mark.parametrize("words", [1, 2, 4, 9])
def test_a_mask_may_be_shorter_or_longer_than_the_vocabulary(words: int) -> None:
    mask = np.full(words, 0xFFFFFFFF, np.uint32)
    found = Sampler(PLAIN).distribution(random_logits(100), [], mask)
    assert found.ids.tolist() == list(range(min(100, words * 32)))


def test_a_full_mask_changes_nothing() -> None:
    logits = random_logits(1000)
    mask = np.full(32, 0xFFFFFFFF, np.uint32)
    for sampling in OPTIONS.values():
        one = Sampler(sampling).distribution(logits, [5, 6, 5])
        two = Sampler(sampling).distribution(logits, [5, 6, 5], mask)
        assert one.ids.tolist() == two.ids.tolist()
        assert one.logits.tolist() == two.logits.tolist()


def test_excluded_tokens_are_not_drawn_again() -> None:
    logits, excluded = random_logits(40), set[int]()
    for sampling in (PLAIN, replace(PLAIN, temperature=0.0)):
        excluded.clear()
        for _ in range(40):
            token = Sampler(sampling).draw(logits, [1], None, excluded)
            assert token not in excluded
            excluded.add(token)
        with pytest.raises(RequestError, match="No token is left"):
            Sampler(sampling).draw(logits, [1], None, excluded)


@pytest.mark.sweep
def test_whether_xtc_applies_does_not_depend_on_the_number_that_draws() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    sampler = Sampler(replace(PLAIN, xtc_probability=0.5, xtc_threshold=0.25))
    counts = np.bincount([sampler.draw(logits, range(at)) for at in range(DRAWS)], minlength=4)
    # Without the first: 0.3, 0.2 and 0.1 of 0.6.
    expected = (np.array([0.4, 0.3, 0.2, 0.1]) + np.array([0, 3, 2, 1]) / 6) / 2 * DRAWS
    assert ((counts - expected) ** 2 / expected).sum() < 16.3  # p of 0.001


@pytest.mark.sweep
def test_tokens_drawn_after_an_exclusion_keep_their_shares() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    sampler, counts = Sampler(PLAIN), np.zeros(4)
    for at in range(DRAWS):
        token = sampler.draw(logits, range(at))
        counts[token if token else sampler.draw(logits, range(at), excluded=(0,))] += 1
    expected = np.array([0.3, 0.15, 0.05]) * 2 * DRAWS
    assert counts[0] == 0
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 13.8  # p of 0.001


@given(st.integers(0, 10_000), st.integers(1, 300), st.sampled_from([0.0, 0.05, 1, 10]))
def test_draws_do_not_depend_on_the_order_of_storage(seed: int, size: int, spread: float) -> None:
    logits = (np.random.default_rng(seed).standard_normal(size) * spread).astype(np.float32)
    order = np.argsort(-logits, stable=True)
    by_id = Candidates(np.arange(len(logits)), logits, ordered=False)
    in_order = Candidates(order, logits[order])
    sampler = Sampler(PLAIN)
    assert sampler.pick(by_id, seed) == sampler.pick(in_order, seed)


def test_a_token_whose_probability_underflows_is_not_drawn() -> None:
    candidates = Candidates(np.arange(3), np.array([0, -5, -800], np.float32))
    for times in ([1.0, 1.0, 1e-12], [30.0, 30.0, 1e-12]):
        assert candidates.first(np.array(times)) in (0, 1)


@pytest.mark.parametrize("distance", [0.0, 0.1, 1.0])
def test_similar_distributions_draw_the_same_token_as_often_as_promised(distance: float) -> None:
    """At least (1 - d) / (1 + d) of the draws for distributions with a total variation of d."""
    random = np.random.default_rng(5)
    ours = random.normal(0, 2, 50).astype(np.float32)
    theirs = ours + random.normal(0, distance, 50).astype(np.float32)
    one, other = (Candidates(np.arange(50), each, ordered=False) for each in (ours, theirs))
    apart = np.abs(one.probabilities - other.probabilities).sum() / 2
    sampler = Sampler(PLAIN)
    equal = sum(sampler.pick(one, at) == sampler.pick(other, at) for at in range(5_000)) / 5_000
    assert equal >= (1 - apart) / (1 + apart) - 0.03
    assert equal <= 1 - apart + 0.03
