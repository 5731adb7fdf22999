"""Values of JSON that another program wrote: any of them may be missing or of another type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

_NOTHING: dict[str, Any] = {}
_LATEST = 253_402_300_799.0  # the end of the year 9999
_MILLISECONDS = 1e11  # a larger time is not in seconds
_HUMANIZED = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@ ?(\d{1,2})h ?(\d{1,2})m(?: ?(\d{1,2})s(?: ?(\d{1,3})ms)?)?"
)
_ENGLISH = ("%B %d, %Y %I:%M%p", "%B %d, %Y %I:%M %p", "%b %d, %Y %I:%M%p", "%Y-%m-%d %H:%M:%S")


def an_object(value: object) -> Mapping[str, Any]:
    """A JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else _NOTHING


def a_list(value: object) -> list[Any]:
    """A JSON list; an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def a_text(value: object) -> str:
    """A text; "" for anything else."""
    return value if isinstance(value, str) else ""


def an_id(value: object) -> str:
    """An id, which some programs write as a number; "" for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
        return str(value)
    return a_text(value)


def a_number(value: object) -> float:
    """A finite number; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    try:
        number = float(value)
    except OverflowError:
        return 0.0
    return number if math.isfinite(number) else 0.0


def a_time(value: object) -> float:
    """A time in seconds since 1970, from seconds, milliseconds or a text; 0: not known."""
    if isinstance(value, str):
        seconds = _time_of_text(value.strip())
    else:
        seconds = a_number(value)
        if seconds > _MILLISECONDS:
            seconds /= 1000
    return seconds if 0 < seconds < _LATEST else 0.0


def _time_of_text(text: str) -> float:
    if len(text) > 80:
        return 0.0
    if re.fullmatch(r"\d{9,14}(?:\.\d{1,9})?", text):
        return a_time(float(text))
    try:
        if found := _HUMANIZED.fullmatch(text):
            year, month, day, hour, minute, second, thousandths = (
                int(each or 0) for each in found.groups()
            )
            made = datetime(year, month, day, hour, minute, second, thousandths * 1000)
            return made.astimezone().timestamp()
        # Ollama writes nanoseconds, and Go's own text form puts the zone's name at the end.
        short = re.sub(r"(\.\d{6})\d+", r"\1", re.sub(r" [A-Z]{3,5}(?: m=.*)?$", "", text))
        short = re.sub(r" ([+-]\d{2}):?(\d{2})$", r"\1:\2", short)
        made = datetime.fromisoformat(short)
        return (made if made.tzinfo else made.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    for form in _ENGLISH:
        try:
            return datetime.strptime(text, form).astimezone().timestamp()
        except (ValueError, OverflowError, OSError):
            continue
    return 0.0
