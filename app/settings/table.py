"""The table of settings (name, type, default, unit, help, range), and loading and saving them.

The table is the `Settings` class, so each setting is defined once. An invalid value becomes the
default; keys of a newer version stay in the file; a file that is not JSON is renamed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from app.net.http import WebError, check_address, parse_proxy
from app.net.hub import HUB
from app.system import json_file
from engine import DEFAULT_CACHE, CacheType, Sampling

_log = logging.getLogger(__name__)
_ENGINE = Sampling()
_THINKING = {"auto": None, "on": True, "off": False}
GROUPS = ("Look", "Answers", "Model", "Downloads", "Storage")  # in the order they are shown


@dataclass(frozen=True, slots=True)
class Setting:
    """How the settings page shows a setting; one without a label is not shown."""

    label: str = ""
    help: str = ""
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # displayed, one for each choice; empty: the choices
    exact: str = ""  # the exact term, for the tooltip
    group: str = ""  # one of GROUPS
    step: float = 1.0  # of the arrow keys
    lines: int = 1  # height of a text field
    at_load: bool = False  # takes effect when a model is loaded
    check: Callable[[str], str] | None = None  # validates a text; returns an error sentence or ""


def wrong_endpoint(text: str) -> str:
    """Validate the address of a hub; returns an error sentence, or "" when valid."""
    try:
        parts = check_address(text)
    except WebError as error:
        return f"{error} Write it as https://server."
    return "Leave out what follows the ? or the #." if parts.query or parts.fragment else ""


def wrong_proxy(text: str) -> str:
    """Validate the address of a proxy; returns an error sentence, or "" when valid or empty."""
    try:
        if text:
            parse_proxy(text)
    except WebError as error:
        return f"{error} {error.remedy}".replace(" in the settings", "")
    return ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The table: every setting with its default."""

    theme: Annotated[
        str,
        Setting(
            "Theme",
            "Follow the system, or always use one look.",
            choices=("system", "light", "dark", "high contrast"),
            words=("System", "Light", "Dark", "High contrast"),
            group="Look",
        ),
    ] = "system"
    last_model: Annotated[str, Setting()] = ""  # path; empty: the starter model
    sidebar_open: Annotated[bool, Setting()] = True
    window_geometry: Annotated[str, Setting()] = ""  # base64
    system_prompt: Annotated[
        str,
        Setting(
            "Instructions",
            "Sent to the model before every conversation.",
            exact="System prompt",
            group="Answers",
            lines=5,
        ),
    ] = ""
    temperature: Annotated[
        float,
        Setting(
            "Temperature",
            "How freely words are chosen; 0 always takes the likeliest.",
            low=0,
            high=2,
            group="Answers",
            step=0.05,
        ),
    ] = _ENGINE.temperature
    top_k: Annotated[
        int,
        Setting(
            "Top k",
            "Choose among this many likeliest tokens; 0 is all.",
            "tokens",
            0,
            1000,
            group="Answers",
        ),
    ] = _ENGINE.top_k
    top_p: Annotated[
        float,
        Setting(
            "Top p",
            "Choose among the likeliest tokens that together have this share; 1 is all.",
            low=0.01,
            high=1,
            group="Answers",
            step=0.01,
        ),
    ] = _ENGINE.top_p
    min_p: Annotated[
        float,
        Setting(
            "Min p",
            "Leave out tokens less likely than this share of the likeliest; 0 leaves out none.",
            low=0,
            high=1,
            group="Answers",
            step=0.01,
        ),
    ] = _ENGINE.min_p
    repeat_penalty: Annotated[
        float,
        Setting(
            "Repeat penalty",
            "Makes words already used less likely; 1 is off.",
            low=0.5,
            high=2,
            group="Answers",
            step=0.05,
        ),
    ] = 1.1  # at 1, small models repeat whole lines without end
    max_tokens: Annotated[
        int,
        Setting(
            "Longest answer",
            "Stop after this many tokens; 0 lets the model end by itself.",
            "tokens",
            0,
            1_000_000,
            group="Answers",
            step=64,
        ),
    ] = 0
    thinking: Annotated[
        str,
        Setting(
            "Thinking first",
            "Whether a model that can choose thinks before it answers.",
            choices=tuple(_THINKING),
            words=("Automatic", "Always", "Never"),
            exact="enable_thinking, for the model's chat template",
            group="Answers",
        ),
    ] = "auto"
    context: Annotated[
        int,
        Setting(
            "Context",
            "How much of a conversation the model sees; 0 is as much as fits in memory.",
            "tokens",
            0,
            10_000_000,
            group="Model",
            step=1024,
            at_load=True,
        ),
    ] = 0
    cache: Annotated[
        str,
        Setting(
            "Memory per token",
            "What remembering the conversation takes. Double is a little more precise, leaves room "
            "for half the context and is slower in long conversations.",
            choices=(CacheType.Q8_0.value, CacheType.F16.value),
            words=("Standard", "Double"),
            exact="Key/value cache: 8 bits in groups of 32, of rotated rows (Q8_0), or 16-bit floats",
            group="Model",
            at_load=True,
        ),
    ] = DEFAULT_CACHE.value
    threads: Annotated[
        int,
        Setting(
            "Threads",
            "Processor cores to use; 0 is all of them.",
            "",
            0,
            1024,
            group="Model",
            at_load=True,
        ),
    ] = 0
    parallel_downloads: Annotated[
        int,
        Setting(
            "Downloads at once", "The others wait for their turn.", "", 1, 4, group="Downloads"
        ),
    ] = 2
    hub_endpoint: Annotated[
        str,
        Setting(
            "Server of models",
            "Where models are searched and fetched from.",
            exact="Hub endpoint: Hugging Face, or a mirror that speaks its language",
            group="Downloads",
            check=wrong_endpoint,
        ),
    ] = HUB
    proxy: Annotated[
        str,
        Setting(
            "Proxy",
            "Written as http://host:port. Left empty, it is as the system says.",
            exact="HTTP proxy that passes HTTPS connections on (CONNECT)",
            group="Downloads",
            check=wrong_proxy,
        ),
    ] = ""
    snapshot_budget_gb: Annotated[
        float,
        Setting(
            "Space for saved reading",
            "What the model has read of a conversation is kept on the disk, so that a long one goes "
            "on at once when it is opened again. Those not opened for longest make room; 0 keeps "
            "nothing.",
            "GB",
            0,
            1000,
            exact="Snapshots of the key/value cache",
            group="Storage",
            step=0.5,
        ),
    ] = 5.0


