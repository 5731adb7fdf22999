"""Units: how large each is in the base units, and of what dimension.

Base units: metre, kilogram, second, kelvin, bit, radian, ampere. Factors are exact fractions where
the unit is defined by one. Names that differ only in case, such as MB and Mb, are told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from app.tools.builtin.calculator.faults import CalculationError

Dimension = tuple[int, int, int, int, int, int, int]
NONE: Dimension = (0, 0, 0, 0, 0, 0, 0)
_LENGTH: Dimension = (1, 0, 0, 0, 0, 0, 0)
_MASS: Dimension = (0, 1, 0, 0, 0, 0, 0)
_TIME: Dimension = (0, 0, 1, 0, 0, 0, 0)
_HEAT: Dimension = (0, 0, 0, 1, 0, 0, 0)
_DATA: Dimension = (0, 0, 0, 0, 1, 0, 0)
_ANGLE: Dimension = (0, 0, 0, 0, 0, 1, 0)
_CURRENT: Dimension = (0, 0, 0, 0, 0, 0, 1)
_AREA: Dimension = (2, 0, 0, 0, 0, 0, 0)
_VOLUME: Dimension = (3, 0, 0, 0, 0, 0, 0)
_SPEED: Dimension = (1, 0, -1, 0, 0, 0, 0)
_FORCE: Dimension = (1, 1, -2, 0, 0, 0, 0)
_ENERGY: Dimension = (2, 1, -2, 0, 0, 0, 0)
_POWER: Dimension = (2, 1, -3, 0, 0, 0, 0)
_PRESSURE: Dimension = (-1, 1, -2, 0, 0, 0, 0)
_FREQUENCY: Dimension = (0, 0, -1, 0, 0, 0, 0)
_RATE: Dimension = (0, 0, -1, 0, 1, 0, 0)
FUEL: Dimension = (-2, 0, 0, 0, 0, 0, 0)  # distance by volume; turned over: volume by distance
_CHARGE: Dimension = (0, 0, 1, 0, 0, 0, 1)
_VOLTAGE: Dimension = (2, 1, -3, 0, 0, 0, -1)
_RESISTANCE: Dimension = (2, 1, -3, 0, 0, 0, -2)

PI = Fraction(
    3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034825,
    10**90,
)
KINDS: dict[Dimension, str] = {
    NONE: "a plain number", _LENGTH: "a length", _MASS: "a mass", _TIME: "a time",
    _HEAT: "a temperature", _DATA: "an amount of data", _ANGLE: "an angle", _AREA: "an area",
    _VOLUME: "a volume", _SPEED: "a speed", _FORCE: "a force", _ENERGY: "an energy",
    _POWER: "a power", _PRESSURE: "a pressure", _FREQUENCY: "a frequency", _RATE: "a data rate",
    FUEL: "a fuel economy", _CURRENT: "a current", _CHARGE: "a charge", _VOLTAGE: "a voltage",
    _RESISTANCE: "a resistance",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: value in base units = number · factor + zero."""

    name: str  # as it is written in results
    factor: Fraction
    dimension: Dimension
    zero: Fraction = Fraction(0)  # of a scale of temperature, in kelvin
    inexact: bool = False  # the factor contains π


_INCH = Fraction(254, 10_000)
_FOOT, _YARD, _MILE = 12 * _INCH, 36 * _INCH, 63_360 * _INCH
_POUND = Fraction(45_359_237, 10**8)
_GRAVITY = Fraction(980_665, 10**5)
_GALLON = 231 * _INCH**3
_IMPERIAL = Fraction(454_609, 10**8)
_LITRE = Fraction(1, 1000)
_HOUR, _DAY = Fraction(3600), Fraction(86_400)
_PREFIXES = {
    "Q": 30, "R": 27, "Y": 24, "Z": 21, "E": 18, "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "h": 2,
    "da": 1, "d": -1, "c": -2, "m": -3, "\u00b5": -6, "\u03bc": -6, "u": -6, "n": -9,
    "p": -12, "f": -15,
}  # fmt: skip
_PREFIX_WORDS = {
    "peta": 15, "tera": 12, "giga": 9, "mega": 6, "kilo": 3, "hecto": 2, "deca": 1, "deci": -1,
    "centi": -2, "milli": -3, "micro": -6, "nano": -9, "pico": -12, "femto": -15,
}  # fmt: skip
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_WORDS = {"kibi": 10, "mebi": 20, "gibi": 30, "tebi": 40, "pebi": 50, "exbi": 60}

