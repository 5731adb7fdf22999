"""What a download may be doing, how patient it is, and the ways in which it ends early."""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Phase(Enum):
    """What a download is doing."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"  # to try again; the note says why and when
    VERIFYING = "verifying"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class DownloadError(Exception):
    """A download that cannot go on: `str(error)` says why, `remedy` what to do."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


class Stopped(Exception):
    """Someone asked the download to stop; what has arrived is kept."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient a download is, and how much room it leaves."""

    stall_seconds: float = 30.0  # without a byte, before the connection is given up
    retry_seconds: float = 1.0  # before a new attempt; doubles while they bring nothing
    longest_retry_seconds: float = 60.0
    attempts: int = 8  # in a row that bring nothing new, before giving up
    wrong_attempts: int = 3  # answers that cannot be the file, before giving up
    margin_bytes: int = 256 << 20  # free space that must be left when the file is complete
    checkpoint_bytes: int = 32 << 20  # brought to the disk at once
    checkpoint_seconds: float = 5.0


def free_bytes(folder: Path) -> int:
    """Free space of the disk that holds a folder, which may not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def disk_error(error: OSError, path: Path) -> DownloadError:
    """What a fault of the disk means for a download, in a sentence."""
    if error.errno in _FULL:
        return DownloadError(
            f"The disk is full: {path.name} could not be written.",
            "Make room on the disk, then try again; what has arrived is kept.",
        )
    return DownloadError(
        f"{path.name} could not be written: {error.strerror or error}.",
        "Check that the folder can be written to, then try again.",
    )
