"""Settings page, built from the table of settings; every valid change is applied at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import assert_never

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.settings.table import GROUPS, SAMPLING, SETTINGS, Setting, Settings, is_own
from app.settings.used_sampling import Origin, UsedValue
from app.state.connections import ConnectionsState
from app.state.devices import refusal_words
from app.state.gpu import GPUState
from app.state.snapshots import SessionState
from app.state.updates import UpdateState
from app.system import paths
from app.system.translation import tr
from app.ui.settings.about import AboutSection, LicenceView, licences
from app.ui.settings.fields import segments_style, value_words
from app.ui.settings.gpu import GPUSection
from app.ui.settings.notes import NotesView
from app.ui.settings.row import PreferenceRow
from app.ui.settings.storage import StorageSection
from app.ui.settings.tools import ToolsSettings
from app.ui.theme.palette import Palette
from app.ui.widgets.controls import (
    Column,
    TextButton,
    label,
    section_heading,
    set_margins,
    with_scroll_bar_margin,
)
from app.ui.widgets.scroll_page import ScrollPage
from engine import DeviceInfo

ABOUT = "about"


class ReloadLine(QFrame):
    """Notice that the loaded model was loaded with older settings, with a Reload button."""

    reload_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("news")
        self.words = label(tr("This takes effect when the model is loaded again."), wraps=True)
        self.button = TextButton(tr("Reload the model"), "link")
        self.button.clicked.connect(self.reload_requested)
        layout = QHBoxLayout(self)
        set_margins(layout, 12, 6, 6, 6)
        layout.addWidget(self.words, 1)
        layout.addWidget(self.button)
        self.hide()


class Preferences(ScrollPage):
    """Shows the current settings; emits the user's changes as signals."""

    changed = Signal(str, object)  # name and valid value of a setting
    given_up = Signal(str)  # name of a sampling setting whose value is no longer the user's
    delete_requested = Signal()  # delete all session snapshots
    folder_requested = Signal(Path)
    performance_requested = Signal()  # show the performance page
    connections_requested = Signal()  # show the page of connections
    reload_requested = Signal()  # reload the model with the current settings

    def __init__(
        self,
        settings: Settings,
        session_state: SessionState,
        connections: ConnectionsState,
        gpu: GPUState,
        updates: UpdateState,
    ) -> None:
        super().__init__(tr("Settings"))
        self._model_in_use = False
        self.rows: dict[str, PreferenceRow] = {}
        self.headings: dict[str, QLabel] = {}
        self.reload_line = ReloadLine()
        self.gpu = GPUSection(gpu)
        self.storage = StorageSection(session_state)
        self.tools = ToolsSettings()
        found = licences(paths.resources() / "licences")
        self.about = AboutSection(connections, updates, has_licences=bool(found))
        self.licences = LicenceView(found)
        self.notes: NotesView | None = None  # created on demand
        self.connections_button = TextButton(tr("Connections"), "outlined")
        self._make_rows()
        self._lay_out()
        self._connect()
        self.show_settings(settings)

    def _make_rows(self) -> None:
        defaults = asdict(Settings())
        for name, setting in SETTINGS.items():
            if setting.group in GROUPS:
                has_origin = name in SAMPLING
                row = PreferenceRow(name, setting, defaults[name], has_origin=has_origin)
                row.changed.connect(self._on_changed)
                row.given_up.connect(self.given_up)
                self.rows[name] = row

    def _lay_out(self) -> None:
        """Add parents before children: reparenting a widget restyles all of its descendants."""
        self._pages = QStackedWidget(self)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._pages)
        page = QWidget()
        self._pages.addWidget(page)
        self._pages.addWidget(with_scroll_bar_margin(Column(self.licences)))
        self._fill(self.lay_out(page, self.connections_button))

    def _fill(self, content: QVBoxLayout) -> None:
        for group in (*GROUPS, ABOUT):
            self.headings[group] = section_heading(_title(group))
            content.addWidget(self.headings[group])
            if group == "model":
                content.addWidget(self.reload_line)
            for row in self.rows.values():
                if SETTINGS[row.name].group == group:
                    content.addWidget(row)
                if row.name == "runs_on" and group == "model":
                    content.addWidget(self.gpu)
            if group == "storage":
                content.addWidget(self.storage)
            if group == "tools":
                content.addWidget(self.tools)
        content.addWidget(self.about)
        content.addStretch(1)

    def _connect(self) -> None:
        self.connections_button.clicked.connect(self.connections_requested)
        self.reload_line.reload_requested.connect(self.reload_requested)
        self.storage.delete_requested.connect(self.delete_requested)
        self.storage.folder_requested.connect(self.folder_requested)
        self.about.licences_requested.connect(self.show_licences)
        self.about.performance_requested.connect(self.performance_requested)
        self.licences.closed.connect(self._close_licences)
        self.about.updates.changed.connect(self.changed)
        self.about.updates.notes_requested.connect(self.show_notes)
        self.follow_focus()

    # --- called by the window and the wiring ----------------------------------------------------

    def show_settings(
        self, settings: Settings, used: Mapping[str, UsedValue] | None = None, model: str = ""
    ) -> None:
        """Show the current settings; unfinished typing is kept.

        `used` are the sampling values of the model in use, by the names of their settings, and
        `model` is its name.
        """
        used = used or {}
        values = asdict(settings) | {name: one.in_settings for name, one in used.items()}
        for name, row in self.rows.items():
            row.show_value(values[name])
        for name in SAMPLING:
            words = origin_words(SETTINGS[name], used[name], model) if name in used else ""
            self.rows[name].show_origin(words, is_own=is_own(settings, name))
        self.rows["search_address"].setVisible(settings.search_provider == "searxng")
        self.tools.show_settings(settings)
        self.about.show_settings(settings)

    def show_model(self, in_use: bool) -> None:
        """Set whether a model is loaded, and hide the reload notice."""
        self._model_in_use = in_use
        self.reload_line.hide()

    def show_devices(self, devices: Sequence[DeviceInfo]) -> None:
        """Offer the choices that there are on this computer."""
        usable = any(one.refusal is None for one in devices)
        row = self.rows["runs_on"]
        if usable:
            row.offer(SETTINGS["runs_on"].choices)
        else:
            why = refusal_words(devices[0].refusal) if devices and devices[0].refusal else ""
            row.offer(("auto", "cpu"), why or tr("This computer has no GPU that can be used."))

    def show_licences(self) -> None:
        """Show the texts of the licences."""
        self._pages.setCurrentIndex(1)
        self.licences.open()

    def show_notes(self, notes: str = "") -> None:
        """Show the notes of a release, Markdown; "": those of this version and former ones."""
        if self.notes is None:
            self.notes = NotesView()
            self._pages.addWidget(self.notes)
            self.notes.closed.connect(self._close_notes)
        self._pages.setCurrentWidget(self.notes)
        self.notes.show_notes(notes or _own_notes())

    def show_updates(self) -> None:
        """Scroll to what is said of newer versions."""
        QTimer.singleShot(0, self, self._scroll_to_updates)  # it is laid out by then

    # --- steps ----------------------------------------------------------------------------------

    def _scroll_to_updates(self) -> None:
        top = self.headings[ABOUT].mapTo(self.column, QPoint()).y()
        self.view.verticalScrollBar().setValue(top)

    def _close_notes(self) -> None:
        self._pages.setCurrentIndex(0)
        self.about.updates.notes.setFocus(Qt.FocusReason.OtherFocusReason)

    def _on_changed(self, name: str, value: object) -> None:
        if SETTINGS[name].at_load and self._model_in_use:
            self.reload_line.show()
        self.changed.emit(name, value)

    def _close_licences(self) -> None:
        self._pages.setCurrentIndex(0)
        self.about.licences.setFocus(Qt.FocusReason.OtherFocusReason)

    def _set_narrow(self, narrow: bool) -> None:
        for row in self.rows.values():
            row.set_narrow(narrow)
        self.storage.set_narrow(narrow)
        self.tools.set_narrow(narrow)
        self.about.set_narrow(narrow)
        self.licences.set_narrow(narrow)

    # --- Qt and the base ------------------------------------------------------------------------

    def _style(self, p: Palette) -> str:
        line = p.text if p.hairline == p.text else "transparent"
        return f"""{super()._style(p)}
{segments_style(p)}
QFrame#rule {{ background: {p.hairline}; border: none; }}
QListWidget {{ background: transparent; border: none; outline: none; color: {p.text}; }}
QListWidget::item {{ padding: 5px 8px; border: 2px solid transparent; border-radius: 6px; }}
QListWidget::item:hover {{ background: {p.accent_soft}; }}
QListWidget::item:selected {{ background: {p.accent_soft}; color: {p.text}; }}
QListWidget:focus::item:selected {{ border-color: {p.accent}; }}
QListWidget::item:selected {{ border-color: {line}; }}
"""

    def showEvent(self, event: QShowEvent) -> None:
        if not event.spontaneous():
            for row in self.rows.values():
                row.restore()
            self.tools.ask()
        super().showEvent(event)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._pages.setCurrentIndex(0)


