"""Regular expressions for the numbers of a range, exact, and with a limit of digits.

Bounds are compared as text, never as floats. Without a limit a model may write digits without
end. Where a fraction is near a bound it has so few digits that it is on the same side of the
bound when it is read as a float.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

DIGITS = 20  # before the point, and after it: 2 ** 64 has 20
_EXACT_DIGITS = 15  # which a float keeps
_EXACT = 10**_EXACT_DIGITS
_LONGEST = 60  # digits of a bound
_MOST_ENDINGS = 1_000  # of the multiples of a number
# So few digits that a float is no integer.
NO_INTEGER = r"-?(?:0|[1-9][0-9]{0,8})\.[0-9]{0,5}[1-9]"
# Exponents up to 289: with 20 digits the number is a float.
_EXPONENT = r"(?:[eE][+-]?(?:[0-9]{1,2}|1[0-9]{2}|2[0-8][0-9]))?"


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers between two bounds; None: no bound."""

    low: Fraction | None = None
    high: Fraction | None = None
    above: bool = False  # the lower bound itself is outside
    below: bool = False  # the upper bound itself is outside

    def has(self, value: Fraction) -> bool:
        """Whether a number is in the range."""
        if self.low is not None and (value < self.low or (self.above and value == self.low)):
            return False
        return not (
            self.high is not None and (value > self.high or (self.below and value == self.high))
        )

    def integers(self) -> tuple[int | None, int | None]:
        """The least and the greatest integer, None: there is none."""
        low = high = None
        if self.low is not None:
            low = math.ceil(self.low)
            low += self.above and self.low == low
        if self.high is not None:
            high = math.floor(self.high)
            high -= self.below and self.high == high
        return low, high


def integers(low: int | None, high: int | None) -> str | None:
    """The decimal integers of a range; None: it is empty."""
    if low is None and high is None:
        return rf"-?(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})"
    if low is not None and high is not None and low > high:
        return None
    parts: list[str] = []
    if low is None or low < 0:
        least = max(1, -high) if high is not None else 1
        parts.append(f"-(?:{_naturals(least, None if low is None else -low)})")
    if high is None or high >= 0:
        parts.append(_naturals(max(low or 0, 0), high))
    return "|".join(parts)


def _naturals(low: int, most: int | None) -> str:
    """The integers from `low`, which is not negative, to `most`."""
    high = 10 ** max(DIGITS, len(str(low)) + 1) - 1
    if most is not None:
        high = min(high, most)
    if len(str(low)) > _LONGEST:  # regular expressions are nested by digits: from the next power on
        low, first = 10 ** len(str(low)), str(low)
        if low > high:
            return first
    parts: list[str] = []
    while low <= high:
        digits, whole = len(str(low)), len(str(high + 1)) - 1  # lengths up to this one fit
        if low == 10 ** (digits - 1) and digits < whole:
            parts.append(f"[1-9][0-9]{{{digits - 1},{whole - 1}}}")
            low = 10**whole
            continue
        top = min(high, 10**digits - 1)
        parts += _same_length(str(low), str(top))
        low = top + 1
    return "|".join(parts)


def _same_length(low: str, high: str) -> list[str]:
    """The digit strings between two of one length."""
    if not low:
        return [""]
    rest = len(low) - 1
    if low[1:] == "0" * rest and high[1:] == "9" * rest:
        head = low[0] if low[0] == high[0] else f"[{low[0]}-{high[0]}]"
        return [head + (f"[0-9]{{{rest}}}" if rest else "")]
    if low[0] == high[0]:
        return [f"{low[0]}(?:{'|'.join(_same_length(low[1:], high[1:]))})"]
    first, last = int(low[0]), int(high[0])
    parts: list[str] = []
    if low[1:] != "0" * rest:
        parts.append(f"{first}(?:{'|'.join(_same_length(low[1:], '9' * rest))})")
        first += 1
    tail: list[str] = []
    if high[1:] != "9" * rest:
        tail.append(f"{last}(?:{'|'.join(_same_length('0' * rest, high[1:]))})")
        last -= 1
    if first <= last:
        parts += _same_length(str(first) + "0" * rest, str(last) + "9" * rest)
    return parts + tail


