"""The table of settings (name, type, default, unit, help, range), and loading and saving them.

The table is the `Settings` class, so each setting is defined once. An invalid value becomes the
default; keys and values of a newer version stay in the file; a file that is not JSON is renamed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from app.net.http import WebError, check_address, parse_proxy
from app.net.hub import HUB
from app.system import json_file
from app.system.translation import LANGUAGES, sentences, tr
from engine import DEFAULT_CACHE, CacheType, DraftKind, Sampling

_log = logging.getLogger(__name__)
_ENGINE = Sampling()
_THINKING = {"auto": None, "on": True, "off": False}
# Settings of sampling and of the end of answers, which a model may recommend.
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "max_tokens")
GROUPS = (
    "look",
    "answers",
    "model",
    "tools",
    "downloads",
    "storage",
)  # in the order they are shown

# Where the web is searched, and the host that is asked; "": that of the user's address.
SEARCH_PROVIDERS = {
    "searxng": "",
    "brave": "api.search.brave.com",
    "tavily": "api.tavily.com",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """How the settings page shows a setting; one without a label is not shown.

    Its texts are English: the window translates them when it shows them.
    """

    label: str = ""
    help: str = ""
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()  # displayed, one for each choice; empty: the choices
    exact: str = ""  # the exact term, for the tooltip
    group: str = ""  # one of GROUPS, or a group of another page
    step: float = 1.0  # of the arrow keys
    lines: int = 1  # height of a text field
    at_load: bool = False  # takes effect when a model is loaded
    named: tuple[float, str] | None = None  # a value that is shown as a word: (0, "Auto")
    is_code: bool = False  # a number without separators, such as a port
    check: Callable[[str], str] | None = None  # validates a text; returns an error sentence or ""


def wrong_endpoint(text: str) -> str:
    """Validate the address of a hub; returns an error sentence, or "" when valid."""
    try:
        parts = check_address(text)
    except WebError as error:
        return tr("{problem} Write it as https://server.", problem=error)
    return tr("Leave out the part after ? or #.") if parts.query or parts.fragment else ""


def wrong_search_address(text: str) -> str:
    """Validate the address of a SearXNG server; returns an error sentence, or "" when valid or empty."""
    return wrong_endpoint(text) if text else ""


def wrong_proxy(text: str) -> str:
    """Validate the address of a proxy; returns an error sentence, or "" when valid or empty."""
    try:
        if text:
            parse_proxy(text)
    except WebError as error:
        return sentences(str(error), error.remedy)
    return ""


@dataclass(frozen=True, slots=True)
class Settings:
    """The table: every setting with its default."""

    theme: Annotated[
        str,
        Setting(
            "Theme",
            "Follow the system, or always use one.",
            choices=("system", "light", "dark", "high contrast"),
            words=("System", "Light", "Dark", "High contrast"),
            group="look",
        ),
    ] = "system"
    language: Annotated[
        str,
        Setting(
            "Language",
            "Of this window. It changes at the next start.",
            choices=("", *LANGUAGES),
            words=("System", *LANGUAGES.values()),
            group="look",
        ),
    ] = ""
    zoom: Annotated[
        int,
        Setting(
            "Text size",
            "Of chats and of what you write. Ctrl with +, - and 0 changes it too.",
            unit="%",
            low=80,
            high=200,
            group="look",
            step=10,
        ),
    ] = 100
    scale: Annotated[
        int,
        Setting(
            "Size of everything",
            "Of lists, menus and buttons too. It changes at the next start.",
            unit="%",
            low=100,
            high=200,
            group="look",
            step=25,
        ),
    ] = 100
    notify: Annotated[
        str,
        Setting(
            "Notifications",
            "Tell you when a long answer is ready and this window is not in front.",
            choices=("on", "off"),
            words=("On", "Off"),
            group="look",
        ),
    ] = "on"
    model_titles: Annotated[
        str,
        Setting(
            "Let the model title chats",
            "After the first answer, a model on this computer writes a short title. A title you "
            "typed stays.",
            choices=("on", "off"),
            words=("On", "Off"),
            group="answers",
        ),
    ] = "off"
    last_model: Annotated[str, Setting()] = ""  # path; empty: the starter model
    last_elsewhere: Annotated[str, Setting()] = ""  # `Remote.text`; empty: one of this machine was
    embedding_model: Annotated[str, Setting()] = ""  # path; empty: the preferred one installed
    offer_better_model: Annotated[bool, Setting()] = True  # on the empty page, with the starter
    last_conversation: Annotated[int, Setting()] = 0  # its id; 0: a new chat
    new_chat_preset: Annotated[int, Setting()] = 0  # its id; 0: none
    sidebar_open: Annotated[bool, Setting()] = True
    closed_folders: Annotated[str, Setting()] = ""  # ids of the folders that are closed in the list
    window_geometry: Annotated[str, Setting()] = ""  # base64
    system_prompt: Annotated[
        str,
        Setting(
            "Instructions",
            "Given to the model at the start of every chat.",
            exact="System prompt",
            group="answers",
            lines=5,
        ),
    ] = ""
    temperature: Annotated[
        float,
        Setting(
            "Temperature",
            "Higher is more varied, lower more predictable; 0 always takes the likeliest word.",
            low=0,
            high=2,
            group="answers",
            step=0.05,
        ),
    ] = _ENGINE.temperature
    top_k: Annotated[
        int,
        Setting(
            "Top-k",
            "Only this many of the likeliest words can come next. Fewer is more predictable.",
            "tokens",
            0,
            1000,
            group="answers",
            named=(0, "All"),
        ),
    ] = _ENGINE.top_k
    top_p: Annotated[
        float,
        Setting(
            "Top-p",
            "Only the likeliest words that together reach this probability can come next. Lower is "
            "more predictable.",
            low=0.01,
            high=1,
            group="answers",
            named=(1, "All"),
            step=0.01,
        ),
    ] = _ENGINE.top_p
    min_p: Annotated[
        float,
        Setting(
            "Min-p",
            "Leaves out words that are unlikely beside the likeliest one: 0.1 leaves out those below a "
            "tenth of its probability.",
            low=0,
            high=1,
            group="answers",
            named=(0, "Off"),
            step=0.01,
        ),
    ] = _ENGINE.min_p
    repeat_penalty: Annotated[
        float,
        Setting(
            "Repeat penalty",
            "Makes repeated words less likely.",
            low=0.5,
            high=2,
            group="answers",
            named=(1, "Off"),
            step=0.05,
        ),
    ] = 1.1  # at 1, small models repeat whole lines without end
    own_sampling: Annotated[str, Setting()] = ""  # names of the sampling values the user chose
    # Not shown: a model may recommend these. No text breaks a repetition then.
    dry_multiplier: Annotated[float, Setting(low=0, high=5)] = _ENGINE.dry_multiplier
    dry_allowed_length: Annotated[int, Setting(low=1, high=100)] = _ENGINE.dry_allowed_length
    max_tokens: Annotated[
        int,
        Setting(
            "Longest answer",
            "Stops every answer after this many tokens. A token is a word or a part of one.",
            "tokens",
            0,
            1_000_000,
            group="answers",
            named=(0, "No limit"),
            step=64,
        ),
    ] = 0
    thinking: Annotated[
        str,
        Setting(
            "Think before answering",
            "For models that can: slower, often better.",
            choices=tuple(_THINKING),
            words=("Automatic", "Always", "Never"),
            exact="enable_thinking, for the model's chat template",
            group="answers",
        ),
    ] = "auto"
    faster_answers: Annotated[
        str,
        Setting(
            "Faster answers",
            "Guesses the next words from the chat and checks several at once. Answers stay the same.",
            choices=("auto", "off"),
            words=("Automatic", "Off"),
            exact="Speculative decoding with drafts by n-gram lookup; it pauses where it does not pay",
            group="answers",
        ),
    ] = "auto"
    context: Annotated[
        int,
        Setting(
            "Context length",
            "How much of a chat the model can read at once. Longer needs more memory.",
            "tokens",
            0,
            10_000_000,
            exact="Context window; Auto is 8,192 to 32,768 tokens, by the memory of this computer",
            group="model",
            step=1024,
            named=(0, "Auto"),
            at_load=True,
        ),
    ] = 0
    cache: Annotated[
        str,
        Setting(
            "Context memory",
            "Compact fits twice the context and is faster in long chats; Precise is a little more "
            "exact.",
            choices=(CacheType.Q8_0.value, CacheType.F16.value),
            words=("Compact (8-bit)", "Precise (16-bit)"),
            exact="KV cache: Q8_0 (8 bits in groups of 32, of rotated rows) or 16-bit floats",
            group="model",
            at_load=True,
        ),
    ] = DEFAULT_CACHE.value
    runs_on: Annotated[
        str,
        Setting(
            "Runs on",
            "Automatic takes the GPU, and the processor for what does not fit there.",
            choices=("auto", "cpu", "gpu", "split"),
            words=("Automatic", "Processor", "GPU", "Split"),
            exact="Split: as many layers as fit on the GPU, the others on the processor",
            group="model",
            at_load=True,
        ),
    ] = "auto"
    memory_gb: Annotated[
        float,
        Setting(
            "Memory for a model",
            "What does not fit is read from the disk for every word, which is slow.",
            "GB",
            0,
            4096,
            exact="Most memory of the weights, the KV cache and the computation together",
            group="model",
            step=0.5,
            named=(0, "Auto"),
            at_load=True,
        ),
    ] = 0.0
    threads: Annotated[
        int,
        Setting(
            "Threads",
            "How many processor cores a model may use.",
            "",
            0,
            1024,
            group="model",
            named=(0, "All"),
            at_load=True,
        ),
    ] = 0
    tool_rounds: Annotated[
        int,
        Setting(
            "Rounds of tool calls",
            "The most in one answer. A round is one call, or several at once.",
            low=1,
            high=100,
            group="tools",
        ),
    ] = 10
    tool_seconds: Annotated[
        int,
        Setting(
            "Time for one call",
            "A tool that takes longer is stopped.",
            "seconds",
            1,
            3600,
            group="tools",
            step=5,
        ),
    ] = 60
    search_provider: Annotated[
        str,
        Setting(
            "Web search",
            "Where the tool that searches the web sends its searches.",
            choices=("off", *SEARCH_PROVIDERS),
            words=("Off", "SearXNG", "Brave", "Tavily"),
            group="tools",
        ),
    ] = "off"
    search_address: Annotated[
        str,
        Setting(
            "Address of SearXNG",
            "Of a server that you trust, as https://server.",
            group="tools",
            check=wrong_search_address,
        ),
    ] = ""
    parallel_downloads: Annotated[
        int,
        Setting("Downloads at once", "Further downloads wait.", "", 1, 4, group="downloads"),
    ] = 2
    hub_endpoint: Annotated[
        str,
        Setting(
            "Model server",
            "Where models are searched and downloaded.",
            exact="Hub endpoint: Hugging Face, or a mirror with the same interface",
            group="downloads",
            check=wrong_endpoint,
        ),
    ] = HUB
    proxy: Annotated[
        str,
        Setting(
            "Proxy",
            "Between this computer and the internet, as http://host:port. Empty: the system's.",
            exact="HTTP proxy that passes HTTPS connections on (CONNECT)",
            group="downloads",
            check=wrong_proxy,
        ),
    ] = ""
    snapshot_budget_gb: Annotated[
        float,
        Setting(
            "Disk space for resuming chats",
            "A long chat with a model on this computer continues at once when you reopen it. The "
            "oldest are removed first.",
            "GB",
            0,
            1000,
            exact="Snapshots of the KV cache",
            group="storage",
            step=0.5,
            named=(0, "Off"),
        ),
    ] = 5.0

    offline: Annotated[bool, Setting()] = False
    check_updates: Annotated[bool, Setting()] = False  # look for a newer version once a week
    serve: Annotated[bool, Setting()] = False  # let other programs use the models
    serve_closed: Annotated[bool, Setting()] = False  # also when the window is closed
    serve_texts: Annotated[bool, Setting()] = False  # its log holds texts
    serve_key: Annotated[str, Setting()] = ""  # "": none is needed
    serve_network: Annotated[
        str,
        Setting(
            "Who can reach it",
            "Programs on this computer, or every device in your network too.",
            choices=("computer", "network"),
            words=("This computer", "Your network"),
            exact="Listens on 127.0.0.1, or on all addresses (0.0.0.0)",
            group="server",
        ),
    ] = "computer"
    serve_port: Annotated[
        int,
        Setting(
            "Port",
            "The number at the end of the address. Change it if another program uses it.",
            low=1024,
            high=65535,
            group="server",
            is_code=True,
        ),
    ] = 8080
    serve_minutes: Annotated[
        int,
        Setting(
            "Keep models loaded",
            "How long a model that another program loaded stays after its last use.",
            "minutes",
            0,
            1440,
            group="server",
            named=(0, "Always"),
            step=5,
        ),
    ] = 10


SETTINGS: dict[str, Setting] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(Settings, include_extras=True).items()
}


class SettingsError(Exception):
    """The settings could not be saved: `str(error)` is the reason, `remedy` the advice."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.remedy = remedy


