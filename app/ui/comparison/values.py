"""What each of two answers is to be written with, as the card shows it, and its defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from app.domain.generation_settings import GenerationSettings, UsedAdapter
from app.domain.model_ref import ModelRef
from app.engines.capabilities import Capabilities
from engine import Sampling

_PREDICTABLE, _VARIED = 0.2, 1.0  # temperatures
_BETWEEN = 0.5  # a temperature from here on is compared with the predictable one

Models = Sequence[tuple[ModelRef, str]]  # those to choose from, and their displayed names
CapabilitiesOf = Callable[[ModelRef | None], Capabilities]
Mixes = Mapping[str, tuple[UsedAdapter, ...]]  # saved stacks, by name


def default_choices(
    adapters: Sequence[UsedAdapter],
    sampling: Sampling,
    thinking: bool | None,
    model: ModelRef | None = None,
    model_name: str = "",
) -> tuple[GenerationSettings, GenerationSettings]:
    """The conversation's adapters and none; without adapters, two temperatures."""
    first = GenerationSettings(tuple(adapters), sampling, thinking, model, model_name)
    if any(entry.acts for entry in adapters):
        return first, replace(first, adapters=without_any(adapters))
    other = _PREDICTABLE if sampling.temperature >= _BETWEEN else _VARIED
    return first, replace(first, sampling=replace(sampling, temperature=other))


def with_model(
    choices: Sequence[GenerationSettings],
    place: int,
    model: ModelRef,
    name: str,
    own: ModelRef | None,
) -> tuple[GenerationSettings, ...]:
    """The choices when the one at `place` is written by another model.

    Two models are compared with the same values. The adapters belong to the chat's `own` model.
    """
    found = list(choices)
    other = found[1 - place]
    changed = replace(found[place], model=model, model_name=name)
    if model != other.model:
        changed = replace(changed, sampling=other.sampling, thinking=other.thinking)
    if model != own:
        changed = replace(changed, adapters=without_any(changed.adapters or ()))
    found[place] = changed
    return tuple(found)


def without_any(adapters: Sequence[UsedAdapter]) -> tuple[UsedAdapter, ...]:
    """The adapters, all switched off."""
    return tuple(replace(entry, on=False) for entry in adapters)


def mix_name(adapters: Sequence[UsedAdapter], mixes: Mixes) -> str:
    """The name of a mix with the same adapters switched on, at the same strengths; or nothing."""
    acting = _acting(adapters)
    return next((name for name, mix in mixes.items() if acting and _acting(mix) == acting), "")


def with_mix(
    choices: Sequence[GenerationSettings], place: int, mix: Sequence[UsedAdapter]
) -> tuple[GenerationSettings, ...]:
    """The choices when the one at `place` has exactly the adapters of a mix switched on.

    Adapters that are new are added to the others too, switched off: all have the same ones.
    """
    by_path = {entry.path: entry for entry in mix}
    known = {entry.path for entry in choices[place].adapters or ()}
    new = tuple(replace(entry, on=False) for entry in mix if entry.path not in known)
    found = [replace(choice, adapters=(*(choice.adapters or ()), *new)) for choice in choices]
    mixed = tuple(
        by_path.get(entry.path, replace(entry, on=False)) for entry in found[place].adapters or ()
    )
    found[place] = replace(found[place], adapters=mixed)
    return tuple(found)


def _acting(adapters: Sequence[UsedAdapter]) -> dict[Path | None, float]:
    return {entry.path: entry.strength for entry in adapters if entry.acts}