# Symbol, words, factor, dimension: with the prefixes of the SI.
_METRIC: tuple[tuple[str, str, Fraction, Dimension], ...] = (
    ("m", "metre meter metres meters", Fraction(1), _LENGTH),
    ("g", "gram gramme grams grammes", Fraction(1, 1000), _MASS),
    ("s", "second seconds", Fraction(1), _TIME),
    ("K", "kelvin kelvins", Fraction(1), _HEAT),
    ("A", "ampere amperes amp amps", Fraction(1), _CURRENT),
    ("L", "litre liter litres liters", _LITRE, _VOLUME),
    ("l", "", _LITRE, _VOLUME),
    ("J", "joule joules", Fraction(1), _ENERGY),
    ("W", "watt watts", Fraction(1), _POWER),
    ("Wh", "", _HOUR, _ENERGY),
    ("N", "newton newtons", Fraction(1), _FORCE),
    ("Pa", "pascal pascals", Fraction(1), _PRESSURE),
    ("bar", "bars", Fraction(10**5), _PRESSURE),
    ("Hz", "hertz", Fraction(1), _FREQUENCY),
    ("eV", "electronvolt electronvolts", Fraction(1_602_176_634, 10**28), _ENERGY),
    ("cal", "calorie calories", Fraction(4184, 1000), _ENERGY),
    ("V", "volt volts", Fraction(1), _VOLTAGE),
    ("Ω", "ohm ohms", Fraction(1), _RESISTANCE),
    ("Ah", "", _HOUR, _CHARGE),
    ("B", "byte bytes", Fraction(8), _DATA),
    ("bit", "bits", Fraction(1), _DATA),
    ("b", "", Fraction(1), _DATA),
    ("bps", "", Fraction(1), _RATE),
    ("t", "tonne tonnes", Fraction(1000), _MASS),
    ("pc", "parsec parsecs", Fraction(30_856_775_814_913_673), _LENGTH),
)
# Names, the first of which is written in results; factor, dimension.
_OTHERS: tuple[tuple[str, Fraction, Dimension], ...] = (
    ("in inch inches", _INCH, _LENGTH),
    ("ft foot feet", _FOOT, _LENGTH),
    ("yd yard yards", _YARD, _LENGTH),
    ("mi mile miles", _MILE, _LENGTH),
    ("nmi nautical_mile nautical_miles", Fraction(1852), _LENGTH),
    ("au astronomical_unit astronomical_units", Fraction(149_597_870_700), _LENGTH),
    ("ly light_year light_years lightyear lightyears", Fraction(9_460_730_472_580_800), _LENGTH),
    ("Å angstrom angstroms", Fraction(1, 10**10), _LENGTH),
    ("pt point points", _INCH / 72, _LENGTH),
    ("lb lbs pound pounds", _POUND, _MASS),
    ("oz ounce ounces", _POUND / 16, _MASS),
    ("st stone stones", 14 * _POUND, _MASS),
    ("short_ton short_tons us_ton us_tons", 2000 * _POUND, _MASS),
    ("long_ton long_tons imperial_ton imperial_tons", 2240 * _POUND, _MASS),
    ("metric_ton metric_tons", Fraction(1000), _MASS),
    ("ct carat carats", Fraction(2, 10_000), _MASS),
    ("gr grain grains", _POUND / 7000, _MASS),
    ("troy_oz troy_ounce troy_ounces ozt", 480 * _POUND / 7000, _MASS),
    ("min mins minute minutes", Fraction(60), _TIME),
    ("h hr hrs hour hours", _HOUR, _TIME),
    ("sec secs", Fraction(1), _TIME),
    ("day d days", _DAY, _TIME),
    ("week wk weeks", 7 * _DAY, _TIME),
    ("month months", _DAY * Fraction(1461, 48), _TIME),
    ("year yr yrs years", _DAY * Fraction(1461, 4), _TIME),
    ("ha hectare hectares", Fraction(10_000), _AREA),
    ("acre ac acres", 4840 * _YARD**2, _AREA),
    ("sqm", Fraction(1), _AREA),
    ("sqft", _FOOT**2, _AREA),
    ("gal gallon gallons us_gallon us_gallons us_gal", _GALLON, _VOLUME),
    ("qt quart quarts", _GALLON / 4, _VOLUME),
    ("pint pints us_pint us_pints", _GALLON / 8, _VOLUME),
    ("cup cups us_cup us_cups", _GALLON / 16, _VOLUME),
    ("fl_oz floz fluid_ounce fluid_ounces us_fluid_ounce", _GALLON / 128, _VOLUME),
    ("tbsp tablespoon tablespoons", _GALLON / 256, _VOLUME),
    ("tsp teaspoon teaspoons", _GALLON / 768, _VOLUME),
    (
        "imperial_gallon imperial_gallons imp_gal imp_gallon uk_gallon uk_gallons",
        _IMPERIAL,
        _VOLUME,
    ),
    ("imperial_pint imperial_pints imp_pint uk_pint uk_pints", _IMPERIAL / 8, _VOLUME),
    ("imperial_fl_oz imp_fl_oz imperial_fluid_ounce uk_fl_oz", _IMPERIAL / 160, _VOLUME),
    ("bbl barrel barrels", 42 * _GALLON, _VOLUME),
    ("cc ccm", Fraction(1, 10**6), _VOLUME),
    ("mph", _MILE / _HOUR, _SPEED),
    ("km/h kph kmh kmph", Fraction(1000) / _HOUR, _SPEED),
    ("kn knot knots kt", Fraction(1852) / _HOUR, _SPEED),
    ("mps", Fraction(1), _SPEED),
    ("fps", _FOOT, _SPEED),
    ("mach", Fraction(34_029, 100), _SPEED),
    ("Cal", Fraction(4184), _ENERGY),
    ("BTU btu btus", Fraction(105_505_585_262, 10**8), _ENERGY),
    ("hp horsepower", 550 * _FOOT * _POUND * _GRAVITY, _POWER),
    ("PS metric_horsepower", 75 * _GRAVITY, _POWER),
    ("lbf", _POUND * _GRAVITY, _FORCE),
    ("kgf", _GRAVITY, _FORCE),
    ("atm atmosphere atmospheres", Fraction(101_325), _PRESSURE),
    ("psi", _POUND * _GRAVITY / _INCH**2, _PRESSURE),
    ("mmHg", Fraction(133_322_387_415, 10**9), _PRESSURE),
    ("inHg", Fraction(133_322_387_415, 10**9) * Fraction(254, 10), _PRESSURE),
    ("torr", Fraction(101_325, 760), _PRESSURE),
    ("rpm", Fraction(1, 60), _FREQUENCY),
    ("rad radian radians", Fraction(1), _ANGLE),
    ("mpg us_mpg", _MILE / _GALLON, FUEL),
    ("imperial_mpg imp_mpg uk_mpg", _MILE / _IMPERIAL, FUEL),
    ("kpl kmpl", Fraction(1000) / _LITRE, FUEL),
)
_ANGLES: tuple[tuple[str, Fraction], ...] = (
    ("deg degree degrees °", PI / 180),
    ("grad gon gradian gradians", PI / 200),
    ("turn turns rev revolution revolutions", 2 * PI),
    ("arcmin arcminute arcminutes", PI / 10_800),
    ("arcsec arcsecond arcseconds", PI / 648_000),
)
_SCALES: tuple[tuple[str, Fraction, Fraction], ...] = (
    ("°C C c celsius centigrade degc degree_c degrees_c deg_c degree_celsius degrees_celsius"
     " deg_celsius degrees_centigrade", Fraction(1), Fraction(27_315, 100)),
    ("°F F f fahrenheit degf degree_f degrees_f deg_f degree_fahrenheit degrees_fahrenheit"
     " deg_fahrenheit", Fraction(5, 9), Fraction(45_967, 100) * Fraction(5, 9)),
)  # fmt: skip
_RANKINE = ("°R rankine", Fraction(5, 9))
_MORE_NAMES = {"°K": "K", "\u2032": "ft", "'": "ft", "″": "in", '"': "in"}
_UNCLEAR = {
    "ton": "write metric ton (1,000 kg), short ton (US) or long ton (UK)",
    "tons": "write metric tons (1,000 kg), short tons (US) or long tons (UK)",
    "kb": "write kB (1,000 bytes), KiB (1,024 bytes) or kbit",
    "k": "write the number in full, or K for kelvin",
}