SETTINGS: dict[str, Setting] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Settings, include_extras=True).items()
}


class SettingsError(Exception):
    """The settings could not be saved: `str(error)` is the reason, `remedy` the advice."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def sampling(settings: Settings) -> Sampling:
    """The sampler settings of the engine."""
    return Sampling(
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        repeat_penalty=settings.repeat_penalty,
    )


def thinking(settings: Settings) -> bool | None:
    """Whether the model thinks first; None: the default of its chat template."""
    return _THINKING[settings.thinking]


def load(path: Path) -> Settings:
    """Read the settings; missing and invalid values become defaults, the latter with a warning."""
    stored = json_file.read(path)
    fitting: dict[str, Any] = {}
    for name, default in asdict(Settings()).items():
        if name not in stored:
            continue
        value = _fit(stored[name], default, SETTINGS[name])
        if value is None:  # the value is not logged: it may be the user's text
            _log.warning("setting %s has an invalid value, its default is used", name)
        else:
            fitting[name] = value
    return Settings(**fitting)


def save(path: Path, settings: Settings) -> None:
    """Save the settings with an atomic replace.

    Keys unknown to this version stay in the file. Raises `SettingsError`.
    """
    try:
        json_file.write(path, asdict(settings))
    except json_file.JsonFileError as error:
        raise SettingsError(f"The settings could not be saved. {error}", error.remedy) from error


def _fit(value: object, default: object, setting: Setting) -> object | None:
    """The value in the type of its default; None when type, range, choices or check reject it."""
    if isinstance(default, bool) or isinstance(value, bool):
        return value if isinstance(value, bool) and isinstance(default, bool) else None
    if isinstance(default, str):
        if not isinstance(value, str) or (setting.choices and value not in setting.choices):
            return None
        return None if setting.check and setting.check(value) else value
    if not isinstance(value, int | float) or not setting.low <= value <= setting.high:
        return None  # also for NaN
    if isinstance(default, float):
        return float(value)
    return int(value) if value == int(value) else None
