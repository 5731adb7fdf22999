"""What two compared answers were written with, in the few words in which they differ."""

from __future__ import annotations

from collections.abc import Sequence

from app.domain.generation_settings import GenerationSettings, UsedAdapter
from app.domain.message import AdapterMark, Message
from app.system.translation import number, tr
from engine import Sampling

_THINKING = {"on": True, "off": False}  # as in the details of an answer


def settings_of(message: Message) -> GenerationSettings:
    """What an answer was written with."""
    made = message.details
    known = None
    if made is not None:
        known = Sampling(
            temperature=made.temperature,
            top_k=made.top_k,
            top_p=made.top_p,
            min_p=made.min_p,
            repeat_penalty=made.repeat_penalty,
        )
    thinking = _THINKING.get(made.thinking) if made else None
    name = (made.model if made else "") or message.model
    format = made.format if made else ""
    used = _named(message.adapters)
    return GenerationSettings(used, known, thinking, model_name=name, model_format=format)


def differences(first: GenerationSettings, second: GenerationSettings) -> tuple[str, str]:
    """A few words for each of two answers; their place if nothing known is different."""
    ones: list[str] = []
    others: list[str] = []
    if (models := _models(first, second)) is not None:
        ones.append(models[0])
        others.append(models[1])
    used, also = _acting(first), _acting(second)
    if used is not None and also is not None and used != also:
        ones.append(_adapters(used))
        others.append(_adapters(also))
    if first.sampling is not None and second.sampling is not None:
        before, after = _sampling(first.sampling), _sampling(second.sampling)
        for one, other in zip(before, after, strict=True):
            if one != other:
                ones.append(one)
                others.append(other)
    if first.thinking is not second.thinking:
        ones.append(_thinking(first.thinking))
        others.append(_thinking(second.thinking))
    if not ones:
        return tr("First answer"), tr("Second answer")
    return " · ".join(ones), " · ".join(others)


def _named(marks: Sequence[AdapterMark]) -> tuple[UsedAdapter, ...]:
    return tuple(UsedAdapter(mark.name, mark.strength) for mark in marks)


def _models(first: GenerationSettings, second: GenerationSettings) -> tuple[str, str] | None:
    """The names of two models or, of one model, its formats; None if they are not known to differ."""
    if not first.model_name or not second.model_name:
        return None
    if first.model_name != second.model_name:
        return first.model_name, second.model_name
    formats = first.model_format, second.model_format
    return formats if all(formats) and formats[0] != formats[1] else None


def _acting(settings: GenerationSettings) -> tuple[tuple[str, float], ...] | None:
    acting = settings.acting
    return None if acting is None else tuple((each.name, each.strength) for each in acting)


def _adapters(adapters: Sequence[tuple[str, float]]) -> str:
    if not adapters:
        return tr("Without adapters")
    return " + ".join(
        name
        if strength == 1
        else tr("{name} at {strength}", name=name, strength=number(strength, 2))
        for name, strength in adapters
    )


def _sampling(sampling: Sampling) -> tuple[str, ...]:
    return (
        tr("Temperature {value}", value=sampling.temperature),
        tr("Top-k {value}", value=sampling.top_k) if sampling.top_k else tr("Top-k off"),
        tr("Top-p {value}", value=sampling.top_p),
        tr("Min-p {value}", value=sampling.min_p),
        tr("Repeat penalty {value}", value=sampling.repeat_penalty),
    )


def _thinking(thinking: bool | None) -> str:
    if thinking is None:
        return tr("Thinking as usual")
    return tr("With thinking") if thinking else tr("Without thinking")
