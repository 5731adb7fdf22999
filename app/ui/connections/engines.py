"""Section of engines elsewhere: those found on this machine, the connections, and their editor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QFrame, QLineEdit, QVBoxLayout, QWidget

from app.settings.table import Setting
from app.state.connections import (
    ConnectionsState,
    EngineEdit,
    EngineRow,
    EngineState,
    FoundRow,
    Question,
)
from app.system.translation import isolated, listed, sentences, tr, trn
from app.ui.settings.fields import LineField, TextField
from app.ui.settings.row import PreferenceRow
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.cards import button_line, framed, show_words, wrapped
from app.ui.widgets.controls import (
    ElidedLabel,
    TextButton,
    align_text_at_start,
    label,
    section_heading,
    set_property,
)
from app.ui.widgets.undo_line import UndoLine

_LINES = ("address", "name", "key", "model")
_SHOWN_MODELS = 5  # by name; the others are counted


class EngineCard(QFrame):
    """One connection: its name, address and state, with Test, Edit and Delete."""

    def __init__(self) -> None:
        super().__init__()
        self.name = label("", "", BODY)
        self.name.setFont(font(BODY, QFont.Weight.Medium))
        self.address = ElidedLabel("secondary", font(SMALL), Qt.TextElideMode.ElideMiddle)
        self.words = wrapped("")
        self.chat = TextButton(tr("Start a chat"), "outlined")
        self.test = TextButton(tr("Test"), "outlined")
        self.edit = TextButton(tr("Edit"), "outlined")
        self.delete = TextButton(tr("Delete"), "outlined")
        layout = framed(self)
        for part in (self.name, self.address, self.words):
            layout.addWidget(part)
        layout.addWidget(button_line(self.test, self.edit, self.delete, self.chat))

    def show_engine(self, row: EngineRow, *, offline: bool) -> None:
        """Show a connection; offline it cannot be tested."""
        self.name.setText(isolated(row.name))
        self.address.show_words(row.address)
        tone, words = _state_words(row)
        set_property(self.words, "tone", tone)
        show_words(self.words, words)
        self.chat.setVisible(row.state is not EngineState.FAILED and bool(row.models))
        self.chat.setEnabled(not offline)
        self.chat.setAccessibleName(tr("Start a chat with {name}", name=row.name))
        self.test.setEnabled(not offline)
        self.test.setAccessibleName(tr("Test {name}", name=row.name))
        self.edit.setAccessibleName(tr("Edit {name}", name=row.name))
        self.delete.setAccessibleName(tr("Delete {name}", name=row.name))


class FoundCard(QFrame):
    """An engine that answers on this machine, with Use."""

    def __init__(self, row: FoundRow) -> None:
        super().__init__()
        self.row = row
        words = tr("{name} runs on this computer.", name=isolated(row.name))
        if row.models:
            count = trn("It has {count} model.", "It has {count} models.", row.models)
            words = sentences(words, count)
        elif row.needs_key:
            words = sentences(words, tr("It asks for a key."))
        self.words = wrapped(words, "", BODY)
        self.address = ElidedLabel("secondary", font(SMALL), Qt.TextElideMode.ElideMiddle)
        self.address.show_words(row.address)
        self.use = TextButton(tr("Use"), "outlined")
        self.use.setAccessibleName(tr("Use {name}", name=row.name))
        layout = framed(self)
        layout.addWidget(self.words)
        layout.addWidget(self.address)
        layout.addWidget(button_line(self.use))


class EngineEditor(QFrame):
    """Fields of a connection, the question before it is kept, Save and Cancel."""

    saved = Signal(object)  # EngineEdit
    cancelled = Signal()
    reached = Signal(QWidget)  # to scroll into view

    def __init__(self) -> None:
        super().__init__()
        self._id = ""
        self._forgets_key = False  # Save removes the key
        self._question: Question | None = None
        texts = (
            ("address", Setting(
                tr("Address"), tr("Such as http://192.168.1.5:8000/v1, as its program shows it.")
            )),
            ("name", Setting(tr("Name"), tr("For the list of models. Empty: its address."))),
            ("key", Setting(tr("API key"), tr("If it asks for one. Only your account here can read it."))),
            ("model", Setting(
                tr("Model name"), tr("If it does not list its models. Put commas between several.")
            )),
            ("headers", Setting(
                tr("Headers"),
                tr("Sent with every request, one on each line, as “Name: value”."),
                lines=2,
            )),
        )  # fmt: skip
        self.rows = {name: PreferenceRow(name, setting, "") for name, setting in texts}
        self.key_line.setEchoMode(QLineEdit.EchoMode.Password)
        self.forget_key = TextButton(tr("Remove the key"), "link")
        align_text_at_start(self.forget_key)
        self.problem = wrapped("", "danger")
        self.question = wrapped("", "warning", BODY)
        self.save = TextButton(tr("Save"), "primary")
        self.agree = TextButton(tr("Use it unencrypted"), "outlined")
        self.cancel = TextButton(tr("Cancel"), "outlined")
        layout = framed(self)
        for name, row in self.rows.items():
            layout.addWidget(row)
            if name == "key":
                layout.addWidget(self.forget_key, 0, Qt.AlignmentFlag.AlignLeading)
        for part in (self.problem, self.question, button_line(self.save, self.agree, self.cancel)):
            layout.addWidget(part)
        self.forget_key.clicked.connect(self._forget_key)
        self.save.clicked.connect(self._save)
        self.agree.clicked.connect(self._agree)
        self.cancel.clicked.connect(self.cancelled)
        for name, row in self.rows.items():
            row.changed.connect(self._keep)
            if isinstance(row.field, LineField):
                self._line(name).returnPressed.connect(self._on_return)
        self.hide()

    @property
    def id(self) -> str:
        """Of the connection that is edited; "": a new one."""
        return self._id

    @property
    def key_line(self) -> QLineEdit:
        """The field of the key."""
        return self._line("key")

    def _line(self, name: str) -> QLineEdit:
        field = self.rows[name].field
        assert isinstance(field, LineField)
        return field.line

    def open(self, row: EngineRow | None, address: str = "") -> None:
        """Edit a connection, or a new one to an address."""
        self._id = row.id if row else ""
        headers = "\n".join(f"{name}: {value}" for name, value in row.headers) if row else ""
        values = {
            "address": row.address if row else address,
            "name": row.name if row else "",
            "model": ", ".join(row.named) if row else "",
            "headers": headers,
            "key": "",
        }
        for name, shown in self.rows.items():
            shown.set_default(values[name])
            shown.show_value(values[name])
            shown.restore()
        kept = bool(row and row.has_key)
        self._forgets_key = False
        self.forget_key.setVisible(kept)
        self.key_line.setPlaceholderText(tr("Kept; type a new one to replace it") if kept else "")
        self.show_answer("", None)
        self.show()
        first = "key" if address else "address"  # an address that was found needs only its key
        self.reached.emit(self)
        self._line(first).setFocus(Qt.FocusReason.OtherFocusReason)
        self.reached.emit(self._line(first))  # if it is higher than the page

    def show_answer(self, problem: str, question: Question | None) -> None:
        """Show what is wrong with the edit, or the question about it."""
        self._question = question
        show_words(self.problem, problem)
        show_words(self.question, question.text if question else "")
        self.agree.setVisible(question is not None)
        self.save.setVisible(question is None)
        if problem or question:
            self.reached.emit(self.problem if problem else self.agree)

    def edited(self) -> EngineEdit:
        """What is typed."""
        for name in _LINES:
            field = self.rows[name].field
            assert isinstance(field, LineField)
            field.finish()
        headers = self.rows["headers"].field
        assert isinstance(headers, TextField)
        headers.finish()
        lines = [line.partition(":") for line in headers.value.splitlines() if line.strip()]
        key = self.key_line.text().strip()
        return EngineEdit(
            self._id,
            self._line("name").text().strip(),
            self._line("address").text().strip(),
            tuple((name.strip(), value.strip()) for name, _, value in lines),
            key or ("" if self._forgets_key else None),
            tuple(filter(None, map(str.strip, self._line("model").text().split(",")))),
        )

    def set_narrow(self, narrow: bool) -> None:
        """Place fields below their names (narrow) or beside them."""
        for row in self.rows.values():
            row.set_narrow(narrow)

    def _keep(self, name: str, value: object) -> None:
        self.rows[name].set_default(value)  # nothing to reset before it is saved

    def _forget_key(self) -> None:
        self._forgets_key = True
        self.forget_key.hide()
        self.key_line.clear()
        self.key_line.setPlaceholderText(tr("Removed when you save"))
        self.key_line.setFocus(Qt.FocusReason.OtherFocusReason)

    def _save(self) -> None:
        self.saved.emit(self.edited())

    def _on_return(self) -> None:
        if self._question is None:  # Return answers that instead
            self._save()

    def _agree(self) -> None:
        if self._question is not None:
            self.saved.emit(self._question.edit)


class EnginesSection(QWidget):
    """Shows engines elsewhere; emits the user's requests as signals."""

    saved = Signal(object)  # EngineEdit
    edit_closed = Signal()
    deleted = Signal(str)  # id
    undone = Signal()  # the last deletion
    tested = Signal(str)  # id
    chat_requested = Signal(str)  # id: begin one with a model of it
    search_requested = Signal()  # for engines on this machine

    def __init__(self, state: ConnectionsState) -> None:
        super().__init__()
        self._state = state
        self._awaits = ""  # address that Save was pressed for
        self.hint = wrapped(
            tr(
                "Models on another computer, or in a program such as Ollama on this one. What you "
                "write goes there only in chats that use one of these models."
            )
        )
        self.cards: dict[str, EngineCard] = {}
        self.found: list[FoundCard] = []
        self.undo = UndoLine()
        self.none = wrapped(tr("No engine yet."))
        self.searching = wrapped("")
        self.add = TextButton(tr("Add an engine…"), "outlined")
        self.search = TextButton(tr("Look on this computer"), "outlined")
        self.editor = EngineEditor()
        self._list = QVBoxLayout()
        self._list.setSpacing(8)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(8)
        for part in (section_heading(tr("Engines elsewhere")), self.hint, self.none):
            layout.addWidget(part)
        layout.addWidget(self.undo)
        layout.addLayout(self._list)
        for part in (self.searching, self.editor, button_line(self.add, self.search)):
            layout.addWidget(part)
        self.add.clicked.connect(lambda: self.open_editor(None))
        self.search.clicked.connect(self.search_requested)
        self.undo.undone.connect(self.undone)
        self.editor.saved.connect(self._save)
        self.editor.cancelled.connect(self.close_editor)
        state.changed.connect(self.refresh)
        state.offline_changed.connect(self.refresh)
        self.refresh()

    def set_narrow(self, narrow: bool) -> None:
        """Switch between the narrow and the wide layout."""
        self.editor.set_narrow(narrow)

    def open_editor(self, id: str | None, address: str = "") -> None:
        """Edit a connection, or a new one."""
        self.editor.open(self._state.engine(id) if id else None, address)
        self.add.hide()

    def close_editor(self) -> None:
        """Close the editor; what was typed is dropped."""
        self._awaits = ""
        focused = self.editor.isAncestorOf(self.focusWidget() or self)
        self.editor.hide()
        self.add.show()
        if focused:
            card = self.cards.get(self.editor.id)
            (card.edit if card else self.add).setFocus(Qt.FocusReason.OtherFocusReason)
        self.edit_closed.emit()

    def refresh(self) -> None:
        """Show the connections of the state."""
        state = self._state
        self.setVisible(state.offered)
        deleted = state.deleted
        name = isolated(deleted.name) if deleted else ""
        self.undo.show_words(tr("“{name}” was deleted.", name=name) if deleted else "")
        self._show_cards(state.engines)
        known = tuple(card.row for card in self.found)
        if known != state.found:
            for card in self.found:
                self._remove(card)
            self.found = [FoundCard(row) for row in state.found]
            for card in self.found:
                card.use.clicked.connect(partial(self._use, card.row))
                self._list.addWidget(card)
        self.none.setVisible(not state.engines and not state.found)
        show_words(
            self.searching,
            tr("Switch “Offline” off to test these or to look for others.")
            if state.offline
            else tr("Looking for engines on this computer…")
            if state.searching
            else "",
        )
        self.search.setEnabled(not state.offline)
        if not self.editor.isHidden():
            self.editor.show_answer(state.problem, state.question)

    def _show_cards(self, engines: Sequence[EngineRow]) -> None:
        wanted = {row.id: row for row in engines}
        for id in self.cards.keys() - wanted.keys():
            self._remove(self.cards.pop(id))
        for place, row in enumerate(engines):
            card = self.cards.get(row.id)
            if card is None:
                card = self.cards[row.id] = EngineCard()
                card.chat.clicked.connect(partial(self.chat_requested.emit, row.id))
                card.test.clicked.connect(partial(self.tested.emit, row.id))
                card.edit.clicked.connect(partial(self._edit, row.id))
                card.delete.clicked.connect(partial(self.deleted.emit, row.id))
                self._list.insertWidget(place, card)
            card.show_engine(row, offline=self._state.offline)

    def _remove(self, card: QFrame) -> None:
        """Remove a card; the keyboard focus stays in the section."""
        if card.isAncestorOf(self.window().focusWidget() or self):
            near = self.add if self.undo.isHidden() else self.undo.button
            near.setFocus(Qt.FocusReason.OtherFocusReason)
        self._list.removeWidget(card)
        card.deleteLater()

    def _edit(self, id: str) -> None:
        self.open_editor(id)

    def _use(self, row: FoundRow) -> None:
        if row.needs_key:
            self.open_editor(None, row.address)
        else:
            self.saved.emit(EngineEdit("", row.name, row.address))

    def _save(self, edit: EngineEdit) -> None:
        self.saved.emit(edit)
        if not self._state.problem and self._state.question is None:
            self.close_editor()


def _state_words(row: EngineRow) -> tuple[str, str]:
    """The tone and the words of a connection's state."""
    match row.state:
        case EngineState.UNKNOWN if not row.models:
            return "secondary", tr("Not tested yet.")
        case EngineState.ASKING:
            return "secondary", tr("Testing…")
        case EngineState.FAILED:
            return "danger", sentences(row.problem, row.remedy)
        case EngineState.READY | EngineState.UNKNOWN:  # the models of an earlier run
            count = len(row.models)
            if not count:
                return "secondary", tr("It answers, and lists no model. Enter a name under Edit.")
            names = listed(map(isolated, row.models[:_SHOWN_MODELS]))
            words = trn("{count} model: {names}", "{count} models: {names}", count, names=names)
            return "secondary", words + (" …" if count > _SHOWN_MODELS else "")
