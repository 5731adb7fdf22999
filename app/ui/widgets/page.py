"""Page of the window, which is shown in place of the conversation."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QWidget

from app.system.translation import tr
from app.ui.widgets import accessibility
from app.ui.widgets.controls import IconButton


class Page(QWidget):
    """Has a title for screen readers, and a button that closes it."""

    closed = Signal()  # the user closed the page

    def __init__(self, title: str) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        accessibility.register_role(type(self), QAccessible.Role.Pane)
        self.setAccessibleName(title)
        self.close_button = IconButton("close", tr("Back to the chat"))
        self.close_button.clicked.connect(self.closed)
