"""The counter-based random stream: known answers of Philox, and uniform independent numbers."""

from __future__ import annotations

import numpy as np
import pytest

from engine.inference.random_stream import Counter, Purpose, philox, uniform

DIGITS_OF_PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)


# Known-answer vectors of the authors' library, Random123 (`philox4x32 10` in kat_vectors).
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (*DIGITS_OF_PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)
def test_philox_gives_the_known_answers(
    counter: Counter, key: tuple[int, int], expected: Counter
) -> None:
    assert philox(counter, key) == expected


def test_numbers_use_53_bits_of_the_first_two_words() -> None:
    first, second, _, _ = philox((7, 1, Purpose.XTC, 2), (5, 3))
    found = uniform(3 << 32 | 5, 1 << 32 | 7, Purpose.XTC, 2)
    assert found * 2**53 == (first << 32 | second) >> 11
    assert 0 <= found < 1


def test_numbers_are_uniform() -> None:
    draws = np.array([uniform(11, position) for position in range(50_000)])
    counts = np.histogram(draws, 100, (0, 1))[0]
    statistic = ((counts - 500) ** 2 / 500).sum()
    assert 55 < statistic < 155  # p of 0.9998 and 0.0003 with 99 degrees of freedom


@pytest.mark.parametrize(
    "other",
    [
        lambda at: uniform(12, at),
        lambda at: uniform(11, at + 1),
        lambda at: uniform(11, at, Purpose.ACCEPT),
        lambda at: uniform(11, at, Purpose.DRAW, 1),
        lambda at: uniform(11 + (1 << 32), at),
        lambda at: uniform(11, at + (1 << 32)),
    ],
    ids=["seed", "position", "purpose", "attempt", "high seed", "high position"],
)
def test_numbers_of_another_seed_position_or_purpose_are_independent(other) -> None:
    ones = np.array([uniform(11, at) for at in range(5_000)])
    others = np.array([other(at) for at in range(5_000)])
    assert abs(np.corrcoef(ones, others)[0, 1]) < 0.06  # four standard deviations


def test_the_same_number_again() -> None:
    assert uniform(2**63 - 1, 9) == uniform(2**63 - 1, 9)
