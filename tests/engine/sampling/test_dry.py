"""DRY: the vectors of llama.cpp's test-sampling.cpp, and a plain definition on random texts."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from engine import Sampling
from engine.sampling.dry import Dry

BASE = Sampling(dry_multiplier=1.0, dry_base=1.1, dry_allowed_length=2, dry_breakers=())


def letter(token: int) -> bytes:
    return bytes([ord("a") + token])


def word(token: int) -> bytes:
    return (b"a", b"b", b"ab", b"c", b"bca", b"-", b"c-")[token]


@pytest.mark.parametrize(
    ("tokens", "expected", "changed"),
    [
        ([0, 1], [0.25] * 4, {}),
        ([0, 1, 2, 0, 1], [0.296923, 0.296923, 0.109232, 0.296923], {}),
        ([0, 1, 3, 4, 0, 1], [0.2] * 5, {"dry_breakers": ("d",)}),
        (
            [0, 1, 2, 0, 1],
            [0.241818, 0.241818, 0.032727, 0.241818, 0.241818],
            {"dry_multiplier": 2},
        ),
        ([0, 1, 2, 3, 4, 0, 1], [0.2] * 5, {"dry_allowed_length": 4}),
    ],
)
def test_vectors(tokens: list[int], expected: list[float], changed: dict[str, object]) -> None:
    sampling = replace(BASE, dry_window=max(len(tokens), 4), **changed)
    row = np.log(np.full(len(expected), 1 / len(expected), np.float32))
    Dry(sampling, letter).apply(row, tokens)
    weights = np.exp(row)
    assert (weights / weights.sum()).tolist() == pytest.approx(expected, abs=1e-5)


def defined(tokens: list[int], sampling: Sampling, tokens_total: int) -> list[float]:
    """The penalty of each token by its definition."""
    breakers = [text.encode() for text in sampling.dry_breakers]
    joined = b"".join(map(word, tokens))
    unbroken = len(tokens)
    for end in range(len(joined) + 1):
        if any(joined[:end].endswith(text) for text in breakers):
            starts = [len(b"".join(map(word, tokens[:at]))) for at in range(len(tokens))]
            unbroken = sum(start >= end for start in starts)
    window = tokens if sampling.dry_window < 0 else tokens[len(tokens) - sampling.dry_window :]
    if sampling.dry_window > len(tokens):
        window = tokens
    penalties = [0.0] * tokens_total
    for token in range(tokens_total):
        lengths = [
            length
            for at, other in enumerate(window)
            if other == token
            for length in range(min(at, unbroken) + 1)
            if window[at - length : at] == window[len(window) - length :]
        ]
        is_breaker = any(text in word(token) for text in breakers)
        if lengths and max(lengths) >= sampling.dry_allowed_length and not is_breaker:
            power = max(lengths) - sampling.dry_allowed_length
            penalties[token] = sampling.dry_multiplier * sampling.dry_base**power
    return penalties


@pytest.mark.parametrize("breakers", [(), ("-",), ("ab",), ("ca", "bc-"), ("",)])
@pytest.mark.parametrize("allowed", [1, 2, 4])
@pytest.mark.parametrize("window", [-1, 3, 10, 100])
def test_random_texts_agree_with_the_definition(
    breakers: tuple[str, ...], allowed: int, window: int
) -> None:
    random = np.random.default_rng(allowed)
    sampling = Sampling(
        dry_multiplier=0.8,
        dry_base=1.75,
        dry_allowed_length=allowed,
        dry_window=window,
        dry_breakers=breakers,
    )
    definition = replace(sampling, dry_breakers=tuple(filter(None, breakers)))
    penalized = 0
    for _ in range(60):
        tokens = random.integers(0, 7, random.integers(0, 12)).tolist()
        start = int(random.integers(0, len(tokens) + 1))
        tokens += tokens[start : int(random.integers(0, 12))]  # a repetition at the end
        row = np.zeros(7, np.float32)
        Dry(sampling, word).apply(row, tokens)
        penalized += np.count_nonzero(row)
        expected = defined(tokens, definition, 7) if len(tokens) > allowed else [0] * 7
        assert (-row).tolist() == pytest.approx(expected, rel=1e-6)
    assert penalized or window == 3


@pytest.mark.parametrize("base", [1.0, 1.1, 30.0])
def test_the_penalty_grows_with_the_length(base: float) -> None:
    tokens, row = [0, 1, 2, 3, 0, 1, 2], np.zeros(7, np.float32)
    Dry(replace(BASE, dry_base=base), letter).apply(row, tokens)
    assert row.tolist() == pytest.approx([0, 0, 0, -base, 0, 0, 0])


def test_allowed_length_zero_penalizes_every_token_of_the_text() -> None:
    row = np.zeros(7, np.float32)
    Dry(replace(BASE, dry_allowed_length=0, dry_base=2.0), letter).apply(row, [1, 2, 5, 1])
    assert row.tolist() == [0, -1, -2, 0, 0, -1, 0]


def test_penalties_stay_finite_and_long_repetitions_are_fast() -> None:
    row, tokens = np.zeros(3, np.float32), [1] * 32_000
    started = time.perf_counter()
    Dry(replace(BASE, dry_multiplier=100.0, dry_base=100.0), letter).apply(row, tokens)
    assert np.isfinite(row).all()
    Dry(replace(BASE, dry_base=1.75), letter).apply(row, tokens)
    assert row[1] < -1e29
    assert time.perf_counter() - started < 2  # 20 ms; a quadratic definition takes minutes


def test_without_a_tokenizer_nothing_breaks_a_repetition() -> None:
    row = np.zeros(4, np.float32)
    Dry(replace(BASE, dry_breakers=("a", "b")), None).apply(row, [0, 1, 2, 0, 1])
    assert row.tolist() == [0, 0, -1, 0]
