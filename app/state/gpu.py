"""Observable state of GPU support: what the window offers, fetches, uses, and why not.

Only `app.library.gpu_support` changes it; values are immutable, as in `app.state.chat`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from PySide6.QtCore import Signal

from app.downloads.policy import InstallProgress
from app.state.observable import Observable, ReadOnly


class GPUPhase(Enum):
    """What there is to show."""

    HIDDEN = "hidden"  # no NVIDIA GPU, or one that is used without more
    UNAVAILABLE = "unavailable"  # there is such a GPU, but no support for it; `problem` says why
    OFFERED = "offered"
    BEGUN = "begun"  # a part is here, and nothing runs
    INSTALLING = "installing"
    FAILED = "failed"  # the installation; `problem` says why
    READY = "ready"  # used after a restart
    IN_USE = "in use"
    NOT_USED = "not used"  # installed, but not used by this process; `problem` says why
    REMOVED = "removed"  # but used until a restart


@dataclass(frozen=True, slots=True)
class GPUView:
    """GPU support as the settings page shows it."""

    phase: GPUPhase = GPUPhase.HIDDEN
    gpu: str = ""  # name of the best GPU
    memory_bytes: int = 0  # of it
    size_bytes: int = 0  # of the download
    unpacked_bytes: int = 0
    done_bytes: int = 0  # of the download, for BEGUN
    progress: InstallProgress | None = None
    problem: str = ""
    remedy: str = ""
    detail: str = ""  # technical
    can_get: bool = False  # the packages can be fetched (again)
    can_retry: bool = False  # what is installed can be used again after a restart
    can_remove: bool = False


class GPUState(Observable):
    """Observable; the signal is sent after the value has changed."""

    changed = Signal()

    view = ReadOnly(GPUView())

    def set_view(self, view: GPUView) -> None:
        """Set what is shown."""
        self._set(self.changed, view=view)
