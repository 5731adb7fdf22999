"""Per-model settings: values that override the app's settings for one model.

Stored by the model's path, which is what the user sees and may move. Ranges come from the table of
settings, so a value is validated by one rule in both places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from app.settings.table import SETTINGS, Settings
from app.system import json_file, paths
from engine import DEFAULT_CACHE, CacheType


@dataclass(frozen=True, slots=True)
class ModelDefaults:
    """Settings of one model; None uses the app's settings."""

    context: int | None = None  # tokens; 0: the usual length on this computer
    cache: CacheType | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    draft: Path | None = None  # a model that drafts for it; None: none
    memory_gb: float | None = None  # 0: what is free
    runs_on: str | None = None  # a choice of that setting
    preset: int | None = None  # id of the one that new chats begin with while the model is in use

    @property
    def device(self) -> str:
        """What it runs on, as the engine is asked."""
        return "" if self.runs_on in (None, "auto") else self.runs_on

    @property
    def memory_bytes(self) -> int:
        """The most memory that it may take; 0: what is free."""
        return round((self.memory_gb or 0.0) * 1e9)


AS_IN_SETTINGS = ModelDefaults()
_WHOLE = ("context", "top_k")
NUMBERS = ("context", "memory_gb", "temperature", "top_k", "top_p", "min_p", "repeat_penalty")


def file() -> Path:
    """Path of the file with the settings of all models."""
    return paths.config() / "models.json"


def load(path: Path) -> dict[Path, ModelDefaults]:
    """Read the settings of every model; values outside their range are skipped."""
    found = {Path(name): _fit(values) for name, values in _stored_models(path).items()}
    return {model: values for model, values in found.items() if values != AS_IN_SETTINGS}


def save(path: Path, defaults: Mapping[Path, ModelDefaults]) -> None:
    """Write the settings of every model; what only a newer version knows of them is kept.

    Raises `JsonFileError`.
    """
    kept = {
        model: more for model, values in _stored_models(path).items() if (more := _more(values))
    }
    for model, values in defaults.items():
        if values != AS_IN_SETTINGS:
            kept[str(model)] = kept.get(str(model), {}) | _plain(values)
    json_file.write(path, {"defaults": kept})


def applied(settings: Settings, defaults: ModelDefaults) -> Settings:
    """The app's settings, overridden by the values that a model has.

    The cache type is set if the settings have a row of that name.
    """
    known = {field.name for field in fields(Settings)}
    values = {name: value for name, value in _plain(defaults).items() if name in known}
    return replace(settings, **values)


def in_settings(settings: Settings, own_cache: CacheType | None = None) -> ModelDefaults:
    """The effective values of a model under these settings, every one set."""
    values: dict[str, Any] = asdict(settings)
    cache = values.get("cache")
    known = cache in [kind.value for kind in CacheType]
    numbers = {name: values[name] for name in NUMBERS}
    return ModelDefaults(
        cache=own_cache or (CacheType(cache) if known else DEFAULT_CACHE),
        runs_on=settings.runs_on,
        **numbers,
    )


def fits(name: str, value: float) -> bool:
    """Whether a number is in the range of its setting."""
    return SETTINGS[name].low <= value <= SETTINGS[name].high


def _stored_models(path: Path) -> dict[str, object]:
    """The values of every model as they are in the file, not validated."""
    stored: object = json_file.read(path).get("defaults")
    return cast("dict[str, object]", stored) if isinstance(stored, dict) else {}


def _more(stored: object) -> dict[str, Any]:
    """The values of one model that this version does not know."""
    values = cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}
    return {name: value for name, value in values.items() if _fit({name: value}) == AS_IN_SETTINGS}


def _plain(values: ModelDefaults) -> dict[str, Any]:
    """The values that are set, as JSON types."""
    return {name: _stored(value) for name, value in asdict(values).items() if value is not None}


def _stored(value: object) -> object:
    """A value as a JSON type."""
    if isinstance(value, CacheType):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _fit(stored: object) -> ModelDefaults:
    """Validate one model's values; those of a wrong type or range are skipped."""
    if not isinstance(stored, dict):
        return AS_IN_SETTINGS
    values = cast("dict[str, object]", stored)
    fitting: dict[str, Any] = {}
    for field in fields(ModelDefaults):
        value = values.get(field.name)
        if field.name == "cache":
            if value in [kind.value for kind in CacheType]:
                fitting["cache"] = CacheType(value)
        elif field.name == "runs_on":
            if value in SETTINGS["runs_on"].choices:
                fitting["runs_on"] = value
        elif field.name == "preset":
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                fitting["preset"] = value
        elif field.name == "draft":
            if isinstance(value, str) and value:
                fitting["draft"] = Path(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            whole = field.name in _WHOLE
            if fits(field.name, value) and (not whole or value == int(value)):
                fitting[field.name] = int(value) if whole else float(value)
    return ModelDefaults(**fitting)
