"""Download phases, limits (timeouts, retries, free space) and errors."""

from __future__ import annotations

import errno
import shutil
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from app.system.byte_size import size
from app.system.file_advice import advice
from app.system.translation import tr

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Phase(Enum):
    """Phase of a download."""

    QUEUED = "queued"
    CONNECTING = "connecting"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"  # for the next attempt; the note has the reason and the delay
    VERIFYING = "verifying"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class InstallStep(Enum):
    """What an installation is doing."""

    DOWNLOADING = "downloading"
    WAITING = "waiting"  # for the next attempt; the note has the reason
    UNPACKING = "unpacking"
    CHECKING = "checking"  # that all is as downloaded, and that the GPU works


@dataclass(frozen=True, slots=True)
class InstallProgress:
    """How far an installation is."""

    step: InstallStep
    done_bytes: int  # of the download
    size_bytes: int
    seconds_left: float | None = None  # of the download; None: unknown
    note: str = ""


class DownloadError(Exception):
    """A download failed: `str(error)` is the reason, `remedy` the advice."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.remedy = remedy


class Stopped(Exception):
    """The download was stopped; its partial file is kept."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts, retries, free-space margin and checkpoint intervals of a download."""

    stall_seconds: float = 30.0  # read timeout
    retry_seconds: float = 1.0  # before a new attempt; doubles after each one without progress
    longest_retry_seconds: float = 60.0
    attempts: int = 8  # consecutive attempts without progress, before failing
    wrong_attempts: int = 3  # responses that cannot be the file, before failing
    margin_bytes: int = 256 << 20  # free space that must be left when the file is complete
    checkpoint_bytes: int = 32 << 20  # received between syncs to the disk
    checkpoint_seconds: float = 5.0


def check_space(free: int, needed: int, remedy: str) -> None:
    """Raise DownloadError when the disk has less free space than is needed."""
    if free < needed:
        raise DownloadError(
            tr(
                "Not enough disk space: {free} free, {needed} needed.",
                free=size(free),
                needed=size(needed),
            ),
            remedy,
        )


def free_bytes(folder: Path) -> int:
    """Free space of the disk of a folder, which may not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def disk_error(error: OSError, path: Path) -> DownloadError:
    """The DownloadError for an OSError of the disk."""
    if error.errno in _FULL:
        return DownloadError(
            tr("The disk is full: {name} could not be written.", name=path.name),
            tr("Free some disk space, then try again. The part downloaded so far is kept."),
        )
    return DownloadError(
        tr(
            "{name} could not be written: {reason}.",
            name=path.name,
            reason=error.strerror or error,
        ),
        advice(error, tr("Check that the folder can be written to, then try again.")),
    )
