"""Accessibility registry: maps widget classes to factories of their QAccessibleInterface.

Qt owns every interface that a factory returns and deletes it with its widget. It calls the factory
again for a widget whose meta-object changed (its class gained a slot) and keeps both results. Each
call must therefore return a new interface: one returned twice would be deleted twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QAccessibleInterface
from PySide6.QtWidgets import QAccessibleWidget, QWidget
from shiboken6 import VoidPtr, isValid

Maker = Callable[[Any], QAccessibleInterface]  # called with the widget

NO_INTERFACE = VoidPtr(0)  # null for `interface_cast`: PySide converts None to a non-null address

_makers: dict[str, Maker] = {}
_alive: list[QAccessibleInterface] = []  # references: Python would delete unreferenced interfaces


def register(widget_class: type[QWidget], make: Maker) -> None:
    """Register the factory for widgets of a class; it must return a new interface at each call."""
    if not _makers:
        QAccessible.installFactory(_interface_for)
    _makers[widget_class.__name__] = make


def register_role(widget_class: type[QWidget], role: QAccessible.Role) -> None:
    """Set the accessible role of a widget class for which Qt has none but a plain group."""
    register(widget_class, lambda widget: QAccessibleWidget(widget, role, ""))


def announce(widget: QWidget, words: str) -> None:
    """Send an announcement to the screen reader, if one is active."""
    if QAccessible.isActive():
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(widget, words))


def set_note(widget: QWidget, note: str, *, shown: bool) -> None:
    """Begin the descriptions of a widget and of the controls in it with a note, or end that."""
    tab = Qt.FocusPolicy.TabFocus
    inside = [each for each in widget.findChildren(QWidget) if each.focusPolicy() & tab == tab]
    for each in (widget, *inside):
        words = each.accessibleDescription().removeprefix(note).lstrip("\n")
        each.setAccessibleDescription(f"{note}\n{words}".rstrip("\n") if shown else words)


def _interface_for(class_name: str, widget: QObject | None) -> QAccessibleInterface | None:
    make = _makers.get(class_name)
    if make is None or not isinstance(widget, QWidget):
        return None
    _alive[:] = [interface for interface in _alive if isValid(interface)]
    _alive.append(make(widget))
    return _alive[-1]
