"""Editor of a server of tools: a program with its arguments, or an address with its headers."""

from __future__ import annotations

import json
from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.domain.tool_servers import ServerDraft
from app.settings.table import Setting
from app.system.translation import tr
from app.ui.settings.fields import LineField, TextField
from app.ui.settings.row import PreferenceRow
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.cards import button_line, framed, show_words, wrapped
from app.ui.widgets.controls import IconButton, TextButton, label

_PROGRAM, _ADDRESS = "program", "address"
_OF_PROGRAM = ("command", "arguments", "folder")
_LEAST_SECONDS, _MOST_SECONDS = 1, 600


class PairsEditor(QWidget):
    """Names and secret values, such as variables: values are shown as dots."""

    reached = Signal(QWidget)  # to scroll into view

    def __init__(self, title: str, help: str, add: str, name: str) -> None:
        """`add` is the text of the button for one more, `name` what the first field is called."""
        super().__init__()
        self._name = name
        self.lines: list[tuple[QLineEdit, QLineEdit, bool]] = []  # the last: its value is kept
        self.add_button = TextButton(add, "outlined", "plus")
        self._rows = QVBoxLayout()
        self._rows.setSpacing(4)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 8)
        layout.setSpacing(4)
        heading = label(title, "", BODY)
        layout.addWidget(heading)
        layout.addWidget(wrapped(help))
        layout.addLayout(self._rows)
        layout.addWidget(self.add_button, 0, Qt.AlignmentFlag.AlignLeading)
        self.add_button.clicked.connect(lambda: self._add("", "", focus=True))

    def show_pairs(self, pairs: tuple[tuple[str, str | None], ...]) -> None:
        """Show names; a value that is None is kept, and not known here."""
        while self._rows.count():
            self._take(0)
        for name, value in pairs:
            self._add(name, value)

    def pairs(self) -> tuple[tuple[str, str | None], ...]:
        """What is entered; lines without a name are left out."""
        return tuple(
            (name.text().strip(), None if is_kept and not value.text() else value.text())
            for name, value, is_kept in self.lines
            if name.text().strip()
        )

    def _add(self, name: str, value: str | None, *, focus: bool = False) -> None:
        first, second = QLineEdit(name), QLineEdit(value or "")
        first.setPlaceholderText(self._name)
        first.setAccessibleName(self._name)
        second.setEchoMode(QLineEdit.EchoMode.Password)
        second.setAccessibleName(tr("Value"))
        second.setPlaceholderText(
            tr("Kept; type a new one to replace it") if value is None else tr("Value")
        )
        for each in (first, second):
            each.setFont(font(BODY))
        remove = IconButton("close", tr("Remove"), 16)
        line = QWidget()
        row = QHBoxLayout(line)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(first, 2)
        row.addWidget(second, 3)
        row.addWidget(remove)
        self._rows.addWidget(line)
        entry = (first, second, value is None)
        self.lines.append(entry)
        remove.clicked.connect(lambda: self._take(self.lines.index(entry)))
        if focus:
            first.setFocus(Qt.FocusReason.OtherFocusReason)
            self.reached.emit(self.add_button)

    def _take(self, place: int) -> None:
        del self.lines[place]
        item = self._rows.takeAt(place)
        line = item.widget() if item is not None else None
        if line is not None:
            if line.isAncestorOf(self.window().focusWidget() or self):
                self.add_button.setFocus(Qt.FocusReason.OtherFocusReason)
            line.hide()
            line.deleteLater()


