"""Answer options: what one conversation asks for apart from the settings, as values and as JSON.

Sampling values replace those of the settings, of the model, and recommended ones. The format is
what every answer has to be: the engine generates nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, cast

from app.settings.table import SETTINGS, Setting, fit
from engine import Constraint, ConstraintKind, Sampling

_USUAL = ("temperature", "top_p", "top_k", "min_p", "repeat_penalty")
_ANY_JSON = '{"type": ["object", "array"]}'
_GBNF_MARK = "::="  # between a rule's name and its body; in Lark it is ":"

_MORE = {
    "seed": Setting(
        "Seed", "The same seed and question give the same answer.", low=-1, high=2**32 - 1,
        named=(-1, "Random"),
    ),
    "typical_p": Setting(
        "Typical-p", "Prefer tokens about as surprising as usual.", low=0.01, high=1, step=0.01,
        named=(1, "Off"),
    ),
    "top_n_sigma": Setting(
        "Top-n-sigma", "Keep tokens whose scores are this close to the best, in standard "
        "deviations.", low=0, high=10, step=0.1, named=(0, "Off"),
    ),
    "temperature_range": Setting(
        "Dynamic temperature", "Vary the temperature by up to this much: more where the model is "
        "unsure.", low=0, high=2, step=0.05, named=(0, "Off"),
    ),
    "xtc_probability": Setting(
        "XTC probability", "How often the likeliest words are left out, for unusual texts.", low=0,
        high=1, step=0.05, named=(0, "Off"),
    ),
    "xtc_threshold": Setting(
        "XTC threshold", "Only words likelier than this are left out.", low=0, high=0.5, step=0.01,
    ),
    "frequency_penalty": Setting(
        "Frequency penalty", "Words become less likely with each use.", low=-2, high=2, step=0.05,
        named=(0, "Off"),
    ),
    "presence_penalty": Setting(
        "Presence penalty", "Words become less likely once used.", low=-2, high=2, step=0.05,
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
        "Mirostat", "Steers to an even surprise, instead of top-k, top-p, min-p and typical-p.",
        choices=("0", "1", "2"), words=("Off", "1", "2"),
    ),
    "mirostat_tau": Setting(
        "Mirostat target", "The surprise it steers to.", "bits", low=0.1, high=20, step=0.1,
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


class AnswerFormat(Enum):
    """What an answer has to be."""

    FREE = "free"  # anything
    JSON = "json"  # a JSON object or list
    SCHEMA = "schema"  # JSON that a schema describes
    CHOICES = "choices"  # one of the lines
    REGEX = "regex"
    GRAMMAR = "grammar"  # GBNF or Lark


WITH_TEXT = (
    AnswerFormat.SCHEMA,
    AnswerFormat.CHOICES,
    AnswerFormat.REGEX,
    AnswerFormat.GRAMMAR,
)  # that the user describes


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """The options of one conversation."""

    sampling: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # changed
    format: AnswerFormat = AnswerFormat.FREE
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # by format
    thinking: Thinking = Thinking.USUAL
    thinking_budget: int = USUAL_BUDGET  # tokens; also kept where it is not in use

    @property
    def text(self) -> str:
        """The description of the format in use."""
        return self.texts.get(self.format.value, "")

    @property
    def constraint(self) -> Constraint | None:
        """The constraint for the engine; None: free text, or a format whose text field is empty."""
        text = self.text
        match self.format:
            case AnswerFormat.FREE:
                return None
            case AnswerFormat.JSON:
                return Constraint(ConstraintKind.JSON_SCHEMA, _ANY_JSON)
            case _ if not text.strip():
                return None
            case AnswerFormat.SCHEMA:
                return Constraint(ConstraintKind.JSON_SCHEMA, text)
            case AnswerFormat.CHOICES:
                lines = dict.fromkeys(line.strip() for line in text.splitlines() if line.strip())
                return Constraint(ConstraintKind.CHOICES, json.dumps(list(lines)))
            case AnswerFormat.REGEX:
                return Constraint(ConstraintKind.REGEX, text.strip("\r\n"))
            case AnswerFormat.GRAMMAR:
                gbnf = _GBNF_MARK in text
                return Constraint(ConstraintKind.GBNF if gbnf else ConstraintKind.LARK, text)

    def thinks(self, usual: bool | None) -> bool | None:
        """Whether the model thinks first; `usual` is by the settings, None leaves it to the model."""
        return usual if self.thinking is Thinking.USUAL else self.thinking is not Thinking.OFF

    @property
    def budget(self) -> int | None:
        """The most tokens of thoughts; None: no limit."""
        return self.thinking_budget if self.thinking is Thinking.BUDGET else None

    def applied(self, sampling: Sampling) -> Sampling:
        """The sampling of an answer: the changed values in place of these."""
        return replace(sampling, **dict(self.sampling))

    def with_value(self, name: str, value: float | None) -> AnswerOptions:
        """With another sampling value; None: the usual one."""
        values = {key: kept for key, kept in self.sampling.items() if key != name}
        if value is not None:
            values[name] = value
        return replace(self, sampling=MappingProxyType(values))

    def with_format(self, format: AnswerFormat, text: str | None = None) -> AnswerOptions:
        """With another format, and another description of it if that is given."""
        texts = dict(self.texts)
        if text is not None:
            texts[format.value] = text
        return replace(self, format=format, texts=MappingProxyType(texts))


AS_USUAL = AnswerOptions()


def usual_value(sampling: Sampling, name: str) -> float:
    """The value of a sampler where it is not changed."""
    value: float = getattr(sampling, name)
    return value


def is_whole(name: str) -> bool:
    """Whether a sampler's value is an integer."""
    return isinstance(getattr(_DEFAULTS, name), int)


def options_text(options: AnswerOptions) -> str:
    """The options as JSON; "" where nothing is changed."""
    texts = {name: text for name, text in options.texts.items() if text}
    kept = replace(options, texts=MappingProxyType(texts))
    if kept == AS_USUAL:
        return ""
    values: dict[str, Any] = {
        "sampling": dict(options.sampling),
        "format": options.format.value,
        "texts": texts,
    }
    if (options.thinking, options.thinking_budget) != (Thinking.USUAL, USUAL_BUDGET):
        values["thinking"] = options.thinking.value
        values["thinking_budget"] = options.thinking_budget
    return json.dumps(values)


def options_of(text: str) -> AnswerOptions:
    """Parse the options; what has a wrong type or is out of range is as usual."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return AS_USUAL
    if not isinstance(found, dict):
        return AS_USUAL
    stored = cast("dict[str, object]", found)
    formats = {kind.value: kind for kind in AnswerFormat}
    ways = {one.value: one for one in Thinking}
    format, way = stored.get("format"), stored.get("thinking")
    budget = fit(stored.get("thinking_budget"), USUAL_BUDGET, THINKING["thinking_budget"])
    return AnswerOptions(
        MappingProxyType(_values(stored.get("sampling"))),
        formats.get(format, AnswerFormat.FREE) if isinstance(format, str) else AnswerFormat.FREE,
        MappingProxyType(_texts(stored.get("texts"))),
        ways.get(way, Thinking.USUAL) if isinstance(way, str) else Thinking.USUAL,
        budget if isinstance(budget, int) else USUAL_BUDGET,
    )


def _values(stored: object) -> dict[str, float]:
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


def _texts(stored: object) -> dict[str, str]:
    if not isinstance(stored, dict):
        return {}
    texts = cast("dict[str, object]", stored)
    known = [kind.value for kind in WITH_TEXT]
    return {name: text for name, text in texts.items() if name in known and isinstance(text, str)}
