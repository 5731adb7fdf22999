"""Sampling recommended by a model file, from its `general.sampling.*` keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.errors import RequestError
from engine.inference.sampling import check
from engine.messages import Sampling

_PREFIX = "general.sampling."
_FIELDS = {
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "penalty_last_n": "penalty_window",
    "penalty_repeat": "repeat_penalty",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
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
_ALIASES = {"nucleus": "topp", "temp": "temperature"}


def recommended_sampling(metadata: Mapping[str, object]) -> Sampling | None:
    """The defaults with what the metadata of a file says; None if it says nothing valid.

    A value of a wrong type or out of its range is left out. Of the sequence of steps only the
    choice counts: a step that it does not name is switched off; the order is always the same.
    """
    sampling = Sampling()
    found = False
    for key, field in _FIELDS.items():
        value = _converted(metadata.get(_PREFIX + key), getattr(sampling, field))
        if value is None:
            continue
        changed = replace(sampling, **{field: value})
        try:
            check(changed)
        except RequestError:
            continue
        sampling, found = changed, True
    named = _named_steps(metadata.get(_PREFIX + "sequence"))
    for step, off in _STEPS.items() if named else ():
        if step not in named:
            sampling, found = replace(sampling, **off), True
    return sampling if found else None


def _converted(value: object, usual: float) -> float | None:
    """A number of the type of the usual value; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(usual, float):
        return float(value)
    return int(value) if float(value).is_integer() else None


def _named_steps(value: object) -> set[str]:
    """The steps of a sequence such as "penalties;top_k;temperature"; empty if none is known."""
    if not isinstance(value, str):
        return set()
    names = {name.strip().lower().replace("_", "").replace("-", "") for name in value.split(";")}
    return {_ALIASES.get(name, name) for name in names} & set(_STEPS)
