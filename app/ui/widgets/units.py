"""Number formatting for the window: progress, speed, remaining time, counts."""

from __future__ import annotations

import re

from PySide6.QtCore import QDate, QDateTime, QLocale

from app.system.byte_size import size, size_of
from app.system.translation import number, tr

# Parts of a locale's long date format: "dddd, d MMMM yyyy", "yyyy年M月d日dddd", "d 'de' MMMM 'de' yyyy".
_WEEKDAY = re.compile(r"[,،]?\s*dddd[,،]?\s*")
_YEAR = re.compile(r"(\s*'[^']*')?[,،]?\s*y+[年년]?(\s*'[^']*')?\.?")


def progress(done_bytes: int, size_bytes: int) -> str:
    """`1.2 of 2.5 GB`, or only the bytes so far if the size is unknown."""
    return size_of(done_bytes, size_bytes) if size_bytes > 0 else size(done_bytes)


def load_progress(done_bytes: int, total_bytes: int) -> str:
    """How far a load is: percent of the file read; before that and after it, what goes on."""
    if total_bytes <= 0:
        return tr("starting…")
    if done_bytes >= total_bytes:
        return tr("almost ready…")
    return tr("{percent} %", percent=min(round(100 * done_bytes / total_bytes), 99))


def speed(bytes_per_second: float) -> str:
    """A download speed: `14 MB/s`; empty if it is 0."""
    if bytes_per_second <= 0:
        return ""
    if bytes_per_second < 10e6 and bytes_per_second >= 1e6:
        return tr("{amount} MB/s", amount=number(bytes_per_second / 1e6, 1))
    return tr("{amount}/s", amount=size(bytes_per_second))


def moment(seconds: float) -> str:
    """A time in seconds since 1970 as the user's locale writes it: `26 Nov 2026 14:05`."""
    then = QDateTime.fromSecsSinceEpoch(int(seconds))
    return f"{day(then.date())} {QLocale().toString(then.time(), QLocale.FormatType.ShortFormat)}"


def lately(seconds: float) -> str:
    """A time in seconds since 1970, without the day if that is today: `14:05:09`."""
    then = QDateTime.fromSecsSinceEpoch(int(seconds))
    if then.date() != QDate.currentDate():
        return moment(seconds)
    pattern = QLocale().timeFormat(QLocale.FormatType.ShortFormat)
    return QLocale().toString(then.time(), pattern.replace("mm", "mm:ss"))


def day(date: QDate, *, with_year: bool = True) -> str:
    """A day with its month in letters, in the order of the user's locale: `26 Nov 2026`."""
    pattern = _WEEKDAY.sub("", QLocale().dateFormat(QLocale.FormatType.LongFormat))
    if not with_year:
        pattern = _YEAR.sub("", pattern)
    return QLocale().toString(date, pattern.replace("MMMM", "MMM").strip(" ,،"))


def typed_number(text: str) -> float | None:
    """The number that a user typed, with the separators of the user's locale or without any."""
    for locale in (_with_separators(QLocale()), QLocale.c()):
        value, is_number = locale.toDouble(text.strip())
        if is_number:
            return value
    return None


def usual_time(median: float, most: float) -> str:
    """A measured time in seconds: its median, and what nearly all are within (95 %)."""
    return tr("typically {median}, rarely more than {most}", median=_time(median), most=_time(most))


def _time(seconds: float) -> str:
    if seconds < 0.1:
        return tr("{time} ms", time=number(1000 * seconds, 1))
    return tr("{time} s", time=number(seconds, 2))


def parameters(count: int) -> str:
    """A parameter count: `135M`, `8B`; empty if unknown."""
    if count <= 0:
        return ""
    if count >= 995e6:
        return tr("{count}B", count=round(count / 1e9, 1))
    return tr("{count}M", count=round(count / 1e6))


def _with_separators(locale: QLocale) -> QLocale:
    """The locale; "C", which leaves the separators of thousands out, with them."""
    locale.setNumberOptions(QLocale.NumberOption.DefaultNumberOptions)
    return locale
