"""The tool `date_and_time`: now, weekdays, sums and differences of dates, time zones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from app.domain.tools import CallContext, ToolError, ToolSpec
from app.tools.builtin.tool import Changeless, in_thread, schema, spec

_LONGEST = 200  # characters of an argument
_DESCRIPTION = (
    "The date and time now, or a calculation with dates. Without arguments: now. "
    'Example: {"date": "today", "add": "90 days"} gives the date and weekday in 90 days.'
)
_SCHEMA = schema(
    (),
    date=("string", 'start: "now", "tomorrow", "2026-11-29", "2026-11-29 14:30"; default now'),
    add=("string", 'what to add: "90 days", "-2 weeks", "1 year 3 months", "10 business days"'),
    until=("string", "second date: gives the time between"),
    zone=("string", 'time zone of date, such as "Europe/Berlin"; default that of the user'),
    to_zone=("string", "time zone of the result"),
)


class DateAndTime(Changeless):
    """Dates and times; without any effect."""

    def __init__(self, now: Callable[[], datetime] | None = None) -> None:
        """`now` is the time with a zone; by default that of this computer."""
        self._now = now or (lambda: datetime.now().astimezone())

    @property
    def spec(self) -> ToolSpec:
        """The tool as it is offered."""
        return spec("date_and_time", _DESCRIPTION, _SCHEMA)

    async def call(self, arguments: Mapping[str, Any], context: CallContext) -> str:
        """The answer in words; raises ToolError."""
        del context
        return await in_thread(lambda _: self.answer(arguments))

    def answer(self, arguments: Mapping[str, Any]) -> str:
        """What the model reads; raises ToolError."""

        from app.tools.builtin.dates import arithmetic, reading
        from app.tools.builtin.dates.moments import described

        def text(name: str) -> str:
            found = str(arguments.get(name) or "").strip()
            if len(found) > _LONGEST:
                raise ToolError(f'"{name}" has at most {_LONGEST} characters.')
            return found

        try:
            zone, to_zone = reading.zone(text("zone")), reading.zone(text("to_zone"))
            start = reading.moment(text("date") or "now", zone, self._now())
            if text("until") and text("add"):
                raise ToolError('Send either "add" or "until", not both.')
            if text("until"):
                end = reading.moment(text("until"), zone, self._now())
                return arithmetic.between(start, end)
            made = arithmetic.added(start, reading.steps(text("add"))) if text("add") else start
            if not text("to_zone"):
                return described(made)
            if not made.has_time:
                raise ToolError('A conversion needs a time: write "date" as "2026-11-29 14:30".')
            return f"{described(made)}\nThat is {described(made.in_zone(to_zone))}"
        except (OverflowError, OSError, ValueError):
            raise ToolError("This date is outside the years 1 to 9999.") from None
