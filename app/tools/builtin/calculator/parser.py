"""Parser of expressions by recursive descent, which calculates as it reads; no code is evaluated.

A unit binds tighter than any sign: "100 km / 2 h 30 min" is 40 km/h. A sum such as "5 ft 3 in" is
one quantity. "%" is a percentage, or between two values the remainder.
"""

from __future__ import annotations

import decimal
import difflib
import math
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from decimal import DecimalException
from fractions import Fraction

from app.tools.builtin.calculator import functions, numbers, quantity, units
from app.tools.builtin.calculator.faults import CalculationError, too_large
from app.tools.builtin.calculator.functions import Function
from app.tools.builtin.calculator.lexer import Kind, Token, tokens
from app.tools.builtin.calculator.quantity import Quantity
from app.tools.builtin.calculator.units import Unit

MOST_CHARACTERS = 2000  # of an expression
_DEEPEST = 60  # brackets and powers within each other
_SQUARE = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_TARGETS = ("in", "to", "as", "into", "->")
_SIGNS = {
    "plus": "+", "minus": "-", "times": "*", "x": "*", "per": "/", "percent": "%", "pct": "%",
    "mod": "mod", "modulo": "mod", "div": "//", "squared": "²", "cubed": "³",
}  # fmt: skip
_PHRASES = {("divided", "by"): "/", ("multiplied", "by"): "*", ("per", "cent"): "%"}
_MODULE = re.compile(r"\b(?:math|numpy|np)\.(?=[a-z])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Calculated:
    """The result of an expression in words, and how parts of it were understood."""

    text: str
    notes: tuple[str, ...] = ()


def calculate(expression: str) -> Calculated:
    """Calculate an expression; raises CalculationError, with the place if it is known."""
    if len(expression) > MOST_CHARACTERS:
        raise CalculationError(f"an expression has at most {MOST_CHARACTERS:,} characters")
    text = _MODULE.sub("", expression.rstrip("=? \t\r\n"))
    found, notes = tokens(text)
    parser = _Parser(text, found, notes)
    try:
        with decimal.localcontext(numbers.WORK):
            return parser.whole()
    except (DecimalException, OverflowError):
        raise too_large() from None
    except RecursionError:
        raise CalculationError("the brackets are nested too deeply") from None


@contextmanager
def _placed(at: int) -> Generator[None]:
    """Give the errors of a calculation the place of its sign."""
    try:
        yield
    except CalculationError as error:
        error.at = at if error.at < 0 else error.at
        raise


def _multiplied(left: Quantity, sign: str, right: Quantity) -> Quantity:
    match sign:
        case "*":
            return quantity.multiply(left, right)
        case "/":
            return quantity.divide(left, right)
        case "//":
            whole = quantity.divide(left, right)
            return replace(whole, number=Fraction(math.floor(numbers.exact(whole.number))))
        case _:
            return quantity.modulo(left, right)


def _phrase(found: list[Token], at: int) -> tuple[str, str] | None:
    """Two words that are a sign."""
    if at + 1 >= len(found):
        return None
    words = found[at].text.casefold(), found[at + 1].text.casefold()
    return words if words in _PHRASES else None


def _unit(name: str) -> tuple[Unit | None, int]:
    """The unit of a name and its power, which may be its last digit: "m2"."""
    if unit := units.find(name):
        return unit, 1
    if name[-1:] in ("2", "3") and (unit := units.find(name[:-1])):
        return unit, int(name[-1])
    return None, 1


def _has_pi(value: Quantity) -> bool:
    """Whether a number is likely one of radians: it is no exact one."""
    return not isinstance(value.number, Fraction)


@dataclass(slots=True)
class _Parser:
    text: str
    tokens: list[Token]
    notes: list[str]
    at: int = 0
    depth: int = 0
    _known: dict[int, tuple[Unit, int, int] | None] = field(default_factory=dict)

    def whole(self) -> Calculated:
        if self._is_end():
            raise CalculationError("the expression is empty")
        result = self._sum()
        unit = ""
        if self._is_target():
            self._move()
            start = self._next.at
            if self._is_end():
                raise self._fault("a unit is missing")
            target = self._target()
            with _placed(start):
                result = quantity.convert(result, target)
            unit = self.text[start : self._next.at].strip()
            unit = target.unit_text if len(target.units) == 1 and target.number == 1 else unit
            if self._is_target():
                raise self._fault("only one conversion can be asked for")
        if not self._is_end():
            raise self._unexpected()
        return Calculated(quantity.text(result, unit), tuple(dict.fromkeys(self.notes)))

    def _target(self) -> Quantity:
        """The unit to convert to, such as "km/h" or "L/100 km"."""
        target = self._product()
        if not target.units:
            raise self._fault("a unit is missing")
        return target

    # --- levels, the loosest first ---

    def _sum(self) -> Quantity:
        made = self._product()
        while (sign := self._sign()) in ("+", "-"):
            at = self._next.at
            self._move()
            more = self._product()
            with _placed(at):
                work = quantity.add if sign == "+" else quantity.subtract
                made = work(made, more)
        return made

    def _product(self) -> Quantity:
        made = self._unary()
        while True:
            sign, at = self._sign(), self._next.at
            if sign in ("*", "/", "//", "mod"):
                self._move()
                right = self._unary()
                with _placed(at):
                    made = _multiplied(made, sign, right)
            elif not made.units and self._is_word("of", "off" if made.percent else "of"):
                is_off = self._is_word("off")
                self._move()
                whole = self._unary()
                share = replace(made, percent=False)
                with _placed(at):
                    if is_off:
                        share = quantity.subtract(Quantity(Fraction(1)), share)
                    made = quantity.multiply(share, whole)
            elif made.percent and self._begins_value():
                self.notes.append("% between two values was read as the remainder")
                right = self._unary()
                with _placed(at):
                    left = Quantity(numbers.multiply(made.number, Fraction(100)))
                    made = quantity.modulo(left, right)
            elif self._begins_value() and self._next.kind is not Kind.NUMBER:
                right = self._power()  # 2 pi, 2 (3 + 4)
                with _placed(at):
                    made = quantity.multiply(made, right)
            else:
                return made

    def _unary(self) -> Quantity:
        with_sign = self._sign()
        if with_sign not in ("+", "-"):
            return self._power()
        self._move()
        self._deeper()
        made = self._unary()
        self.depth -= 1
        return quantity.negative(made) if with_sign == "-" else made

    def _power(self) -> Quantity:
        base = self._postfix()
        if self._sign() != "^":
            return base
        at = self._next.at
        self._move()
        self._deeper()
        exponent = self._unary()
        self.depth -= 1
        with _placed(at):
            return quantity.power(base, exponent)

    def _postfix(self) -> Quantity:
        made = self._primary()
        while True:
            with _placed(self._next.at):
                match self._sign():
                    case "!":
                        made = functions.factorial(made)
                    case "²" | "³" as sign:
                        exponent = Fraction(2 if sign == "²" else 3)
                        made = quantity.power(made, Quantity(exponent))
                    case "%":
                        if made.units:
                            raise CalculationError("a percentage has no unit")
                        made = Quantity(numbers.divide(made.number, Fraction(100)), percent=True)
                    case _:
                        return made
            self._move()

    # --- values ---

    def _primary(self) -> Quantity:
        token = self._next
        if token.kind is Kind.NUMBER:
            return self._measured()
        if token.text == "(":
            return self._bracketed()
        if token.kind is Kind.WORD:
            return self._named()
        raise self._unexpected()

    def _measured(self) -> Quantity:
        """A number with its unit, or several that are one: "5 ft 3 in"."""
        made = self._with_unit()
        while made.units and self._next.kind is Kind.NUMBER and self._unit_at(self.at + 1):
            here, at = self.at, self._next.at
            more = self._with_unit()
            if more.dimension != made.dimension or made.scale:
                self.at = here
                break
            with _placed(at):
                made = quantity.add(made, more)
        return made

    def _with_unit(self) -> Quantity:
        token = self._next
        self._move()
        made = Quantity(token.value)
        if (found := self._unit_at(self.at)) is None:
            return made
        unit, power, length = found
        self._move(length)
        with _placed(token.at):
            return quantity.with_unit(token.value, unit, power)

    def _bracketed(self) -> Quantity:
        opened = self._next
        self._move()
        self._deeper()
        made = self._sum()
        self.depth -= 1
        self._close(opened)
        if (found := self._unit_at(self.at)) is not None and not made.units:
            unit, power, length = found
            with _placed(self._next.at):
                made = quantity.with_unit(made.number, unit, power)
            self._move(length)
        return made

    def _close(self, opened: Token) -> None:
        if self._next.text != ")":
            if self._next.kind is Kind.END:
                raise CalculationError('a closing ")" is missing for this "("', opened.at)
            raise self._unexpected()
        self._move()

    def _named(self) -> Quantity:
        """A function, a constant, or a unit that stands for one of it."""
        token = self._next
        follows = self.tokens[self.at + 1]
        if (found := functions.function(token.text)) is not None and (
            follows.text == "(" or follows.kind is Kind.NUMBER
        ):
            return self._called(token, found)
        if (known := functions.constant(token.text)) is not None:
            self._move()
            return known
        if (unit := self._unit_at(self.at)) is not None:
            self._move(unit[2])
            with _placed(token.at):
                return quantity.with_unit(Fraction(1), unit[0], unit[1])
        raise self._unknown(token)

    def _called(self, name: Token, function: Function) -> Quantity:
        self._move()
        self._deeper()
        is_bare = self._next.kind is Kind.NUMBER  # sqrt 2
        values = [self._measured()] if is_bare else self._values()
        self.depth -= 1
        if not function.least <= len(values) <= function.most:
            wanted = str(function.least) if function.least == function.most else "another number of"
            raise CalculationError(
                f"{name.text} takes {wanted} value{'s' * (wanted != '1')}, not {len(values)}; "
                "numbers between its brackets have no separators of thousands",
                name.at,
            )
        if function.note and len(values) == 1:
            self.notes.append(function.note)
        if functions.is_plain_angle(name.text, values[0]) and not _has_pi(values[0]):
            self.notes.append(f"the angle is in radians; for degrees write {name.text}(30 deg)")
        with _placed(name.at):
            return function.make(values)

    def _values(self) -> list[Quantity]:
        opened = self._next
        self._move()
        values = [self._sum()]
        while self._next.text in (",", ";"):
            self._move()
            values.append(self._sum())
        self._close(opened)
        return values

    # --- units ---

    def _unit_at(self, at: int) -> tuple[Unit, int, int] | None:
        """The unit that begins at a token, its power, and its tokens; None if there is none."""
        if at not in self._known:
            self._known[at] = self._find_unit(at)
        return self._known[at]

    def _find_unit(self, at: int) -> tuple[Unit, int, int] | None:
        first = self.tokens[at]
        if first.kind is not Kind.WORD or self._ends_value(at):
            return None
        square = _SQUARE.get(first.text.casefold().rstrip("."), 0)
        start = at + bool(square)
        words = [self.tokens[n].text for n in range(start, min(start + 3, len(self.tokens) - 1))]
        kinds = [self.tokens[n].kind for n in range(start, start + len(words))]
        for length in (3, 2, 1):
            if length > len(words) or any(kind is not Kind.WORD for kind in kinds[:length]):
                continue
            name = "_".join(words[:length])
            with _placed(self.tokens[start].at):
                unit, power = _unit(name)
            if unit is not None:
                after = start + length
                if not square and (raised := self._raised(after)):
                    power, after = power * raised[0], after + raised[1]
                return unit, power * (square or 1), after - at
        return None

    def _raised(self, at: int) -> tuple[int, int] | None:
        """The whole power behind a unit, and its tokens."""
        sign, follows = self.tokens[at], self.tokens[min(at + 1, len(self.tokens) - 1)]
        if sign.text in ("²", "³"):
            return int(sign.value), 1
        if sign.text == "^" and follows.kind is Kind.NUMBER and follows.value in (1, 2, 3, 4):
            return int(follows.value), 2
        return None

    def _ends_value(self, at: int) -> bool:
        """Whether "in" at a token asks for a conversion, as in "2 m in cm", and is no inch."""
        word, after = self.tokens[at], self.tokens[at + 1]
        if word.text.casefold() == "x":
            return True
        if word.text.casefold() != "in" or after.kind is not Kind.WORD:
            return False
        return after.text.casefold() not in (*_TARGETS, *_SIGNS, "of", "off")

    def _is_target(self) -> bool:
        """Whether the next word asks for a conversion."""
        return self._next.text.casefold() in _TARGETS

    # --- tokens ---

    @property
    def _next(self) -> Token:
        return self.tokens[self.at]

    def _is_end(self) -> bool:
        return self._next.kind is Kind.END

    def _move(self, count: int = 1) -> None:
        self.at += count

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self._fault("the brackets are nested too deeply")

    def _sign(self) -> str:
        """The next sign, also one that is written as a word; "" if there is none."""
        token = self._next
        if phrase := _phrase(self.tokens, self.at):
            sign = _PHRASES[phrase]
            self.tokens[self.at : self.at + 2] = [Token(Kind.SIGN, sign, token.at)]
            self._known.clear()
            return sign
        if token.kind is Kind.WORD:
            return _SIGNS.get(token.text.casefold(), "")
        return token.text if token.kind is Kind.SIGN else ""

    def _is_word(self, *words: str) -> bool:
        return self._next.kind is Kind.WORD and self._next.text.casefold() in words

    def _begins_value(self) -> bool:
        """Whether the next token begins another value."""
        token = self._next
        if token.kind is Kind.NUMBER or token.text == "(":
            return True
        is_word = token.kind is Kind.WORD and not self._sign() and not self._is_word("of", "off")
        return is_word and not self._is_target()

    def _fault(self, what: str) -> CalculationError:
        return CalculationError(what, self._next.at)

    def _unexpected(self) -> CalculationError:
        token = self._next
        if token.kind is Kind.END:
            return self._fault("a value is missing at the end")
        if token.kind is Kind.WORD:
            return self._unknown(token)
        if token.kind is Kind.NUMBER:
            return self._fault(f'a sign is missing before "{token.text}"')
        return self._fault(f'"{token.text}" is not expected here; a value is missing before it')

    def _unknown(self, token: Token) -> CalculationError:
        near = difflib.get_close_matches(token.text.casefold(), functions.FUNCTION_NAMES, 1, 0.7)
        hint = f"; is {near[0]} meant?" if near else ""
        return CalculationError(f'"{token.text[:40]}" is no unit or function{hint}', token.at)
