"""What each of two answers is to be written with, as the card shows it, and its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from app.state.adapters import AdapterEntry
from app.ui.transcript.differences import Manner
from engine import Sampling

_PREDICTABLE, _VARIED = 0.2, 1.0  # temperatures
_BETWEEN = 0.5  # a temperature from here on is compared with the predictable one

Mixes = Mapping[str, tuple[AdapterEntry, ...]]  # saved stacks, by name


@dataclass(frozen=True, slots=True)
class Choice:
    """What one answer is written with."""

    adapters: tuple[AdapterEntry, ...]
    sampling: Sampling
    thinking: bool | None  # None: the default of the model's chat template

    @property
    def manner(self) -> Manner:
        """The same, to be put into words."""
        acting = tuple((each.name, each.strength) for each in self.adapters if each.acts)
        return Manner(acting, self.sampling, self.thinking)


def default_choices(
    adapters: Sequence[AdapterEntry], sampling: Sampling, thinking: bool | None
) -> tuple[Choice, Choice]:
    """The conversation's adapters and none; without adapters, two temperatures."""
    first = Choice(tuple(adapters), sampling, thinking)
    if any(entry.acts for entry in adapters):
        off = tuple(replace(entry, on=False) for entry in adapters)
        return first, replace(first, adapters=off)
    other = _PREDICTABLE if sampling.temperature >= _BETWEEN else _VARIED
    return first, replace(first, sampling=replace(sampling, temperature=other))


def mix_name(adapters: Sequence[AdapterEntry], mixes: Mixes) -> str:
    """The name of a mix with the same adapters switched on, at the same strengths; or nothing."""
    acting = _acting(adapters)
    return next((name for name, mix in mixes.items() if acting and _acting(mix) == acting), "")


def with_mix(
    choices: Sequence[Choice], place: int, mix: Sequence[AdapterEntry]
) -> tuple[Choice, ...]:
    """The choices when the one at `place` has exactly the adapters of a mix switched on.

    Adapters that are new are added to the others too, switched off: all have the same ones.
    """
    by_path = {entry.path: entry for entry in mix}
    known = {entry.path for entry in choices[place].adapters}
    new = tuple(replace(entry, on=False) for entry in mix if entry.path not in known)
    found = [replace(choice, adapters=(*choice.adapters, *new)) for choice in choices]
    mixed = tuple(
        by_path.get(entry.path, replace(entry, on=False)) for entry in found[place].adapters
    )
    found[place] = replace(found[place], adapters=mixed)
    return tuple(found)


def _acting(adapters: Sequence[AdapterEntry]) -> dict[Path, float]:
    return {entry.path: entry.strength for entry in adapters if entry.acts}
