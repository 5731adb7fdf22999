"""The table of sampling values and of thinking that a chat may have of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any, cast

from app.settings.table import SETTINGS, Setting, fit
from engine import Sampling

_USUAL = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")

_MORE = {
    "seed": Setting(
        "Seed", "The same seed and question give the same answer.", low=-1, high=2**32 - 1,
        named=(-1, "Random"),
    ),
    "typical_p": Setting(
        "Typical-p", "Leaves out words that are far more or far less predictable than the rest of "
        "the text. Lower leaves out more.", low=0.01, high=1, step=0.01,
        named=(1, "Off"),
    ),
    "top_n_sigma": Setting(
        "Top-n-sigma", "Leaves out words that score far below the likeliest one. Lower leaves out "
        "more.", low=0, high=10, step=0.1, named=(0, "Off"),
    ),
    "temperature_range": Setting(
        "Dynamic temperature", "Varies the temperature by up to this much: higher where the model "
        "is unsure, lower where it is sure.", low=0, high=2, step=0.05, named=(0, "Off"),
    ),
    "xtc_probability": Setting(
        "XTC probability", "How often the most obvious words are skipped, for less predictable "
        "texts.", low=0, high=1, step=0.05, named=(0, "Off"),
    ),
    "xtc_threshold": Setting(
        "XTC threshold", "Words at least this likely count as obvious. The last of them stays.", low=0, high=0.5, step=0.01,
    ),
    "frequency_penalty": Setting(
        "Frequency penalty", "Words become less likely with each use.", low=-2, high=2, step=0.05,
        named=(0, "Off"),
    ),
    "presence_penalty": Setting(
        "Presence penalty", "Words that were used once become less likely.", low=-2, high=2, step=0.05,
        named=(0, "Off"),
    ),
    "dry_multiplier": Setting(
        "DRY strength", "Makes repeating whole phrases less likely.", low=0, high=5, step=0.1,
        named=(0, "Off"),
    ),
    "dry_allowed_length": Setting(
        "DRY length", "Phrases up to this long may be repeated.", "tokens", low=1, high=100,
    ),
    "mirostat": Setting(
        "Mirostat", "Keeps a text evenly predictable from start to end. It replaces top-k, top-p, "
        "min-p and typical-p.",
        choices=("0", "1", "2"), words=("Off", "1", "2"),
    ),
    "mirostat_tau": Setting(
        "Mirostat target", "Lower is more predictable, higher more varied.", "bits", low=0.1, high=20, step=0.1,
    ),
}  # fmt: skip

# The settings of sampling, in the order shown; those of _USUAL are in the app's settings too.
SAMPLERS: Mapping[str, Setting] = {
    **{name: SETTINGS[name] for name in _USUAL},
    **_MORE,
}
FIRST = (*_USUAL, "seed")  # the others are shown on request
_DEFAULTS = Sampling()


class Thinking(Enum):
    """Whether the model thinks before it answers."""

    USUAL = "usual"  # as in the settings
    ON = "on"
    OFF = "off"
    BUDGET = "budget"  # for so many tokens at most


USUAL_BUDGET = 1024  # tokens of thoughts, until another number is chosen
# The settings of thinking; the second one is of Thinking.BUDGET.
THINKING: Mapping[str, Setting] = {
    "thinking": replace(
        SETTINGS["thinking"],
        help="Slower, often better.",
        choices=tuple(one.value for one in Thinking),
        words=("As in settings", "On", "Off", "Budget"),
    ),
    "thinking_budget": Setting(
        "Thinking budget", "After this many tokens the model has to answer.", "tokens", low=1,
        high=1_000_000, step=64,
    ),
}  # fmt: skip


def usual_value(sampling: Sampling, name: str) -> float:
    """The value of a sampler where it is not changed."""
    value: float = getattr(sampling, name)
    return value


def is_whole(name: str) -> bool:
    """Whether a sampler's value is an integer."""
    return isinstance(getattr(_DEFAULTS, name), int)


def fit_sampling(stored: object) -> dict[str, float]:
    """The values of a stored mapping that are known and in their range."""
    if not isinstance(stored, dict):
        return {}
    values = cast("dict[str, object]", stored)
    fitting: dict[str, Any] = {}
    for name, setting in SAMPLERS.items():
        value, default = values.get(name), getattr(_DEFAULTS, name)
        if setting.choices:  # numbers that are shown as a choice
            known = isinstance(value, int) and str(value) in setting.choices
            found = value if known and not isinstance(value, bool) else None
        else:
            found = None if value is None else fit(value, default, setting)
        if found is not None:
            fitting[name] = found
    return fitting