class ServerEditor(QFrame):
    """Fields of a server, Save and Cancel; nothing starts by saving."""

    saved = Signal(object)  # ServerDraft
    cancelled = Signal()
    reached = Signal(QWidget)  # to scroll into view

    def __init__(self) -> None:
        super().__init__()
        self._draft = ServerDraft()
        self._kind = _PROGRAM
        settings = (
            ("name", Setting(tr("Name"), tr("For the list of tools.")), ""),
            ("kind", Setting(
                tr("Kind"), choices=(_PROGRAM, _ADDRESS),
                words=(tr("Program"), tr("Address")),
            ), _PROGRAM),
            ("command", Setting(tr("Program"), tr("Such as npx or uvx, or a full path.")), ""),
            ("arguments", Setting(tr("Arguments"), tr("One on each line."), lines=3), ""),
            ("folder", Setting(tr("Folder"), tr("That it runs in. Empty: your home folder.")), ""),
            ("address", Setting(
                tr("Address"), tr("Such as https://example.org/mcp; the transport is HTTP.")
            ), ""),
            ("seconds", Setting(
                tr("Time limit of a call"), unit="s", low=_LEAST_SECONDS, high=_MOST_SECONDS,
            ), 60),
        )  # fmt: skip
        self.rows = {name: PreferenceRow(name, about, first) for name, about, first in settings}
        self.environment = PairsEditor(
            tr("Variables"),
            tr("The program gets only these, and PATH, HOME and LANG."),
            tr("Add a variable"),
            tr("Name of the variable"),
        )
        self.headers = PairsEditor(
            tr("Headers"),
            tr("Sent with every request, such as Authorization."),
            tr("Add a header"),
            tr("Name of the header"),
        )
        self.title = label("", "", BODY)
        self.keyring = wrapped(
            tr("Values are kept in the keyring, or in a file that only you can read.")
        )
        self.problem = wrapped("", "danger", SMALL)
        self.save = TextButton(tr("Save"), "primary")
        self.cancel = TextButton(tr("Cancel"), "outlined")
        layout = framed(self)
        layout.addWidget(self.title)
        for name, row in self.rows.items():
            if name == "seconds":
                for part in (self.environment, self.headers, self.keyring):
                    layout.addWidget(part)
            layout.addWidget(row)
        layout.addWidget(self.problem)
        layout.addWidget(button_line(self.save, self.cancel))
        for pairs in (self.environment, self.headers):
            pairs.reached.connect(self.reached)
        self.save.clicked.connect(lambda: self.saved.emit(self.edited()))
        self.cancel.clicked.connect(self.cancelled)
        for row in self.rows.values():
            row.changed.connect(self._keep)
        self.hide()

    def open(self, draft: ServerDraft) -> None:
        """Edit a server."""
        self._draft = draft
        self.title.setText(tr("Edit the server") if draft.id else tr("Add a server"))
        values = {
            "name": draft.name,
            "kind": _ADDRESS if draft.address else _PROGRAM,
            "command": draft.command,
            "arguments": "\n".join(map(_as_line, draft.arguments)),
            "folder": draft.folder,
            "address": draft.address,
            "seconds": round(draft.seconds),
        }
        for name, row in self.rows.items():
            row.set_default(values[name])
            row.show_value(values[name])
            row.restore()
        self.environment.show_pairs(draft.environment)
        self.headers.show_pairs(draft.headers)
        self._show_kind(values["kind"])
        self.show_problem("")
        self.show()
        self.reached.emit(self)
        self._line("name").setFocus(Qt.FocusReason.OtherFocusReason)

    def show_problem(self, problem: str) -> None:
        """Show why it cannot be kept."""
        show_words(self.problem, problem)
        if problem:
            self.reached.emit(self.save)

    def edited(self) -> ServerDraft:
        """What is entered."""
        for row in self.rows.values():
            if isinstance(row.field, LineField | TextField):
                row.field.finish()
        arguments = self.rows["arguments"].field
        assert isinstance(arguments, TextField)
        is_program = self._kind == _PROGRAM
        lines = arguments.value.rstrip("\n").split("\n")
        seconds = self._line("seconds").text()
        return replace(
            self._draft,
            name=self._line("name").text(),
            command=self._line("command").text() if is_program else "",
            arguments=tuple(map(_from_line, lines)) if is_program and lines != [""] else (),
            folder=self._line("folder").text() if is_program else "",
            environment=self.environment.pairs() if is_program else (),
            address="" if is_program else self._line("address").text(),
            headers=() if is_program else self.headers.pairs(),
            seconds=float(seconds) if seconds.isdecimal() else self._draft.seconds,
        )

    def set_narrow(self, narrow: bool) -> None:
        """Place fields below their names (narrow) or beside them."""
        for row in self.rows.values():
            row.set_narrow(narrow)

    # --- steps ----------------------------------------------------------------------------------

    def _line(self, name: str) -> QLineEdit:
        field = self.rows[name].field
        assert isinstance(field, LineField)
        return field.line

    def _keep(self, name: str, value: object) -> None:
        self.rows[name].set_default(value)  # nothing to reset before it is saved
        if name == "kind":
            self._show_kind(value)

    def _show_kind(self, kind: object) -> None:
        self._kind = str(kind)
        is_program = self._kind == _PROGRAM
        for name in _OF_PROGRAM:
            self.rows[name].setVisible(is_program)
        self.rows["address"].setVisible(not is_program)
        self.environment.setVisible(is_program)
        self.headers.setVisible(not is_program)


def _as_line(argument: str) -> str:
    """An argument on one line: one that would not be read back so is written as a JSON text."""
    is_plain = "\n" not in argument and "\r" not in argument and argument.strip()
    return argument if is_plain and _from_line(argument) == argument else json.dumps(argument)


def _from_line(line: str) -> str:
    """The argument of a line; a JSON text stands for what it says."""
    if line.startswith('"'):
        try:
            found: object = json.loads(line)
        except ValueError:
            return line
        if isinstance(found, str):
            return found
    return line
