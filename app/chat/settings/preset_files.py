"""Reads and writes presets as files: of this app, of LM Studio, and character cards.

The content tells the kinds apart. LM Studio has two: `*.preset.json` with a list of fields, and
older files with `inference_params`; fields that this app has no setting for are not imported.
`character_cards` reads the cards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from app.domain.character_cards import CardError, card_preset, is_card, read_card
from app.domain.chat import Preset
from app.domain.chat_settings import AnswerFormat, ChatSettings, changed_parts
from app.domain.presets import file_text, made, preset_from_file
from app.settings.samplers import fit_sampling
from app.system import json_file
from app.system.translation import tr
from engine import ContextPolicy

LARGEST_JSON = 16 << 20  # bytes; cards with a large lorebook have about one megabyte
_PNG = b"\x89PNG\r\n\x1a\n"
_FIELDS = {
    "llm.prediction.temperature": "temperature",
    "llm.prediction.topKSampling": "top_k",
    "llm.prediction.topPSampling": "top_p",
    "llm.prediction.minPSampling": "min_p",
    "llm.prediction.repeatPenalty": "repeat_penalty",
    "llm.prediction.presencePenalty": "presence_penalty",
    "llm.prediction.frequencyPenalty": "frequency_penalty",
    "llm.prediction.seed": "seed",
}
_OFF = {
    "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}  # fmt: skip  # what an unticked box of LM Studio means
_OLD_FIELDS = {
    "temp": "temperature", "temperature": "temperature", "top_k": "top_k", "top_p": "top_p",
    "min_p": "min_p", "repeat_penalty": "repeat_penalty", "seed": "seed",
    "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}  # fmt: skip
_POLICIES = {"stopAtLimit": ContextPolicy.STOP, "rollingWindow": ContextPolicy.DROP_OLDEST}


class PresetFileError(Exception):
    """A file cannot be read or written: `str(error)` says which and why in one sentence."""


@dataclass(frozen=True, slots=True)
class FoundPreset:
    """A preset that was read from a file."""

    preset: Preset  # its id is 0
    note: str = ""  # names what was not imported, in one sentence; "": all was


def may_be_preset(path: Path) -> bool:
    """Whether the first bytes of a file are of JSON or a PNG picture."""
    start = _start(path)
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    return start.startswith(_PNG) or text.startswith(b"{")


def is_png(path: Path) -> bool:
    """Whether the first bytes of a file are those of a PNG picture."""
    return _start(path).startswith(_PNG)


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(256)
    except OSError:
        return b""


def read_preset(path: Path) -> FoundPreset | None:
    """Read the preset of a file; None if it has none. Raises PresetFileError; blocks."""
    try:
        with path.open("rb") as file:
            if file.read(len(_PNG)) == _PNG:
                found = read_card(file)
            else:
                file.seek(0)
                found = _parsed(file.read(LARGEST_JSON + 1), path)
    except OSError as error:
        reason = error.strerror or error
        sentence = tr("{file} cannot be read: {reason}.", file=path.name, reason=reason)
        raise PresetFileError(sentence) from error
    except CardError as error:
        raise PresetFileError(f"{path.name}: {error}") from error
    if found is None:
        return None
    stem = path.stem.removesuffix(".preset")
    if is_card(found):
        preset, note = card_preset(found, stem)
        return FoundPreset(made(preset), note)
    preset = preset_from_file(0, found) or _lm_studio(found, stem) or _old_lm_studio(found, stem)
    return None if preset is None else FoundPreset(preset)


def write_preset(preset: Preset, path: Path) -> None:
    """Write a preset without its model and adapters: they are paths of this computer.

    Raises PresetFileError; blocks.
    """
    try:
        json_file.replace_file(path, file_text(preset).encode("utf-8", "replace"))
    except OSError as error:
        reason = error.strerror or error
        sentence = tr("{path} could not be written: {reason}.", path=path, reason=reason)
        raise PresetFileError(sentence) from error


def _parsed(content: bytes, path: Path) -> dict[str, Any] | None:
    """The JSON object of a file, or None if it is something else."""
    if not content.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return None
    if len(content) > LARGEST_JSON:
        raise PresetFileError(tr("{file} is too large for a preset.", file=path.name))
    try:
        found: object = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise PresetFileError(
            tr("{file} is damaged: its content cannot be read.", file=path.name)
        ) from error
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


# --- LM Studio ------------------------------------------------------------------------------------


def _lm_studio(found: dict[str, Any], stem: str) -> Preset | None:
    match found:
        case {"operation": {"fields": list()}}:
            fields = cast("list[object]", found["operation"]["fields"])
        case _:
            return None
    values = dict(_key_values(fields))
    sampling = {
        name: value
        for key, name in _FIELDS.items()
        if key in values and (value := _ticked(values[key], _OFF.get(name))) is not None
    }
    settings = _settings(
        values.get("llm.prediction.systemPrompt"),
        sampling,
        values.get("llm.prediction.stopStrings"),
    )
    policy = _POLICIES.get(str(values.get("llm.prediction.contextOverflowPolicy")))
    if policy is not None:
        settings = replace(settings, policy=policy)
    match values.get("llm.prediction.structured"):
        case {"type": "json", "jsonSchema": dict()} as structured:
            schema = cast("dict[str, object]", structured)["jsonSchema"]
            text = json.dumps(schema, ensure_ascii=False, indent=2)
            settings = settings.with_format(AnswerFormat.SCHEMA, text)
        case _:
            pass
    return _preset(found.get("name"), stem, settings)


def _old_lm_studio(found: dict[str, Any], stem: str) -> Preset | None:
    inference = found.get("inference_params")
    if not isinstance(inference, dict):
        return None
    values = cast("dict[str, object]", inference)
    sampling = {name: values[key] for key, name in _OLD_FIELDS.items() if key in values}
    settings = _settings(values.get("pre_prompt"), sampling, values.get("antiprompt"))
    return _preset(found.get("name"), stem, settings)


def _key_values(fields: Iterable[object]) -> Iterable[tuple[str, object]]:
    for field in fields:
        values = cast("dict[str, object]", field) if isinstance(field, dict) else {}
        key = values.get("key")
        if isinstance(key, str) and "value" in values:
            yield key, values["value"]


def _ticked(value: object, off: float | None) -> object:
    """The value of a field; `off` if it has a box that is not ticked."""
    match value:
        case {"checked": bool(ticked)}:
            return cast("dict[str, object]", value).get("value") if ticked else off
        case _:
            return value


def _settings(text: object, sampling: Mapping[str, object], stop: object) -> ChatSettings:
    values = {name: _whole(value) for name, value in sampling.items()}
    stops = cast("list[object]", stop) if isinstance(stop, list) else []
    return ChatSettings(
        instructions=text if isinstance(text, str) and text.strip() else None,
        sampling=MappingProxyType(fit_sampling(values)),
        stop=tuple(each for each in stops if isinstance(each, str) and each),
    )


def _whole(value: object) -> object:
    """A whole number as int: other programs also write 40 as 40.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _preset(name: object, stem: str, settings: ChatSettings) -> Preset | None:
    named = name if isinstance(name, str) and name.strip() else stem
    return made(Preset(0, named, settings, changed_parts(settings)))
