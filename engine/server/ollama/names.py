"""Values in Ollama's notation: times, durations, names of models, and how long a model is kept."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from engine.server.fields import Fields

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def timestamp(seconds: float | None = None) -> str:
    """A time of the epoch as Ollama writes it, in UTC; None: now."""
    at = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def nanoseconds(seconds: float) -> int:
    """A duration."""
    return round(seconds * 1e9)


def model_name(body: Fields) -> str:
    """The model that a request names, as `model` or, in older clients, as `name`."""
    return (
        body.text("name") if "model" not in body and "name" in body else body.required_text("model")
    )


def keep_seconds(body: Fields) -> float | None:
    """How long `keep_alive` keeps the model: seconds, or text such as "5m"; negative: for ever."""
    value = body.get("keep_alive")
    if not isinstance(value, str):
        return None if value is None else body.number("keep_alive", 0.0)
    text = value.strip()
    sign = -1.0 if text.startswith("-") else 1.0
    bare = text.lstrip("+-")
    if bare.replace(".", "", 1).isdecimal():
        return sign * float(bare)
    parts = _DURATION.findall(bare)
    if not parts or "".join(number + unit for number, unit in parts) != bare:
        body.fail("keep_alive", f"must be seconds or a duration such as '5m', not {value[:50]!r}.")
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
