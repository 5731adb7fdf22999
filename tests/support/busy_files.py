"""Files that another program has open, as Windows reports them: for every system."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

SHARING_VIOLATION = 32


def refusal(winerror: int = SHARING_VIOLATION) -> PermissionError:
    """The error of Windows of a file that is open elsewhere."""
    error = PermissionError(13, "The file is in use by another process")
    error.winerror = winerror  # type: ignore[attr-defined]  # not there on other systems
    return error


class BusyFiles:
    """Refuses to replace, rename and delete files, so many times each, as if they were open."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.refusals = 0
        self._left: dict[str, int] = {}
        for name in ("replace", "rename", "unlink"):
            patch.setattr(os, name, self._refusing(getattr(os, name)))

    def hold(self, path: Path, times: int = 3) -> None:
        """Refuse so many changes of a file."""
        self._left[os.path.abspath(path)] = times

    def _refusing(self, change: Callable[..., None]) -> Callable[..., None]:
        def attempt(*paths: str | Path, **more: object) -> None:
            for path in map(os.path.abspath, paths):
                if self._left.get(path, 0) > 0 and os.path.lexists(path):
                    self._left[path] -= 1
                    self.refusals += 1
                    raise refusal()
            change(*paths, **more)

        return attempt


def refuse_open_files(patch: pytest.MonkeyPatch) -> None:
    """Refuse to replace, rename or delete files that this process has open or mapped, as Windows.

    It does so for every file that is not opened to be deleted, which Python never does. On other
    systems than Linux nothing tells what is open.
    """
    if sys.platform != "linux":
        return
    for name in ("replace", "rename", "unlink", "remove"):
        patch.setattr(os, name, _refusing_open(getattr(os, name)))


def _refusing_open(change: Callable[..., None]) -> Callable[..., None]:
    def attempt(*paths: str | Path, **more: object) -> None:
        if any(map(_is_open, paths)):
            raise refusal()
        change(*paths, **more)

    return attempt


def _is_open(path: str | Path) -> bool:
    try:
        wanted = os.lstat(path)
    except (OSError, ValueError):
        return False
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.path.samestat(os.stat(int(number)), wanted):
                return True
    name = os.path.realpath(path)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        return any(line.rstrip("\n").endswith(name) for line in maps)