def _own_notes() -> str:
    """The release notes that came with the app, without their title."""
    try:
        text = paths.changelog().read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return re.sub(r"\A# .*\n", "", text).strip()


def origin_words(setting: Setting, used: UsedValue, model: str) -> str:
    """Where a sampling value of the model in use comes from."""
    match used.origin:
        case Origin.USUAL:
            return tr("The usual value.")
        case Origin.KNOWN:
            return tr("Recommended for {model}.", model=model)
        case Origin.FILE:
            return tr("Recommended by the file of {model}.", model=model)
        case Origin.MODEL:
            value = value_words(setting, used.value)
            return tr("{model} uses {value}, its own setting.", model=model, value=value)
        case Origin.YOURS:
            if used.recommended is None or used.recommended == used.value:
                return tr("Your choice.")
            value = value_words(setting, used.recommended)
            return tr("Your choice; {value} is recommended for {model}.", value=value, model=model)
        case _:
            assert_never(used.origin)


def _title(group: str) -> str:
    """The heading of a group of settings."""
    titles = {
        "look": tr("Appearance"),
        "answers": tr("Answers"),
        "model": tr("Model"),
        "tools": tr("Tools"),
        "downloads": tr("Downloads"),
        "storage": tr("Storage"),
        ABOUT: tr("About"),
    }
    return titles[group]
