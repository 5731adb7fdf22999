"""Random numbers as a function of seed and position, without a generator that has a state.

The number for a token depends on the seed, on the token's position in the text and on what it is
used for. So a seed gives the same answer in any batch, on any backend, after a resume, a preemption
or a fork, however many numbers were drawn in between.

Source: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3, section 4 (Philox).
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85  # the golden ratio, and the square root of 3 minus 1
_WORD = 0xFFFFFFFF
_STEP = 2.0**-53  # between two results of `uniform`
_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # of SplitMix64, as are the two factors
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)

Counter = tuple[int, int, int, int]


class Purpose(IntEnum):
    """What a number is used for; equal positions have independent numbers for each."""

    DRAW = 0  # the token
    XTC = 1  # whether the most likely tokens are left out


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A number in [0, 1), a multiple of 2^-53.

    `seed` has at most 64 bits; `position` is the number of tokens before the one that is drawn.
    """
    return (_bits(seed, position, purpose) >> 11) * _STEP


def waiting_times(seed: int, position: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """A random number for each token [N], exponentially distributed with mean 1.

    Divided by the probabilities, the smallest is that of a token drawn with them: an exponential
    race, which is the Gumbel-max trick. A token has the same number in any distribution, and
    without the first token the next one is drawn as from the others alone.

    Source: SplitMix64 (Steele et al. 2014, Fast Splittable Pseudorandom Number Generators), at the
    places of the ids, started by Philox.
    """
    mixed = ids.astype(np.uint64)
    mixed += np.uint64(1)
    mixed *= _GAMMA
    counter = position & _WORD, position >> 32, 0, 0  # as `draw_bits`
    high, low, _, _ = philox(counter, (seed & _WORD, seed >> 32 & _WORD))
    mixed += np.uint64(high << 32 | low)
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        mixed ^= mixed >> shift
        mixed *= factor
    mixed ^= mixed >> _SHIFTS[2]
    mixed >>= np.uint64(11)
    numbers = mixed.astype(np.float64)
    numbers += 0.5
    numbers *= _STEP
    return np.negative(np.log(numbers, out=numbers), out=numbers)


def draw_bits(seed: int, position: int) -> int:
    """The 64 random bits from which `waiting_times` makes those of all tokens."""
    return _bits(seed, position, Purpose.DRAW)


def _bits(seed: int, position: int, purpose: Purpose) -> int:
    """64 random bits."""
    counter = position & _WORD, position >> 32, int(purpose), 0
    high, low, _, _ = philox(counter, (seed & _WORD, seed >> 32 & _WORD))
    return high << 32 | low


def philox(counter: Counter, key: tuple[int, int]) -> Counter:
    """Philox-4x32-10: four random words of 32 bits for a counter and a key of such words."""
    one, two, three, four = counter
    left, right = key
    for _ in range(_ROUNDS):
        first, second = one * _MULTIPLIERS[0], three * _MULTIPLIERS[1]
        one, three = second >> 32 ^ two ^ left, first >> 32 ^ four ^ right
        two, four = second & _WORD, first & _WORD
        left, right = left + _KEY_STEPS[0] & _WORD, right + _KEY_STEPS[1] & _WORD
    return one, two, three, four
