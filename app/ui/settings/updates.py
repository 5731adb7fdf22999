"""Updates in the About section: this version, a newer one and its package, and former ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shlex import quote

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QGuiApplication
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout, QWidget

from app import __version__
from app.domain.release import InstallKind
from app.settings.table import Settings
from app.state.updates import GetPhase, Leftover, UpdateState, UpdateStatus
from app.system.byte_size import size
from app.system.translation import isolated, sentences, tr
from app.ui.theme.theme import BODY, SMALL, code_font, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, align_text_at_start, label, make_selectable
from app.ui.widgets.switch_row import SwitchRow
from app.ui.widgets.units import lately
from app.ui.widgets.wrap import WrapLayout


class UpdatesSection(QWidget):
    """Shows the state of updates; emits the user's requests."""

    changed = Signal(str, object)  # name and valid value of a setting
    notes_requested = Signal(str)  # "": of this version; else Markdown of a newer one
    check_requested = Signal()
    get_requested = Signal()
    stop_requested = Signal()
    install_requested = Signal()
    folder_requested = Signal(Path)
    page_requested = Signal(str)  # address
    removal_requested = Signal(Path)

    def __init__(self, state: UpdateState) -> None:
        super().__init__()
        self._state, self._settings = state, Settings()
        self.version = label(f"Tokonoma {__version__}", "", BODY)
        self.version.setFont(font(BODY, QFont.Weight.Medium))
        self.notes = TextButton(tr("What is new in this version"), "link")
        self.weekly = SwitchRow(tr("Look for newer versions once a week"))
        self.check = TextButton(tr("Look for a newer version now"), "outlined")
        self.line = _wrapped()
        self.fault = _wrapped("danger")
        self.card = _Card()
        self.leftovers = QWidget()
        self.leftover_fault = _wrapped("danger")
        self._lay_out()
        self._connect()
        self.refresh()

    def _lay_out(self) -> None:
        rows = QVBoxLayout(self)
        rows.setContentsMargins(0, 0, 0, 0)
        rows.setSpacing(4)
        align_text_at_start(self.notes)
        for part in (self.version, _row(self.notes), self.card, self.weekly, _row(self.check)):
            rows.addWidget(part)
        for part in (self.line, self.fault, self.leftovers, self.leftover_fault):
            rows.addWidget(part)
        rows.addSpacing(8)
        self._rows = QVBoxLayout(self.leftovers)
        self._rows.setContentsMargins(0, 0, 0, 0)
        self._shown: tuple[Leftover, ...] = ()

    def _connect(self) -> None:
        self.notes.clicked.connect(lambda: self.notes_requested.emit(""))
        self.weekly.switched.connect(partial(self.changed.emit, "check_updates"))
        self.check.clicked.connect(self.check_requested)
        self.card.notes.clicked.connect(self._show_notes)
        self.card.page.clicked.connect(self._show_page)
        self.card.get.clicked.connect(self.get_requested)
        self.card.stop.clicked.connect(self.stop_requested)
        self.card.install.clicked.connect(self.install_requested)
        self.card.folder.clicked.connect(self._show_folder)
        self._state.changed.connect(self.refresh)

    # --- called by the page ---------------------------------------------------------------------

    def show_settings(self, settings: Settings) -> None:
        """Show the current settings."""
        self._settings = settings
        self.refresh()

    def refresh(self) -> None:
        """Show the state."""
        status, offline = self._state.status, self._settings.offline
        host = isolated(status.host)
        words = tr(
            "Asks {host} which version is the newest. Only the request is sent: no version, nothing "
            "about you or this computer.",
            host=host,
        )
        name = tr("Look for newer versions once a week")
        self.weekly.show_state(name, words, on=self._settings.check_updates)
        for part in (self.weekly, self.check):
            part.setVisible(bool(status.host))
        self.check.setEnabled(not status.checking and not offline)
        self.line.setText(_line(status, offline=offline))
        self.line.setVisible(bool(self.line.text()))
        _show(self.fault, status.fault)
        self.card.show_status(status, offline=offline)
        _show(self.leftover_fault, status.leftover_fault)
        self._show_leftovers(status.leftovers)

    # --- steps ----------------------------------------------------------------------------------

    def _show_leftovers(self, leftovers: tuple[Leftover, ...]) -> None:
        if leftovers == self._shown:
            return
        self._shown = leftovers
        while (item := self._rows.takeAt(0)) is not None:
            if (old := item.widget()) is not None:
                old.deleteLater()
        for each in leftovers:
            words = _wrapped()
            words.setText(
                tr("Version {version} is no longer needed, since this one has answered: {folder}",
                   version=each.version, folder=isolated(str(each.folder)))
            )  # fmt: skip
            words.show()
            button = TextButton(
                tr("Delete version {version}", version=isolated(each.version)), "outlined"
            )
            button.clicked.connect(partial(self.removal_requested.emit, each.folder))
            self._rows.addWidget(words)
            self._rows.addWidget(_row(button))
        self.leftovers.setVisible(bool(leftovers))

    def _show_notes(self) -> None:
        newer = self._state.status.newer
        if newer is not None:
            self.notes_requested.emit(newer.notes)

    def _show_page(self) -> None:
        newer = self._state.status.newer
        if newer is not None:
            self.page_requested.emit(newer.page)

    def _show_folder(self) -> None:
        if self._state.status.file is not None:
            self.folder_requested.emit(self._state.status.file)


