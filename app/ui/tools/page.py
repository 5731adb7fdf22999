"""Page of tools: every call that was made, and what you allowed."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSizePolicy, QStackedWidget, QVBoxLayout, QWidget

from app.settings.table import Setting
from app.state.chat import State
from app.state.tools import ToolsState
from app.system.translation import tr
from app.ui.file_dialogs import choose_calls_place
from app.ui.settings.fields import Segments, segments_style
from app.ui.theme.palette import Palette, follow_palette
from app.ui.tools.allowed import AllowedView
from app.ui.tools.calls import CallsView
from app.ui.widgets.controls import Column, IconButton, page_head, with_scroll_bar_margin
from app.ui.widgets.page import Page

_CALLS, _ALLOWED = "calls", "allowed"


class ActivityPage(Page):
    """Shows the state of tools; its views emit the user's requests, and so does it."""

    export_requested = Signal(object)  # Path of the file to write: all calls, as JSON
    servers_requested = Signal()  # the page of the servers of tools

    def __init__(self, chat: State, state: ToolsState) -> None:
        super().__init__(tr("Activity of tools"))
        self._state = state
        self.export_button = IconButton("arrow_down", tr("Export…"))
        self.servers_button = IconButton("server", tr("Servers of tools…"))
        about = Setting(
            tr("Show"), choices=(_CALLS, _ALLOWED), words=(tr("Calls"), tr("What you allowed"))
        )
        self.tabs = Segments(about)
        self.tabs.show_value(_CALLS)
        self.calls = CallsView(state)
        self.allowed = AllowedView(chat, state)
        self._views = QStackedWidget()
        policies = QSizePolicy.Policy
        self._views.setSizePolicy(policies.Preferred, policies.Ignored)  # it takes what is left
        for view in (self.calls, self.allowed):
            self._views.addWidget(view)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 12)
        column.setSpacing(12)
        column.addWidget(self.tabs)
        column.addWidget(self._views, 1)
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.addWidget(
            page_head(
                self.accessibleName(), self.servers_button, self.export_button, self.close_button
            )
        )
        page.addWidget(with_scroll_bar_margin(Column(content)), 1)
        self.tabs.picked.connect(self._show_view)
        self.export_button.clicked.connect(self._export)
        self.servers_button.clicked.connect(self.servers_requested)
        state.activity_changed.connect(self._show_export)
        self._show_export()
        follow_palette(self._recolor)

    @property
    def first(self) -> QWidget:
        """What has the focus first; Tab would skip what is before a focus proxy."""
        view = self._views.currentWidget()
        found = self.allowed.first if view is self.allowed else self.calls.first
        return found or self.tabs

    def show_allowed(self) -> None:
        """Show what was allowed."""
        self.tabs.show_value(_ALLOWED)
        self._show_view(_ALLOWED)

    def _show_view(self, value: object) -> None:
        self._views.setCurrentWidget(self.allowed if value == _ALLOWED else self.calls)

    def _show_export(self) -> None:
        self.export_button.setEnabled(self._state.activity_count > 0)

    def _export(self) -> None:
        start = Path.home() / f"{tr('Activity of tools')}.json"
        choose_calls_place(self, start, self.export_requested.emit)

    def _recolor(self, palette: Palette) -> None:
        line = 2 if palette.hairline == palette.text else 1
        self.setStyleSheet(
            f"""{segments_style(palette)}
QScrollArea, QWidget#rows {{ background: {palette.background}; border: none; }}
QScrollArea#call, QWidget#call {{ background: transparent; border: none; }}
QFrame#news {{
    background: {palette.surface}; border: {line}px solid {palette.hairline}; border-radius: 6px;
}}
"""
        )
