"""Page of connections: the offline switch, the server, engines elsewhere, and every contact."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QWidget

from app.settings.table import Settings
from app.state.connections import ConnectionsState
from app.state.server import ServerState
from app.system.translation import tr
from app.ui.connections.contacts import ContactsSection
from app.ui.connections.engines import EnginesSection
from app.ui.connections.server import ServerSection
from app.ui.settings.fields import segments_style
from app.ui.theme.palette import Palette
from app.ui.widgets.controls import TextButton, align_text_at_start
from app.ui.widgets.scroll_page import ScrollPage
from app.ui.widgets.switch_row import SwitchRow


class ConnectionsPage(ScrollPage):
    """Shows what the app is connected to; its sections emit the user's requests."""

    changed = Signal(str, object)  # name and valid value of a setting
    hidden = Signal()
    tool_servers_requested = Signal()  # their page

    def __init__(
        self, settings: Settings, connections: ConnectionsState, server: ServerState
    ) -> None:
        super().__init__(tr("Connections"))
        self.offline = SwitchRow(tr("Offline"))
        self.server = ServerSection(server)
        self.engines = EnginesSection(connections)
        self.contacts = ContactsSection(connections)
        self.tool_servers = TextButton(tr("Servers of tools…"), "link")
        align_text_at_start(self.tool_servers)
        self._lay_out()
        self._connect()
        self.show_settings(settings)

    def _lay_out(self) -> None:
        rows = self.lay_out(self)
        for part in (self.offline, self.server, self.engines):
            rows.addWidget(part)
        rows.addSpacing(16)
        rows.addWidget(self.tool_servers, 0, Qt.AlignmentFlag.AlignLeading)
        rows.addWidget(self.contacts)
        rows.addStretch(1)

    def _connect(self) -> None:
        self.offline.switched.connect(partial(self.changed.emit, "offline"))
        self.server.changed.connect(self.changed)
        self.tool_servers.clicked.connect(self.tool_servers_requested)
        self.engines.editor.reached.connect(self._scroll_to, Qt.ConnectionType.QueuedConnection)
        self.follow_focus()

    # --- called by the window and the wiring ----------------------------------------------------

    def show_settings(self, settings: Settings) -> None:
        """Show the current settings; unfinished typing is kept."""
        words = (
            tr("Tokonoma connects to nothing. Chats with models on this computer still work.")
            if settings.offline
            else tr(
                "Stops downloads, searches and engines elsewhere. Nothing connects until you "
                "switch it off."
            )
        )
        self.offline.show_state(tr("Offline"), words, on=settings.offline)
        self.server.show_settings(settings)

    def show_engines(self) -> None:
        """Scroll to the engines elsewhere; the keyboard is at what adds one."""
        self.engines.add.setFocus(Qt.FocusReason.OtherFocusReason)
        QTimer.singleShot(0, self._scroll_to_engines)  # they are laid out by then

    # --- steps ----------------------------------------------------------------------------------

    def _scroll_to_engines(self) -> None:
        top = self.engines.mapTo(self.column, QPoint()).y()
        self.view.verticalScrollBar().setValue(top)

    def _scroll_to(self, part: QWidget) -> None:
        """Show a part, which is laid out by now."""
        self.view.ensureWidgetVisible(part, 0, 24)

    # --- Qt and the base ------------------------------------------------------------------------

    def _style(self, p: Palette) -> str:
        return super()._style(p) + segments_style(p)

    def _set_narrow(self, narrow: bool) -> None:
        self.server.set_narrow(narrow)
        self.engines.set_narrow(narrow)

    def _leave(self) -> None:
        if self.engines.editor.isHidden():
            self.closed.emit()
        else:
            self.engines.close_editor()

    def hideEvent(self, event: QHideEvent) -> None:
        self.server.finish()
        super().hideEvent(event)
        if not event.spontaneous():
            self.hidden.emit()
