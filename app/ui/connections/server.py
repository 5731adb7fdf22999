"""Section of the server: its switch, address, key and settings, who uses it, and its log."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QPlainTextEdit, QVBoxLayout, QWidget

from app.settings.table import SETTINGS, Settings
from app.state.server import ClientRow, LogRow, ServerPhase, ServerState, ServerStatus
from app.system.translation import isolated, number, sentences, tr, trn
from app.ui.connections.parts import CopyButton, ValueRow
from app.ui.settings.row import PreferenceRow
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets.cards import show_words, wrapped
from app.ui.widgets.controls import TextButton, section_heading
from app.ui.widgets.row_list import RowList
from app.ui.widgets.switch_row import SwitchRow
from app.ui.widgets.units import lately

_ROWS = tuple(name for name, setting in SETTINGS.items() if setting.group == "server")
_HIDDEN_KEY = "•" * 16
_LOG_HEIGHT = 264  # pixels: five requests
_TEXT_HEIGHT = 160  # pixels, of the texts of one request


class ServerSection(QWidget):
    """Shows the status of the server; emits the user's changes as signals."""

    changed = Signal(str, object)  # name and valid value of a setting
    key_requested = Signal()  # a new one, made at random

    def __init__(self, state: ServerState) -> None:
        super().__init__()
        self._state = state
        self._settings = Settings()
        self._key_shown = False
        self._log: tuple[LogRow, ...] = ()
        self.switch = SwitchRow(tr("Let other programs use your models"))
        self.problem = wrapped("", "danger")
        self.copy_button = CopyButton(tr("Copy the address"))
        self.address = ValueRow(tr("Address"), self.copy_button)
        self.copy_other = CopyButton(tr("Copy the address for other devices"))
        self.other_address = ValueRow(tr("Address for other devices"), self.copy_other)
        self.rows = {
            name: PreferenceRow(name, SETTINGS[name], getattr(Settings(), name)) for name in _ROWS
        }
        self.warning = wrapped("", "warning")
        self.show_key = TextButton(tr("Show"), "outlined")
        self.copy_key = CopyButton(tr("Copy the key"))
        self.new_key = TextButton(tr("Make a key"), "outlined")
        self.no_key = TextButton(tr("Use no key"), "outlined")
        self.key = ValueRow(tr("Key"), self.show_key, self.copy_key, self.new_key, self.no_key)
        self.closed = SwitchRow(tr("Keep serving when the window is closed"))
        self.users = section_heading(tr("Programs that use it"))
        self.counts = wrapped("")
        self.clients = wrapped("", "")
        self.requests = section_heading(tr("Requests"))
        self.texts = SwitchRow(tr("Keep the texts too"))
        self.log = RowList(tr("Requests"), several=False)
        self.log.setMinimumHeight(_LOG_HEIGHT)
        self.log_text = QPlainTextEdit()
        self.log_text.setReadOnly(True)
        self.log_text.setTabChangesFocus(True)
        self.log_text.setFixedHeight(_TEXT_HEIGHT)
        self.log_text.setAccessibleName(tr("Texts of the request"))
        self.log_text.hide()
        self._lay_out()
        self._connect()
        self.refresh()

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        self.counts.setFont(figures(SMALL))
        for part in (
            section_heading(tr("Server")),
            self.switch,
            self.problem,
            self.address,
            self.rows["serve_network"],
            self.warning,
            self.other_address,
            self.key,
            self.rows["serve_port"],
            self.rows["serve_minutes"],
            self.closed,
            self.users,
            self.counts,
            self.clients,
            self.requests,
            self.texts,
            self.log,
            self.log_text,
        ):
            layout.addWidget(part)

    def _connect(self) -> None:
        for name, row in (
            ("serve", self.switch),
            ("serve_closed", self.closed),
            ("serve_texts", self.texts),
        ):
            row.switched.connect(partial(self.changed.emit, name))
        for row in self.rows.values():
            row.changed.connect(self.changed)
        self.show_key.clicked.connect(self._toggle_key)
        self.new_key.clicked.connect(self.key_requested)
        self.no_key.clicked.connect(lambda: self.changed.emit("serve_key", ""))
        self.log.currentRowChanged.connect(self._show_texts)
        self._state.changed.connect(self.refresh)

    # --- called by the page ---------------------------------------------------------------------

    def show_settings(self, settings: Settings) -> None:
        """Show the settings; unfinished typing is kept."""
        self._settings = settings
        values = asdict(settings)
        for name, row in self.rows.items():
            row.show_value(values[name])
        self.refresh()

    def finish(self) -> None:
        """Commit what is typed."""
        for row in self.rows.values():
            row.finish()

    def set_narrow(self, narrow: bool) -> None:
        """Place fields below their names (narrow) or beside them."""
        for row in self.rows.values():
            row.set_narrow(narrow)

    def refresh(self) -> None:
        """Show the status and the settings."""
        status, settings = self._state.status, self._settings
        self.setVisible(status.offered)
        self.switch.show_state(
            tr("Let other programs use your models"), _status_words(status), on=settings.serve
        )
        show_words(self.problem, sentences(status.problem, status.remedy))
        first, *others = status.addresses or ("",)
        self.address.setVisible(bool(first))
        self.copy_button.text_to_copy = first
        hint = tr("If a program asks for the base URL of OpenAI, add /v1 to it.")
        self.address.show_value(first, hint)
        self.other_address.setVisible(bool(others))
        self.copy_other.text_to_copy = others[0] if others else ""
        self.other_address.show_value("\n".join(others))
        for part in (*self.rows.values(), self.key, self.closed):
            part.setVisible(settings.serve)
        show_words(self.warning, _network_warning(settings) if settings.serve else "")
        self._show_key_row()
        words = tr("A symbol beside the clock shows that it runs, and opens the window again.")
        none = tr(
            "This desktop has no place for a symbol, so closing the window ends the server too."
        )
        self.closed.show_state(
            tr("Keep serving when the window is closed"),
            words if status.has_tray else none,
            on=settings.serve_closed and status.has_tray,
        )
        self.closed.switch.setEnabled(status.has_tray)
        self._show_use(status, settings)

    # --- steps ----------------------------------------------------------------------------------

    def _show_key_row(self) -> None:
        key = self._settings.serve_key
        self.copy_key.text_to_copy = key
        if not key:
            self._key_shown = False
        without = tr("Without a key every program that reaches the address can use the models.")
        words = tr("Other programs ask for it as “API key”.") if key else without
        self.key.show_value((key if self._key_shown else _HIDDEN_KEY) if key else "", words)
        self.show_key.setText(tr("Hide") if self._key_shown else tr("Show"))
        self.new_key.setText(tr("Make a new key") if key else tr("Make a key"))
        for button in (self.show_key, self.copy_key, self.no_key):
            button.setVisible(bool(key))

    def _toggle_key(self) -> None:
        self._key_shown = not self._key_shown
        self._show_key_row()

    def _show_use(self, status: ServerStatus, settings: Settings) -> None:
        used = status.phase is ServerPhase.ON or bool(status.requests)
        for part in (self.users, self.requests, self.texts, self.log):
            part.setVisible(used)
        show_words(self.counts, _counts(status) if used else "")
        show_words(self.clients, "\n".join(map(_client_line, status.clients)) if used else "")
        self.texts.show_state(
            tr("Keep the texts too"),
            tr(
                "While this is off, no text of a request or answer is kept. The list is empty "
                "after a restart."
            ),
            on=settings.serve_texts,
        )
        if status.log != self._log:
            self._log = status.log
            chosen = self.log.currentRow()
            number_ = self.log.entry(chosen) if chosen >= 0 else 0
            bar = self.log.verticalScrollBar()
            place, blocked = bar.value(), self.log.blockSignals(True)
            self.log.clear()
            for row in status.log:
                self.log.add_row(_log_lines(row), row.number)
                if row.number == number_:
                    self.log.setCurrentRow(self.log.count() - 1)
            self.log.blockSignals(blocked)
            bar.setValue(place)
        self.log.setVisible(used and bool(status.log))
        self._show_texts()

    def _show_texts(self) -> None:
        place = self.log.currentRow()
        row = self._log[place] if 0 <= place < len(self._log) else None
        text = "\n\n".join(filter(None, (row.prompt, row.answer))) if row else ""
        before = self.log_text.toPlainText()
        if text != before:
            bar = self.log_text.verticalScrollBar()
            at = bar.value() if text.startswith(before) else 0  # the same answer, longer
            self.log_text.setPlainText(text)
            bar.setValue(at)
        self.log_text.setVisible(bool(text) and not self.log.isHidden())