class _Card(QFrame):
    """The newer version: what it is, how to get it, and what to do then."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("news")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.title = label("", "", BODY)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.words = _wrapped()
        self.command = label("", "", SMALL, wraps=True)
        self.command.setFont(code_font(SMALL))
        make_selectable(self.command)
        self.fault = _wrapped("danger")
        self.get = TextButton(tr("Get it"), "outlined")
        self.stop = TextButton(tr("Cancel"), "outlined")
        self.install = TextButton(tr("Quit and install"), "outlined")
        self.folder = TextButton(tr("Show in folder"), "outlined")
        self.copy = TextButton(tr("Copy the command"), "outlined")
        self.notes = TextButton(tr("What is new"), "link")
        self.page = TextButton(tr("Open its page in the browser"), "link")
        self.copy.clicked.connect(self._copy)
        for link in (self.notes, self.page):  # in line with the buttons beside them
            link.setMinimumHeight(self.stop.sizeHint().height())
        layout = QVBoxLayout(self)
        layout.setContentsMargins(12, 8, 12, 8)
        layout.setSpacing(4)
        buttons = _row(
            self.get, self.stop, self.install, self.folder, self.copy, self.notes, self.page
        )
        for part in (self.title, self.words, self.command, self.fault, buttons):
            layout.addWidget(part)

    def show_status(self, status: UpdateStatus, *, offline: bool) -> None:
        """Show the newer version; hidden without one."""
        newer, package = status.newer, status.package
        self.setVisible(newer is not None)
        if newer is None:
            return
        self.title.setText(tr("Version {version} is available", version=str(newer.version)))
        _show(self.words, _card_words(status))
        command = _command(status)
        _show(self.command, command)
        _show(self.fault, status.get_fault)
        ready = status.phase is GetPhase.READY
        may_get = package is not None and status.phase in (GetPhase.NONE, GetPhase.FAILED)
        if package is not None:
            amount = size(package.size_bytes)
            again = status.phase is GetPhase.FAILED
            self.get.setText(
                tr("Try again ({size})", size=amount)
                if again
                else tr("Get it ({size})", size=amount)
            )
        self.get.setEnabled(not offline)
        self.get.setVisible(may_get)
        self.stop.setVisible(status.phase is GetPhase.GETTING)
        self.install.setVisible(ready and status.kind is InstallKind.SETUP)
        self.folder.setVisible(ready)
        self.copy.setVisible(bool(command))
        self.notes.setVisible(bool(newer.notes))
        self.page.setVisible(bool(newer.page))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.command.text())
        accessibility.announce(self, tr("Copied"))


def _line(status: UpdateStatus, *, offline: bool) -> str:
    """What is known of newer versions, below the switch."""
    if not status.host:
        return tr("This build looks for no newer versions. Get them where you got this one.")
    if offline:
        return tr("Tokonoma is offline: it looks for no newer versions.")
    if status.checking:
        return tr("Looking for a newer version…")
    if not status.checked:
        return ""
    when = tr("Looked last: {time}.", time=lately(status.checked))
    if status.known:
        found = tr("Version {version} was found. Look now to get it.", version=status.known)
        return sentences(found, when)
    if status.newer is None and not status.fault:
        return sentences(tr("This is the newest version."), when)
    return when


def _card_words(status: UpdateStatus) -> str:
    """What to do for the newer version."""
    if status.too_old:
        return tr(
            "It needs a newer system than this one: {system} {version} or newer.",
            system=_system(status.kind),
            version=status.too_old,
        )
    if status.phase is GetPhase.GETTING:
        return tr("Getting it: {percent} %", percent=status.percent)
    if status.phase is GetPhase.READY:
        return sentences(tr("It is in your downloads, and verified."), _next_step(status.kind))
    if status.kind is InstallKind.SOURCE:
        return tr("Get it as you got this version: with git or pip.")
    if status.kind is InstallKind.FLATPAK:
        return tr("Update it in your software centre, or with this command:")
    if status.package is None:
        return tr("There is no package of it for this computer.")
    return tr("Nothing is installed before you do it. Your chats and models stay.")


def _next_step(kind: InstallKind) -> str:
    match kind:
        case InstallKind.SETUP:
            return tr("This version is kept until the new one has answered.")
        case InstallKind.DEB | InstallKind.RPM:
            return tr("Install it in your software centre, or with this command:")
        case InstallKind.MAC:
            return tr("Open it, and move Tokonoma into your applications.")
        case InstallKind.ARCHIVE:
            return tr(
                "Unpack it and run install.sh in its folder. This version stays; it can be deleted here "
                "once the new one has answered."
            )
        case _:
            return tr(
                "Unpack it into a new folder. If this one has a folder Data, close Tokonoma and move "
                "Data there. This version stays; it can be deleted here once the new one has answered."
            )


def _command(status: UpdateStatus) -> str:
    """The command that installs the newer version; "": there is none."""
    if status.kind is InstallKind.FLATPAK:
        return "flatpak update"
    if status.phase is not GetPhase.READY or status.file is None:
        return ""
    programs = {InstallKind.DEB: "apt", InstallKind.RPM: "dnf"}
    program = programs.get(status.kind)
    return f"sudo {program} install {quote(str(status.file))}" if program else ""


def _system(kind: InstallKind) -> str:
    if kind is InstallKind.MAC:
        return "macOS"
    return "Windows" if kind in (InstallKind.SETUP, InstallKind.PORTABLE) else "glibc"


def _row(*buttons: QWidget) -> QWidget:
    line = QWidget()
    row = WrapLayout(line, 8, centred=False)
    for button in buttons:
        row.addWidget(button)
    return line


def _wrapped(tone: str = "secondary") -> QLabel:
    line = label("", tone, SMALL, wraps=True)
    line.hide()
    return line


def _show(line: QLabel, words: str) -> None:
    line.setText(words)
    line.setVisible(bool(words))
