"""Top bar of every page: model, title, page buttons and, without the sidebar, its two buttons."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.state.chat import State
from app.system.translation import tr
from app.ui.chat.chat_title import ChatTitle
from app.ui.chat.models.model_picker import ModelButton
from app.ui.widgets.controls import IconButton


class TopBar(QWidget):
    """A row of buttons; the window connects their `clicked` signals."""

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.show_button = IconButton("sidebar", tr("Show the sidebar (Ctrl+B)"))
        self.new_button = IconButton("plus", tr("New chat (Ctrl+N)"))
        self.model_button = ModelButton(state)
        self.title = ChatTitle(state)
        self.library_button = IconButton("library", tr("Models (Ctrl+M)"))
        self.panel_button = IconButton("panel", "")
        self.settings_button = IconButton("settings", tr("Settings (Ctrl+,)"))
        self.keys_button = IconButton("keyboard", tr("Keyboard shortcuts (F1)"))
        layout = QHBoxLayout(self)
        layout.setContentsMargins(12, 10, 12, 6)
        layout.setSpacing(4)
        for widget in (self.show_button, self.new_button, self.model_button):
            layout.addWidget(widget)
        layout.addWidget(self.title, 1)
        layout.addStretch(0)  # fills the bar of a page without a title
        self._right = (
            self.library_button,
            self.settings_button,
            self.keys_button,
            self.panel_button,  # last: at the side that the panel comes from
        )
        for widget in self._right:
            layout.addWidget(widget)

    def show_sidebar_buttons(self, shown: bool) -> None:
        """Show the buttons for the sidebar and a new chat, while the sidebar is hidden."""
        self.show_button.setVisible(shown)
        self.new_button.setVisible(shown)
