"""The settings: one table of name, type, default, unit, help and range; how they load and save.

The table is the `Settings` class itself, so a setting exists once. A value that does not fit its row
becomes the default; keys of a newer version stay in the file, and a file that is no JSON is set aside.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

from engine import Sampling

_log = logging.getLogger(__name__)
_ENGINE = Sampling()


@dataclass(frozen=True, slots=True)
class Setting:
    """What the preferences show for one setting; a setting without a label is not shown."""

    label: str = ""
    help: str = ""
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its default: the table."""

    theme: Annotated[
        str,
        Setting(
            "Theme",
            "Follow the system, or always use one look.",
            choices=("system", "light", "dark", "high contrast"),
        ),
    ] = "system"
    last_model: Annotated[str, Setting()] = ""  # path; empty: the starter model
    sidebar_open: Annotated[bool, Setting()] = True
    window_geometry: Annotated[str, Setting()] = ""  # base64
    system_prompt: Annotated[
        str, Setting("Instructions", "Sent to the model before every conversation.")
    ] = ""
    temperature: Annotated[
        float,
        Setting(
            "Temperature",
            "How freely words are chosen; 0 always takes the likeliest.",
            low=0,
            high=2,
        ),
    ] = _ENGINE.temperature
    top_k: Annotated[
        int,
        Setting("Top k", "Choose among this many likeliest tokens; 0 is all.", "tokens", 0, 1000),
    ] = _ENGINE.top_k
    top_p: Annotated[
        float,
        Setting(
            "Top p",
            "Choose among the likeliest tokens that together have this share; 1 is all.",
            low=0.01,
            high=1,
        ),
    ] = _ENGINE.top_p
    min_p: Annotated[
        float,
        Setting(
            "Min p",
            "Leave out tokens less likely than this share of the likeliest; 0 leaves out none.",
            low=0,
            high=1,
        ),
    ] = _ENGINE.min_p
    repeat_penalty: Annotated[
        float,
        Setting(
            "Repeat penalty",
            "Makes words already used less likely; 1 is off.",
            low=0.5,
            high=2,
        ),
    ] = 1.1  # a small model left at 1 repeats whole lines of a poem for ever
    max_tokens: Annotated[
        int,
        Setting(
            "Longest answer",
            "Stop after this many tokens; 0 lets the model end by itself.",
            "tokens",
            0,
            1_000_000,
        ),
    ] = 0
    context: Annotated[
        int,
        Setting(
            "Context",
            "How much of a conversation the model sees; 0 is as much as fits in memory. "
            "Used when a model is loaded.",
            "tokens",
            0,
            10_000_000,
        ),
    ] = 0
    threads: Annotated[
        int,
        Setting(
            "Threads",
            "Processor cores to use; 0 is all of them. Used when a model is loaded.",
            "",
            0,
            1024,
        ),
    ] = 0


SETTINGS: dict[str, Setting] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Settings, include_extras=True).items()
}


class SettingsError(Exception):
    """The settings could not be saved: `str(error)` says why, `remedy` what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def sampling(settings: Settings) -> Sampling:
    """How the engine draws tokens under these settings."""
    return Sampling(
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        repeat_penalty=settings.repeat_penalty,
    )


def load(path: Path) -> Settings:
    """The settings in a file; what is missing or does not fit is the default, with a log line."""
    stored = _read(path)
    fitting: dict[str, Any] = {}
    for name, default in asdict(Settings()).items():
        if name not in stored:
            continue
        value = _fit(stored[name], default, SETTINGS[name])
        if value is None:  # the value itself stays out of the log: it may be the user's text
            _log.warning("setting %s does not fit, its default is used", name)
        else:
            fitting[name] = value
    return Settings(**fitting)


def save(path: Path, settings: Settings) -> None:
    """Write the settings so that a crash leaves the old file or the new one, never half of one.

    Raises `SettingsError`. Keys this version does not know stay in the file.
    """
    values = {**_read(path), **asdict(settings)}
    text = json.dumps(values, indent=2, sort_keys=True) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, text.encode("ascii"))
    except OSError as error:
        raise SettingsError(
            f"The settings could not be saved to {path}: {error.strerror or error}.",
            "Check that the folder can be written to and that the disk is not full.",
        ) from error


def _fit(value: object, default: object, setting: Setting) -> object | None:
    """The value in the type of its default, or None when type, range or choices forbid it."""
    if isinstance(default, bool) or isinstance(value, bool):
        return value if isinstance(value, bool) and isinstance(default, bool) else None
    if isinstance(default, str):
        if not isinstance(value, str) or (setting.choices and value not in setting.choices):
            return None
        return value
    if not isinstance(value, int | float) or not setting.low <= value <= setting.high:
        return None  # NaN is in no range either
    if isinstance(default, float):
        return float(value)
    return int(value) if value == int(value) else None


def _read(path: Path) -> dict[str, Any]:
    """The JSON object in a file; a file that holds none is set aside, and nothing is returned."""
    try:
        stored: object = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        _log.warning("settings cannot be read: %s", error.strerror)
        return {}
    except (ValueError, RecursionError):
        stored = None
    if isinstance(stored, dict):
        return cast("dict[str, Any]", stored)
    aside = path.with_name(f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    try:
        os.replace(path, aside)
        _log.warning("settings are damaged, the file was set aside")
    except OSError as error:
        _log.warning("settings are damaged and cannot be set aside: %s", error.strerror)
    return {}


def _replace(path: Path, content: bytes) -> None:
    """Write a file under another name, bring it to the disk, then give it its name."""
    number, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if sys.platform != "win32":  # the new name itself is data of the folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
