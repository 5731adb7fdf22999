"""Place of a menu that a widget opens."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QCursor
from PySide6.QtWidgets import QApplication, QMenu, QWidget


def new_menu(parent: QWidget) -> QMenu:
    """A menu that is deleted once it is closed."""
    menu = QMenu(parent)
    menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    return menu


def popup_below(menu: QMenu, widget: QWidget, area: QRect | None = None) -> None:
    """Open a menu below a widget, or an area of it, from the side where its text begins.

    The widget is drawn as hovered afterwards only if the pointer is on it.
    """

    def leave() -> None:  # Qt sends no Leave event when another place is clicked meanwhile
        inside = widget.rect().contains(widget.mapFromGlobal(QCursor.pos()))
        widget.setAttribute(Qt.WidgetAttribute.WA_UnderMouse, inside)
        widget.update()

    menu.aboutToHide.connect(leave)
    place = area or widget.rect()
    if QApplication.isRightToLeft():  # `icon_after_text` sets another direction on a button
        corner = place.bottomRight() + QPoint(1 - menu.sizeHint().width(), 0)
    else:
        corner = place.bottomLeft()
    menu.popup(widget.mapToGlobal(corner))