def sampling(settings: Settings, recommended: Sampling | None = None) -> Sampling:
    """The sampler settings of the engine; those without a setting are as a model recommends."""
    made = replace(
        recommended or Sampling(),
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        repeat_penalty=settings.repeat_penalty,
    )
    if not settings.dry_multiplier:
        return made
    strength, length = settings.dry_multiplier, settings.dry_allowed_length
    return replace(made, dry_multiplier=strength, dry_allowed_length=length, dry_breakers=())


def is_own(settings: Settings, name: str) -> bool:
    """Whether the user chose this sampling value, perhaps to be the usual one."""
    is_changed = getattr(settings, name) != getattr(Settings(), name)
    return is_changed or name in settings.own_sampling.split()


def with_own(settings: Settings, *names: str) -> Settings:
    """The settings, in which the user chose those of these values that are of sampling."""
    own = {*settings.own_sampling.split(), *(name for name in names if name in SAMPLING)}
    return replace(settings, own_sampling=" ".join(sorted(own)))


def without_own(settings: Settings, name: str) -> Settings:
    """The settings, in which the user did not choose this sampling value."""
    own = " ".join(kept for kept in settings.own_sampling.split() if kept != name)
    return replace(settings, own_sampling=own, **{name: getattr(Settings(), name)})


