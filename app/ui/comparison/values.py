"""What each of two answers is to be written with, as the card shows it, and its defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.state.adapters import AdapterEntry
from app.ui.transcript.differences import Manner
from engine import Sampling

_PREDICTABLE, _VARIED = 0.2, 1.0  # temperatures
_BETWEEN = 0.5  # a temperature from here on is compared with the predictable one


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
