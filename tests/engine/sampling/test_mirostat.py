"""Mirostat: the formulas of the paper, written plainly, and the surprisal it settles at."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine import Sampling
from engine.sampling import Sampler
from engine.sampling.mirostat import mirostat_1, mirostat_2

VOCABULARY = 5_000


def zipf(exponent: float, size: int = VOCABULARY) -> np.ndarray:
    """Logits of tokens whose probability falls with their rank, in shuffled order."""
    logits = -exponent * np.log(np.arange(1, size + 1))
    return np.random.default_rng(3).permutation(logits).astype(np.float32)


@pytest.mark.parametrize("exponent", [0.7, 1.1, 1.6])
@pytest.mark.parametrize("mu", [2.0, 6.0, 9.0])
def test_first_version_keeps_as_many_as_zipfs_law_says(exponent: float, mu: float) -> None:
    # Algorithm 1 of the paper, with the exponent known.
    excess = exponent - 1
    k = (excess * 2**mu / (1 - VOCABULARY**-excess)) ** (1 / exponent)
    found = len(mirostat_1(zipf(exponent), mu).ids)
    assert found == pytest.approx(min(max(int(k), 1), VOCABULARY), rel=0.01, abs=1)


def test_first_version_at_its_singular_points() -> None:
    near = [len(mirostat_1(zipf(1 + step), 8.0).ids) for step in (-1e-4, 0, 1e-4)]
    assert max(near) - min(near) <= 2
    assert len(mirostat_1(np.zeros(300, np.float32), 8.0).ids) == 300
    assert len(mirostat_1(np.array([1.0], np.float32), 8.0).ids) == 1
    assert len(mirostat_1(np.array([0, -2e9], np.float32), 8.0).ids) == 1
    assert len(mirostat_1(zipf(1.1), -500.0).ids) == 1
    assert len(mirostat_1(zipf(1.1), 5_000.0).ids) == VOCABULARY


@pytest.mark.parametrize("shift", [-800.0, 800.0])
def test_a_shift_of_all_logits_changes_nothing(shift: float) -> None:
    row = zipf(1.1)
    for version in (mirostat_1, mirostat_2):
        kept = len(version(row, 6.0).ids)
        assert len(version(row + np.float32(shift), 6.0).ids) == pytest.approx(kept, rel=0.02)


@pytest.mark.parametrize("mu", [-3.0, 0.0, 2.0, 5.0, 9.5, 60.0])
def test_second_version_keeps_tokens_up_to_a_surprisal(mu: float) -> None:
    row = zipf(1.1)
    probabilities = np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum()
    expected = {token for token, p in enumerate(probabilities) if -math.log2(p) <= mu}
    found = mirostat_2(row, mu).ids.tolist()
    assert set(found) == (expected or {int(row.argmax())})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("target", [2.0, 4.0])
def test_the_surprisal_settles_at_the_target(version: int, target: float) -> None:
    sampling = Sampling(temperature=1.0, mirostat=version, mirostat_tau=target, seed=4)
    sampler, logits = Sampler(sampling), torch.from_numpy(zipf(1.05))
    observed: list[float] = []
    for at in range(1_500):
        candidates = sampler.distribution(logits, range(at))
        token = sampler.pick(candidates, at)
        before = sampler.mu
        sampler.accept(candidates, token)
        observed.append(-math.log2(candidates.probability(token)))
        assert sampler.mu == pytest.approx(before - 0.1 * (observed[-1] - target))
    assert np.mean(observed[500:]) == pytest.approx(target, abs=0.15)


def test_temperature_comes_before_mirostat() -> None:
    logits = torch.from_numpy(zipf(1.05))
    cold = Sampler(Sampling(temperature=0.5, mirostat=2, mirostat_tau=3.0))
    assert (
        cold.distribution(logits, []).ids.tolist() == mirostat_2(zipf(1.05) * 2, 6.0).ids.tolist()
    )
    greedy = Sampler(Sampling(temperature=0, mirostat=2))
    assert greedy.draw(logits, []) == int(logits.argmax())
