"""The counter-based random stream: known answers of Philox, and uniform independent numbers."""

from __future__ import annotations

import numpy as np
import pytest

from engine.sampling.random_stream import Counter, Purpose, philox, uniform, waiting_times

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
    first, second, _, _ = philox((7, 1, Purpose.XTC, 0), (5, 3))
    found = uniform(3 << 32 | 5, 1 << 32 | 7, Purpose.XTC)
    assert found * 2**53 == (first << 32 | second) >> 11
    assert 0 <= found < 1


def test_numbers_are_uniform() -> None:
    draws = np.array([uniform(11, position, Purpose.DRAW) for position in range(50_000)])
    counts = np.histogram(draws, 100, (0, 1))[0]
    statistic = ((counts - 500) ** 2 / 500).sum()
    assert 55 < statistic < 155  # p of 0.9998 and 0.0003 with 99 degrees of freedom


@pytest.mark.parametrize(
    "other",
    [
        lambda at: uniform(12, at, Purpose.DRAW),
        lambda at: uniform(11, at + 1, Purpose.DRAW),
        lambda at: uniform(11, at, Purpose.XTC),
        lambda at: uniform(11 + (1 << 32), at, Purpose.DRAW),
        lambda at: uniform(11, at + (1 << 32), Purpose.DRAW),
    ],
    ids=["seed", "position", "purpose", "high seed", "high position"],
)
def test_numbers_of_another_seed_position_or_purpose_are_independent(other) -> None:
    ones = np.array([uniform(11, at, Purpose.DRAW) for at in range(5_000)])
    others = np.array([other(at) for at in range(5_000)])
    assert abs(np.corrcoef(ones, others)[0, 1]) < 0.06  # four standard deviations


def test_the_same_number_again() -> None:
    assert uniform(2**63 - 1, 9, Purpose.XTC) == uniform(2**63 - 1, 9, Purpose.XTC)


def splitmix(state: int, count: int) -> list[int]:
    """The first numbers of SplitMix64 from a state, by its definition."""
    found, mask = list[int](), 2**64 - 1
    for _ in range(count):
        state = state + 0x9E3779B97F4A7C15 & mask
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
        found.append(mixed ^ mixed >> 31)
    return found


def test_splitmix_gives_the_known_answers() -> None:
    # The first outputs for the state 1234567, as published with the generator.
    assert splitmix(1234567, 3) == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
    ]  # fmt: skip


def test_waiting_times_are_those_of_splitmix_at_the_places_of_the_ids() -> None:
    high, low, _, _ = philox((9, 0, Purpose.DRAW, 0), (7, 0))
    numbers = splitmix(high << 32 | low, 50)
    ids = np.array([0, 49, 7, 21])
    wanted = [-np.log(((numbers[token] >> 11) + 0.5) * 2**-53) for token in ids]
    assert waiting_times(7, 9, ids) == pytest.approx(wanted, rel=1e-14)
    assert ids.tolist() == [0, 49, 7, 21]


def test_waiting_times_are_exponential_and_independent() -> None:
    times = np.array([waiting_times(3, at, np.arange(200)) for at in range(500)])
    counts = np.histogram(np.exp(-times), 100, (0, 1))[0]
    statistic = ((counts - 1_000) ** 2 / 1_000).sum()
    assert 55 < statistic < 155  # p of 0.9998 and 0.0003 with 99 degrees of freedom
    for one, other in ((times[:, 0], times[:, 1]), (times[0], times[1]), (times[1], times[2])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(len(one))


def test_the_largest_id_of_a_vocabulary_has_a_time() -> None:
    assert 0 < waiting_times(2**63 - 1, 2**40, np.array([2**31 - 1]))[0] < 40
