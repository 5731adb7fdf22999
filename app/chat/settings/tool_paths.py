"""Looks what is at the paths that the tools of the shown chat may use: files, folders, nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QObject

from app.state.tools import PathKind, ToolsState
from app.system.worker import BackgroundWorker


class ToolPaths(QObject):
    """Looks on a thread: a drive can be slow, or away."""

    def __init__(self, state: ToolsState, files: BackgroundWorker, parent: QObject) -> None:
        super().__init__(parent)
        self._state, self._files = state, files

    def look(self, paths: Sequence[Path]) -> None:
        """Show in the state what is at these paths."""
        self._files.run(lambda: {path: _kind(path) for path in paths}, self._state.set_paths)


def _kind(path: Path) -> PathKind:
    try:
        if path.is_dir():
            return PathKind.FOLDER
        return PathKind.FILE if path.exists() else PathKind.GONE
    except (OSError, ValueError):  # no right to look, or no path
        return PathKind.GONE
