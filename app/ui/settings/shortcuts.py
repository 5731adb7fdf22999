"""Card that lists the keyboard shortcuts of the table of actions."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QFont, QKeySequence, QResizeEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QGridLayout,
    QLabel,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.actions import ACTIONS, OTHER_KEYS, Action
from app.system.translation import tr
from app.ui.theme.theme import BODY, READING, SMALL, font
from app.ui.widgets.controls import label

CARD_WIDTH = 820


def keys_of(action: Action, platform: str = sys.platform) -> list[QKeySequence]:
    """The key sequences of an action on a platform, Qt's standard ones of this one first."""
    keys: list[QKeySequence] = []
    if action.standard:
        standard = QKeySequence.StandardKey[action.standard]
        keys += QKeySequence.keyBindings(standard)
    for name in (platform == "darwin" and action.mac_keys) or action.keys:
        key = QKeySequence(name)
        if key not in keys:
            keys.append(key)
    return keys


class Shortcuts(QScrollArea):
    """Grouped list of actions with their first key sequences, in two columns where they fit."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        page = QWidget()
        page.setObjectName("shortcuts")
        self.setStyleSheet("QScrollArea, QWidget#shortcuts { background: transparent; }")
        layout = QVBoxLayout(page)
        layout.setContentsMargins(24, 20, 24, 24)
        layout.setSpacing(4)
        title = label(tr("Keyboard shortcuts"), "", READING)
        title.setFont(font(READING, QFont.Weight.Medium))
        layout.addWidget(title)
        self._columns = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._columns.setSpacing(40)
        layout.addLayout(self._columns)
        layout.addStretch(1)
        self.setWidget(page)

    def _fill(self) -> None:
        """Create the rows, when the card is first opened: they take as long as the sidebar."""
        if not self._columns.count():
            groups = list(_grouped().items())
            half = (len(groups) + 1) // 2
            self._columns.addLayout(_column(groups[:half]), 1)
            self._columns.addLayout(_column(groups[half:]), 1)

    def sizeHint(self) -> QSize:
        """The size of the whole list, so that it scrolls only where the window is too small."""
        self._fill()
        self._arrange(self.maximumWidth())
        page = self.widget()
        return page.sizeHint() if page is not None else super().sizeHint()

    def resizeEvent(self, arg__1: QResizeEvent) -> None:
        self._arrange(self.width())
        super().resizeEvent(arg__1)

    def _arrange(self, width: int) -> None:
        """Put the columns side by side, or one below the other if the card is narrow."""
        wide = width >= CARD_WIDTH
        directions = QBoxLayout.Direction
        self._columns.setDirection(directions.LeftToRight if wide else directions.TopToBottom)
        self._columns.setSpacing(40 if wide else 0)


def _column(groups: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> QVBoxLayout:
    """The rows of some groups, each below its heading."""
    column = QVBoxLayout()
    column.setSpacing(4)
    for group, rows in groups:
        heading = label(tr(group), "secondary", SMALL)
        heading.setFont(font(SMALL, QFont.Weight.Medium))
        heading.setContentsMargins(0, 12, 0, 2)
        column.addWidget(heading)
        grid = QGridLayout()
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(0, 1)
        for place, (text, key) in enumerate(rows):
            words = label(tr(text), "", BODY, wraps=True)
            grid.addWidget(words, place, 0)
            grid.addWidget(_key(key), place, 1, Qt.AlignmentFlag.AlignRight)
        column.addLayout(grid)
    column.addStretch(1)
    return column


def _key(key: str) -> QLabel:
    return label(key, "key", SMALL)


def _grouped() -> dict[str, list[tuple[str, str]]]:
    native = QKeySequence.SequenceFormat.NativeText
    groups: dict[str, list[tuple[str, str]]] = {}
    for action in ACTIONS:
        keys = keys_of(action)
        if keys:
            groups.setdefault(action.group, []).append((action.text, keys[0].toString(native)))
    for group, text, key in OTHER_KEYS:
        shown = QKeySequence(key).toString(native).replace("Return", "Enter")
        groups.setdefault(group, []).append((text, shown))
    return groups
