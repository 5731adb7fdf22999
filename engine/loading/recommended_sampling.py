"""Sampling recommended by a model file, from its `general.sampling.*` keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.errors import RequestError
from engine.messages import Sampling
from engine.sampling import check

_PREFIX = "general.sampling."
_SEQUENCE = "sequence"
# The field of each key, and the values beyond which nothing changes: a value outside means the
# nearest of them, as in llama.cpp. So a top-k of -1 is no top-k.
_FIELDS: dict[str, tuple[str, float, float]] = {
    "temp": ("temperature", 0, math.inf),
    "top_k": ("top_k", 0, math.inf),
    "top_p": ("top_p", 0, 1),
    "min_p": ("min_p", 0, 1),
    "xtc_probability": ("xtc_probability", 0, 1),
    "xtc_threshold": ("xtc_threshold", 0, 1),
    "penalty_last_n": ("penalty_window", -math.inf, math.inf),
    "penalty_repeat": ("repeat_penalty", -math.inf, math.inf),
    "mirostat": ("mirostat", -math.inf, math.inf),
    "mirostat_tau": ("mirostat_tau", -math.inf, math.inf),
    "mirostat_eta": ("mirostat_eta", -math.inf, math.inf),
}
# The steps that `general.sampling.sequence` may name, and what switches each off. Those that are
# off by default are left out. Names are compared without "_" and "-".
_STEPS: dict[str, dict[str, Any]] = {
    "topk": {"top_k": 0},
    "topp": {"top_p": 1.0},
    "minp": {"min_p": 0.0},
    "temperature": {"temperature": 1.0},
    "xtc": {"xtc_probability": 0.0},
    "penalties": {"repeat_penalty": 1.0},
}
_ALIASES = {"nucleus": "topp", "temp": "temperature", "typ": "typp", "typical": "typp"}
# The order in which the engine applies the steps: `engine.sampling`.
_ORDER = ["penalties", "dry", "topnsigma", "topk", "typp", "topp", "minp", "xtc", "temperature"]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """What a file recommends: the usual values with its own."""

    sampling: Sampling
    fields: tuple[str, ...]  # of `sampling` that the file sets, perhaps to their usual values
    unusable: tuple[str, ...]  # its keys whose values mean nothing, as "general.sampling.temp: nan"


NOTHING = Recommendation(Sampling(), (), ())


def recommendation(metadata: Mapping[str, object]) -> Recommendation:
    """What the metadata of a file recommends.

    A value of a wrong type, or one without a meaning, is `unusable`. Of the sequence of steps only
    the choice counts: a step that it does not name is switched off; the order is always the same. A
    sequence with another order, or with other steps, is `unusable` too.
    """
    sampling, set_fields, unusable = Sampling(), list[str](), list[str]()
    for key, (field, low, high) in _FIELDS.items():
        value = metadata.get(_PREFIX + key)
        if value is None:
            continue
        number = _converted(value, getattr(sampling, field), low, high)
        changed = None if number is None else replace(sampling, **{field: number})
        if changed is None or not _is_valid(changed):
            unusable.append(_named(key, value))
        else:
            sampling = changed
            set_fields.append(field)
    sequence = metadata.get(_PREFIX + _SEQUENCE)
    steps = _named_steps(sequence)
    named = set(steps) & set(_STEPS)
    if sequence is not None and (not named or steps != [one for one in _ORDER if one in steps]):
        unusable.append(_named(_SEQUENCE, sequence))
    for step, off in _STEPS.items() if named else ():
        if step not in named:
            sampling = replace(sampling, **off)
            set_fields += off
    return Recommendation(sampling, tuple(dict.fromkeys(set_fields)), tuple(unusable))


def recommended_sampling(metadata: Mapping[str, object]) -> Sampling | None:
    """The usual values with those that a file recommends; None if it recommends nothing usable."""
    found = recommendation(metadata)
    return found.sampling if found.fields else None


def _converted(value: object, usual: float, low: float, high: float) -> float | None:
    """A number of the type of the usual value, between `low` and `high`; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    number = min(max(value, low), high)
    if isinstance(usual, float):
        return float(number)
    return int(number) if number == int(number) else None


def _is_valid(sampling: Sampling) -> bool:
    try:
        check(sampling)
    except RequestError:
        return False
    return True


def _named(key: str, value: object) -> str:
    text = str(value)
    return f"{_PREFIX}{key}: {text if len(text) <= 40 else text[:37] + '...'}"


def _named_steps(value: object) -> list[str]:
    """The steps of a sequence such as "penalties;top_k;temperature"; empty if it is no text."""
    if not isinstance(value, str):
        return []
    names = [name.strip().lower().replace("_", "").replace("-", "") for name in value.split(";")]
    return [_ALIASES.get(name, name) for name in names]
