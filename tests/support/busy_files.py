"""Files that another program has open, as Windows reports them: for every system."""

from __future__ import annotations

import os
from collections.abc import Callable
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
                if self._left.get(path, 0) > 0:
                    self._left[path] -= 1
                    self.refusals += 1
                    raise refusal()
            change(*paths, **more)

        return attempt
