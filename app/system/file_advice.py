"""Advice for files that could not be written or deleted."""

from __future__ import annotations

from app.system.translation import tr
from engine import disk_files


def advice(error: OSError, otherwise: str) -> str:
    """What to do about a file that a program has open, else the advice given."""
    if disk_files.is_busy(error):
        return tr("Another program may have the file open. Close it there, or try again soon.")
    return otherwise
