"""Observable state of updates: whether there is a newer version, its package, and the former ones.

Only `app.chat.updates` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from PySide6.QtCore import Signal

from app.domain.release import InstallKind, Package, Release
from app.state.observable import Observable, ReadOnly


class GetPhase(Enum):
    """How far the package of the newer version is."""

    NONE = auto()
    GETTING = auto()
    READY = auto()
    FAILED = auto()


@dataclass(frozen=True, slots=True)
class Leftover:
    """A version that was used before this one, and is no longer needed."""

    version: str
    folder: Path


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """What is known of newer versions."""

    host: str = ""  # where newer versions are looked for; "": this build looks for none
    kind: InstallKind = InstallKind.SOURCE
    checking: bool = False
    checked: float = 0.0  # when the server answered last, in Unix seconds; 0: never
    known: str = ""  # a newer version that an earlier run found; it has to be looked for again
    fault: str = ""  # why the last check failed, in one or two sentences
    newer: Release | None = None
    package: Package | None = None  # of the newer version, for this computer
    too_old: str = ""  # version that the system is too old for, as the package names it
    phase: GetPhase = GetPhase.NONE
    percent: int = 0
    file: Path | None = None  # the package on this computer
    get_fault: str = ""
    leftovers: tuple[Leftover, ...] = ()
    leftover_fault: str = ""


class UpdateState(Observable):
    """Observable; the signal is sent after the value has changed."""

    changed = Signal()

    status = ReadOnly(UpdateStatus())

    def set_status(self, status: UpdateStatus) -> None:
        """Set what is shown; called by `app.chat.updates` only."""
        self._set(self.changed, status=status)
