"""Dates and times: sums, differences, zones, leap days, changes of the clock, and clear errors."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import zoneinfo
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.tools import CallContext, ToolError
from app.tools.builtin.date_and_time import DateAndTime
from app.tools.builtin.dates import reading
from app.tools.builtin.dates.arithmetic import added, between
from app.tools.builtin.dates.moments import Moment
from app.tools.builtin.dates.reading import Step

NOW = datetime(2026, 11, 29, 15, 4, 5, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))


@pytest.fixture(autouse=True)
def in_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The computer's own zone, whose rules the system knows."""
    if not hasattr(time, "tzset"):
        pytest.skip("this system takes its zone from elsewhere")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
    assert os.environ.get("TZ") != "Europe/Berlin"


def answer(**arguments: str) -> str:
    return DateAndTime(lambda: NOW).answer(arguments)


def test_now_has_date_weekday_time_zone_week_and_day() -> None:
    assert answer() == (
        "2026-11-29 15:04:05 (CET, UTC+01:00), Sunday, 29 November 2026, ISO week 48 of 2026, day 333"
    )


@pytest.mark.parametrize(
    ("start", "more", "begins"),
    [
        ("today", "90 days", "2027-02-27, Saturday"),
        ("now", "90 days", "2027-02-27 15:04:05 (CET, UTC+01:00), Saturday"),
        ("2026-11-29", "-2 weeks", "2026-11-15, Sunday"),
        ("2026-11-29", "2 weeks ago", "2026-11-15, Sunday"),
        ("2024-01-31", "1 month", "2024-02-29, Thursday"),
        ("2024-02-29", "1 year", "2025-02-28, Friday"),
        ("2024-02-29", "4 years", "2028-02-29, Tuesday"),
        ("1900-02-28", "1 day", "1900-03-01, Thursday"),
        ("2000-02-28", "1 day", "2000-02-29, Tuesday"),
        ("2026-12-31", "1 year 2 months and 3 days", "2028-03-03, Friday"),
        ("2026-11-27", "10 business days", "2026-12-11, Friday"),
        ("2026-11-27", "1 business day", "2026-11-30, Monday"),
        ("2026-11-29", "-1 business day", "2026-11-27, Friday"),
        ("2026-11-28", "5 working days", "2026-12-04, Friday"),
        ("2026-03-28 12:00", "24 hours", "2026-03-29 13:00:00 (CEST, UTC+02:00)"),
        ("2026-03-28 12:00", "1 day", "2026-03-29 12:00:00 (CEST, UTC+02:00)"),
        ("2026-10-25 00:30", "3 hours", "2026-10-25 02:30:00 (CET, UTC+01:00)"),
        ("tomorrow at 9am", "", "2026-11-30 09:00:00 (CET"),
        ("next friday", "", "2026-12-04, Friday"),
        ("last Monday", "", "2026-11-23, Monday"),
        ("sunday", "", "2026-12-06, Sunday"),
        ("July 4, 2026", "", "2026-07-04, Saturday"),
        ("Saturday, July 4, 2026", "", "2026-07-04, Saturday"),
        ("Sun 2026-11-29 14:30", "", "2026-11-29 14:30:00 (CET"),
        ("4th of July 2026", "", "2026-07-04, Saturday"),
        ("29.11.2026", "", "2026-11-29, Sunday"),
        ("13/04/2026", "", "2026-04-13, Monday"),
        ("2026-W48", "", "2026-11-23, Monday"),
        ("1764428645", "", "2025-11-29 16:04:05 (CET"),
        ("2020-12-31", "", "2020-12-31, Thursday, 31 December 2020, ISO week 53 of 2020, day 366"),
    ],
)
def test_dates_and_sums(start: str, more: str, begins: str) -> None:
    assert answer(date=start, add=more).startswith(begins)


@pytest.mark.parametrize(
    ("start", "zone", "to", "found"),
    [
        ("2026-11-29 14:30", "New York", "asia/tokyo", "That is 2026-11-30 04:30:00 (Asia/Tokyo, UTC+09:00)"),
        ("3pm", "UTC", "PST", "That is 2026-11-29 07:00:00 (America/Los_Angeles, UTC-08:00)"),
        ("2026-07-01T14:30:00Z", "", "Europe/Berlin", "That is 2026-07-01 16:30:00 (Europe/Berlin, UTC+02:00)"),
        ("2026-11-29 09:00 +05:30", "", "UTC", "That is 2026-11-29 03:30:00 (UTC)"),
        ("2026-11-29 09:00", "UTC-3", "local", "That is 2026-11-29 13:00:00 (CET, UTC+01:00)"),
    ],
)  # fmt: skip
def test_conversions_between_zones(start: str, zone: str, to: str, found: str) -> None:
    assert found in answer(date=start, zone=zone, to_zone=to)


