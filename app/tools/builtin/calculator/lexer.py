"""Splits an expression into numbers, words and signs; numbers may have separators of thousands.

"2,384" and "2 384" are 2384. A comma is a decimal mark where it can be nothing else: "17,5",
"1.234,5". Between the arguments of a function it separates them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction

from app.tools.builtin.calculator.faults import CalculationError

_MOST_DIGITS = 2000  # of a number, its exponent of ten included
_SPACE = r"[ \xa0\u2009\u202f'\u2019_]"  # between groups of three digits
_EXPONENT = r"(?:[eE][+-]?\d{1,6}(?![\w.]))?"
_NUMBERS = (  # how numbers are written, the first that fits; whether "," is the decimal mark
    (r"0[xX][0-9a-fA-F]+(?!\w)|0[bB][01]+(?!\w)|0[oO][0-7]+(?!\w)", False),
    (rf"[1-9]\d{{0,2}}(?:,\d{{3}})+(?![\d,])(?:\.\d+)?{_EXPONENT}", False),  # 1,234,567.8
    (r"[1-9]\d?(?:,\d{2})+,\d{3}(?![\d,])(?:\.\d+)?", False),  # 12,34,567
    (r"\d{1,3}(?:\.\d{3})+,\d+(?![\d,.])", True),  # 1.234,5
    (r"\d{1,3}(?:\.\d{3}){2,}(?![\d,.])", True),  # 1.234.567
    (rf"\d{{1,3}}(?:{_SPACE}\d{{3}})+,\d+(?![\d,.])", True),  # 1 234,5
    (rf"\d{{1,3}}(?:{_SPACE}\d{{3}})+(?!\d|{_SPACE}\d)(?:\.\d+)?", False),  # 1 234.5
    (r"\d+,\d+(?![\d,.])", True),  # 17,5
    (rf"(?:\d+(?:\.\d*)?|\.\d+){_EXPONENT}", False),
)
_IN_CALL = (_NUMBERS[0], *_NUMBERS[-1:])  # where a comma separates arguments
_PATTERNS = {each: re.compile(each[0]) for each in _NUMBERS}
_WORD = re.compile(r"[^\W\d_²³][^\W²³]*|[°µμΩ%‰\u2032″'\"√π]|°[CFK]", re.UNICODE)
_DEGREE = re.compile(r"°\s?[CFKcfk](?!\w)")
_SIGN = re.compile(r"\*\*|//|->|x(?=\d)|[-+*/^!()=,;\u00d7·⋅÷:\u2212\u2013%²³]")
_SAME = {
    "\u00d7": "*",
    "x": "*",  # 3x4; "3 x 4" is a word
    "·": "*",
    "⋅": "*",
    "÷": "/",
    ":": "/",
    "\u2212": "-",
    "\u2013": "-",
    "**": "^",
}
_POWERS = {"²": 2, "³": 3}
_CURRENCY = re.compile(r"[$€£¥₹₽₩]")
_SPACES = re.compile(r"\s*")


class Kind(Enum):
    """What a token is."""

    NUMBER = auto()
    WORD = auto()
    SIGN = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an expression: its text, where it begins, and the value of a number."""

    kind: Kind
    text: str
    at: int
    value: Fraction = Fraction(0)


def tokens(text: str) -> tuple[list[Token], list[str]]:
    """The tokens of an expression, an end last, and how numbers were read that look otherwise.

    Raises CalculationError.
    """
    found: list[Token] = []
    notes: list[str] = []
    calls: list[bool] = []  # of each open bracket: whether it is a function's
    at = 0
    while True:
        at = _skipped(text, at)
        if at >= len(text):
            break
        token = _number(text, at, any(calls), notes) or _other(text, at)
        if token.text == "(":
            calls.append(bool(found) and found[-1].kind is Kind.WORD and found[-1].text.isalnum())
        elif token.text == ")" and calls:
            calls.pop()
        at += len(token.text)
        found.append(_as_meant(token))
    return [*found, Token(Kind.END, "", len(text))], notes


def _skipped(text: str, at: int) -> int:
    """Where the next token begins; signs of currencies are left out."""
    while found := _SPACES.match(text, at):
        at = found.end()
        if _CURRENCY.match(text, at) is None:
            break
        at += 1
    return at


def _number(text: str, at: int, in_call: bool, notes: list[str]) -> Token | None:
    if not (text[at].isdecimal() or (text[at] == "." and text[at + 1 : at + 2].isdecimal())):
        return None
    if not text[at].isascii() and text[at] != ".":
        raise CalculationError("numbers are written with the digits 0 to 9", at)
    for form in _IN_CALL if in_call else _NUMBERS:
        written = _PATTERNS[form].match(text, at)
        if written is None:
            continue
        if form[1] and re.fullmatch(r"0*[1-9]\d{0,2},\d{3}", written[0]):
            continue
        value = _value(written[0], form[1], at)
        plain = written[0].lower().replace("_", "")
        if re.search(r"[, '\xa0\u2009\u202f\u2019]", plain) or plain.count(".") > 1:
            notes.append(f"{written[0]} was read as {_plain(value)}")
        return Token(Kind.NUMBER, written[0], at, value)
    raise CalculationError("this number cannot be read; write it without separators", at)


def _value(written: str, decimal_comma: bool, at: int) -> Fraction:
    if written[:1] == "0" and written[1:2] in tuple("xXbBoO"):
        return Fraction(int(written, 0))
    digits = re.sub(_SPACE, "", written)
    digits = digits.replace(".", "").replace(",", ".") if decimal_comma else digits.replace(",", "")
    exponent = re.search(r"[eE]([+-]?\d+)$", digits)
    if len(digits) > _MOST_DIGITS or (exponent and abs(int(exponent[1])) > _MOST_DIGITS):
        raise CalculationError(f"a number has more than {_MOST_DIGITS:,} digits", at)
    return Fraction(digits)


def _plain(value: Fraction) -> str:
    """A decimal number in digits."""
    if value.denominator == 1:
        return str(value.numerator)
    places = len(str(value.denominator)) * 4
    whole, rest = divmod(value.numerator * 10**places // value.denominator, 10**places)
    return f"{whole}.{str(rest).rjust(places, '0')}".rstrip("0")


def _other(text: str, at: int) -> Token:
    if found := _DEGREE.match(text, at):
        return Token(Kind.WORD, found[0], at)
    if found := _SIGN.match(text, at):
        return Token(Kind.SIGN, found[0], at)
    if found := _WORD.match(text, at):
        return Token(Kind.WORD, found[0], at)
    raise CalculationError(f'"{text[at]}" means nothing here', at)


def _as_meant(token: Token) -> Token:
    """A sign as the parser knows it."""
    if token.kind is Kind.SIGN and token.text in _SAME:
        return Token(Kind.SIGN, _SAME[token.text], token.at)
    if token.kind is Kind.SIGN and token.text in _POWERS:
        return Token(Kind.SIGN, token.text, token.at, Fraction(_POWERS[token.text]))
    if token.text == "√":
        return Token(Kind.WORD, "sqrt", token.at)
    if token.text == "π":
        return Token(Kind.WORD, "pi", token.at)
    return token
