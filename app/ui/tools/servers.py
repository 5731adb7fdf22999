"""Page of the servers of tools: each with its state and switch, an editor, and an import."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QHideEvent, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.domain.tool_servers import ServerDraft, ServerRow, StartQuestion
from app.state.tool_servers import ToolServersState
from app.system.translation import isolated, sentences, tr
from app.ui.file_dialogs import choose_servers
from app.ui.settings.fields import segments_style
from app.ui.theme.palette import Palette
from app.ui.tools.server_card import ServerCard
from app.ui.tools.server_editor import ServerEditor
from app.ui.tools.server_import import ImportCard
from app.ui.widgets.cards import button_line, show_words, wrapped
from app.ui.widgets.controls import TextButton
from app.ui.widgets.drop_area import DropArea
from app.ui.widgets.file_drops import FileDrops
from app.ui.widgets.scroll_page import ScrollPage
from app.ui.widgets.undo_line import UndoLine


class ServersPage(ScrollPage):
    """Shows the state of the servers; emits the user's requests as signals."""

    switched = Signal(str, bool)  # id of a server
    restarted = Signal(str)
    cancelled = Signal(str)  # its start, such as one that waits for a login
    logged_out = Signal(str)
    with_app_changed = Signal(str, bool)
    edit_requested = Signal(str)  # "": a new one
    saved = Signal(object)  # ServerDraft
    edit_closed = Signal()
    deleted = Signal(str)
    undone = Signal()
    file_chosen = Signal(object)  # Path of an `mcp.json`
    text_pasted = Signal(str)
    import_ended = Signal(bool)
    log_requested = Signal(str)  # id of the opened server; "": none

    def __init__(self, state: ToolServersState) -> None:
        super().__init__(tr("Servers of tools"))
        self._state = state
        self._opened = ""  # id of the server whose details are shown
        self._draft: ServerDraft | None = None  # that the editor shows
        self.cards: dict[str, ServerCard] = {}
        hint = tr(
            "A server gives your models more tools, such as files, calendars or databases. It "
            "is a program on this computer, or an address. A program can do all that you can "
            "do here: start only what you trust."
        )
        place = tr("Its tools are switched on in the settings of a chat.")
        self.hint = wrapped(sentences(hint, place))
        self.none = wrapped(
            tr(
                "No server yet. Add one by hand, or import the file of another program: "
                "mcp.json of Cursor or LM Studio, claude_desktop_config.json of Claude Desktop. "
                "Nothing starts before you have seen exactly what it is."
            )
        )
        self.problem = wrapped("", "danger")
        self.undo = UndoLine()
        self.editor = ServerEditor()
        self.preview = ImportCard()
        self.add = TextButton(tr("Add a server…"), "outlined")
        self.import_button = TextButton(tr("Import a file…"), "outlined")
        self.paste = TextButton(tr("Paste"), "outlined")
        self.paste.setToolTip(tr("Import the text of the clipboard"))
        self.drop_area = DropArea(self)
        self.drops = FileDrops(self, self.drop_area, lambda: False)
        self._list = QVBoxLayout()
        self._list.setSpacing(8)
        rows = self.lay_out(self)
        rows.setSpacing(8)
        for part in (self.hint, self.none, self.problem, self.undo):
            rows.addWidget(part)
        rows.addLayout(self._list)
        for part in (self.editor, self.preview):
            rows.addWidget(part)
        self._buttons = button_line(self.add, self.import_button, self.paste)
        rows.addWidget(self._buttons)
        rows.addStretch(1)
        self._connect()
        self.follow_focus()
        self.refresh()

    def _connect(self) -> None:
        state, editor = self._state, self.editor
        self.add.clicked.connect(partial(self.edit_requested.emit, ""))
        self.import_button.clicked.connect(self._choose)
        self.paste.clicked.connect(self._paste)
        self.drops.files_dropped.connect(self._drop)
        self.undo.undone.connect(self.undone)
        editor.saved.connect(self.saved)
        editor.cancelled.connect(self.edit_closed)
        editor.reached.connect(self._scroll_to, Qt.ConnectionType.QueuedConnection)
        self.preview.ended.connect(self.import_ended)
        state.changed.connect(self.refresh)
        state.preview_changed.connect(self._show_preview)
        state.log_changed.connect(self._show_log)
        state.questions_changed.connect(self._show_cards)

    # --- showing --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Show the servers of the state."""
        state = self._state
        name = isolated(state.deleted)
        self.undo.show_words(tr("“{name}” was deleted.", name=name) if state.deleted else "")
        show_words(self.problem, state.problem)
        self.none.setVisible(state.is_read and not state.rows and state.draft is None)
        self._show_cards()
        self._show_editor()

    def _show_cards(self) -> None:
        rows = self._state.rows
        known = {row.id for row in rows}
        for id in self.cards.keys() - known:
            self._remove(self.cards.pop(id))
        asked = {q.server for q in self._state.questions if isinstance(q, StartQuestion)}
        for place, row in enumerate(rows):
            card = self.cards.get(row.id) or self._make(row, place)
            card.show_server(row)
            if row.id in asked:
                card.show_asking()
            card.set_open(row.id == self._opened)

    def _make(self, row: ServerRow, place: int) -> ServerCard:
        card = self.cards[row.id] = ServerCard()
        card.switched.connect(partial(self.switched.emit, row.id))
        card.restarted.connect(partial(self.restarted.emit, row.id))
        card.cancelled.connect(partial(self.cancelled.emit, row.id))
        card.edited.connect(partial(self.edit_requested.emit, row.id))
        card.deleted.connect(partial(self.deleted.emit, row.id))
        card.opened.connect(partial(self._open, row.id))
        card.with_app_changed.connect(partial(self.with_app_changed.emit, row.id))
        card.logged_out.connect(partial(self.logged_out.emit, row.id))
        self._list.insertWidget(place, card)
        self.follow_focus()
        return card

    def _remove(self, card: ServerCard) -> None:
        """Remove a card; the keyboard focus stays on the page."""
        if card.isAncestorOf(self.window().focusWidget() or self):
            near = self.add if self.undo.isHidden() else self.undo.button
            near.setFocus(Qt.FocusReason.OtherFocusReason)
        self._list.removeWidget(card)
        card.deleteLater()

    def _show_editor(self) -> None:
        draft = self._state.draft
        is_other = self._draft is None or draft is None or draft.id != self._draft.id
        self._draft = draft
        self._buttons.setVisible(draft is None)
        if draft is None:
            had_focus = self.editor.isAncestorOf(self.window().focusWidget() or self)
            self.editor.hide()
            if had_focus:
                self.add.setFocus(Qt.FocusReason.OtherFocusReason)
        elif is_other:
            self.editor.open(draft)
            self.follow_focus()
        else:
            self.editor.show_problem(self._state.draft_problem)

    def _show_preview(self) -> None:
        self.preview.show_preview(self._state.preview)
        if self._state.preview is not None:
            first = self.preview.add if self._state.preview.servers else self.preview.cancel
            first.setFocus(Qt.FocusReason.OtherFocusReason)

    def _show_log(self) -> None:
        if (card := self.cards.get(self._opened)) is not None:
            card.details.show_log(self._state.log)

    # --- asking ---------------------------------------------------------------------------------

    def _open(self, id: str, is_open: bool) -> None:
        self._opened = id if is_open else ""
        self._show_cards()
        self.log_requested.emit(self._opened)

    def _choose(self) -> None:
        choose_servers(self, Path.home(), self.file_chosen.emit)

    def _drop(self, paths: Sequence[Path]) -> None:
        self.file_chosen.emit(paths[0])

    def _paste(self) -> None:
        self.text_pasted.emit(QGuiApplication.clipboard().text())

    def _scroll_to(self, part: QWidget) -> None:
        self.view.ensureWidgetVisible(part, 0, 24)

    # --- Qt and the base ------------------------------------------------------------------------

    def _style(self, p: Palette) -> str:
        return super()._style(p) + segments_style(p)

    def _set_narrow(self, narrow: bool) -> None:
        self.editor.set_narrow(narrow)

    def _leave(self) -> None:
        if not self.editor.isHidden():
            self.edit_closed.emit()
        elif self._state.preview is not None:
            self.import_ended.emit(False)
        else:
            self.closed.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Paste):
            self._paste()
            event.accept()
        else:
            super().keyPressEvent(event)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        if not event.spontaneous() and self._opened:
            self._open(self._opened, False)
