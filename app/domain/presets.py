"""Presets as JSON, in the store and in files; and what a preset does to the settings of a chat.

A file of a preset is this object, UTF-8:

    {"format": "tokonoma preset", "version": 1,
     "name": text, "description": text,
     "parts": [names of `PARTS`],          what it sets; what is not listed stays as it is
     "settings": {the record of `app.domain.chat_settings`},
     "greeting": text, "greetings": [text]}

Only "format" and "name" are required. A file has no "model", no "adapters" and no
"collections": they are files on one computer.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, cast

from app.domain.chat import Preset
from app.domain.chat_settings import (
    NO_SETTINGS,
    PARTS,
    ChatSettings,
    ResolvedText,
    changed_parts,
    settings_from,
    settings_values,
    with_parts,
)

FORMAT = "tokonoma preset"
VERSION = 1
LOCAL_PARTS = frozenset(("model", "adapters", "collections", "tools"))  # of this computer alone
MOST_CHARACTERS = 1_000_000  # of instructions or a greeting; longer ones fill any model's context
_KEYS = {each.name for each in fields(Preset)} | {"format", "version"}
_MOST_NAME = 200
_MOST_GREETINGS = 100


def apply(preset: Preset, settings: ChatSettings) -> ChatSettings:
    """The settings of a chat after a preset was applied to it."""
    return with_parts(settings, preset.settings, preset.parts)


def begin(preset: Preset | None) -> ChatSettings:
    """The settings of a new chat with a preset; None: without one."""
    return NO_SETTINGS if preset is None else apply(preset, NO_SETTINGS)


def is_in_use(preset: Preset, settings: ChatSettings) -> bool:
    """Whether a chat has the settings of a preset, and those are not the usual ones.

    A preset without a model leaves it to the chat, which has one from its first answer on.
    """
    if preset.settings.model is None:
        settings = replace(settings, model=None)
    return begin(preset) != NO_SETTINGS and apply(preset, settings) == settings


def made(preset: Preset) -> Preset:
    """A preset as it is stored: with a name on one line.

    Settings of parts that it does not set stay with it, for when they are switched on again.
    """
    name = " ".join(preset.name.split())[:_MOST_NAME].rstrip()
    settings = replace(preset.settings, resolved=ResolvedText())
    return replace(preset, name=name, parts=preset.parts & frozenset(PARTS), settings=settings)


def shared(preset: Preset) -> Preset:
    """A preset as it is in a file: with the settings of its parts only, and no paths in them."""
    parts = preset.parts - LOCAL_PARTS
    settings = with_parts(NO_SETTINGS, preset.settings, parts)
    return made(replace(preset, parts=parts, settings=settings, hidden=False, unknown={}))


def preset_from_chat(id: int, name: str, settings: ChatSettings) -> Preset:
    """A preset of all that a chat has changed."""
    parts = changed_parts(settings) - {"model"}  # every answered chat has one
    return made(Preset(id, name, with_parts(NO_SETTINGS, settings, parts), parts))


# --- JSON ----------------------------------------------------------------------------------------


def preset_text(preset: Preset) -> str:
    """The preset without its id and name, as JSON for the store."""
    return json.dumps(_values(preset), ensure_ascii=False)


def preset_of(id: int, name: str, text: str) -> Preset:
    """Parse a stored preset; what has a wrong type is as usual."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    values = cast("dict[str, object]", found) if isinstance(found, dict) else {}
    return _preset_from(id, name, values)


def file_text(preset: Preset) -> str:
    """The preset as a file to share."""
    given = shared(preset)
    values = {"format": FORMAT, "version": VERSION, "name": given.name, **_values(given)}
    return json.dumps(values, ensure_ascii=False, indent=2) + "\n"


def preset_from_file(id: int, found: dict[str, Any]) -> Preset | None:
    """The preset of a parsed file of `file_text`; None if it is none, or has no name."""
    name = found.get("name")
    if found.get("format") != FORMAT or not isinstance(name, str) or not name.strip():
        return None
    return shared(_preset_from(id, name, found))


def _values(preset: Preset) -> dict[str, Any]:
    values: dict[str, Any] = {
        "description": preset.description,
        "parts": [name for name in PARTS if name in preset.parts],
        "settings": settings_values(replace(preset.settings, resolved=ResolvedText())),
        "greeting": preset.greeting,
        "greetings": list(preset.greetings),
        "hidden": preset.hidden,
    }
    always = ("parts", "settings")
    kept = {name: value for name, value in values.items() if value or name in always}
    return {**preset.unknown, **kept}


def _preset_from(id: int, name: str, values: dict[str, object]) -> Preset:
    parts, greetings = _list(values.get("parts")), _list(values.get("greetings"))
    others = [text for text in greetings if isinstance(text, str) and text.strip()]
    return Preset(
        id,
        name,
        replace(settings_from(values.get("settings")), resolved=ResolvedText()),
        frozenset(part for part in parts if isinstance(part, str) and part in PARTS),
        _text(values.get("description")),
        _text(values.get("greeting")),
        tuple(text[:MOST_CHARACTERS] for text in others[:_MOST_GREETINGS]),
        values.get("hidden") is True,
        MappingProxyType({name: value for name, value in values.items() if name not in _KEYS}),
    )


def _list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _text(value: object) -> str:
    return value[:MOST_CHARACTERS] if isinstance(value, str) else ""
