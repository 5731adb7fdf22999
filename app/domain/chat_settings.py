"""Settings of a chat: one record, stored as versioned JSON; a preset is the same record with a name.

What is not set is as in the folder, the model's settings, or the app's. Sampling values replace
those of the settings, of the model, and recommended ones. The format is what every answer has to
be: the engine generates nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from app.domain.model_ref import Local, ModelRef, Remote
from app.settings.samplers import THINKING, USUAL_BUDGET, Thinking, fit_sampling
from app.settings.table import fit
from engine import Constraint, ConstraintKind, ContextPolicy, Sampling

_VERSION = 1  # of the JSON; a new key needs no new version
_ANY_JSON = '{"type": ["object", "array"]}'
_GBNF_MARK = "::="  # between a rule's name and its body; in Lark it is ":"
E = TypeVar("E", bound=Enum)
STRONGEST = 2.0  # largest absolute strength of an adapter; a negative one subtracts it


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


# The constraints of the formats but of free text; a grammar is GBNF if it is not found to be Lark.
KINDS: Mapping[AnswerFormat, ConstraintKind] = {
    AnswerFormat.JSON: ConstraintKind.JSON_SCHEMA,
    AnswerFormat.SCHEMA: ConstraintKind.JSON_SCHEMA,
    AnswerFormat.CHOICES: ConstraintKind.CHOICES,
    AnswerFormat.REGEX: ConstraintKind.REGEX,
    AnswerFormat.GRAMMAR: ConstraintKind.GBNF,
}


@dataclass(frozen=True, slots=True)
class AdapterChoice:
    """One adapter of a chat or a mix; the first of a stack is applied first."""

    path: Path
    on: bool = True
    strength: float = 1.0


@dataclass(frozen=True, slots=True)
class ResolvedText:
    """Instructions whose variables were replaced when the chat's first message was sent.

    They stay as they are, so that the cached context does too, until `source` is another text.
    """

    source: str = ""
    text: str = ""


_NOTHING = MappingProxyType[str, Any]({})


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The settings of one chat; the default sets nothing."""

    model: ModelRef | None = None  # None: the model in use
    instructions: str | None = None  # None: those of the folder, or of the settings
    sampling: Mapping[str, float] = field(default_factory=lambda: _NOTHING)  # changed values
    stop: tuple[str, ...] = ()  # an answer ends before any of these texts
    format: AnswerFormat = AnswerFormat.FREE
    texts: Mapping[str, str] = field(default_factory=lambda: _NOTHING)  # by format
    thinking: Thinking = Thinking.USUAL
    thinking_budget: int = USUAL_BUDGET  # tokens; also kept where it is not in use
    policy: ContextPolicy = ContextPolicy.DROP_OLDEST  # when it outgrows the model's context
    adapters: tuple[AdapterChoice, ...] = ()
    collections: tuple[int, ...] = ()  # ids of those whose passages questions are answered from
    tools: tuple[str, ...] = ()  # ids of those that the model may call
    readable: tuple[Path, ...] = ()  # files and folders that tools may read
    writable: tuple[Path, ...] = ()  # folders that tools may read, and write files into
    resolved: ResolvedText = ResolvedText()
    unknown: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)  # keys of a newer version

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

    def with_value(self, name: str, value: float | None) -> ChatSettings:
        """With another sampling value; None: the usual one."""
        values = {key: kept for key, kept in self.sampling.items() if key != name}
        if value is not None:
            values[name] = value
        return replace(self, sampling=MappingProxyType(values))

    def with_format(self, format: AnswerFormat, text: str | None = None) -> ChatSettings:
        """With another format, and another description of it if that is given."""
        texts = dict(self.texts)
        if text is not None:
            texts[format.value] = text
        return replace(self, format=format, texts=MappingProxyType(texts))


NO_SETTINGS = ChatSettings()
# What a preset may have, and the fields of each part.
PARTS: Mapping[str, tuple[str, ...]] = {
    "model": ("model",),
    "instructions": ("instructions",),
    "sampling": ("sampling",),
    "stop": ("stop",),
    "format": ("format", "texts"),
    "thinking": ("thinking", "thinking_budget"),
    "policy": ("policy",),
    "adapters": ("adapters",),
    "collections": ("collections",),
    "tools": ("tools", "readable", "writable"),
}


def with_parts(settings: ChatSettings, given: ChatSettings, parts: frozenset[str]) -> ChatSettings:
    """Settings with these parts taken from others."""
    names = [name for part in parts for name in PARTS.get(part, ())]
    return replace(settings, **{name: getattr(given, name) for name in names})


def changed_parts(settings: ChatSettings, usual: ChatSettings = NO_SETTINGS) -> frozenset[str]:
    """The parts in which settings differ from others."""
    return frozenset(
        part
        for part, names in PARTS.items()
        if any(getattr(settings, name) != getattr(usual, name) for name in names)
    )


# --- JSON ----------------------------------------------------------------------------------------


def settings_text(settings: ChatSettings) -> str:
    """The record as JSON, without what is as usual; "" where nothing is set."""
    values = settings_values(settings)
    return json.dumps({"version": _VERSION, **values}, ensure_ascii=False) if values else ""


