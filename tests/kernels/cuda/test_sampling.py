"""Draws on the device against the engine's sampler, in Triton's interpreter: the same tokens."""

from __future__ import annotations

import math
import random as plain_random
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.messages import Sampling
from engine.sampling import Sampler
from engine.sampling.random_stream import draw_bits
from kernels.backend.device_sampling import UNDECIDED, DeviceSampling
from kernels.cuda.sampling import CudaSampler

HERE = torch.device("cpu")
PLAIN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=5)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer candidates to sort, and smaller blocks: the interpreter is slow."""
    monkeypatch.setattr("kernels.cuda.sampling.MOST_CANDIDATES", 64)
    monkeypatch.setattr("kernels.cuda.sampling.MOST_CHANGES", 256)
    monkeypatch.setattr("kernels.cuda.sampling._BLOCK", 32)


def logits_of(rows: int, vocabulary: int, random: torch.Generator) -> Tensor:
    """Logits with a few likely tokens, and ties."""
    made = torch.randn(rows, vocabulary, generator=random) * 6
    made[:, ::7] = (made[:, ::7] * 2).round() / 2
    return made


def drawn(logits: Tensor, sampler: Sampler, tokens: list[int], allowed: object = None) -> int:
    draw = sampler.device_sampling(tokens, allowed, ())  # type: ignore[arg-type]
    assert draw is not None
    return CudaSampler(logits.shape[1], HERE).draw(logits[None, 0], [draw])[0]


CASES = {
    "greedy": replace(PLAIN, temperature=0),
    "top-k": replace(PLAIN, top_k=5),
    "usual": replace(PLAIN, temperature=0.7, top_k=8, top_p=0.95, min_p=0.05),
    "min-p": replace(PLAIN, min_p=0.02, temperature=1.5),
    "top-p": replace(PLAIN, top_p=0.4),
    "top-p, min-p": replace(PLAIN, top_p=0.8, min_p=0.01),
    "penalties": replace(
        PLAIN, top_k=9, repeat_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2
    ),
    "biases": replace(PLAIN, top_k=3, logit_bias=((3, 4.0), (10, -math.inf), (9, -2.0))),
    "greedy with penalties": replace(PLAIN, temperature=0, repeat_penalty=2.0),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_tokens_are_those_of_the_sampler(
    name: str, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "top-p":  # which alone may keep more tokens
        monkeypatch.setattr("kernels.cuda.sampling.MOST_CANDIDATES", 512)
    chosen = plain_random.Random(random.initial_seed())
    vocabulary = chosen.choice((300, 389, 511))
    logits = logits_of(1, vocabulary, random)
    for seed in range(2):
        sampler = Sampler(replace(CASES[name], seed=seed))
        tokens = [chosen.randrange(vocabulary) for _ in range(20)] * 2
        found = drawn(logits, sampler, tokens)
        assert found == sampler.draw(logits[0], tokens), (name, seed)


def test_masks_and_excluded_tokens(random: torch.Generator) -> None:
    vocabulary = 330
    logits = logits_of(1, vocabulary, random)
    allowed = np.zeros(10, np.uint32)  # of fewer words than the vocabulary has
    allowed[[2, 7]] = 0xF0F0F0F0, 0x0000FFFF
    for sampling in (PLAIN, replace(PLAIN, temperature=0)):
        sampler = Sampler(replace(sampling, top_k=4))
        draw = sampler.device_sampling([1, 2], allowed, (70, 71))
        assert draw is not None
        (found,) = CudaSampler(vocabulary, HERE).draw(logits, [draw])
        assert found == sampler.draw(logits[0], [1, 2], allowed, (70, 71))
        assert found not in (70, 71)
        assert allowed[found // 32] >> (found % 32) & 1


def test_sequences_are_drawn_together(random: torch.Generator) -> None:
    """Of other temperatures, one with a mask and one with penalties, in one launch list."""
    vocabulary = 300
    logits = logits_of(3, vocabulary, random)
    before = logits.clone()
    allowed = np.full(10, 0x0F0F0F0F, np.uint32)
    samplers = [
        Sampler(replace(PLAIN, temperature=0)),
        Sampler(replace(PLAIN, top_k=8, temperature=0.5)),
        Sampler(replace(PLAIN, top_k=8, repeat_penalty=1.5)),
    ]
    masks = [None, allowed, None]
    tokens = [4, 5, 6, 7]
    draws = [
        one.device_sampling(tokens, mask, ()) for one, mask in zip(samplers, masks, strict=True)
    ]
    found = CudaSampler(vocabulary, HERE).draw(logits, draws)  # type: ignore[arg-type]
    wanted = [
        one.draw(row, tokens, mask) for one, row, mask in zip(samplers, logits, masks, strict=True)
    ]
    assert found == wanted
    assert torch.equal(logits, before)


def test_what_the_device_cannot_decide_is_left_to_the_host(random: torch.Generator) -> None:
    logits = logits_of(1, 300, random)
    sampler = CudaSampler(300, HERE)

    def found(**options: float) -> int:
        return sampler.draw(logits, [DeviceSampling(random=1, **options)])[0]  # type: ignore[arg-type]

    assert found() == UNDECIDED  # no filter: all tokens race
    assert found(top_k=90) == UNDECIDED  # more than there are blocks
    assert found(min_p=1e-30) == UNDECIDED  # more candidates than are sorted
    assert found(top_k=3) != UNDECIDED
    logits[0, 17] = math.nan
    assert found(top_k=3) == UNDECIDED
    assert found(temperature=0.0) == UNDECIDED
    logits.fill_(-math.inf)
    assert found(temperature=0.0) == UNDECIDED
    many = DeviceSampling(random=1, top_k=1, biases=dict.fromkeys(range(257), 0.5))
    assert sampler.draw(logits, [many]) == [UNDECIDED]


@pytest.mark.parametrize(
    "sampling",
    [
        replace(PLAIN, typical_p=0.5),
        replace(PLAIN, mirostat=2),
        replace(PLAIN, dry_multiplier=0.8),
        replace(PLAIN, top_n_sigma=1.0),
        replace(PLAIN, xtc_probability=0.5),
        replace(PLAIN, temperature_range=0.5),
        PLAIN,
    ],
)
def test_other_samplers_stay_on_the_host(sampling: Sampling) -> None:
    assert Sampler(sampling).device_sampling([1], None, ()) is None


def test_the_random_bits_are_those_of_the_position() -> None:
    draw = Sampler(replace(PLAIN, top_k=2)).device_sampling([1, 2, 3], None, ())
    assert draw is not None
    assert draw.random == draw_bits(5, 3)
