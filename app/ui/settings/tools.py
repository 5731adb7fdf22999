"""Tools section of the settings: the key of a search service, and links to what belongs to it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.settings.table import SEARCH_PROVIDERS, Setting, Settings
from app.system.translation import tr
from app.ui.settings.fields import LineField
from app.ui.settings.row import PreferenceRow
from app.ui.widgets.controls import TextButton, align_text_at_start


class ToolsSettings(QWidget):
    """Emits a typed key; it is shown nowhere and is in no file of settings."""

    key_changed = Signal(str, str)  # one of SEARCH_PROVIDERS, and its key; "": remove it
    key_wanted = Signal(str)  # one of SEARCH_PROVIDERS: say whether it has a key, by `show_key`
    activity_requested = Signal()
    servers_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._provider = ""  # whose key can be typed; "": none is needed
        about = Setting(
            tr("API key"),
            tr("Of your account at the search service. Only your account here can read it."),
        )
        self.key = PreferenceRow("search_key", about, "")
        field = self.key.field
        assert isinstance(field, LineField)
        self.key_line = field.line
        self.key_line.setEchoMode(QLineEdit.EchoMode.Password)
        self.forget_key = TextButton(tr("Remove the key"), "link")
        self.activity_button = TextButton(tr("What tools did…"), "link")
        self.servers_button = TextButton(tr("Servers of tools…"), "link")
        for link in (self.forget_key, self.activity_button, self.servers_button):
            align_text_at_start(link)
        self._line = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._line.setContentsMargins(0, 4, 0, 0)
        for link in (self.activity_button, self.servers_button):
            self._line.addWidget(link)
        self._line.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 8)
        layout.setSpacing(0)
        layout.addWidget(self.key)
        layout.addWidget(self.forget_key, 0, Qt.AlignmentFlag.AlignLeading)
        layout.addLayout(self._line)
        self.key.changed.connect(self._on_key)
        self.forget_key.clicked.connect(self._forget)
        self.activity_button.clicked.connect(self.activity_requested)
        self.servers_button.clicked.connect(self.servers_requested)
        self.set_narrow(False)
        self._show_provider("")

    # --- called by the page and the wiring ------------------------------------------------------

    def show_settings(self, settings: Settings) -> None:
        """Show the field of a key for a service that needs one."""
        provider = settings.search_provider
        needs_key = bool(SEARCH_PROVIDERS.get(provider))
        if self._provider != (provider if needs_key else ""):
            self._show_provider(provider if needs_key else "")

    def show_key(self, provider: str, *, kept: bool) -> None:
        """Say whether a key of a service is kept."""
        if provider == self._provider:
            self.forget_key.setVisible(kept)
            words = tr("Kept; type a new one to replace it") if kept else ""
            self.key_line.setPlaceholderText(words)

    def ask(self) -> None:
        """Ask again whether there is a key."""
        if self._provider:
            self.key_wanted.emit(self._provider)

    def set_narrow(self, narrow: bool) -> None:
        """Place the links below one another (narrow window) or side by side."""
        direction = QBoxLayout.Direction
        self.key.set_narrow(narrow)
        self._line.setDirection(direction.TopToBottom if narrow else direction.LeftToRight)
        self._line.setSpacing(0 if narrow else 16)
        for link in (self.activity_button, self.servers_button):
            self._line.setAlignment(link, Qt.AlignmentFlag.AlignLeading)

    # --- steps ----------------------------------------------------------------------------------

    def _show_provider(self, provider: str) -> None:
        self._provider = provider
        self.key.show_value("")
        self.key.restore()  # a key typed for another service is not for this one
        self.key.setVisible(bool(provider))
        self.forget_key.hide()
        self.key_line.setPlaceholderText("")
        self.ask()

    def _on_key(self, _name: str, value: object) -> None:
        if key := str(value):
            self.key.show_value("")
            self.key_changed.emit(self._provider, key)

    def _forget(self) -> None:
        self.key_line.setFocus(Qt.FocusReason.OtherFocusReason)
        self.key_changed.emit(self._provider, "")
