"""File of this version beside one of a newer version, which stays as it is for that version.

Both can be made again from the user's documents, but that may take hours.
"""

from __future__ import annotations

import glob
from contextlib import suppress
from pathlib import Path

from engine import disk_files


class OfNewer(Exception):
    """The file is of a newer version of the app."""


def beside(path: Path, version: int) -> Path:
    """The file of this version: documents.v3.sqlite for documents.sqlite."""
    return path.with_name(f"{path.stem}.v{version}{path.suffix}")


def remove_beside(path: Path) -> None:
    """Remove the files of older versions beside one that this version uses."""
    for each in path.parent.glob(f"{glob.escape(path.stem)}.v*{glob.escape(path.suffix)}*"):
        with suppress(OSError):  # tried again at the next start
            disk_files.delete(each)
