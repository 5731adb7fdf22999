"""Moments: a date, or a date and a time in a zone; how they are described."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

Zone = tzinfo | None  # None: that of this computer, whose rules the system knows

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, with a time if it has one; `wall` is what calendar and clock show in `zone`."""

    wall: datetime  # without a zone of its own
    zone: Zone = None
    has_time: bool = False
    note: str = ""  # how it was understood

    @property
    def aware(self) -> datetime:
        """With the offset that its zone has then."""
        if self.zone is None:
            return self.wall.astimezone()
        return self.wall.replace(tzinfo=self.zone)

    @property
    def skipped(self) -> bool:
        """Whether clocks are put forward past this time, so that it is none."""
        back = self.aware.astimezone(UTC).astimezone(self.zone)
        return back.replace(tzinfo=None, fold=0) != self.wall.replace(fold=0)

    def in_zone(self, zone: Zone) -> Moment:
        """The same moment in another zone."""
        return Moment(wall_time(self.aware, zone), zone, self.has_time)


def wall_time(aware: datetime, zone: Zone) -> datetime:
    """What calendar and clock show in a zone; the second of two equal hours has `fold` 1."""
    there = aware.astimezone(zone)
    wall = there.replace(tzinfo=None)
    if zone is None and wall.astimezone().utcoffset() != there.utcoffset():
        wall = wall.replace(fold=1)
    return wall


def offset(moment: datetime) -> str:
    """How far a time is ahead of UTC: "UTC+01:00"."""
    ahead = moment.utcoffset()
    if ahead is None:
        return ""
    minutes = int(ahead.total_seconds()) // 60
    sign = "+" if minutes >= 0 else "-"
    return f"UTC{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "UTC"


def date_words(day: datetime) -> str:
    """A date with its weekday."""
    return f"{WEEKDAYS[day.weekday()]}, {day.day} {MONTHS[day.month - 1]} {day.year:04}"


def described(moment: Moment) -> str:
    """A moment for the model: date, weekday, time and zone, week, day of the year."""
    wall = moment.wall
    year, week, _ = wall.isocalendar()
    text = f"{wall:%Y-%m-%d}".rjust(10, "0")
    if moment.has_time:
        aware = moment.aware
        name = getattr(moment.zone, "key", "") or aware.tzname() or ""
        shown = ", ".join(dict.fromkeys(each for each in (name, offset(aware)) if each))
        text += f" {wall:%H:%M:%S} ({shown})"
    text += f", {date_words(wall)}, ISO week {week} of {year}, day {wall.timetuple().tm_yday}"
    notes = [moment.note] if moment.note else []
    if moment.has_time and moment.skipped:
        notes.append("clocks are put forward past this time on this day")
    return text + "".join(f"\nNote: {each}." for each in notes)
