"""Paths of the app: data, config, state, cache and resource folders.

Nothing here creates a folder: the code that writes a file does, so that a failed start leaves no
empty folders. TOKONOMA_HOME, or a folder `Data` beside a bundled program, holds all four folders.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs

from engine import data_folder, home_folder

_NAME = "Tokonoma"


def data() -> Path:
    """Data folder: conversations and models."""
    return data_folder()


def config() -> Path:
    """Config folder: settings."""
    return _home("config") or platformdirs.user_config_path(_NAME, appauthor=False)


def state() -> Path:
    """State folder: log and crash report."""
    return _home("state") or platformdirs.user_state_path(_NAME, appauthor=False)


def cache() -> Path:
    """Cache folder: files that can be recreated."""
    return _home("cache") or platformdirs.user_cache_path(_NAME, appauthor=False)


def database() -> Path:
    """Database of conversations."""
    return data() / "conversations.sqlite"


def settings_file() -> Path:
    """Settings file."""
    return config() / "settings.json"


def log_file() -> Path:
    """Log file of this run and earlier ones."""
    return state() / "tokonoma.log"


def resources() -> Path:
    """Folder of icons, fonts and licences: next to this package, or in the frozen bundle."""
    return Path(getattr(sys, "_MEIPASS", Path(__file__).parents[2])) / "resources"


def windows_program(*place: str) -> Path:
    """A program of Windows by its place in the system's folder.

    By its name alone, one in the working folder would be started, which is that of an opened file.
    """
    return Path(os.environ.get("SYSTEMROOT", "C:\\Windows"), *place)


def changelog() -> Path:
    """Release notes, Markdown: among the resources of a bundle, or in the source code."""
    bundled = resources() / "changelog.md"
    return bundled if bundled.is_file() else resources().parent / "packaging" / "changelog.md"


def _home(folder: str) -> Path | None:
    """The folder inside the one for all, when there is one."""
    home = home_folder()
    return home / folder if home is not None else None
