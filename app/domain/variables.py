"""Variables in instructions: `{{date}}`, `{{time}}` and `{{language}}`, in words a model understands.

The words are English whatever the window's language is: every model reads them, and names of the
operating system's locale would differ between computers.
"""

from __future__ import annotations

import re
from datetime import datetime

from app.system.translation import used_language

_VARIABLE = re.compile(r"\{\{ *(date|time|language) *\}\}", re.IGNORECASE)
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def has_variables(text: str) -> bool:
    """Whether `resolved` would change a text."""
    return _VARIABLE.search(text) is not None


def resolved(text: str, now: datetime) -> str:
    """A text with its variables replaced; other words in braces stay as they are typed."""
    values = {
        "date": f"{_DAYS[now.weekday()]}, {now.day} {_MONTHS[now.month - 1]} {now.year}",
        "time": f"{now.hour:02}:{now.minute:02}",
        "language": used_language(),
    }
    return _VARIABLE.sub(lambda found: values[found[1].lower()], text)
