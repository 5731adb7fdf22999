"""The calculator: exact decimals, percentages, units, 30 digits, limits, errors with a place."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tools import CallContext, ToolError
from app.tools.builtin.calculate import Calculator, answer
from app.tools.builtin.calculator.faults import MOST_BITS, CalculationError
from app.tools.builtin.calculator.numbers import whole_root
from app.tools.builtin.calculator.parser import calculate


def result(expression: str) -> str:
    return calculate(expression).text


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("0.1+0.2", "0.3"),
        ("17.5 % of 2,384", "417.2"),
        ("17.5% of 2 384", "417.2"),
        ("17.5 percent of 2384 = ?", "417.2"),
        ("$2,384 * 17.5%", "417.2"),
        ("240 + 10 %", "264"),
        ("240 - 10%", "216"),
        ("20% off 80", "64"),
        ("50%", "50 %"),
        ("5% + 3%", "8 %"),
        ("10% + 5", "5.1"),
        ("100 * (1 + 5%)^10", "162.889462677744140625"),
        ("10 % 3", "1"),
        ("-7 mod 3", "2"),
        ("7 // 2", "3"),
        ("-2^2", "-4"),
        ("2^3^2", "512"),
        ("2**10", "1024"),
        ("2 (3 + 4)(1 + 1)", "28"),
        ("3 x 4 \u00d7 5 \u00f7 2 \u2212 1", "29"),
        ("15 divided by 4 plus 1", "4.75"),
        ("8^(1/3)", "2"),
        ("(-8)^(1/3)", "-2"),
        ("(4/9)^-0.5", "1.5"),
        ("sqrt(16) + cbrt(27) + root(32, 5)", "9"),
        ("\u221a16 + 3\u00b2", "13"),
        ("math.sqrt(2.25)", "1.5"),
        ("5!/3!", "20"),
        ("comb(52, 5)", "2598960"),
        ("gcd(12, 18) + lcm(4, 6)", "18"),
        ("round(2.5) + round(-2.5) + round(2.345, 2)", "2.35"),
        ("floor(-1.5) + ceil(1.2) + trunc(-1.7) + abs(-3)", "2"),
        ("mean(1, 2, 3, 4)", "2.5"),
        ("median(5, 1, 3)", "3"),
        ("max(1, 200) - min(3; 2)", "198"),
        ("log(1000) + log(8, 2) + log2(1024)", "16"),
        ("1/3 + 2/3", "1"),
        ("1/3", "\u2248 0.333333333333333333333333333333 (exactly 1/3)"),
        ("0xff + 0b11", "258"),
        ("1e-5 + 1.5E3", "1500.00001"),
        ("cos(0) + sin(0)", "1"),
        ("2^1000 mod 1000", "376"),
        ("20% of 50% of 200", "20"),
        ("1/3 of 90", "30"),
        ("3x4", "12"),
        ("cbrt(0) + root(2^64, 64)", "2"),
        ("stdev(2, 4, 4, 4, 5, 5, 7, 9)^2", "\u2248 4.57142857142857142857142857143"),
        ("0^0", "1"),
    ],
)
def test_numbers(expression: str, found: str) -> None:
    assert result(expression) == found


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("5 ft 3 in in cm", "160.02 cm"),
        ("5'3\" to cm", "160.02 cm"),
        ("3 in in cm", "7.62 cm"),
        ("90 km/h to m/s", "25 m/s"),
        ("90 miles per hour to km/h", "144.84096 km/h"),
        ("100 km / 2 h 30 min", "40 km/h"),
        ("60 mph * 2 h in miles", "120 mi"),
        ("3 kWh to MJ", "10.8 MJ"),
        ("10 N * 2 m", "20 N·m = 20 J"),
        ("1 bar to kPa", "100 kPa"),
        ("1 atm to Pa", "101325 Pa"),
        ("20 \u00b0C in \u00b0F", "68 \u00b0F"),
        ("-40 C to F", "-40 \u00b0F"),
        ("0 K to celsius", "-273.15 \u00b0C"),
        ("20 degrees celsius to fahrenheit", "68 \u00b0F"),
        ("25 \u00b0C - 20 \u00b0C", "5 \u00b0C"),
        ("20 \u00b0C + 5 K", "25 \u00b0C"),
        ("1 GiB to MB", "1073.741824 MB"),
        ("1 KB to B", "1000 B"),
        ("1 KiB to B", "1024 B"),
        ("500 MB / (10 Mbit/s) to s", "400 s"),
        ("1 hectare to m^2", "10000 m\u00b2"),
        ("3 m * 4 m", "12 m\u00b2"),
        ("10 sq ft to m2", "0.9290304 m\u00b2"),
        ("12 m\u00b2 + 1 m\u00b2", "13 m\u00b2"),
        ("9.81 m/s\u00b2 * 2 s", "19.62 m/s"),
        ("(1/2) cup to mL", "118.29411825 mL"),
        ("1 imperial gallon to L", "4.54609 L"),
        ("1 gallon to fl oz", "128 fl oz"),
        ("2 weeks to hours", "336 h"),
        ("1 year to days", "365.25 days"),
        ("1 lb 8 oz to g", "680.388555 g"),
        ("1 nautical mile to m", "1852 m"),
        ("12 km / 3 km", "4"),
        ("10 L/100km to km/L", "10 km/L"),
        ("180 deg to rad", "\u2248 3.14159265358979323846264338328 rad"),
        ("3000 mAh * 3.7 V to Wh", "11.1 Wh"),
        ("1,500 m + 2.5 km", "4000 m"),
        ("2 km + 10 %", "2.2 km"),
        ("1 h 90 s in min", "61.5 min"),
    ],
)
def test_units(expression: str, found: str) -> None:
    assert result(expression) == found


@pytest.mark.parametrize(
    ("expression", "value", "noted"),
    [
        ("1,234,567.5", "1234567.5", True),
        ("12,34,567", "1234567", True),
        ("1 234 567", "1234567", True),
        ("1'234", "1234", True),
        ("1.234,5", "1234.5", True),
        ("1.234.567", "1234567", True),
        ("1 234,5", "1234.5", True),
        ("17,5", "17.5", True),
        ("0,125", "0.125", True),
        ("1.234", "1.234", False),
        ("1_000", "1000", False),
        ("1234.5", "1234.5", False),
    ],
)
def test_separators_are_read_as_what_they_must_be_and_that_is_said(
    expression: str, value: str, noted: bool
) -> None:
    made = calculate(expression)
    assert made.text == value
    assert bool(made.notes) is noted
    assert not noted or made.notes == (f"{expression} was read as {value}",)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("2 * (3 + )", 'a value is missing before it, at character 10: ")"'),
        ("(2 + 3", 'a closing ")" is missing for this "(", at character 1'),
        ("2 +", 'a value is missing at the end, after "2 +"'),
        ("2 3.5.1", "a sign is missing"),
        ("sqr(4)", '"sqr" is no unit or function; is sqrt meant?, at character 1'),
        ("1/0", 'a number is divided by zero, at character 2: "/0"'),
        ("0^-1", "divided by zero"),
        ("sqrt(-4)", "not a real number"),
        (
            "3 km + 2 kg",
            'a length and a mass cannot be added or compared, at character 6: "+ 2 kg"',
        ),
        ("3 km to kg", "a length cannot be converted to a mass"),
        ("5 C + 3 C", "temperatures on a scale cannot be added"),
        ("2 * 20 C", "convert it to K before"),
        ("12 mb", '"mb" is not clear: write MB or Mb'),
        ("5 tons to kg", "write metric tons"),
        ("5k + 3", "write the number in full"),
        ("sqrt(2,384)", "have no separators of thousands"),
        ("tan(90 deg)", "the tangent has no value"),
        ("asin(2)", "defined from -1 to 1"),
        ("ln(0)", "numbers above 0"),
        ("9^9^9", "too large"),
        ("*".join(["10^3000"] * 4), "too large for this calculator, at character 24"),
        ("5000!", "factorials go from 0 to 3,000"),
        ("2.5!", "needs a whole number"),
        ("", "the expression is empty"),
        ("__import__('os')", '"_" means nothing here, at character 1'),
        ("\u0663 + 1", "digits 0 to 9"),
        ("(" * 100 + "1" + ")" * 100, "nested too deeply"),
        ("-" * 100 + "1", "nested too deeply"),
        ("1+" * 1500 + "1", "at most 2,000 characters"),
        ("1 km in", "a unit is missing"),
        ("1/2 cup to mL", 'a part of a unit is written as "(1/2) cup"'),
    ],
)
def test_an_error_names_the_fault_and_its_place(expression: str, said: str) -> None:
    with pytest.raises(ToolError) as raised:
        answer(expression)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "name",
    ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "ln", "sqrt"],
)
def test_functions_have_thirty_correct_digits(name: str) -> None:
    with mpmath.workdps(60):
        for value in ("0.1", "0.7", "0.999", "1e-20"):
            oracle = getattr(mpmath, name)(mpmath.mpf(value))
            digits = result(f"{name}({value})").removeprefix("\u2248 ").removesuffix(" rad")
            found = mpmath.mpf(digits)
            assert abs(found - oracle) <= abs(oracle) * mpmath.mpf("1e-29"), (name, value)


@pytest.mark.parametrize("angle", ["1e22", "1e59", "1e40 + 0.5", "-355", "22/7"])
def test_large_angles_keep_their_digits(angle: str) -> None:
    with mpmath.workdps(120):
        value = mpmath.mpf(str(Fraction(355, -1))) if angle == "-355" else None
        plain = {"1e22": "1e22", "1e59": "1e59", "1e40 + 0.5": "1" + "0" * 40 + ".5"}.get(angle)
        value = value or (mpmath.mpf(plain) if plain else mpmath.mpf(22) / 7)
        for name in ("sin", "cos"):
            found = mpmath.mpf(result(f"{name}({angle})").removeprefix("\u2248 "))
            assert abs(found - getattr(mpmath, name)(value)) < mpmath.mpf("1e-29")


@pytest.mark.parametrize("expression", ["sin(pi)", "cos(pi/2)", "sin(180 deg)", "cos(90\u00b0)"])
def test_zeros_of_functions_are_zero(expression: str) -> None:
    assert result(expression).removeprefix("\u2248 ") == "0"


def test_an_angle_without_a_unit_is_said_to_be_in_radians() -> None:
    assert "radians; for degrees write sin(30 deg)" in answer("sin(30)")
    assert "radians" not in answer("sin(30 deg)") + answer("sin(pi/6)")


numbers = st.integers(-(10**6), 10**6) | st.decimals(-1000, 1000, places=3)


@given(st.lists(numbers, min_size=1, max_size=6), st.data())
def test_sums_and_products_are_exact(values: list[int | Decimal], data: st.DataObject) -> None:
    signs = [data.draw(st.sampled_from("+-*")) for _ in values[1:]]
    text = f"({values[0]})" + "".join(
        f"{sign}({value})" for sign, value in zip(signs, values[1:], strict=True)
    )
    terms = [Fraction(values[0])]
    for sign, value in zip(signs, values[1:], strict=True):
        if sign == "*":
            terms[-1] *= Fraction(value)
        else:
            terms.append(Fraction(value) if sign == "+" else -Fraction(value))
    assert Fraction(result(text)) == sum(terms)


@given(st.text(alphabet="0123456789.,()+-*/^%! abceghiklmnopst°'\"=", max_size=40))
def test_no_expression_raises_anything_but_its_error(expression: str) -> None:
    place = 0
    try:
        assert calculate(expression).text
    except CalculationError as error:
        place = error.at
    assert -1 <= place <= len(expression)


@pytest.mark.parametrize(
    ("expression", "length"),
    [
        ("3000!", 400),
        ("2^34000", 400),
        ("exp(999999)", 400),
        ("comb(100000, 3000)", 400),
        ("*".join(["9^9000"] * 5), 400),
        ("10^900 + 1", 1300),
        ("stdev(" + ",".join(str(n + 0.7) for n in range(150)) + ")", 1600),
    ],
)
def test_large_numbers_are_short(expression: str, length: int) -> None:
    assert len(answer(expression)) < length


class _Counted(int):
    """A whole number that counts how often it is divided or compared."""

    steps = 0

    def __floordiv__(self, other: int) -> int:
        _Counted.steps += 1
        return int(self) // other

    def __ge__(self, other: int) -> bool:
        _Counted.steps += 1
        return int(self) >= other


@pytest.mark.parametrize("root", [2, 3, 64])
def test_the_root_of_a_long_number_takes_few_steps(root: int) -> None:
    assert whole_root(_Counted(7**12_000 + 1), root) is None
    assert whole_root(_Counted(12_345**root), root) == 12_345
    assert _Counted.steps < 200


def test_no_function_makes_a_number_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    divisor = math.gcd

    def limited(*values: int) -> int:
        assert all(each.bit_length() < 4 * MOST_BITS for each in values)
        return divisor(*values)

    monkeypatch.setattr("fractions.math.gcd", limited)
    values = ",".join(f"{each}^-{20_000 // each.bit_length()}" for each in (3, 5, 7, 11, 13, 17))
    for name in ("stdev", "mean", "sum", "median"):
        with contextlib.suppress(CalculationError):
            calculate(f"{name}({values})")


def test_a_call_repeats_the_expression_so_that_it_can_be_checked() -> None:
    call = Calculator().call({"expression": " 17.5 %  of 2,384 = ?"}, CallContext(1))
    assert asyncio.run(call) == "17.5 % of 2,384 = 417.2\nNote: 2,384 was read as 2384."


@pytest.mark.parametrize("asked", ["What is ", "what's ", "Calculate ", ""])
def test_a_question_is_read_as_its_expression(asked: str) -> None:
    assert answer(f"{asked}17.5 % of 2384?") == "17.5 % of 2384? = 417.2".replace("?", "")


def test_its_examples_can_be_calculated() -> None:
    examples = re.findall(r'"([^"]+)"', Calculator().spec.description)
    assert len(examples) > 3
    assert all(result(example) for example in examples)
