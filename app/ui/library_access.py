"""The page of models for screen readers: a list, its items, and the headings between them.

Qt would call each a plain group; their names and descriptions they have already.
"""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtWidgets import QAccessibleWidget, QWidget

_ROLES = {
    "LibraryList": QAccessible.Role.List,
    "LibraryRow": QAccessible.Role.ListItem,
    "LibraryHeading": QAccessible.Role.Heading,
}

# Qt keeps only pointers: what it was given must stay alive as long as the widget.
_given: dict[int, QAccessibleWidget] = {}
_installed: list[bool] = []


def install() -> None:
    """Let Qt know what the parts of the page are; once is enough."""
    if not _installed:
        _installed.append(True)
        QAccessible.installFactory(_describe)


def _describe(key: str, thing: QObject | None) -> QAccessibleInterface | None:
    role = _ROLES.get(key)
    if role is None or not isinstance(thing, QWidget):
        return None
    address = id(thing)
    if address not in _given:
        _given[address] = QAccessibleWidget(thing, role, "")
        thing.destroyed.connect(lambda: _given.pop(address, None))
    return _given[address]
