"""File names that every system takes, from text that others wrote: titles, links, attachments."""

from __future__ import annotations

import re
import sys
from pathlib import Path

# No system has a name with these, or the window could not show what it is.
FORBIDDEN = re.compile(
    r'[\x00-\x1f\x7f-\x9f<>:"/\\|?*\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+'
)
# Devices of Windows, in every folder and with every ending; it reads ¹²³ as digits there.
_RESERVED = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|clock\$|(?:com|lpt)[\d¹²³])[ .]*(?:\..*)?", re.IGNORECASE
)
_MOST_BYTES = 160  # of a name; file systems allow 255 bytes or characters
_MOST_WINDOWS = 259  # characters of a path


def not_reserved(name: str) -> str:
    """The name, marked by a low line where Windows has a device of that name."""
    return f"_{name}" if _RESERVED.fullmatch(name) else name


def safe_name(text: str, fallback: str) -> str:
    """The name of a file without its ending, from any text; `fallback` if nothing is left of it."""
    name = " ".join(FORBIDDEN.sub(" ", text.encode("utf-8", "replace").decode()).split())
    name = name[: _MOST_BYTES // 2].strip(" .")
    while len(name.encode()) > _MOST_BYTES:
        name = name[:-1].strip(" .")
    return not_reserved(name) or fallback


def name_room(folder: Path, ending: str, platform: str = sys.platform) -> int:
    """How many characters a name with this ending may have, so that programs of Windows can open it
    in the folder; at least 40.
    """
    if platform != "win32":
        return 255 - len(ending)
    return max(40, min(255, _MOST_WINDOWS - len(str(folder.absolute())) - 1) - len(ending))
