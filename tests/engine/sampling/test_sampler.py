"""Sampler and filters on four-token distributions, and vectors of llama.cpp's test-sampling.cpp."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny
from engine import ModelFileError, RequestError, Sampling
from engine.frontend.tokenizer.tokenizer import Tokenizer
from engine.gguf.reader import GGUFFile
from engine.sampling import Candidates, Sampler, check
from engine.sampling.filters import min_p, temperature, top_p, typical
from engine.sampling.penalties import penalize

FOUR = [0.1, 0.2, 0.3, 0.4]
PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def draws(sampler: Sampler, logits: torch.Tensor, count: int) -> list[int]:
    """Tokens drawn with the same logits at consecutive positions."""
    return [sampler.draw(logits, range(at)) for at in range(count)]


@pytest.mark.parametrize(
    ("recent", "repeat", "each", "expected"),
    [
        ([0], 50.0, 0.0, [0, 0.25, 0.25, 0.25, 0.25]),
        ([0, 1, 2], 50.0, 0.0, [0, 0, 0, 0.5, 0.5]),
        ([0, 1, 2, 0, 0], 50.0, 0.0, [0, 0, 0, 0.5, 0.5]),
        ([0], 1.0, 5.0, [0.000011, 0.249997, 0.249997, 0.249997, 0.249997]),
        ([0, 1, 2], 1.0, 5.0, [0.000023, 0.000023, 0.000023, 0.499966, 0.499966]),
        ([0, 1, 2, 0, 0], 1.0, 5.0, [0.000000, 0.000023, 0.000023, 0.499977, 0.499977]),
    ],
)
def test_penalties_apply_to_recent_tokens(
    recent: list[int], repeat: float, each: float, expected: list[float]
) -> None:
    logits = np.log(np.full(5, 0.2, np.float32))
    sampling = replace(PLAIN, repeat_penalty=repeat, frequency_penalty=each, presence_penalty=each)
    penalize(logits, recent, sampling)
    found = np.exp(logits) / np.exp(logits).sum()
    assert found.tolist() == pytest.approx(expected, abs=1e-5)


def test_the_given_logits_stay_as_they_are() -> None:
    logits = torch.randn(50)
    before = logits.clone()
    sampling = Sampling(repeat_penalty=2.0, logit_bias=((3, 1.0),), dry_multiplier=1.0)
    Sampler(sampling).draw(logits, [1, 2, 3, 1, 2])
    assert torch.equal(logits, before)


def test_penalty_window_forgets_older_tokens() -> None:
    sampling = Sampling(temperature=0, repeat_penalty=50.0, penalty_window=1)
    assert Sampler(sampling).draw(torch.tensor([3.0, 2.0, 1.0]), [0, 1]) == 0
    assert Sampler(sampling).draw(torch.tensor([3.0, 2.0, 1.0]), [1, 0]) == 1


def test_no_penalty_counts_the_end_tokens_of_earlier_turns(tmp_path: Path) -> None:
    with GGUFFile.open(tiny.write(tmp_path / "tiny.gguf")) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    end, word, other = *sorted(tokenizer.end_tokens)[:1], 40, 50
    turns = [word, end, other] * 3 + [word]
    penalized = replace(
        PLAIN, repeat_penalty=1.5, frequency_penalty=0.5, presence_penalty=0.5,
        dry_multiplier=2.0, dry_breakers=(), dry_allowed_length=1,
    )  # fmt: skip
    logits = torch.linspace(1, 2, tokenizer.size)
    sampler = Sampler(penalized, tokenizer)
    found = sampler.distribution(logits, turns)
    scores = dict(zip(found.ids.tolist(), found.logits.tolist(), strict=True))
    assert scores[end] == logits[end]
    assert scores[word] < logits[word]
    drawn = Sampler(replace(penalized, dry_multiplier=0.0, top_k=40), tokenizer).device_sampling(
        turns
    )
    assert drawn is not None
    assert drawn.counts == {word: 4, other: 3}


def test_greedy_takes_the_lowest_id_of_a_tie() -> None:
    logits = torch.zeros(50_000)
    logits[[7, 300, 49_999]] = 4.0
    assert Sampler(Sampling(temperature=0)).draw(logits, []) == 7


def test_draws_follow_the_distribution() -> None:
    sampler = Sampler(replace(PLAIN, seed=3))
    logits = torch.tensor(FOUR).log()
    counts = Counter(draws(sampler, logits, 4_000))
    # Four standard deviations of a binomial of 4,000: at most 0.031.
    assert all(abs(counts[token] / 4_000 - p) < 0.032 for token, p in enumerate(FOUR))


def test_equal_seeds_draw_equal_tokens_which_differ_by_position() -> None:
    logits = torch.zeros(1_000)
    one, two = (Sampler(replace(PLAIN, seed=11)) for _ in range(2))
    first = draws(one, logits, 20)
    assert first == [two.draw(logits, range(at)) for at in reversed(range(20))][::-1]
    assert len(set(first)) > 10


def test_fresh_seeds_differ() -> None:
    logits = torch.zeros(100_000)
    drawn = {Sampler(PLAIN).draw(logits, []) for _ in range(4)}
    assert len(drawn) > 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_logits_are_refused(bad: float) -> None:
    with pytest.raises(ModelFileError, match="not numbers"):
        Sampler(Sampling(temperature=0)).draw(torch.full((8,), bad), [])


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("temperature", -0.1, "temperature"),
        ("temperature", float("nan"), "temperature"),
        ("top_k", -2, "top-k"),
        ("top_p", 1.5, "top-p"),
        ("min_p", -1.0, "min-p"),
        ("typical_p", 2.0, "typical"),
        ("repeat_penalty", 0.0, "repeat penalty"),
        ("seed", -2, "seed"),
    ],
)
def test_options_out_of_range_are_named(field: str, value: float, named: str) -> None:
    with pytest.raises(RequestError, match=named):
        check(replace(Sampling(), **{field: value}))


@pytest.mark.parametrize("cold", [1e-45, 1e-300, 1e-7, 1e-5])
def test_tiny_temperatures_are_greedy(cold: float) -> None:
    logits = torch.tensor([30.0, 31.0, -2.0, 30.5])
    sampler = Sampler(Sampling(temperature=cold, top_k=0, top_p=1.0, min_p=0.0, seed=1))
    assert set(draws(sampler, logits, 20)) == {1}


def spread(size: int, seed: int, peaked: bool) -> torch.Tensor:
    """Logits of a vocabulary, from a confident (peaked) or an uncertain model."""
    random = torch.Generator().manual_seed(seed)
    if not peaked:
        return torch.randn(size, generator=random) * 2
    return 20 - 3 * torch.log(1 + size * torch.rand(size, generator=random))


@pytest.mark.parametrize("peaked", [True, False])
@pytest.mark.parametrize("size", [1, 65, 5_000, 50_000])
@pytest.mark.parametrize(
    "sampling",
    [
        replace(PLAIN, top_k=40),
        replace(PLAIN, top_k=40, typical_p=0.6, top_p=0.9, min_p=0.01, temperature=0.7),
        replace(PLAIN, top_k=3_000, top_p=0.9),
        replace(PLAIN, top_p=0.9),
        replace(PLAIN, top_p=0.9, min_p=0.02),
        replace(PLAIN, top_p=0.4, min_p=0.0001),
        replace(PLAIN, min_p=0.1),
        replace(PLAIN, min_p=1.0),
        replace(PLAIN, top_p=0.0),
        replace(PLAIN, typical_p=0.5),
        replace(PLAIN, typical_p=0.5, top_p=0.8, min_p=0.01),
    ],
)
def test_filters_of_a_large_vocabulary_agree_with_a_full_sort(
    sampling: Sampling, size: int, peaked: bool
) -> None:
    logits = spread(size, seed=size, peaked=peaked)
    values, ids = logits.sort(descending=True, stable=True)
    kept = Candidates(ids.numpy(), values.numpy()).keep(slice(sampling.top_k or None))
    if sampling.typical_p < 1:
        kept = typical(kept, sampling.typical_p)
    kept = min_p(top_p(kept, sampling.top_p), sampling.min_p)
    found = Sampler(sampling).distribution(logits, [])
    # One at the edge may fall on either side: sums are rounded in another order.
    assert abs(len(found.ids) - len(kept.ids)) <= 1
    both = min(len(found.ids), len(kept.ids))
    assert found.ids[:both].tolist() == kept.ids[:both].tolist()
    expected = temperature(kept, sampling.temperature).probabilities[:both]
    assert np.allclose(found.probabilities[:both], expected, atol=1e-5)


def test_ties_are_kept_by_the_lowest_ids() -> None:
    logits = torch.zeros(70_000)
    logits[::7] = 1.0
    assert Sampler(replace(PLAIN, top_k=5)).distribution(logits, []).ids.tolist() == [
        0,
        7,
        14,
        21,
        28,
    ]


def test_draws_from_a_large_vocabulary_follow_the_distribution() -> None:
    logits = torch.full((60_000,), -20.0)
    logits[[5, 59_999]] = torch.tensor([3.0, 4.0]).log()
    logits[30_000] = -torch.inf
    sampler = Sampler(replace(PLAIN, seed=5))
    counts = Counter(draws(sampler, logits, 2_000))
    assert abs(counts[5] / 2_000 - 3 / 7) < 0.045  # four standard deviations
    assert counts[5] + counts[59_999] > 1_990


def test_reported_seed_draws_the_same_tokens_again() -> None:
    logits = torch.randn(64)
    first = Sampler(PLAIN)
    again = Sampler(replace(PLAIN, seed=first.seed))
    assert draws(first, logits, 20) == draws(again, logits, 20)
    assert len({Sampler(PLAIN).seed for _ in range(4)}) > 1


def test_a_resumed_sampler_draws_with_the_seed_of_the_first() -> None:
    logits = torch.randn(64)
    first, resumed = Sampler(PLAIN), Sampler(PLAIN)
    resumed.resume(first.seed, first.mu)
    assert draws(first, logits, 20) == draws(resumed, logits, 20)
    assert resumed.seed == first.seed


@pytest.mark.parametrize("given", [Sampling(temperature=0), Sampling(temperature=2, seed=3)])
def test_suppressed_tokens_are_never_drawn(given: Sampling) -> None:
    given = replace(given, top_k=0, top_p=1, min_p=0)
    keys: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["a", "b", "c", "d"],
        "tokenizer.ggml.suppress_tokens": [2, 0, -1, 99],  # ids outside are left out, as in ggml
    }
    tokenizer = Tokenizer.from_metadata(keys)
    assert tokenizer.suppressed == {0, 2}
    logits = torch.tensor([9.0, 1.0, 8.0, 0.0])
    sampler = Sampler(given, tokenizer)
    drawn = {sampler.draw(logits, range(position)) for position in range(99)}
    assert drawn == ({1} if given.temperature == 0 else {1, 3})
    on_device = sampler.device_sampling([])
    assert on_device is None or on_device.biases == {0: -np.inf, 2: -np.inf}
    wanted = replace(given, logit_bias=((0, 1e6), (3, -np.inf)), ignore_end=True)
    assert Sampler(wanted, tokenizer).draw(logits, []) == 1
    with pytest.raises(RequestError, match="No token is left"):
        Sampler(replace(given, logit_bias=((1, -np.inf), (3, -np.inf))), tokenizer).draw(logits, [])


def test_a_top_k_of_minus_one_is_no_top_k() -> None:
    logits = torch.arange(300.0) / 100
    for sampling in (replace(PLAIN, top_p=0.9), replace(PLAIN, top_p=0.9, typical_p=0.8), PLAIN):
        off, minus_one = Sampler(sampling), Sampler(replace(sampling, top_k=-1))
        wanted, found = (one.distribution(logits, []) for one in (off, minus_one))
        assert found.ids.tolist() == wanted.ids.tolist()
        assert len(found.ids) > 40
    drawn = Sampler(replace(PLAIN, top_k=-1, top_p=0.9)).device_sampling([])
    assert drawn is not None
    assert drawn.top_k == 0
