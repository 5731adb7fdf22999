"""Reads dates, times, zones and steps such as "3 weeks" as models write them."""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cache

from app.domain.tools import ToolError
from app.tools.builtin.dates.moments import MONTHS, WEEKDAYS, Moment, Zone, wall_time

_MOST_STEP = 4_000_000  # days, and of every other unit
_DAYS = {"today": 0, "now": 0, "tomorrow": 1, "yesterday": -1}
_OFFSET = re.compile(r"(?:UTC|GMT)?\s*([+\-\u2212])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
_TIME = re.compile(
    r"(?:^|[T\s,]|\bat\b)\s*(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?\s*(am|pm|a\.m\.|p\.m\.)?"
    r"|(?:^|\s|\bat\b)\s*(\d{1,2})\s*(am|pm|a\.m\.|p\.m\.)",
    re.IGNORECASE,
)
_ZONE_BEHIND = re.compile(r"(Z|[+-]\d{2}:?\d{2}|\s(?:UTC|GMT)(?:[+-]\d{1,2}(?::?\d{2})?)?)$")
_ISO = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_WEEK = re.compile(r"(\d{4})-?W(\d{2})(?:-?([1-7]))?", re.IGNORECASE)
_NUMBERS = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4})")
_DAY_FIRST = re.compile(r"(\d{1,2})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?([A-Za-z]{3,9})\.?,?\s+(\d{4})")
_MONTH_FIRST = re.compile(r"([A-Za-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})")
_WEEKDAY_BEFORE = re.compile(
    r"(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?,?\s+(?=.*\d)", re.IGNORECASE
)
_STEP = re.compile(r"([+\-\u2212]?)\s*(\d+|an?|one|two|three)\s*([A-Za-z]+(?:\s+days?)?)")
_WORDS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3}
_UNITS = {
    "second": "seconds", "sec": "seconds", "s": "seconds", "minute": "minutes", "min": "minutes",
    "hour": "hours", "hr": "hours", "h": "hours", "day": "days", "d": "days", "week": "weeks",
    "wk": "weeks", "w": "weeks", "fortnight": "fortnights", "month": "months", "mo": "months",
    "quarter": "quarters", "year": "years", "yr": "years", "y": "years", "decade": "decades",
}  # fmt: skip
_BUSINESS = ("business", "working", "work")
_ABBREVIATED = {
    "pst": "America/Los_Angeles", "pdt": "America/Los_Angeles", "pt": "America/Los_Angeles",
    "mst": "America/Denver", "mdt": "America/Denver", "cdt": "America/Chicago",
    "edt": "America/New_York", "et": "America/New_York", "est": "America/New_York",
    "cest": "Europe/Berlin", "cet": "Europe/Berlin", "bst": "Europe/London",
    "jst": "Asia/Tokyo", "kst": "Asia/Seoul", "aest": "Australia/Sydney",
}  # fmt: skip
_UNCLEAR = ("ist", "cst", "ast", "sst")  # abbreviations of several zones
_NO_DATABASE = (
    "This computer has no database of time zones, so only UTC, offsets such as UTC+2, and its own"
    " time zone are known."
)


@dataclass(frozen=True, slots=True)
class Step:
    """A number of days, months or others to add; "business days" are Monday to Friday."""

    count: int
    unit: str


def zone(text: str) -> Zone:
    """A time zone by its name or offset; "" and "local" are that of this computer."""
    name = text.strip()
    if name.casefold() in ("", "local", "here", "user"):
        return None
    if name.casefold() in ("utc", "gmt", "z", "zulu"):
        return UTC
    if found := _OFFSET.fullmatch(name):
        return _fixed(found[1], int(found[2]), int(found[3] or 0))
    if name.casefold() in _UNCLEAR:
        raise ToolError(
            f'"{name}" is the name of several time zones: write one such as Asia/Kolkata.'
        )
    return _named(_ABBREVIATED.get(name.casefold(), name))