def settings_values(settings: ChatSettings) -> dict[str, Any]:
    """The values of the record that are not as usual, as JSON types."""
    values: dict[str, Any] = {
        "model": _model_values(settings.model),
        "instructions": settings.instructions,
        "sampling": dict(settings.sampling) or None,
        "stop": list(settings.stop) or None,
        "format": _unless(settings.format.value, AnswerFormat.FREE.value),
        "texts": {name: text for name, text in settings.texts.items() if text} or None,
        "thinking": _unless(settings.thinking.value, Thinking.USUAL.value),
        "thinking_budget": _unless(settings.thinking_budget, USUAL_BUDGET),
        "policy": _unless(settings.policy.value, ContextPolicy.DROP_OLDEST.value),
        "adapters": [[str(use.path), use.on, use.strength] for use in settings.adapters] or None,
        "collections": list(settings.collections) or None,
        "tools": list(settings.tools) or None,
        "readable": [str(path) for path in settings.readable] or None,
        "writable": [str(path) for path in settings.writable] or None,
        "resolved": [settings.resolved.source, settings.resolved.text]
        if settings.resolved != ResolvedText()
        else None,
    }
    kept = {name: value for name, value in values.items() if value is not None}
    return {**settings.unknown, **kept}


@lru_cache(1024)
def settings_of(text: str) -> ChatSettings:
    """Parse the record; what has a wrong type or is out of range is as usual."""
    if not text:
        return NO_SETTINGS
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return NO_SETTINGS
    return settings_from(found)


def settings_from(found: object) -> ChatSettings:
    """The record of a parsed JSON value, checked as by `settings_of`."""
    if not isinstance(found, dict):
        return NO_SETTINGS
    stored = cast("dict[str, object]", found)
    known = {each.name for each in fields(ChatSettings)} | {"version"}
    instructions, budget = stored.get("instructions"), stored.get("thinking_budget")
    fitting = fit(budget, USUAL_BUDGET, THINKING["thinking_budget"])
    return ChatSettings(
        model=_model_of(stored.get("model")),
        instructions=instructions if isinstance(instructions, str) else None,
        sampling=MappingProxyType(fit_sampling(stored.get("sampling"))),
        stop=_strings(stored.get("stop")),
        format=_choice(AnswerFormat, stored.get("format"), AnswerFormat.FREE),
        texts=MappingProxyType(_texts(stored.get("texts"))),
        thinking=_choice(Thinking, stored.get("thinking"), Thinking.USUAL),
        thinking_budget=fitting if isinstance(fitting, int) else USUAL_BUDGET,
        policy=_choice(ContextPolicy, stored.get("policy"), ContextPolicy.DROP_OLDEST),
        adapters=tuple(adapters_from(stored.get("adapters"))),
        collections=_ids(stored.get("collections")),
        tools=tuple(dict.fromkeys(_strings(stored.get("tools")))),
        readable=tuple(map(Path, _strings(stored.get("readable")))),
        writable=tuple(map(Path, _strings(stored.get("writable")))),
        resolved=_resolved(stored.get("resolved")),
        unknown=MappingProxyType({name: stored[name] for name in stored if name not in known}),
    )


def adapters_from(stored: object) -> list[AdapterChoice]:
    """A stored stack; entries of a wrong type are skipped, strengths limited to their range."""
    found: list[AdapterChoice] = []
    for row in _list(stored):
        match row:
            case [str(path), bool(on), int() | float() as strength] if (
                path and strength == strength
            ):
                within = min(max(float(strength), -STRONGEST), STRONGEST)
                found.append(AdapterChoice(Path(path), on, within))
            case _:
                pass
    return found


def _unless(value: Any, usual: Any) -> Any:
    return None if value == usual else value


def _choice(kind: type[E], stored: object, usual: E) -> E:
    return next((each for each in kind if each.value == stored), usual)


def _list(stored: object) -> list[object]:
    return cast("list[object]", stored) if isinstance(stored, list) else []


def _strings(stored: object) -> tuple[str, ...]:
    return tuple(text for text in _list(stored) if isinstance(text, str) and text)


def without_tools(settings: ChatSettings) -> ChatSettings:
    """Settings that came from elsewhere, which must open nothing of this computer to a model."""
    return replace(settings, tools=(), readable=(), writable=())


def _ids(stored: object) -> tuple[int, ...]:
    whole = (each for each in _list(stored) if isinstance(each, int) and each is not True)
    return tuple(dict.fromkeys(each for each in whole if each > 0))


def _model_values(model: ModelRef | None) -> dict[str, str] | None:
    match model:
        case None:
            return None
        case Local(path):
            return {"path": str(path)}
        case Remote(connection, id):
            return {"connection": connection, "id": id}


def _model_of(stored: object) -> ModelRef | None:
    match stored:
        case {"path": str(path)} if path:
            return Local(Path(path))
        case {"connection": str(connection), "id": str(id)}:
            return Remote(connection, id)
        case _:
            return None


def _resolved(stored: object) -> ResolvedText:
    match stored:
        case [str(source), str(text)]:
            return ResolvedText(source, text)
        case _:
            return ResolvedText()


def _texts(stored: object) -> dict[str, str]:
    if not isinstance(stored, dict):
        return {}
    texts = cast("dict[str, object]", stored)
    known = [kind.value for kind in WITH_TEXT]
    return {name: text for name, text in texts.items() if name in known and isinstance(text, str)}
