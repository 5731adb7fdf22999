"""Which sampling values a model uses, and where each comes from.

A value of the user's comes before a recommended one, also where it equals the usual value.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Origin(Enum):
    """Where a sampling value comes from; each comes before those above it."""

    USUAL = "usual"  # of the app
    KNOWN = "known"  # recommended for files of this name
    FILE = "file"  # recommended by the file itself
    YOURS = "yours"  # chosen on the settings page
    MODEL = "model"  # chosen for this model alone


@dataclass(frozen=True, slots=True)
class UsedValue:
    """A sampling value of a model."""

    value: float
    origin: Origin
    in_settings: float  # what the settings page shows: the value without one for the model alone
    recommended: float | None = None  # for the model, by the file or its name