@cache
def _table() -> tuple[dict[str, Unit], dict[str, list[Unit]]]:
    """Every unit by its name, and by its name in small letters."""
    exact: dict[str, Unit] = {}

    def add(names: str, factor: Fraction, dimension: Dimension, **more: object) -> None:
        first, *_ = words = names.split()
        shown = first.replace("_", " ")
        for word in words:
            exact.setdefault(
                word,
                Unit(
                    shown,
                    factor,
                    dimension,
                    Fraction(str(more.get("zero", 0))),
                    bool(more.get("inexact")),
                ),
            )

    for names, factor, dimension in _OTHERS:  # first: "min" is no milli-inch, "ft" no femtotonne
        add(names, factor, dimension)
    for names, factor in _ANGLES:
        add(names, factor, _ANGLE, inexact=True)
    for names, factor, zero in _SCALES:
        add(names, factor, _HEAT, zero=zero)
    add(_RANKINE[0], _RANKINE[1], _HEAT)
    for symbol, words, factor, dimension in _METRIC:
        add(f"{symbol} {words}", factor, dimension)
    for symbol, words, factor, dimension in _METRIC:
        for prefix, tens in _PREFIXES.items():
            if dimension in (_DATA, _RATE) and tens < 3:
                continue
            add(prefix + symbol, factor * Fraction(10) ** tens, dimension)
        for prefix, tens in _PREFIX_WORDS.items():
            for word in words.split():
                add(f"{prefix}{symbol} {prefix}{word}", factor * Fraction(10) ** tens, dimension)
        if dimension == _DATA:
            for prefix, twos in _BINARY.items():
                add(f"{prefix}{symbol}", factor * 2**twos, dimension)
            for prefix, twos in _BINARY_WORDS.items():
                for word in words.split():
                    add(f"{prefix[:2].title()}{symbol} {prefix}{word}", factor * 2**twos, dimension)
    add("KB", Fraction(8000), _DATA)
    add("Kbit Kb", Fraction(1000), _DATA)
    add("Kbps", Fraction(1000), _RATE)
    folded: dict[str, list[Unit]] = {}
    for name, unit in exact.items():
        folded.setdefault(name.casefold(), []).append(unit)
    return exact, folded


def find(name: str) -> Unit | None:
    """The unit of a name, words joined by "_"; None if there is none.

    Raises CalculationError for one that may be several.
    """
    exact, folded = _table()
    if why := _UNCLEAR.get(name):
        raise CalculationError(f'"{name}" is not clear: {why}')
    name = _MORE_NAMES.get(name, name).replace("° ", "°")
    if unit := exact.get(name):
        return unit
    found = folded.get(name.casefold(), [])
    if not found or len(name) == 1:
        return None
    sizes = {(unit.factor, unit.dimension) for unit in found}
    if len(sizes) > 1:
        names = " or ".join(sorted({unit.name for unit in found}))
        raise CalculationError(f'"{name}" is not clear: write {names}')
    return found[0]
