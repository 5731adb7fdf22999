"""Sums and differences of dates: leap days, ends of months, business days, changes of the clock."""

from __future__ import annotations

import calendar
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from app.tools.builtin.dates.moments import Moment, date_words, wall_time
from app.tools.builtin.dates.reading import Step

_MONTHS = {"months": 1, "quarters": 3, "years": 12, "decades": 120}
_DAYS = {"days": 1, "weeks": 7, "fortnights": 14}
_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600}
_NO_HOLIDAYS = "business days are Monday to Friday, public holidays included"


def added(start: Moment, steps: list[Step]) -> Moment:
    """A moment after steps, one after the other; raises OverflowError.

    Days and months are those of the calendar; hours are of real time, across changes of the clock.
    """
    made = start
    for step in steps:
        made = _after(made, step)
    return made


def _after(start: Moment, step: Step) -> Moment:
    if step.unit in _SECONDS:
        if not start.has_time:
            start = replace(start, has_time=True)
        seconds = timedelta(seconds=step.count * _SECONDS[step.unit])
        later = start.aware.astimezone(UTC) + seconds
        return replace(start, wall=wall_time(later, start.zone))
    if step.unit in _MONTHS:
        return _in_months(start, step.count * _MONTHS[step.unit])
    if step.unit == "business days":
        note = _joined(start.note, _NO_HOLIDAYS)
        return replace(start, wall=_in_business_days(start.wall, step.count), note=note)
    return replace(start, wall=start.wall + timedelta(step.count * _DAYS[step.unit]))


def _in_months(start: Moment, months: int) -> Moment:
    """The same day of another month, or its last day where it has no such."""
    at = start.wall.year * 12 + start.wall.month - 1 + months
    year, month = at // 12, at % 12 + 1
    if not 1 <= year <= 9999:
        raise OverflowError
    last = calendar.monthrange(year, month)[1]
    wall = start.wall.replace(year=year, month=month, day=min(start.wall.day, last))
    note = start.note
    if last < start.wall.day:
        note = _joined(note, f"that month has {last} days, so its last day was taken")
    return replace(start, wall=wall, note=note)


def _in_business_days(start: datetime, count: int) -> datetime:
    """So many days from Monday to Friday later, the first day not counted."""
    sign = 1 if count >= 0 else -1
    if not count:
        return start
    weeks, rest = divmod(abs(count) - 1, 5)  # whole weeks of five, and one to five single days
    made = start + timedelta(sign * 7 * weeks)
    for _ in range(rest + 1):
        made += timedelta(sign)
        while made.weekday() > 4:
            made += timedelta(sign)
    return made


def between(start: Moment, end: Moment) -> str:
    """The time between two moments in words: days, weeks, months, business days."""
    first, last = start.wall, end.wall
    lines: list[str] = []
    if start.has_time and end.has_time:
        real = end.aware.astimezone(UTC) - start.aware.astimezone(UTC)
        first_words, last_words = f"{first:%Y-%m-%d %H:%M:%S}", f"{last:%Y-%m-%d %H:%M:%S}"
        lines.append(f"From {first_words} to {last_words}: {_clock(real)}.")
    days = (last.date() - first.date()).days
    if days or not lines:
        lines.append(
            f"From {first:%Y-%m-%d} ({date_words(first)}) to {last:%Y-%m-%d} ({date_words(last)}): "
            f"{_count(days, 'day')}{_parts(first, last, days)}."
        )
    notes = [each.note for each in (start, end) if each.note]
    return "\n".join((*lines, *(f"Note: {each}." for each in dict.fromkeys(notes))))


def _parts(first: datetime, last: datetime, days: int) -> str:
    """The same time in weeks, in months, and in business days."""
    if abs(days) < 2:
        return ""
    sign = "-" if days < 0 else ""
    low, high = sorted((first, last))
    weeks, rest = divmod(abs(days), 7)
    months = (high.year - low.year) * 12 + high.month - low.month
    if _on(low, months) > high.date():
        months -= 1
    left = (high.date() - _on(low, months)).days
    made: list[str] = []
    if weeks:
        made.append(_sum((weeks, "week"), (rest, "day")))
    if months:
        years = (months // 12, "year"), (months % 12, "month"), (left, "day")
        made.append(_sum(*years))
    made.append(f"{_count(_business_days(low, high), 'business day')} (Monday to Friday)")
    return " = " + "; ".join(sign + each for each in made)


def _on(day: datetime, months: int) -> date:
    at = day.year * 12 + day.month - 1 + months
    year, month = at // 12, at % 12 + 1
    return day.date().replace(
        year=year, month=month, day=min(day.day, calendar.monthrange(year, month)[1])
    )


def _business_days(first: datetime, last: datetime) -> int:
    """The days from Monday to Friday after the first day, up to the last."""
    days = (last.date() - first.date()).days
    weeks, rest = divmod(days, 7)
    return weeks * 5 + sum((first.weekday() + n) % 7 < 5 for n in range(1, rest + 1))


def _clock(time: timedelta) -> str:
    total = int(time.total_seconds())
    sign = "-" if total < 0 else ""
    days, rest = divmod(abs(total), 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    parts = (days, "day"), (hours, "hour"), (minutes, "minute"), (seconds, "second")
    return f"{sign}{_sum(*parts)} ({total:,} seconds)"


def _sum(*parts: tuple[int, str]) -> str:
    return " ".join(_count(count, unit) for count, unit in parts if count) or f"0 {parts[-1][1]}s"


def _count(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if abs(count) == 1 else 's'}"


def _joined(*notes: str) -> str:
    return "; ".join(dict.fromkeys(each for each in notes if each))