def thinking(settings: Settings) -> bool | None:
    """Whether the model thinks first; None: the default of its chat template."""
    return _THINKING[settings.thinking]


def drafts(settings: Settings) -> DraftKind:
    """What drafts the next tokens of an answer."""
    return DraftKind.LOOKUP if settings.faster_answers == "auto" else DraftKind.NONE


def load(path: Path) -> Settings:
    """Read the settings; missing and invalid values become defaults, the latter with a warning."""
    stored = json_file.read(path)
    fitting: dict[str, Any] = {}
    for name, default in asdict(Settings()).items():
        # A sampling value that the user did not choose follows the usual one of this version.
        is_usual = name in SAMPLING and name not in str(stored.get("own_sampling", name)).split()
        if name not in stored or is_usual:
            continue
        value = fit(stored[name], default, SETTINGS[name])
        if value is None:  # the value is not logged: it may be the user's text
            _log.warning("setting %s has an invalid value, its default is used", name)
        else:
            fitting[name] = value
    found = Settings(**fitting)
    return with_own(found, *(name for name in SAMPLING if is_own(found, name)))


def save(path: Path, settings: Settings) -> None:
    """Save the settings with an atomic replace.

    Keys unknown to this version stay in the file, and values that only a newer one knows, until
    they are changed. Raises `SettingsError`.
    """
    try:
        own = [name for name in SAMPLING if is_own(settings, name)]
        stored, usual = json_file.read(path), asdict(Settings())
        values = {
            name: value
            for name, value in asdict(with_own(settings, *own)).items()
            if value != usual[name]
            or name not in stored
            or fit(stored[name], usual[name], SETTINGS[name]) is not None
        }
        json_file.write(path, values)
    except json_file.JsonFileError as error:
        text = tr("The settings could not be saved. {reason}", reason=error)
        raise SettingsError(text, error.remedy) from error


def fit(value: object, default: object, setting: Setting) -> object | None:
    """The value in the type of its default; None when type, range, choices or check reject it."""
    if isinstance(default, bool) or isinstance(value, bool):
        return value if isinstance(value, bool) and isinstance(default, bool) else None
    if isinstance(default, str):
        if not isinstance(value, str) or (setting.choices and value not in setting.choices):
            return None
        return None if setting.check and setting.check(value) else value
    if not isinstance(value, int | float) or not setting.low <= value <= setting.high:
        return None  # also for NaN
    if abs(value) == math.inf:
        return None
    if isinstance(default, float):
        return float(value)
    return int(value) if value == int(value) else None
