"""One server of tools on its page: its state, its switch, and in full what it offers and logs."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.domain.tool_servers import Offered, ServerPhase, ServerRow
from app.domain.visible_text import on_one_line, written_out
from app.system.translation import isolated, listed, sentences, tr, trn
from app.ui.theme.theme import BODY, SMALL, code_font, font
from app.ui.tools.code_text import CodeText
from app.ui.widgets.cards import button_line, framed, show_words, wrapped
from app.ui.widgets.controls import (
    ElidedLabel,
    TextButton,
    label,
    make_selectable,
    set_property,
)
from app.ui.widgets.switch import Switch
from app.ui.widgets.switch_row import SwitchRow

_LOG_LINES = 10  # that are seen without scrolling


class ServerCard(QFrame):
    """Shows a server; emits the user's requests."""

    switched = Signal(bool)
    restarted = Signal()
    cancelled = Signal()
    edited = Signal()
    deleted = Signal()
    opened = Signal(bool)  # its details are shown
    with_app_changed = Signal(bool)
    logged_out = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.name = label("", "", BODY, wraps=True)
        self.name.setFont(font(BODY, QFont.Weight.Medium))
        self.where = ElidedLabel("secondary", code_font(SMALL), Qt.TextElideMode.ElideMiddle)
        self.words = wrapped("")
        self.notice = wrapped("", "warning")
        self.switch = Switch()
        self.restart = TextButton(tr("Restart"), "outlined")
        self.cancel = TextButton(tr("Cancel"), "outlined")
        self.edit = TextButton(tr("Edit"), "outlined")
        self.delete = TextButton(tr("Delete"), "outlined")
        self.details_button = TextButton(tr("Details"), "outlined")
        self.details_button.setCheckable(True)
        self.details = _Details()
        top = QHBoxLayout()
        top.addWidget(self.name, 1)
        top.addWidget(self.switch, 0, Qt.AlignmentFlag.AlignTop)
        layout = framed(self)
        layout.addLayout(top)
        for part in (self.where, self.words, self.notice):
            layout.addWidget(part)
        buttons = (self.details_button, self.cancel, self.restart, self.edit, self.delete)
        layout.addWidget(button_line(*buttons))
        layout.addWidget(self.details)
        self.details.hide()
        self.switch.clicked.connect(self.switched)
        self.restart.clicked.connect(self.restarted)
        self.cancel.clicked.connect(self.cancelled)
        self.edit.clicked.connect(self.edited)
        self.delete.clicked.connect(self.deleted)
        self.details_button.clicked.connect(self._open)
        self.details.with_app.switched.connect(self.with_app_changed)
        self.details.log_out.clicked.connect(self.logged_out)

    def show_server(self, row: ServerRow) -> None:
        """Show a server."""
        name = isolated(on_one_line(row.name))
        tone, words = state_words(row)
        self.name.setText(name)
        self.where.show_words(row.where)
        self.where.setVisible(self.details.isHidden())
        set_property(self.words, "tone", tone)
        show_words(self.words, words)
        show_words(self.notice, on_one_line(row.notice))
        starts = row.phase in (ServerPhase.STARTING, ServerPhase.LOGIN)
        is_on = starts or row.phase is ServerPhase.READY or (
            row.is_on and row.phase is ServerPhase.FAILED
        )  # fmt: skip
        self.switch.setChecked(is_on)
        self.switch.setAccessibleName(name)
        self.switch.setAccessibleDescription(words)
        self.cancel.setVisible(starts)
        self.restart.setVisible(row.phase in (ServerPhase.READY, ServerPhase.FAILED))
        for button in (self.restart, self.cancel, self.edit, self.delete, self.details_button):
            button.setAccessibleName(tr("{action}: {name}", action=button.text(), name=row.name))
        self.details.show_server(row)

    def show_asking(self) -> None:
        """Show that the user is asked whether it may start."""
        self.switch.setChecked(True)
        set_property(self.words, "tone", "secondary")
        show_words(self.words, tr("It starts when you allow it above."))

    def set_open(self, is_open: bool) -> None:
        """Show or hide the details."""
        self.details_button.setChecked(is_open)
        self.details.setVisible(is_open)
        self.where.setVisible(not is_open)  # the details have it in full

    def _open(self, is_open: bool) -> None:
        self.set_open(is_open)
        self.opened.emit(is_open)


