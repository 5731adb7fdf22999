"""Quantities: a number with units, and what can be calculated with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from app.tools.builtin.calculator import numbers
from app.tools.builtin.calculator.faults import CalculationError
from app.tools.builtin.calculator.numbers import Number
from app.tools.builtin.calculator.units import FUEL, KINDS, NONE, Dimension, Unit

_SUPERSCRIPTS = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
_TURNED = tuple(-each for each in FUEL)
_MOST_POWER = 50
_COUNTED = ("day", "week", "month", "year", "cup", "turn", "acre")
_SIMPLE: dict[Dimension, str] = {
    (1, 0, 0, 0, 0, 0, 0): "m",
    (2, 0, 0, 0, 0, 0, 0): "m²",
    (3, 0, 0, 0, 0, 0, 0): "m³",
    (0, 1, 0, 0, 0, 0, 0): "kg",
    (0, 0, 1, 0, 0, 0, 0): "s",
    (2, 1, -2, 0, 0, 0, 0): "J",
    (2, 1, -3, 0, 0, 0, 0): "W",
    (1, 1, -2, 0, 0, 0, 0): "N",
    (-1, 1, -2, 0, 0, 0, 0): "Pa",
    (0, 0, 0, 0, 1, 0, 0): "bit",
}


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number in units, each with its power; a temperature on a scale has one unit."""

    number: Number
    units: tuple[tuple[Unit, int], ...] = ()
    percent: bool = False  # written with %: `number` is a hundredth of what was written

    @property
    def dimension(self) -> Dimension:
        """The powers of the base units."""
        made = [0] * len(NONE)
        for unit, power in self.units:
            for at, each in enumerate(unit.dimension):
                made[at] += each * power
        return made[0], made[1], made[2], made[3], made[4], made[5], made[6]

    @property
    def scale(self) -> Unit | None:
        """The scale of a temperature such as 20 °C; None for everything else."""
        match self.units:
            case ((unit, 1),) if unit.zero:
                return unit
            case _:
                return None

    @property
    def factor(self) -> Number:
        """How large its unit is in base units."""
        made: Number = Fraction(1)
        for unit, power in self.units:
            size = numbers.inexact(unit.factor) if unit.inexact else unit.factor
            made = numbers.multiply(made, numbers.power(size, Fraction(power)))
        return made

    @property
    def base(self) -> Number:
        """Its value in base units."""
        value = numbers.multiply(self.number, self.factor)
        return numbers.add(value, self.scale.zero) if self.scale else value

    @property
    def kind(self) -> str:
        """What it is, in words."""
        return KINDS.get(self.dimension, f"a quantity in {self.unit_text}")

    @property
    def unit_text(self) -> str:
        """Its units as they are written."""
        above = [_powered(unit.name, power) for unit, power in self.units if power > 0]
        below = [_powered(unit.name, -power) for unit, power in self.units if power < 0]
        if not above and below:
            return "·".join(_powered(unit.name, power) for unit, power in self.units)
        text = "·".join(above)
        if not below:
            return text
        return f"{text}/{below[0]}" if len(below) == 1 else f"{text}/({'·'.join(below)})"


def _powered(name: str, power: int) -> str:
    return name if power == 1 else name + str(power).translate(_SUPERSCRIPTS)


def plain(quantity: Quantity, what: str) -> Number:
    """The number of a quantity without a unit; an angle is in radians."""
    if quantity.dimension == NONE or all(unit.dimension[5] for unit, _ in quantity.units):
        return numbers.multiply(quantity.number, quantity.factor)
    raise CalculationError(f"{what} needs a plain number, not {quantity.kind}")


def add(a: Quantity, b: Quantity) -> Quantity:
    """a + b, in the units of `a`; a + 10 % is a tenth more."""
    if b.percent and not a.percent:
        more = numbers.add(Fraction(1), b.number)
        _refuse_scale(a)
        return replace(a, number=numbers.multiply(a.number, more))
    if a.scale and b.scale:
        raise CalculationError("temperatures on a scale cannot be added; write differences in K")
    if b.scale:
        a, b = b, a
    number = numbers.add(a.number, _in_units_of(b, a))
    return replace(a, number=number, percent=a.percent and b.percent)


def subtract(a: Quantity, b: Quantity) -> Quantity:
    """a - b; the difference of two temperatures on scales is in degrees of the first."""
    if a.scale and b.scale:
        in_a = convert(b, Quantity(Fraction(1), a.units)).number
        degree = replace(a.scale, zero=Fraction(0))
        return Quantity(numbers.add(a.number, _minus(in_a)), ((degree, 1),))
    if b.scale:
        raise CalculationError("a temperature on a scale cannot be taken from a difference")
    return add(a, replace(b, number=_minus(b.number)))


def _minus(number: Number) -> Number:
    return -number if isinstance(number, Fraction) else number.copy_negate()


def negative(quantity: Quantity) -> Quantity:
    """-a; that of 40 °C is -40 °C."""
    return replace(quantity, number=_minus(quantity.number))