@pytest.mark.parametrize(
    ("start", "end", "found"),
    [
        (
            "2026-11-29",
            "2027-02-27",
            "90 days = 12 weeks 6 days; 2 months 29 days; 65 business days",
        ),
        ("2027-01-01", "2026-01-01", "-365 days = -52 weeks 1 day; -1 year; -261 business days"),
        ("2024-02-29", "2025-02-28", "365 days = 52 weeks 1 day; 1 year; "),
        ("2026-11-29", "2026-11-30", "1 day."),
        ("2026-11-29", "2026-11-29", "0 days."),
        ("2026-03-28 12:00", "2026-03-29 12:00", "23 hours (82,800 seconds)."),
        ("2026-11-29 10:00", "2026-11-29 09:59:30", "-30 seconds (-30 seconds)."),
    ],
)
def test_differences(start: str, end: str, found: str) -> None:
    assert found in answer(date=start, until=end)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"date": "03/04/2026"}, "may be two dates: write 2026-04-03 or 2026-03-04"),
        ({"date": "2026-02-29"}, 'There is no date "2026-02-29" in the calendar'),
        ({"date": "the day after"}, "cannot be read: write it as 2026-11-29"),
        ({"date": "25:00"}, '"25:00" is no time of a day'),
        ({"date": "13pm"}, "hours go from 1 to 12"),
        ({"add": "3 moons"}, '"moons" in "3 moons" is no unit'),
        ({"add": "soon"}, 'write it as "90 days"'),
        ({"add": "99999999 days"}, "At most 4,000,000"),
        ({"add": "9000 years"}, "outside the years 1 to 9999"),
        ({"date": "0001-01-01", "add": "-1 day"}, "outside the years 1 to 9999"),
        ({"add": "1 day", "until": "2027-01-01"}, 'either "add" or "until"'),
        ({"add": "1d" * 101}, '"add" has at most 200 characters'),
        ({"zone": "Mars"}, 'There is no time zone "Mars"'),
        ({"zone": "../../etc/passwd"}, "There is no time zone"),
        ({"zone": "IST"}, "the name of several time zones"),
        ({"zone": "UTC+25"}, "less than 24 hours"),
        ({"date": "today", "to_zone": "UTC"}, "A conversion needs a time"),
    ],
)
def test_an_error_says_what_to_send(arguments: dict[str, str], said: str) -> None:
    with pytest.raises(ToolError) as raised:
        answer(**arguments)
    assert said in str(raised.value)


def test_a_time_that_the_clocks_skip_is_said_to_be_none() -> None:
    assert "put forward past this time" in answer(date="2026-03-29 02:30")
    assert "put forward past this time" in answer(date="2026-03-29 02:30", zone="Europe/Paris")
    assert "put forward" not in answer(date="2026-03-29 03:30")


def test_without_a_database_of_zones_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> zoneinfo.ZoneInfo:
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(reading.zoneinfo, "ZoneInfo", missing)
    monkeypatch.setattr(reading, "_known_zones", set)
    with pytest.raises(ToolError, match="no database of time zones"):
        answer(zone="Europe/Berlin")
    assert answer(zone="UTC+2", date="2026-11-29 10:00").startswith(
        "2026-11-29 10:00:00 (UTC+02:00"
    )
    assert answer().startswith("2026-11-29 15:04:05 (CET")


days = st.dates(date(1900, 1, 1), date(2200, 12, 31)).map(
    lambda day: Moment(datetime(day.year, day.month, day.day))
)


@given(days, st.integers(-600, 600))
def test_business_days_are_counted_as_one_by_one(start: Moment, count: int) -> None:
    made = added(start, [Step(count, "business days")]).wall
    sign = 1 if count > 0 else -1
    walked = [start.wall + timedelta(sign * n) for n in range(abs((made - start.wall).days) + 1)]
    assert sum(day.weekday() < 5 for day in walked[1:]) == abs(count)
    assert count == 0 or made.weekday() < 5


@given(days, st.integers(-5000, 5000))
def test_a_difference_is_what_was_added(start: Moment, count: int) -> None:
    end = added(start, [Step(count, "days")])
    assert f": {count:,} day" in between(start, end)


@given(days, st.integers(0, 300))
def test_a_month_later_is_never_before_the_month_before_it(start: Moment, count: int) -> None:
    made = [added(start, [Step(n, "months")]).wall for n in range(count, count + 3)]
    assert all(a < b for a, b in pairwise(made))
    assert all((b.year * 12 + b.month) - (a.year * 12 + a.month) == 1 for a, b in pairwise(made))


@given(st.text(alphabet="0123456789-/:. TZ+apmdyswekonth", max_size=30))
def test_no_text_raises_anything_but_a_tool_error(text: str) -> None:
    for name in ("date", "add", "until", "zone"):
        with contextlib.suppress(ToolError):
            assert answer(**{name: text})


def test_the_example_of_its_description_is_right() -> None:
    call = DateAndTime(lambda: NOW).call({"date": "today", "add": "90 days"}, CallContext(1))
    assert asyncio.run(call).startswith("2027-02-27, Saturday")
