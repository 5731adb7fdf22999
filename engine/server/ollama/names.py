"""Values in Ollama's notation: times, durations and names of models."""

from __future__ import annotations

from datetime import UTC, datetime

from engine.server.fields import Fields


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