def multiply(a: Quantity, b: Quantity) -> Quantity:
    """a · b."""
    _refuse_scale(a)
    _refuse_scale(b)
    return _collapsed(numbers.multiply(a.number, b.number), _joined(a, b, 1))


def divide(a: Quantity, b: Quantity) -> Quantity:
    """a / b."""
    _refuse_scale(a)
    _refuse_scale(b)
    return _collapsed(numbers.divide(a.number, b.number), _joined(a, b, -1))


def with_unit(number: Number, unit: Unit, power: int) -> Quantity:
    """A number of a unit."""
    if unit.zero and power != 1:
        raise CalculationError("a temperature on a scale has no powers; write it in K")
    return Quantity(number, ((unit, power),))


def power(a: Quantity, b: Quantity) -> Quantity:
    """a ^ b."""
    _refuse_scale(a)
    exponent = plain(b, "an exponent")
    number = numbers.power(a.number, exponent)
    if not a.units:
        return Quantity(number)
    exact = numbers.exact(exponent)
    raised = [(unit, Fraction(power) * exact) for unit, power in a.units]
    if any(each.denominator != 1 or abs(each) > _MOST_POWER for _, each in raised):
        base = plain(a, "a power that is not whole")
        return Quantity(numbers.power(base, exponent))
    return _collapsed(number, tuple((unit, int(each)) for unit, each in raised if each))


def modulo(a: Quantity, b: Quantity) -> Quantity:
    """The remainder of a / b, in the units of `a`."""
    _refuse_scale(a)
    return replace(a, number=numbers.modulo(a.number, _in_units_of(b, a)), percent=False)


def convert(a: Quantity, target: Quantity) -> Quantity:
    """A quantity in the units of another, whose number counts too: "L/100 km"."""
    if a.dimension == target.dimension:
        scale = target.scale
        if scale is not None:
            number = numbers.add(a.base, Fraction(-scale.zero))
            return Quantity(numbers.divide(number, scale.factor), target.units)
        size = numbers.multiply(target.number, target.factor)
        return Quantity(numbers.divide(a.base, size), target.units)
    if a.dimension in (FUEL, _TURNED) and target.dimension in (FUEL, _TURNED):
        size = numbers.multiply(target.number, target.factor)
        turned = numbers.divide(Fraction(1), a.base)
        return Quantity(numbers.divide(turned, size), target.units)
    is_below = a.dimension == tuple(-each for each in target.dimension)
    hint = '; a part of a unit is written as "(1/2) cup"' if is_below else ""
    raise CalculationError(f"{a.kind} cannot be converted to {target.kind}{hint}")


def _in_units_of(b: Quantity, a: Quantity) -> Number:
    """The number of `b` in the units of `a`."""
    if a.dimension != b.dimension:
        raise CalculationError(f"{a.kind} and {b.kind} cannot be added or compared")
    if a.units == b.units:
        return b.number
    return numbers.divide(numbers.multiply(b.number, b.factor), a.factor)


def _refuse_scale(quantity: Quantity) -> None:
    if quantity.scale:
        raise CalculationError(
            "a temperature on a scale cannot be multiplied; convert it to K before"
        )


def _joined(a: Quantity, b: Quantity, sign: int) -> tuple[tuple[Unit, int], ...]:
    """The units of a product (1) or a quotient (-1)."""
    powers: dict[Unit, int] = dict(a.units)
    for unit, power in b.units:
        powers[unit] = powers.get(unit, 0) + sign * power
    if any(abs(each) > _MOST_POWER for each in powers.values()):
        raise CalculationError("a unit has too high a power")
    return tuple((unit, power) for unit, power in powers.items() if power)


def _collapsed(number: Number, units: tuple[tuple[Unit, int], ...]) -> Quantity:
    """A quantity; without units if they cancel each other, such as km/m."""
    made = Quantity(number, units)
    is_angle = all(unit.dimension[5] for unit, _ in units)
    if not units or made.dimension != NONE or (is_angle and len(units) == 1):
        return made
    return Quantity(numbers.multiply(number, made.factor))


def text(quantity: Quantity, unit: str = "") -> str:
    """A quantity in words; `unit` is how its unit was written."""
    number, name = quantity.number, unit or quantity.unit_text
    if quantity.percent:
        number, name = numbers.multiply(number, Fraction(100)), "%"
    if name in _COUNTED and number != 1:
        name += "s"
    digits = numbers.shown(number)
    made = f"{digits.text} {name}" if name else digits.text
    if not unit and (simple := _simple(quantity)) is not None:
        made += f" = {numbers.shown(quantity.base).text} {simple}"
    return f"{made} ({digits.aside})" if digits.aside else made


def _simple(quantity: Quantity) -> str | None:
    """The unit of the SI for units that are of one kind together, such as mph·h; None: no need."""
    shared = any(
        sum(bool(unit.dimension[at]) for unit, _ in quantity.units) > 1 for at in range(len(NONE))
    )
    return _SIMPLE.get(quantity.dimension) if shared else None


def is_zero(number: Number) -> bool:
    """Whether a number is zero, or would be but for rounding."""
    return number == 0 or (isinstance(number, Decimal) and number.adjusted() < -45)
