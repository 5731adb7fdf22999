"""The property list of the app of a Mac: Info.plist with the version and the languages.

It runs inside of PyInstaller, which adds the names of the program's files.
"""

from __future__ import annotations

import plistlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_FILE = Path(__file__).with_name("Info.plist")


def facts(version: str, languages: Iterable[str]) -> dict[str, Any]:
    """The keys for a bundle of this version, whose system menus have these languages."""
    return {
        **plistlib.loads(_FILE.read_bytes()),
        "CFBundleVersion": version,  # by which the system tells a newer copy; PyInstaller omits it
        "CFBundleLocalizations": ["en", *languages],
    }
