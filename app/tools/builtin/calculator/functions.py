"""Functions of the calculator; trigonometry, roots and logarithms have 30 correct digits."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache, reduce

from app.tools.builtin.calculator import numbers, quantity
from app.tools.builtin.calculator.faults import MOST_BITS, CalculationError, too_large
from app.tools.builtin.calculator.numbers import CONTEXT, WORK, WORK_DIGITS, Number
from app.tools.builtin.calculator.quantity import Quantity
from app.tools.builtin.calculator.units import find

_MOST_FACTORIAL = 3000
_MOST_PLACES = 300  # to round to
_LARGEST_ANGLE = 60  # digits before its point
_ONE = Decimal(1)


@dataclass(frozen=True, slots=True)
class Function:
    """A function: what it makes of so many values."""

    make: Callable[[Sequence[Quantity]], Quantity]
    least: int = 1
    most: int = 1
    note: str = ""  # how it is meant, where that is not plain


def constant(name: str) -> Quantity | None:
    """A number by its name."""
    match name.casefold():
        case "pi":
            return Quantity(CONTEXT.plus(_pi(WORK_DIGITS)))
        case "tau":
            return Quantity(CONTEXT.multiply(Decimal(2), _pi(WORK_DIGITS)))
        case "e":
            return Quantity(CONTEXT.exp(_ONE))
        case "phi":
            return Quantity(CONTEXT.divide(1 + CONTEXT.sqrt(Decimal(5)), Decimal(2)))
        case _:
            return None


@cache
def _pi(digits: int) -> Decimal:
    """π by Machin's formula."""
    unit = 10 ** (digits + 10)
    whole = 4 * (4 * _arctan_of_inverse(5, unit) - _arctan_of_inverse(239, unit))
    return decimal.Context(prec=digits).divide(Decimal(whole), Decimal(unit))