class _Details(QWidget):
    """All that a server offers, its log, and whether it starts with the app."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: tuple[object, ...] = ()
        self.facts = wrapped("")
        make_selectable(self.facts)
        self.command = CodeText(tr("Command or address"))
        self.with_app = SwitchRow(tr("Start with Tokonoma"))
        self.log_out = TextButton(tr("Log out"), "outlined")
        self._offers = QVBoxLayout()
        self._offers.setSpacing(2)
        self.log_heading = _heading(tr("Log"))
        self.log = CodeText(tr("Log"), _LOG_LINES)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 4, 0, 4)
        layout.setSpacing(4)
        for part in (self.facts, self.command, self.with_app):
            layout.addWidget(part)
        layout.addWidget(self.log_out, 0, Qt.AlignmentFlag.AlignLeading)
        layout.addLayout(self._offers)
        layout.addWidget(self.log_heading)
        layout.addWidget(self.log)

    def show_server(self, row: ServerRow) -> None:
        show_words(self.facts, on_one_line(row.program))
        self.command.show_text(row.where)
        words = tr("Otherwise it starts when a chat that uses it is shown.")
        if row.asks_first:
            words = sentences(words, tr("Before the first start you are always asked."))
        self.with_app.show_state(tr("Start with Tokonoma"), words, on=row.with_app)
        self.log_out.setVisible(row.is_http)
        shown = (row.tools, row.resources, row.prompts)
        if shown != self._shown:
            self._shown = shown
            self._rebuild(row)

    def show_log(self, lines: Sequence[str]) -> None:
        self.log.show_text("\n".join(lines) or tr("Nothing yet."))

    def _rebuild(self, row: ServerRow) -> None:
        while (item := self._offers.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for title, offers in (
            (tr("Tools"), row.tools),
            (tr("Resources"), row.resources),
            (tr("Prompts"), row.prompts),
        ):
            if offers:
                self._offers.addWidget(_heading(title))
            for each in offers:
                self._offers.addWidget(_offer(each))


def _offer(offered: Offered) -> QWidget:
    """A tool, a resource or a prompt, with its description in full, as plain text."""
    made = QWidget()
    layout = QVBoxLayout(made)
    layout.setContentsMargins(0, 2, 0, 6)
    layout.setSpacing(0)
    title = label(isolated(on_one_line(offered.title or offered.id)), "", SMALL, wraps=True)
    title.setFont(font(SMALL, QFont.Weight.Medium))
    layout.addWidget(title)
    if offered.title and offered.id != offered.title:
        layout.addWidget(wrapped(isolated(on_one_line(offered.id))))
    if offered.about:
        about = wrapped(written_out(offered.about))
        make_selectable(about)
        layout.addWidget(about)
    return made


def _heading(words: str) -> QWidget:
    heading = label(words, "secondary", SMALL)
    heading.setFont(font(SMALL, QFont.Weight.DemiBold))
    heading.setContentsMargins(0, 8, 0, 0)
    return heading


def state_words(row: ServerRow) -> tuple[str, str]:
    """The tone and the words of a server's state."""
    match row.phase:
        case ServerPhase.STARTING:
            return "secondary", tr("Starting…")
        case ServerPhase.LOGIN:
            return "secondary", tr("Waits for your login in the browser.")
        case ServerPhase.READY:
            return "secondary", sentences(tr("Running."), offers_words(row))
        case ServerPhase.FAILED:
            return "danger", sentences(written_out(row.problem), row.remedy)
        case ServerPhase.OFF if row.asks_first and row.was_allowed:
            return "warning", tr("Off. It was changed since you allowed it, and asks first.")
        case ServerPhase.OFF if row.is_on and not row.asks_first:
            return "secondary", tr("Starts when a chat that uses it is shown.")
        case ServerPhase.OFF:
            return "secondary", tr("Off.")


def offers_words(row: ServerRow) -> str:
    """How many tools, resources and prompts a server has."""
    parts = [trn("{count} tool", "{count} tools", len(row.tools))]
    if row.resources:
        parts.append(trn("{count} resource", "{count} resources", len(row.resources)))
    if row.prompts:
        parts.append(trn("{count} prompt", "{count} prompts", len(row.prompts)))
    return f"{listed(parts)}."
