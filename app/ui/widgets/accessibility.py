"""Accessibility registry: tells Qt which QAccessibleInterface describes each of our own widgets.

Qt owns every interface a factory gives it, and deletes it with its widget. It asks again for a
widget whose class has gained a slot since (its meta-object is another then), and keeps both
answers: each answer has to be a new interface, as one given twice is deleted twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QAccessibleInterface
from PySide6.QtWidgets import QAccessibleWidget, QWidget
from shiboken6 import VoidPtr, isValid

Maker = Callable[[Any], QAccessibleInterface]  # of the widget that is described

NO_INTERFACE = VoidPtr(0)  # of `interface_cast`, where None becomes an address and not null

_makers: dict[str, Maker] = {}
_alive: list[QAccessibleInterface] = []  # Python, too, would delete one that nothing refers to


def register(widget_class: type[QWidget], make: Maker) -> None:
    """Describe widgets of a class by the interfaces `make` returns, a new one at each call."""
    if not _makers:
        QAccessible.installFactory(_interface_for)
    _makers[widget_class.__name__] = make


def register_role(widget_class: type[QWidget], role: QAccessible.Role) -> None:
    """Give widgets of a class a role, where Qt would call them a plain group."""
    register(widget_class, lambda widget: QAccessibleWidget(widget, role, ""))


def announce(widget: QWidget, words: str) -> None:
    """Have a screen reader speak, where one is active."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, words))


def _interface_for(class_name: str, widget: QObject | None) -> QAccessibleInterface | None:
    make = _makers.get(class_name)
    if make is None or not isinstance(widget, QWidget):
        return None
    _alive[:] = [interface for interface in _alive if isValid(interface)]
    _alive.append(make(widget))
    return _alive[-1]
