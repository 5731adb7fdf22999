"""Numbers of the calculator: exact fractions where that is possible, else decimals of 60 digits.

Both have limits of size, so that no expression takes longer than a fraction of a second.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from app.tools.builtin.calculator.faults import (
    MOST_BITS,
    MOST_EXPONENT,
    CalculationError,
    too_large,
)

Number = Fraction | Decimal

SHOWN_DIGITS = 30  # of an inexact number
_LONGEST_EXACT = 60  # digits of a decimal fraction that is shown in full
_LONGEST_INTEGER = 1000  # digits of one that is shown in full
_SHORT_FRACTION = 1000  # above and below the line of one that is shown too
_MOST_ROOT = 64  # the highest root that is tried exactly
_DIGITS = 60
WORK_DIGITS = 80  # while a series is summed


def _context(digits: int) -> decimal.Context:
    return decimal.Context(
        prec=digits,
        Emax=MOST_EXPONENT,
        Emin=-MOST_EXPONENT,
        rounding=decimal.ROUND_HALF_EVEN,
        traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
    )


CONTEXT, WORK = _context(_DIGITS), _context(WORK_DIGITS)


def inexact(number: Number) -> Decimal:
    """A number as a decimal of 60 digits."""
    if isinstance(number, Decimal):
        return number
    return CONTEXT.divide(Decimal(number.numerator), Decimal(number.denominator))


def checked(number: Number) -> Number:
    """The number; raises CalculationError if it is too large to go on with."""
    if isinstance(number, Fraction):
        bits = max(number.numerator.bit_length(), number.denominator.bit_length())
        if bits > MOST_BITS:
            raise too_large()
    return number


def add(a: Number, b: Number) -> Number:
    """a + b."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return checked(a + b)
    return CONTEXT.add(inexact(a), inexact(b))


def multiply(a: Number, b: Number) -> Number:
    """a · b."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return checked(a * b)
    return CONTEXT.multiply(inexact(a), inexact(b))


def divide(a: Number, b: Number) -> Number:
    """a / b."""
    if b == 0:
        raise CalculationError("a number is divided by zero")
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return checked(a / b)
    return CONTEXT.divide(inexact(a), inexact(b))


def modulo(a: Number, b: Number) -> Number:
    """The remainder of a / b, with the sign of b."""
    if b == 0:
        raise CalculationError("a number is divided by zero")
    exact_a, exact_b = exact(a), exact(b)
    return checked(exact_a - exact_b * math.floor(exact_a / exact_b))


def exact(number: Number) -> Fraction:
    """A number as a fraction; raises CalculationError for one that is too large."""
    if isinstance(number, Fraction):
        return number
    if abs(number.adjusted()) > MOST_BITS // 4:
        raise too_large()
    return Fraction(number)


def integer(number: Number, what: str) -> int:
    """A whole number; raises CalculationError, which names `what` it is for."""
    found = exact(number)
    if found.denominator != 1:
        raise CalculationError(f"{what} needs a whole number")
    return found.numerator


def power(base: Number, exponent: Number) -> Number:
    """base ^ exponent, exact where the result is a fraction."""
    if base == 0 and exponent < 0:
        raise CalculationError("a number is divided by zero")
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            return _whole_power(base, exponent.numerator)
        if (root := _rooted(base, exponent.denominator)) is not None:
            return _whole_power(root, exponent.numerator)
    if base < 0:
        return _of_negative(base, exponent)
    return CONTEXT.power(inexact(base), inexact(exponent))


def _of_negative(base: Number, exponent: Number) -> Number:
    """A power of a negative number with an exponent that is not whole, or is inexact."""
    found = exact(exponent)
    if found.denominator == 1:
        return CONTEXT.power(inexact(base), Decimal(found.numerator))
    if found.denominator % 2 == 0 or found.denominator > _MOST_ROOT:
        raise CalculationError("this power of a negative number is not a real number")
    size = CONTEXT.power(-inexact(base), inexact(exponent))
    return -size if found.numerator % 2 else size


def _whole_power(base: Fraction, exponent: int) -> Number:
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) in (0, 1) or size * abs(exponent) <= MOST_BITS:
        return base**exponent
    if abs(exponent) > 10**12:
        raise too_large()
    return CONTEXT.power(inexact(base), Decimal(exponent))


def _rooted(base: Fraction, root: int) -> Fraction | None:
    """An exact root; None if there is none, or it is not real."""
    if root > _MOST_ROOT or (base < 0 and root % 2 == 0):
        return None
    above, below = whole_root(abs(base.numerator), root), whole_root(base.denominator, root)
    if above is None or below is None:
        return None
    return Fraction(above if base >= 0 else -above, below)


def whole_root(number: int, root: int) -> int | None:
    """The whole root of a whole number; None if there is none."""
    if not number:
        return 0
    found = 1 << -(-number.bit_length() // root)  # not below it; Newton's steps go down to it
    while (lower := ((root - 1) * found + number // found ** (root - 1)) // root) < found:
        found = lower
    return found if found**root == number else None


@dataclass(frozen=True, slots=True)
class Digits:
    """A number in digits, and what else is to be said of it."""

    text: str  # with "≈" before it where digits are left out
    aside: str = ""


def shown(number: Number) -> Digits:
    """A number in digits: whole numbers and short fractions in full."""
    if isinstance(number, Decimal):
        return Digits(f"≈ {_short(number)}")
    above, below = number.numerator, number.denominator
    if below == 1:
        digits = int(abs(above).bit_length() * 0.30103) + 1
        if digits <= _LONGEST_INTEGER:
            return Digits(str(above))
        return Digits(f"≈ {_short(inexact(number))}", f"a whole number of about {digits:,} digits")
    if (text := _terminating(number)) is not None:
        return Digits(text)
    is_short = max(abs(above), below) < _SHORT_FRACTION
    return Digits(f"≈ {_short(inexact(number))}", f"exactly {above}/{below}" if is_short else "")


def _short(number: Decimal) -> str:
    """A decimal of `SHOWN_DIGITS` digits."""
    rounded = _context(SHOWN_DIGITS).plus(number)
    if rounded == 0:
        return "0"
    rounded = CONTEXT.copy().normalize(rounded)
    if -10 <= rounded.adjusted() < SHOWN_DIGITS:
        return f"{rounded:f}"
    return str(rounded).replace("E+", "e").replace("E", "e")


def _terminating(number: Fraction) -> str | None:
    """A fraction with few decimal places in full; None if it has more."""
    below, twos, fives = number.denominator, 0, 0
    while below % 2 == 0 and twos <= _LONGEST_EXACT:
        below, twos = below // 2, twos + 1
    while below % 5 == 0 and fives <= _LONGEST_EXACT:
        below, fives = below // 5, fives + 1
    places = max(twos, fives)
    if below != 1 or places > _LONGEST_EXACT:
        return None
    if number.numerator.bit_length() > _LONGEST_EXACT * 4:
        return None
    digits = str(abs(number.numerator) * 10**places // number.denominator).rjust(places + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}"
