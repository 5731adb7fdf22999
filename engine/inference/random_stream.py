"""Random numbers as a function of seed and position, without a generator that has a state.

The number for a token depends on the seed, on the token's position in the text and on what it is
used for. So a seed gives the same answer in any batch, on any backend, after a resume, a preemption
or a fork, however many numbers were drawn in between.

Source: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3, section 4 (Philox).
"""

from __future__ import annotations

from enum import IntEnum

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85  # the golden ratio, and the square root of 3 minus 1
_WORD = 0xFFFFFFFF
_STEP = 2.0**-53  # between two results of `uniform`

Counter = tuple[int, int, int, int]


class Purpose(IntEnum):
    """What a number is used for; equal positions have independent numbers for each."""

    DRAW = 0  # the token
    XTC = 1  # whether the most likely tokens are left out
    ACCEPT = 2  # whether a drafted token is accepted
    RESIDUAL = 3  # the token that replaces a rejected one
    DRAFT = 4  # the token that a draft model proposes


def uniform(seed: int, position: int, purpose: Purpose = Purpose.DRAW, attempt: int = 0) -> float:
    """A number in [0, 1), a multiple of 2^-53.

    `seed` has at most 64 bits. `position` is the number of tokens before the one that is drawn,
    `attempt` how often it has been drawn already.
    """
    counter = position & _WORD, position >> 32, int(purpose), attempt
    high, low, _, _ = philox(counter, (seed & _WORD, seed >> 32 & _WORD))
    return ((high << 32 | low) >> 11) * _STEP


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