def decimals(bounds: Range) -> str | None:
    """The numbers of a range, with fractions; None: it is empty.

    From 10 ** 15 on they are integers, for a float has no fractions of such numbers.
    """
    low, high = _as_read(bounds.low, bounds.above), _as_read(bounds.high, bounds.below)
    if low is None and high is None:
        return rf"-?(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})(?:\.[0-9]{{1,{DIGITS}}})?{_EXPONENT}"
    near = [one for one in (low, high) if one is not None and abs(one) < _EXACT]
    fraction = _EXACT_DIGITS - max((len(str(int(abs(one)))) for one in near), default=1)
    if not (bounds.above or bounds.below):
        fraction = max(fraction, *map(_places, near), 0)
    scale = 10**fraction
    parts: list[str] = []
    least, most = _ends(low, high, bounds, scale)
    if least < 0 and least <= most:
        parts += [f"-(?:{one})" for one in _scaled(max(1, -most), -least, fraction)]
    if most >= 0 and least <= most:
        parts += _scaled(max(least, 0), most, fraction)
    first, last = bounds.integers()
    if last is None or last >= _EXACT:
        parts.append(integers(max(first or 0, _EXACT), last) or "")
    if first is None or first <= -_EXACT:
        parts.append(integers(first, min(last or 0, -_EXACT)) or "")
    return "|".join(filter(None, parts)) or None


def _ends(
    low: Fraction | None, high: Fraction | None, bounds: Range, scale: int
) -> tuple[int, int]:
    """The least and the greatest integer n with n / scale in the range, of less than 10 ** 15."""
    far = _EXACT * scale
    scaled = Range(
        Fraction(-far) if low is None else low * scale,
        Fraction(far) if high is None else high * scale,
        bounds.above,
        bounds.below,
    )
    least, most = scaled.integers()
    assert least is not None
    assert most is not None
    return max(least, 1 - far), min(most, far - 1)


def _as_read(bound: Fraction | None, outside: bool) -> Fraction | None:
    """A bound as a reader of floats has it, where the bound itself is outside."""
    if bound is None or not outside or bound.denominator == 1:
        return bound
    return Fraction(repr(float(bound)))


def _places(value: Fraction) -> int:
    """How many decimals a number has."""
    places = 0
    while 10**places % value.denominator:
        places += 1
    return places


def _scaled(low: int, high: int, fraction: int) -> list[str]:
    """The numbers n / 10 ** fraction for the integers n of a range; zeros may follow."""
    scale = 10**fraction
    first, last = low // scale, high // scale
    if first == last:
        return _with_fraction(str(first), low % scale, high % scale, fraction)
    parts: list[str] = []
    if low % scale:
        parts += _with_fraction(str(first), low % scale, scale - 1, fraction)
        first += 1
    tail: list[str] = []
    if high % scale != scale - 1:
        tail = _with_fraction(str(last), 0, high % scale, fraction)
        last -= 1
    if first <= last:
        every = rf"(?:\.[0-9]{{1,{fraction}}})?" if fraction else ""
        parts.append(f"(?:{_naturals(first, last)}){every}")
    return parts + tail


def _with_fraction(whole: str, low: int, high: int, fraction: int) -> list[str]:
    """`whole` with the fractions of `fraction` digits in a range, shorter ones included."""
    parts = [whole] if low == 0 else []
    for digits in range(1, fraction + 1):
        unit = 10 ** (fraction - digits)
        first, last = -(-low // unit), high // unit
        if first <= last:
            texts = f"{first:0{digits}d}", f"{last:0{digits}d}"
            parts.append(rf"{whole}\.(?:{'|'.join(_same_length(*texts))})")
    return parts


def multiples(step: Fraction) -> str | None:
    """The multiples of a number, by their last digits; None: those do not decide it.

    Zero is among them. Limits of the range and of the digits are the caller's.
    """
    places = _places(step)
    scaled = int(step * 10**places)
    count = 0  # of the digits that decide it
    while 10**count % scaled:
        count += 1
        if count > places + DIGITS:
            return None
    if 10**count // scaled > _MOST_ENDINGS:
        return None
    free = rf"[0-9]{{{places - count}}}" if places > count else ""
    parts = [r"(?:0|[1-9][0-9]*)"] if places >= count else []
    for ending in range(0, 10**count, scaled):
        text = f"{ending:0{count}d}" if count else ""
        head, tail = text[: max(count - places, 0)], free + text[max(count - places, 0) :]
        point = rf"\.{tail}" if places else ""
        if places and not free and not int(tail):
            point = f"(?:{point})?"
        parts.append(f"(?:{head.lstrip('0') or '0'}|[1-9][0-9]*{head}){point}")
    return f"-?(?:{'|'.join(parts)})"
