"""Page of connections: the offline switch, the server, engines elsewhere, and every contact."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QAccessible, QHideEvent, QKeyEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.settings.table import Settings
from app.state.connections import ConnectionsState
from app.state.server import ServerState
from app.system.translation import tr
from app.ui.connections.contacts import ContactsSection
from app.ui.connections.engines import EnginesSection
from app.ui.connections.server import ServerSection
from app.ui.settings.fields import segments_style
from app.ui.theme.palette import Palette
from app.ui.widgets import accessibility
from app.ui.widgets.controls import Column, IconButton, page_head
from app.ui.widgets.switch_row import SwitchRow

_NARROW = 560  # pixels: in a narrower page the fields are below their text


class ConnectionsPage(QWidget):
    """Shows what the app is connected to; its sections emit the user's requests."""

    changed = Signal(str, object)  # name and valid value of a setting
    opened = Signal()  # the page was shown
    hidden = Signal()
    closed = Signal()

    def __init__(
        self, settings: Settings, connections: ConnectionsState, server: ServerState
    ) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)  # it cannot show the focus of Tab
        accessibility.register_role(ConnectionsPage, QAccessible.Role.Pane)
        self.setAccessibleName(tr("Connections"))
        self.close_button = IconButton("close", tr("Back to the chat"))
        self.offline = SwitchRow(tr("Offline"))
        self.server = ServerSection(server)
        self.engines = EnginesSection(connections)
        self.contacts = ContactsSection(connections)
        self._lay_out()
        self._connect()
        self.show_settings(settings)

    def _lay_out(self) -> None:
        self.view = QScrollArea()
        self.view.setFrameShape(QFrame.Shape.NoFrame)
        self.view.setWidgetResizable(True)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        content = QWidget()
        rows = QVBoxLayout(content)
        rows.setContentsMargins(0, 0, 0, 24)
        rows.setSpacing(0)
        for part in (self.offline, self.server, self.engines, self.contacts):
            rows.addWidget(part)
        rows.addStretch(1)
        self._column = Column(content)
        self._column.setObjectName("rows")
        self._column.setMinimumWidth(1)  # the viewport sets the width
        self.view.setWidget(self._column)
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.setSpacing(0)
        page.addWidget(page_head(tr("Connections"), self.close_button))
        page.addWidget(self.view, 1)

    def _connect(self) -> None:
        self.close_button.clicked.connect(self.closed)
        self.offline.switched.connect(partial(self.changed.emit, "offline"))
        self.server.changed.connect(self.changed)
        self.engines.editor.reached.connect(self._scroll_to, Qt.ConnectionType.QueuedConnection)
        for stop in self.findChildren(QWidget):
            if stop.focusPolicy() & Qt.FocusPolicy.TabFocus:
                stop.installEventFilter(self)

    # --- called by the window and the wiring ----------------------------------------------------

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self.setStyleSheet(_page_style(palette))
        self.close_button.apply_palette(palette)
        self.offline.switch.apply_palette(palette)
        self.server.apply_palette(palette)
        self.contacts.apply_palette(palette)

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

    # --- steps ----------------------------------------------------------------------------------

    def _scroll_to(self, part: QWidget) -> None:
        """Show a part, which is laid out by now."""
        self.view.ensureWidgetVisible(part, 0, 24)

    # --- Qt -------------------------------------------------------------------------------------

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FocusIn and isinstance(watched, QWidget):
            self.view.ensureWidgetVisible(watched, 0, 48)
        return super().eventFilter(watched, event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        bar = self.view.verticalScrollBar()
        actions = {
            Qt.Key.Key_Up: bar.SliderAction.SliderSingleStepSub,
            Qt.Key.Key_Down: bar.SliderAction.SliderSingleStepAdd,
            Qt.Key.Key_PageUp: bar.SliderAction.SliderPageStepSub,
            Qt.Key.Key_PageDown: bar.SliderAction.SliderPageStepAdd,
            Qt.Key.Key_Home: bar.SliderAction.SliderToMinimum,
            Qt.Key.Key_End: bar.SliderAction.SliderToMaximum,
        }
        if event.key() == Qt.Key.Key_Escape:
            if self.engines.editor.isHidden():
                self.closed.emit()
            else:
                self.engines.close_editor()
        elif event.key() in actions:
            bar.triggerAction(actions[Qt.Key(event.key())])
        event.accept()  # nothing typed here reaches the composer

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < _NARROW
        self.server.set_narrow(narrow)
        self.engines.set_narrow(narrow)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not event.spontaneous():
            self.setFocus(Qt.FocusReason.OtherFocusReason)
            self.view.verticalScrollBar().setValue(0)
            self.opened.emit()

    def hideEvent(self, event: QHideEvent) -> None:
        self.server.finish()
        super().hideEvent(event)
        if not event.spontaneous():
            self.hidden.emit()


def _page_style(p: Palette) -> str:
    """The style sheet of the page, for one palette."""
    line = 2 if p.hairline == p.text else 1
    return f"""
QScrollArea, QWidget#rows {{ background: {p.background}; border: none; }}
{segments_style(p)}
QFrame#area {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
QFrame#area[focused="true"] {{ border-color: {p.accent}; }}
QLineEdit[wrong="true"], QLineEdit[wrong="true"]:focus {{ border-color: {p.danger}; }}
QFrame#news {{
    background: {p.surface}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
"""
