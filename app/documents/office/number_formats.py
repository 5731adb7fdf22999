"""Values of spreadsheet cells as their number formats show them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache

GENERAL = "General"
_GENERAL = "general"  # as which it is compared
# Formats that have a number instead of a code; those of dates depend on the reader's country in
# the original, so that they are shown here as the same date for all.
BUILT_IN = {
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    14: "yyyy-mm-dd",
    15: "d-mmm-yy",
    16: "d-mmm",
    17: "mmm-yy",
    18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM",
    20: "h:mm",
    21: "h:mm:ss",
    22: "yyyy-mm-dd h:mm",
    **dict.fromkeys(range(27, 32), "yyyy-mm-dd"),
    36: "yyyy-mm-dd",
    37: "#,##0;-#,##0",
    38: "#,##0;-#,##0",
    39: "#,##0.00;-#,##0.00",
    40: "#,##0.00;-#,##0.00",
    41: "#,##0",
    42: "#,##0",
    43: "#,##0.00",
    44: "#,##0.00",
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss.0",
    48: "##0.0E+0",
    49: "@",
    **dict.fromkeys(range(50, 59), "yyyy-mm-dd"),
}
_LONGEST_CODE = 255  # characters, as in Excel
LAST_DAY = 2_958_466  # the number of the day after 9999-12-31

_TOKEN = re.compile(
    r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]|(?i:General)|AM/PM|A/P|[yY]+|[mM]+|[dD]+|[hH]+|[sS]+|\.0+|[Ee][+-]'
    r"|[0#?]+|.",
    re.DOTALL,
)
_CONDITION = re.compile(r"\[(<=|>=|<>|<|>|=)(-?[\d.]+)\]")
_ELAPSED = re.compile(r"\[(h+|m+|s+)\]", re.IGNORECASE)
_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True)
class _Section:
    """One of the up to four parts of a code: for positive, negative, zero, text."""

    tokens: tuple[str, ...]
    condition: tuple[str, float] | None
    is_date: bool

    @property
    def has_digits(self) -> bool:
        return any(token[0] in "0#?" or token.startswith(".0") for token in self.tokens)


@lru_cache(maxsize=1024)
def _sections(code: str) -> tuple[_Section, ...]:
    made: list[_Section] = []
    tokens: list[str] = []
    for token in [*_TOKEN.findall(code[:_LONGEST_CODE]), ";"]:
        if token != ";":
            tokens.append(GENERAL if token.casefold() == _GENERAL else token)
            continue
        condition = next(filter(None, map(_CONDITION.fullmatch, tokens)), None)
        is_date = any(
            token[0] in "yYdDhHsS" or token in ("AM/PM", "A/P") or _ELAPSED.fullmatch(token)
            for token in tokens
        ) or (any(token[0] in "mM" for token in tokens) and not any(t[0] in "0#?" for t in tokens))
        found = (condition[1], float(condition[2])) if condition else None
        made.append(_Section(tuple(tokens), found, is_date))
        tokens = []
    return tuple(made)


def shown(value: float, code: str, *, from_1904: bool = False) -> str:
    """A number as a format shows it; `from_1904`: days are counted from that year on."""
    if code.casefold() in (_GENERAL, "", "@"):
        return general(value)
    sections = _sections(code)
    section, is_plain = _chosen(value, sections)
    if section is None:
        return general(value)
    if section.is_date:
        return _date(value, section, from_1904) or general(value)
    if not section.has_digits and GENERAL not in section.tokens:
        text = _literals(section)
        return text if text or is_plain else ""
    return _number(value if is_plain else abs(value), section)


def shown_text(text: str, code: str) -> str:
    """A text as a format shows it."""
    sections = _sections(code) if ";" in code else ()
    if len(sections) < 4 or not any(token == "@" for token in sections[3].tokens):
        return text
    return "".join(text if each == "@" else _literal(each) for each in sections[3].tokens)


def general(value: float) -> str:
    """A number without a format: 15 digits, with an exponent where it is very large or small."""
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    text = f"{value:.15g}"
    if "e" in text and 1e-9 < abs(value) < 1e21:
        text = format(Decimal(text), "f")
    return text.replace("e", "E")


def _chosen(value: float, sections: tuple[_Section, ...]) -> tuple[_Section | None, bool]:
    """The section for a value, and whether its sign is shown as it is."""
    conditions = [each for each in sections if each.condition]
    if conditions:
        for each in sections:
            if each.condition is None or _holds(value, *each.condition):
                return each, True
        return None, True
    if value < 0 and len(sections) > 1:
        return sections[1], False
    if value == 0 and len(sections) > 2:
        return sections[2], True
    return next(iter(sections), None), True


def _holds(value: float, sign: str, limit: float) -> bool:
    match sign:
        case "<":
            return value < limit
        case ">":
            return value > limit
        case "<=":
            return value <= limit
        case ">=":
            return value >= limit
        case "=":
            return value == limit
        case _:
            return value != limit


def _literal(token: str) -> str:
    """What a token that is no placeholder shows."""
    match token[0]:
        case '"':
            return token[1:-1] if len(token) > 1 else ""
        case "\\":
            return token[1:]
        case "_":
            return " "
        case "*":
            return ""
        case "[":
            return token[2:-1].partition("-")[0] if token.startswith("[$") else ""
        case _:
            return token


def _literals(section: _Section) -> str:
    return "".join(map(_literal, section.tokens)).strip()


def _number(value: float, section: _Section) -> str:
    before: list[str] = []
    after: list[str] = []
    pattern = ""
    inner: list[str] = []  # literals among the digits, such as the bars of a phone number
    for token in section.tokens:
        if (
            token[0] in "0#?"
            or token.startswith(".0")
            or token[:1] in "Ee"
            or token == GENERAL
            or (pattern and token in (",", ".", "/"))
        ):
            pattern += "".join(inner) + token
            inner = []
        elif pattern:
            inner.append(_literal(token))
        else:
            before.append(_literal(token))
    after = inner
    percents = sum(token == "%" for token in section.tokens)
    text = _digits(value, percents, pattern)
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    return " ".join((sign + "".join(before) + text + "".join(after)).split())


def _digits(value: float, percents: int, pattern: str) -> str:
    """A number in a pattern of placeholders."""
    try:
        exact = Decimal(repr(value)) * 100**percents
    except InvalidOperation:
        return str(value)
    if GENERAL in pattern or "/" in pattern:
        return general(float(exact))
    mantissa, exponent, power = pattern, "", ""
    if found := re.search(r"[Ee][+-]", pattern):
        mantissa, power = pattern[: found.start()], pattern[found.end() :]
        exponent = found[0]
    scaled = mantissa.rstrip(",")
    exact /= Decimal(1000) ** (len(mantissa) - len(scaled))
    whole, _, fraction = scaled.partition(".")
    places = sum(fraction.count(each) for each in "0#?")
    least = sum(fraction.count(each) for each in "0?")
    if exponent:
        shift = exact.adjusted() if exact else 0
        step = max(1, sum(whole.count(each) for each in "0#?"))
        shift -= shift % step if step > 1 else 0
        exact = exact.scaleb(-shift)
        digits = _fixed(exact, places, least, 1, grouped=False)
        sign = "-" if shift < 0 else "+" if exponent[1] == "+" else ""
        return f"{digits}E{sign}{abs(shift):0{max(1, len(power))}}"
    width = whole.count("0")
    if re.search(r"[0#?][^0#?,.][0#?]", whole) and not fraction:
        return _filled(exact, whole)
    return _fixed(exact, places, least, width, grouped="," in whole)


def _fixed(exact: Decimal, places: int, least: int, width: int, *, grouped: bool) -> str:
    try:
        rounded = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    except InvalidOperation:
        return str(exact)
    sign = "-" if rounded < 0 else ""
    whole, _, fraction = format(abs(rounded), "f").partition(".")
    fraction = fraction[:least] + fraction[least:].rstrip("0")
    whole = whole.lstrip("0").zfill(width)
    if grouped and whole:
        whole = f"{int(whole):0{width + (width - 1) // 3 if width else 0},}"
    return f"{sign}{whole}{'.' if fraction else ''}{fraction}"


def _filled(exact: Decimal, pattern: str) -> str:
    """Digits among literals, from the right: `000-00-0000`."""
    digits = list(str(int(abs(exact))))
    made: list[str] = []
    first = next(i for i, each in enumerate(pattern) if each in "0#?")
    for i in range(len(pattern) - 1, -1, -1):
        if pattern[i] not in "0#?":
            made.append(pattern[i])
        elif i == first:
            made.extend(reversed(digits or ["0"]))
        elif digits:
            made.append(digits.pop())
        elif pattern[i] == "0":
            made.append("0")
    return ("-" if exact < 0 else "") + "".join(reversed(made))


def _date(value: float, section: _Section, from_1904: bool) -> str:
    tokens: tuple[str, ...] = section.tokens
    elapsed = any(_ELAPSED.fullmatch(token) for token in tokens)
    if (value < 0 and not elapsed) or abs(value) >= LAST_DAY:
        return ""
    places = next((len(each) - 1 for each in tokens if each.startswith(".0")), 0)
    seconds = round(value * 86_400, places)
    when = day_of(seconds / 86_400, from_1904=from_1904)
    if not places:
        when += timedelta(microseconds=500_000)
    twelve = any(token in ("AM/PM", "A/P") for token in tokens)
    made: list[str] = []
    for i, token in enumerate(tokens):
        if found := _ELAPSED.fullmatch(token):
            unit = {"h": 3600, "m": 60, "s": 1}[found[1][0].lower()]
            made.append(f"{int(abs(seconds) // unit):0{len(found[1])}}")
        elif token[0] in "mM" and _is_minute(tokens, i):
            made.append(f"{when.minute:0{min(len(token), 2)}}")
        elif token.startswith(".0"):
            made.append(f"{when.microsecond / 1e6:.{places}f}"[1:])
        else:
            made.append(_date_part(token, when, twelve=twelve))
    return ("-" if value < 0 else "") + " ".join("".join(made).split())


def day_of(value: float, *, from_1904: bool = False) -> datetime:
    """The date and time of a number of days."""
    if from_1904:
        start = datetime(1904, 1, 1)
    else:  # 1900 is counted as a leap year
        start = datetime(1899, 12, 31) if value < 60 else datetime(1899, 12, 30)
    return start + timedelta(days=int(value), microseconds=round(value % 1 * 86_400_000_000))


def _is_minute(tokens: tuple[str, ...], at: int) -> bool:
    """Whether an `m` is that of minutes: after hours or before seconds."""

    def unit(token: str) -> bool:
        return token[0] in "yYmMdDhHsS" or bool(_ELAPSED.fullmatch(token))

    before = next((each for each in reversed(tokens[:at]) if unit(each)), "")
    after = next((each for each in tokens[at + 1 :] if unit(each)), "")
    return before.strip("[]")[:1] in ("h", "H") or after.strip("[]")[:1] in ("s", "S")


def _date_part(token: str, when: datetime, *, twelve: bool) -> str:
    size = len(token)
    match token[0]:
        case "y" | "Y":
            return f"{when.year:04}" if size > 2 else f"{when.year % 100:02}"
        case "m" | "M":
            name = _MONTHS[when.month - 1]
            if size > 2:
                return name[:1] if size == 5 else name[:3] if size == 3 else name
            return f"{when.month:0{size}}"
        case "d" | "D":
            name = _DAYS[when.weekday()]
            return (name[:3] if size == 3 else name) if size > 2 else f"{when.day:0{size}}"
        case "h" | "H":
            hour = (when.hour % 12 or 12) if twelve else when.hour
            return f"{hour:0{min(size, 2)}}"
        case "s" | "S":
            return f"{when.second:0{min(size, 2)}}"
        case "A" if twelve:
            return ("AM" if when.hour < 12 else "PM")[: 2 if token == "AM/PM" else 1]
        case "@" | "0" | "#" | "?":
            return ""
        case _:
            return _literal(token)
