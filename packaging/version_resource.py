"""Version resource of the program for Windows: what the file's Properties and Task Manager show.

PyInstaller reads it from a text file in the form of its classes.
"""

from __future__ import annotations

import re
from pathlib import Path

_LANGUAGE, _CODE_PAGE = 0x0409, 1200  # English (United States), Unicode
_TEMPLATE = """VSVersionInfo(
  ffi=FixedFileInfo(filevers={numbers}, prodvers={numbers}),
  kids=[
    StringFileInfo([StringTable("{language:04x}{page:04x}", [{strings}])]),
    VarFileInfo([VarStruct("Translation", [{language}, {page}])]),
  ],
)
"""


def write(version: str, folder: Path) -> Path:
    """Write the file for a version of the app into a folder; returns its path."""
    path = folder / "version.txt"
    path.write_text(text(version), encoding="utf-8")
    return path


def text(version: str) -> str:
    """The content for a version, such as 0.2.0; Windows compares four numbers."""
    found = [int(number) for number in re.findall(r"\d+", version)[:4]]
    strings = {
        "FileDescription": "Tokonoma",
        "FileVersion": version,
        "InternalName": "Tokonoma",
        "LegalCopyright": "Apache License 2.0",
        "OriginalFilename": "Tokonoma.exe",
        "ProductName": "Tokonoma",
        "ProductVersion": version,
    }
    return _TEMPLATE.format(
        numbers=(*found, *[0] * (4 - len(found))),
        language=_LANGUAGE,
        page=_CODE_PAGE,
        strings=", ".join(f"StringStruct({key!r}, {value!r})" for key, value in strings.items()),
    )