def _fixed(sign: str, hours: int, minutes: int) -> timezone:
    ahead = timedelta(hours=hours, minutes=minutes)
    if ahead >= timedelta(hours=24) or minutes > 59:
        raise ToolError("A time zone is less than 24 hours from UTC.")
    return timezone(ahead if sign == "+" else -ahead)


@cache
def _known_zones() -> set[str]:
    """The names in the database; it is searched once."""
    return zoneinfo.available_timezones()


def _named(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        pass
    known = _known_zones()
    if not known:
        raise ToolError(_NO_DATABASE)
    asked = name.casefold().replace(" ", "_")
    found = sorted(each for each in known if each.casefold() == asked) or sorted(
        each for each in known if each.casefold().rpartition("/")[2] == asked
    )
    if not found:
        raise ToolError(
            f'There is no time zone "{name[:40]}": write one such as Europe/Berlin or UTC+2.'
        )
    return zoneinfo.ZoneInfo(found[0])


def moment(text: str, in_zone: Zone, now: datetime) -> Moment:
    """A date or time in words; raises ToolError for one that cannot be read, or in two ways."""
    written = " ".join(text.split()).strip(" .,")
    here = wall_time(now.replace(microsecond=0), in_zone)
    if written.casefold() in ("", "now"):
        return Moment(here, in_zone, True)
    if re.fullmatch(r"\d{9,11}", written):
        wall = wall_time(datetime.fromtimestamp(int(written), UTC), in_zone)
        return Moment(wall, in_zone, True, "the number was read as Unix time")
    rest, in_zone = _without_zone(written, in_zone)
    clock = _TIME.search(rest)
    day_text = (rest[: clock.start()] + rest[clock.end() :] if clock else rest).strip(" ,")
    day, note = _day(re.sub(r"(?:\bat|T)$", "", day_text).strip(" ,"), here)
    hours, minutes, seconds = _clock(clock) if clock else (0, 0, 0)
    wall = day.replace(hour=hours, minute=minutes, second=seconds)
    return Moment(wall, in_zone, clock is not None, note)


def _without_zone(text: str, given: Zone) -> tuple[str, Zone]:
    """A text without the zone at its end, and that zone."""
    found = _ZONE_BEHIND.search(text)
    if found is None or not re.search(r"\d:\d{2}", text[: found.start()]):
        return text, given
    return text[: found.start()].strip(), zone(found[1].strip())


def _clock(found: re.Match[str]) -> tuple[int, int, int]:
    hours, half = int(found[1] or found[5]), (found[4] or found[6] or "").casefold()[:1]
    minutes, seconds = int(found[2] or 0), int(found[3] or 0)
    if half:
        if not 1 <= hours <= 12:
            raise ToolError(
                f'"{found[0].strip()}" is no time: with am or pm, hours go from 1 to 12.'
            )
        hours = hours % 12 + (12 if half == "p" else 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ToolError(f'"{found[0].strip()}" is no time of a day.')
    return hours, minutes, seconds


def _day(text: str, here: datetime) -> tuple[datetime, str]:
    """The date in a text, and how it was understood."""
    midnight = here.replace(hour=0, minute=0, second=0)
    if before := _WEEKDAY_BEFORE.match(text):
        text = text[before.end() :]
    words = text.casefold().split()
    if not words:
        return midnight, ""
    if text.casefold() in _DAYS:
        return midnight + timedelta(_DAYS[text.casefold()]), ""
    if (found := _weekday(words, midnight)) is not None:
        return found
    if found := _WEEK.fullmatch(text):
        return _week_day(text, int(found[1]), int(found[2]), int(found[3] or 1)), ""
    if found := _ISO.fullmatch(text):
        return _date(text, found[1], found[2], found[3]), ""
    if found := _DAY_FIRST.fullmatch(text):
        return _date(text, found[3], _month(found[2], text), found[1]), ""
    if found := _MONTH_FIRST.fullmatch(text):
        return _date(text, found[3], _month(found[1], text), found[2]), ""
    if found := _NUMBERS.fullmatch(text):
        return _by_numbers(text, found)
    raise ToolError(f'The date "{text[:40]}" cannot be read: write it as 2026-11-29.')


def _by_numbers(text: str, found: re.Match[str]) -> tuple[datetime, str]:
    """A date such as 29.11.2026; with a "/" and two numbers up to 12 it may be one of two."""
    first, second = int(found[1]), int(found[3])
    if found[2] == "." or first > 12:
        return _date(text, found[4], second, first), ""
    if second > 12 or first == second:
        return _date(text, found[4], first, second), ""
    year = found[4]
    raise ToolError(
        f'"{text}" may be two dates: write {year}-{second:02}-{first:02} or'
        f" {year}-{first:02}-{second:02}."
    )


def _weekday(words: list[str], midnight: datetime) -> tuple[datetime, str] | None:
    """The next or last day of a name: "friday", "next friday", "last friday"."""
    which = words[0] if len(words) == 2 and words[0] in ("next", "last", "this", "on") else "next"
    name = words[-1][:3]
    days = [day.casefold() for day in WEEKDAYS]
    at = next((n for n, day in enumerate(days) if day[:3] == name), -1)
    if len(words) > 2 or at < 0 or not days[at].startswith(words[-1]):
        return None
    if which == "last":
        made = midnight - timedelta((midnight.weekday() - at - 1) % 7 + 1)
        return made, f"the last {WEEKDAYS[at]} before today was taken"
    made = midnight + timedelta((at - midnight.weekday() - 1) % 7 + 1)
    return made, f"the first {WEEKDAYS[at]} after today was taken"


def _month(name: str, text: str) -> int:
    for number, month in enumerate(MONTHS, 1):
        if (
            month.casefold().startswith(name.casefold())
            or name.casefold() == "sept" == month[:4].lower()
        ):
            return number
    raise ToolError(f'The date "{text[:40]}" cannot be read: write it as 2026-11-29.')


def _date(text: str, year: str, month: str | int, day: str | int) -> datetime:
    try:
        return datetime(int(year), int(month), int(day))
    except ValueError:
        raise ToolError(f'There is no date "{text}" in the calendar.') from None


def _week_day(text: str, year: int, week: int, day: int) -> datetime:
    try:
        return datetime.fromisocalendar(year, week, day)
    except ValueError:
        raise ToolError(f'There is no week "{text}" in the calendar.') from None


def steps(text: str) -> list[Step]:
    """What to add, in order: "1 year 2 months", "-90 days", "10 business days ago"."""
    written = text.strip()
    ago = bool(re.search(r"\b(?:ago|before|earlier)$", written, re.IGNORECASE))
    written = re.sub(
        r"^(?:in|after)\b|\b(?:ago|before|earlier|later|from now)$", "", written, flags=re.I
    )
    made: list[Step] = []
    sign, at = (-1 if ago else 1), 0
    written = re.sub(r"\s*(?:,|\band\b|\bplus\b)\s*", " ", written).strip()
    while at < len(written):
        found = _STEP.match(written, at)
        if found is None:
            raise ToolError(f'"{text[:40]}" cannot be added: write it as "90 days" or "-2 weeks".')
        if found[1]:
            sign = 1 if found[1] == "+" else -1
        digits = found[2]
        count = int(digits) if digits.isdecimal() else _WORDS[digits.casefold()]
        step, length = _step(sign * count, found[3], text)
        made.append(step)
        at = found.start(3) + length
        at += len(written) - at - len(written[at:].lstrip())
    if any(abs(each.count) > _MOST_STEP for each in made):
        raise ToolError(f"At most {_MOST_STEP:,} of a unit can be added.")
    return made


def _step(count: int, words: str, text: str) -> tuple[Step, int]:
    """A step of a unit in words, and how many characters of these it is."""
    first, *more = words.split()
    if first.casefold() in _BUSINESS and more:
        return Step(count, "business days"), len(words)
    if first.casefold() == "weekdays" or first.casefold() == "workdays":
        return Step(count, "business days"), len(first)
    name = first.casefold()
    unit = _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))
    if unit is None:
        raise ToolError(
            f'"{first}" in "{text[:40]}" is no unit: write days, business days, weeks, months,'
            " years, hours, minutes or seconds."
        )
    return Step(count, unit), len(first)
