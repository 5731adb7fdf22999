"""Card that lists the keyboard shortcuts of the table of actions."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QFont, QKeySequence
from PySide6.QtWidgets import QGridLayout, QLabel, QVBoxLayout, QWidget

from app.actions import ACTIONS, OTHER_KEYS, Action
from app.system.translation import tr
from app.ui.theme.theme import BODY, READING, SMALL, font
from app.ui.widgets.controls import label

CARD_WIDTH = 440


def keys_of(action: Action) -> list[QKeySequence]:
    """The key sequences of an action on this platform, Qt's standard ones first."""
    keys: list[QKeySequence] = []
    if action.standard:
        standard = QKeySequence.StandardKey[action.standard]
        keys += QKeySequence.keyBindings(standard)
    for name in action.keys:
        key = QKeySequence(name)
        if key not in keys:
            keys.append(key)
    return keys


class Shortcuts(QWidget):
    """Grouped list of actions, each with its first key sequence."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 20, 24, 24)
        layout.setSpacing(4)
        title = label(tr("Keyboard shortcuts"), "", READING)
        title.setFont(font(READING, QFont.Weight.Medium))
        layout.addWidget(title)
        for group, rows in _grouped().items():
            heading = label(tr(group), "secondary", SMALL)
            heading.setFont(font(SMALL, QFont.Weight.Medium))
            heading.setContentsMargins(0, 12, 0, 2)
            layout.addWidget(heading)
            grid = QGridLayout()
            grid.setVerticalSpacing(4)
            grid.setColumnStretch(0, 1)
            for place, (text, key) in enumerate(rows):
                grid.addWidget(label(tr(text), "", BODY), place, 0)
                grid.addWidget(_key(key), place, 1, Qt.AlignmentFlag.AlignRight)
            layout.addLayout(grid)


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
