"""Library page test bench: the page in a window, over view states that a test fills."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

import scenes_library as scenes
from app.state.chat import State
from app.state.library import InstalledRow, LibraryState
from app.ui.library.page import LibraryPage
from app.ui.library.row import LibraryRow
from scenes_library import SMOL
from stage import flush


class Shown:
    """The library page in a window, and the states it shows."""

    def __init__(self) -> None:
        self.state, self.library = State(), LibraryState()
        self.page = LibraryPage(self.state, self.library)
        self.page.resize(816, 820)
        self.page.show()
        self.page.activateWindow()
        flush()

    def row(self, name: str) -> LibraryRow:
        rows = self.page.list.findChildren(LibraryRow)
        return next(row for row in rows if row.isVisible() and row.view.name == name)

    def texts(self) -> list[str]:
        """Accessible names and descriptions of the visible rows, from the top."""
        rows = [self.page.list.row(key) for key in self.page.list.seen]
        return [
            text
            for row in rows
            if row is not None
            for text in (row.accessibleName(), row.accessibleDescription())
            if text
        ]

    def close(self) -> None:
        for each in (self.page, self.library, self.state):
            each.deleteLater()
        flush()


def show(shown: Shown, scene: scenes.LoadedScene) -> None:
    scene(shown.state, shown.library, shown.page)
    flush()


def many(count: int) -> list[InstalledRow]:
    return [replace(SMOL, path=Path(f"/models/{n}.gguf"), name=f"Model {n}") for n in range(count)]


def press(qtbot: QtBot, key: Qt.Key) -> None:
    focused = QApplication.focusWidget()
    assert focused is not None
    qtbot.keyClick(focused, key)
    flush()


def focused_row() -> str:
    widget = QApplication.focusWidget()
    parent = widget.parentWidget() if widget is not None else None
    return parent.view.name if isinstance(parent, LibraryRow) else ""