def _status_words(status: ServerStatus) -> str:
    match status.phase:
        case ServerPhase.STARTING:
            return tr("Starting…")
        case ServerPhase.STOPPING:
            return tr("Stopping…")
        case ServerPhase.ON:
            return tr(
                "On. Programs that speak to an OpenAI, Anthropic or Ollama server can use it."
            )
        case ServerPhase.OFF | ServerPhase.FAILED:
            return tr("For programs that speak to an OpenAI, Anthropic or Ollama server.")


def _network_warning(settings: Settings) -> str:
    if settings.serve_network != "network":
        return ""
    if settings.offline:
        return tr("While Tokonoma is offline, only this computer can reach it.")
    if not settings.serve_key:
        return tr("Every device in your network can use the models. Make a key to prevent that.")
    return tr("Devices in your network can reach it. What they send is not encrypted.")


def _counts(status: ServerStatus) -> str:
    parts = [trn("{count} request so far", "{count} requests so far", status.requests)]
    if status.running:
        parts.append(trn("{count} is being answered", "{count} are being answered", status.running))
    if status.failed:
        parts.append(trn("{count} failed", "{count} failed", status.failed))
    if not status.clients:
        parts.append(tr("nobody is connected now"))
    return " · ".join(parts)


def _client_line(client: ClientRow) -> str:
    name = client.name or tr("Unnamed program")
    requests = trn("{count} request", "{count} requests", client.requests)
    now = tr("is being answered") if client.running else lately(client.last)
    return " · ".join((isolated(name), isolated(client.address), requests, now))


def _log_lines(row: LogRow) -> str:
    facts = [lately(row.began), isolated(row.client), isolated(row.model)]
    if row.is_running:
        facts.append(tr("is being answered"))
    elif row.outcome:
        facts.append(row.outcome)
    else:
        facts.append(tr("{seconds} s", seconds=number(row.seconds, 1)))
        if row.prompt_tokens or row.generated_tokens:
            tokens = tr(
                "{read} tokens read, {written} written",
                read=number(row.prompt_tokens),
                written=number(row.generated_tokens),
            )
            facts.append(tokens)
    status = f" {row.status}" if row.status else ""
    return f"{isolated(f'{row.method} {row.path}{status}')}\n{' · '.join(filter(None, facts))}"
