"""Values of JSON from strangers, as the types that are expected, or empty."""

from __future__ import annotations

from typing import Any, cast

Object = dict[str, Any]


def object_of(value: object) -> Object:
    """A JSON object; an empty one for anything else."""
    return cast("Object", value) if isinstance(value, dict) else {}


def rows_of(value: object) -> list[object]:
    """A JSON list; an empty one for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_of(value: object) -> str:
    """A text; "" for anything else."""
    return value if isinstance(value, str) else ""


def number_of(value: object) -> float:
    """A number that is not negative and not absurd; 0 for anything else."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    return number if 0 <= number < 1e15 else 0


def count_of(value: object) -> int:
    """As `number_of`, rounded down."""
    return int(number_of(value))