def _arctan_of_inverse(of: int, unit: int) -> int:
    """arctan(1 / of) · unit."""
    total, power, n, sign = 0, unit // of, 1, 1
    while power:
        total += sign * (power // n)
        power //= of * of
        n, sign = n + 2, -sign
    return total


# --- trigonometry ---------------------------------------------------------------------------------


def _sine_of(angle: Number) -> Decimal:
    """The sine of an angle in radians."""
    value = numbers.inexact(angle) if isinstance(angle, Decimal) else _wide(angle)
    large = max(value.adjusted(), 0)
    if large > _LARGEST_ANGLE:
        raise too_large()
    context = decimal.Context(prec=WORK_DIGITS + large)
    turn = context.multiply(Decimal(2), _pi(WORK_DIGITS + large))
    rest = context.remainder_near(value, turn)
    term = total = WORK.plus(rest)
    square = WORK.multiply(term, term)
    n = 1
    while term and term.adjusted() > min(total.adjusted(), 0) - WORK_DIGITS:
        n += 2
        term = WORK.divide(WORK.multiply(term, -square), Decimal(n * (n - 1)))
        total = WORK.add(total, term)
    return Decimal(0) if quantity.is_zero(total) and not quantity.is_zero(value) else total


def _wide(number: Fraction) -> Decimal:
    """A fraction with the digits of a series, and as many before the point as it has."""
    digits = max(number.numerator.bit_length() - number.denominator.bit_length(), 0) // 3
    context = decimal.Context(prec=WORK_DIGITS + min(digits, 2 * _LARGEST_ANGLE))
    return context.divide(Decimal(number.numerator), Decimal(number.denominator))


def _cosine_of(angle: Number) -> Decimal:
    value = angle if isinstance(angle, Decimal) else _wide(angle)
    large = max(value.adjusted(), 0)
    context = decimal.Context(prec=WORK_DIGITS + min(large, _LARGEST_ANGLE) + 1)
    quarter = context.divide(_pi(WORK_DIGITS + _LARGEST_ANGLE), Decimal(2))
    return _sine_of(context.add(value, quarter))


def _radians(value: Quantity) -> Number:
    """An angle in radians; one in degrees is brought below a turn while it is exact."""
    match value.units:
        case ((unit, 1),) if unit.inexact and isinstance(value.number, Fraction):
            turn = Fraction(360) if unit.name == "deg" else Fraction(400)
            exact = value.number % turn if unit.name in ("deg", "grad") else value.number
            return WORK.multiply(_wide(exact), WORK.divide(_wide(unit.factor), _ONE))
        case _:
            return quantity.plain(value, "an angle")


def _sine(values: Sequence[Quantity]) -> Quantity:
    return _rounded(_sine_of(_radians(values[0])))


def _cosine(values: Sequence[Quantity]) -> Quantity:
    return _rounded(_cosine_of(_radians(values[0])))


def _tangent(values: Sequence[Quantity]) -> Quantity:
    angle = _radians(values[0])
    below = _cosine_of(angle)
    if below == 0:
        raise CalculationError("the tangent has no value at this angle")
    return _rounded(WORK.divide(_sine_of(angle), below))


def _rounded(value: Decimal) -> Quantity:
    """A number of a series; one that is whole but for rounding is whole."""
    near = value.to_integral_value()
    if abs(near) < 10 and (WORK.subtract(value, near)).adjusted() < -50:
        return Quantity(Fraction(int(near)))
    return Quantity(CONTEXT.plus(value))


def _arctan(value: Decimal) -> Decimal:
    """The arc tangent in radians."""
    if value < 0:
        return -_arctan(-value)
    if value > 1:
        return WORK.subtract(
            WORK.divide(_pi(WORK_DIGITS), Decimal(2)), _arctan(WORK.divide(_ONE, value))
        )
    halved = 0
    while value > Decimal("0.05"):
        root = WORK.sqrt(WORK.add(_ONE, WORK.multiply(value, value)))
        value = WORK.divide(value, WORK.add(_ONE, root))
        halved += 1
    total, power, square, n = value, value, -WORK.multiply(value, value), 1
    while power and power.adjusted() > total.adjusted() - WORK_DIGITS:
        power = WORK.multiply(power, square)
        n += 2
        total = WORK.add(total, WORK.divide(power, Decimal(n)))
    return WORK.multiply(total, Decimal(2**halved))


def _inverse_tangent(values: Sequence[Quantity]) -> Quantity:
    return _angle(_arctan(numbers.inexact(quantity.plain(values[0], "atan"))))


def _inverse_sine(values: Sequence[Quantity]) -> Quantity:
    value = _within_one(values[0], "asin")
    rest = WORK.sqrt(WORK.subtract(_ONE, WORK.multiply(value, value)))
    return _angle(_atan2(value, rest))


def _inverse_cosine(values: Sequence[Quantity]) -> Quantity:
    value = _within_one(values[0], "acos")
    rest = WORK.sqrt(WORK.subtract(_ONE, WORK.multiply(value, value)))
    return _angle(_atan2(rest, value))


def _within_one(value: Quantity, name: str) -> Decimal:
    number = numbers.inexact(quantity.plain(value, name))
    if abs(number) > 1:
        raise CalculationError(f"{name} is defined from -1 to 1")
    return number


def _atan2(y: Decimal, x: Decimal) -> Decimal:
    if x == 0:
        half = WORK.divide(_pi(WORK_DIGITS), Decimal(2))
        return half if y > 0 else -half if y < 0 else Decimal(0)
    angle = _arctan(WORK.divide(y, x))
    if x > 0:
        return angle
    return WORK.add(angle, _pi(WORK_DIGITS) if y >= 0 else -_pi(WORK_DIGITS))


def _two_argument_tangent(values: Sequence[Quantity]) -> Quantity:
    y, x = (numbers.inexact(quantity.plain(each, "atan2")) for each in values)
    return _angle(_atan2(y, x))


def _angle(value: Decimal) -> Quantity:
    unit = find("rad")
    assert unit is not None
    return Quantity(CONTEXT.plus(value), ((unit, 1),))


def _hyperbolic(name: str) -> Function:
    def make(values: Sequence[Quantity]) -> Quantity:
        value = numbers.inexact(quantity.plain(values[0], name))
        up, down = _exponential(value), _exponential(-value)
        sinh = WORK.divide(WORK.subtract(up, down), Decimal(2))
        cosh = WORK.divide(WORK.add(up, down), Decimal(2))
        made = {"sinh": sinh, "cosh": cosh, "tanh": WORK.divide(sinh, cosh)}[name]
        return Quantity(CONTEXT.plus(made))

    return Function(make)


# --- powers and logarithms ------------------------------------------------------------------------


def _exponential(value: Decimal) -> Decimal:
    if value.adjusted() > 6:
        raise too_large()
    return WORK.exp(value)


def _exp(values: Sequence[Quantity]) -> Quantity:
    return Quantity(CONTEXT.plus(_exponential(numbers.inexact(quantity.plain(values[0], "exp")))))


def _root(value: Quantity, root: Fraction) -> Quantity:
    if root == 0:
        raise CalculationError("there is no root of the order 0")
    return quantity.power(value, Quantity(1 / root))


def _any_root(values: Sequence[Quantity]) -> Quantity:
    return _root(values[0], numbers.exact(quantity.plain(values[1], "root")))


def _logarithm(name: str, base: int = 0) -> Function:
    """A logarithm to a base, 0: the natural one."""

    def make(values: Sequence[Quantity]) -> Quantity:
        value = _positive(values[0], name)
        if len(values) == 2:
            return _log_to(value, _positive(values[1], name))
        if base:
            return _log_to(value, Fraction(base))
        return Quantity(CONTEXT.ln(numbers.inexact(value)))

    two = name == "log"
    note = "log without a base is to base 10; ln is the natural one" if two else ""
    return Function(make, 1, 2 if two else 1, note)


def _positive(value: Quantity, name: str) -> Number:
    number = quantity.plain(value, name)
    if number <= 0:
        raise CalculationError(f"{name} is defined for numbers above 0")
    return number


def _log_to(value: Number, base: Number) -> Quantity:
    if base == 1:
        raise CalculationError("there is no logarithm to base 1")
    found = WORK.divide(_ln(value), _ln(base))
    near = found.to_integral_value()
    whole = isinstance(value, Fraction) and isinstance(base, Fraction)
    if whole and abs(near) < MOST_BITS and numbers.power(base, Fraction(int(near))) == value:
        return Quantity(Fraction(int(near)))
    return Quantity(CONTEXT.plus(found))


def _ln(number: Number) -> Decimal:
    return WORK.ln(number if isinstance(number, Decimal) else _wide(number))


# --- whole numbers and lists ----------------------------------------------------------------------


def factorial(value: Quantity) -> Quantity:
    """n!."""
    n = numbers.integer(quantity.plain(value, "a factorial"), "a factorial")
    if not 0 <= n <= _MOST_FACTORIAL:
        raise CalculationError(f"factorials go from 0 to {_MOST_FACTORIAL:,}")
    return Quantity(Fraction(math.factorial(n)))


def _of_integers(name: str, make: Callable[[list[int]], int], least: int, most: int) -> Function:
    def made(values: Sequence[Quantity]) -> Quantity:
        found = [numbers.integer(quantity.plain(each, name), name) for each in values]
        return Quantity(numbers.checked(Fraction(make(found))))

    return Function(made, least, most)


def _combinations(values: list[int]) -> int:
    return _counted(values, math.comb)


def _permutations(values: list[int]) -> int:
    return _counted(values, math.perm)


def _counted(values: list[int], count: Callable[[int, int], int]) -> int:
    n, k = values
    if not 0 <= k <= n <= 100_000 or min(k, n - k if count is math.comb else k) > _MOST_FACTORIAL:
        raise CalculationError("this needs whole numbers 0 ≤ k ≤ n, not too large")
    return count(n, k)


def _integral(name: str, make: Callable[[Fraction], int]) -> Function:
    def made(values: Sequence[Quantity]) -> Quantity:
        return replace(values[0], number=Fraction(make(numbers.exact(values[0].number))))

    return Function(made)


def _round(values: Sequence[Quantity]) -> Quantity:
    """Half away from zero, as people round."""
    places = 0
    if len(values) == 2:
        places = numbers.integer(quantity.plain(values[1], "round"), "round")
    if abs(places) > _MOST_PLACES:
        raise CalculationError(f"round takes at most {_MOST_PLACES} places")
    scaled = numbers.exact(values[0].number) * Fraction(10) ** places
    whole = math.floor(abs(scaled) + Fraction(1, 2))
    number = Fraction(whole if scaled >= 0 else -whole) / Fraction(10) ** places
    return replace(values[0], number=number)


def _absolute(values: Sequence[Quantity]) -> Quantity:
    return replace(values[0], number=abs(values[0].number))


def _sum(values: Sequence[Quantity]) -> Quantity:
    return reduce(quantity.add, values)


def _mean(values: Sequence[Quantity]) -> Quantity:
    return quantity.divide(_sum(values), Quantity(Fraction(len(values))))


def _ordered(values: Sequence[Quantity]) -> list[Quantity]:
    made = list(values)
    for each in made:
        quantity.subtract(made[0], each)  # refuses what cannot be compared
    return sorted(made, key=lambda each: numbers.exact(each.base))


def _median(values: Sequence[Quantity]) -> Quantity:
    made = _ordered(values)
    middle = len(made) // 2
    return made[middle] if len(made) % 2 else _mean(made[middle - 1 : middle + 1])


def _deviation(values: Sequence[Quantity]) -> Quantity:
    """The standard deviation of a sample."""
    found: list[Number] = [quantity.plain(each, "stdev") for each in values]
    count = Fraction(len(found))
    mean = numbers.divide(reduce(numbers.add, found), count)
    far = [numbers.add(each, numbers.multiply(Fraction(-1), mean)) for each in found]
    squares = reduce(numbers.add, (numbers.multiply(each, each) for each in far))
    return Quantity(numbers.power(numbers.divide(squares, count - 1), Fraction(1, 2)))


_MANY = 500
_FUNCTIONS: dict[str, Function] = {
    "sin": Function(_sine),
    "cos": Function(_cosine),
    "tan": Function(_tangent),
    "asin": Function(_inverse_sine),
    "acos": Function(_inverse_cosine),
    "atan": Function(_inverse_tangent),
    "atan2": Function(_two_argument_tangent, 2, 2),
    **{name: _hyperbolic(name) for name in ("sinh", "cosh", "tanh")},
    "exp": Function(_exp),
    "ln": _logarithm("ln"),
    "log": _logarithm("log", 10),
    "log10": _logarithm("log10", 10),
    "log2": _logarithm("log2", 2),
    "sqrt": Function(lambda values: _root(values[0], Fraction(2))),
    "cbrt": Function(lambda values: _root(values[0], Fraction(3))),
    "root": Function(_any_root, 2, 2),
    "pow": Function(lambda values: quantity.power(values[0], values[1]), 2, 2),
    "mod": Function(lambda values: quantity.modulo(values[0], values[1]), 2, 2),
    "factorial": Function(lambda values: factorial(values[0])),
    "gcd": _of_integers("gcd", lambda values: math.gcd(*values), 1, _MANY),
    "lcm": _of_integers("lcm", lambda values: math.lcm(*values), 1, 50),
    "comb": _of_integers("comb", _combinations, 2, 2),
    "perm": _of_integers("perm", _permutations, 2, 2),
    "floor": _integral("floor", math.floor),
    "ceil": _integral("ceil", math.ceil),
    "trunc": _integral("trunc", math.trunc),
    "round": Function(_round, 1, 2),
    "abs": Function(_absolute),
    "sum": Function(_sum, 1, _MANY),
    "mean": Function(_mean, 1, _MANY),
    "median": Function(_median, 1, _MANY),
    "min": Function(lambda values: _ordered(values)[0], 1, _MANY),
    "max": Function(lambda values: _ordered(values)[-1], 1, _MANY),
    "stdev": Function(_deviation, 2, _MANY),
}
_ALIASES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "lg": "log10", "average": "mean",
    "avg": "mean", "ncr": "comb", "choose": "comb", "binomial": "comb", "npr": "perm",
    "ceiling": "ceil", "square_root": "sqrt", "fact": "factorial", "std": "stdev", "int": "trunc",
}  # fmt: skip
FUNCTION_NAMES = tuple(sorted(_FUNCTIONS))


def function(name: str) -> Function | None:
    """A function by its name."""
    name = name.casefold()
    return _FUNCTIONS.get(_ALIASES.get(name, name))


def is_plain_angle(name: str, value: Quantity) -> bool:
    """Whether a value that is no angle is taken for one in radians."""
    return name.casefold() in ("sin", "cos", "tan") and not value.units and value.number != 0
