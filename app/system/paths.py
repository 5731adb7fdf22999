"""Where the app keeps what is the user's, and where its own pictures lie.

Nothing here creates a folder: whoever writes a file makes its folder, so that a start that fails
early leaves nothing behind. TOKONOMA_HOME puts all four folders into one place.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs

from engine import data_folder

_NAME = "Tokonoma"


def data() -> Path:
    """What cannot be made again: conversations and models."""
    return data_folder()


def config() -> Path:
    """The settings."""
    return _home("config") or platformdirs.user_config_path(_NAME, appauthor=False)


def state() -> Path:
    """The log and the crash report."""
    return _home("state") or platformdirs.user_state_path(_NAME, appauthor=False)


def cache() -> Path:
    """What can be made again at any time."""
    return _home("cache") or platformdirs.user_cache_path(_NAME, appauthor=False)


def database() -> Path:
    """The file of conversations."""
    return data() / "conversations.sqlite"


def settings_file() -> Path:
    """The file of settings."""
    return config() / "settings.json"


def log_file() -> Path:
    """The log of this run and the ones before it."""
    return state() / "tokonoma.log"


def resources() -> Path:
    """Icons, fonts and licences: beside this package, or inside the frozen bundle."""
    return Path(getattr(sys, "_MEIPASS", Path(__file__).parents[2])) / "resources"


def _home(folder: str) -> Path | None:
    """The folder inside TOKONOMA_HOME, when that is set."""
    home = os.environ.get("TOKONOMA_HOME")
    return Path(home) / folder if home else None
