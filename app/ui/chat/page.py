"""Chat page: the transcript or the empty view, the resume line, composer and status line."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPoint, Signal
from PySide6.QtGui import (
    QGuiApplication,
    QResizeEvent,
)
from PySide6.QtWidgets import QFrame, QStackedWidget, QVBoxLayout, QWidget

from app.domain.message import Message
from app.domain.parts import Parts, clipboard_text
from app.state.attachments import Editing, Place
from app.state.chat import ModelPhase
from app.state.states import States
from app.system.translation import tr
from app.ui.chat.composer.composer import Composer
from app.ui.chat.composer.waiting_messages import WaitingMessages
from app.ui.chat.empty_view import EmptyView
from app.ui.chat.find_bar import FindBar
from app.ui.chat.models.better_model import BetterModelLine
from app.ui.chat.models.destination import DestinationLine
from app.ui.chat.models.model_line import ModelLine
from app.ui.chat.resume_line import ResumeLine
from app.ui.chat.status_line import StatusLine
from app.ui.documents.changed_line import ChangedLine
from app.ui.documents.fit import FitLine
from app.ui.documents.indexing_line import IndexingLine
from app.ui.documents.search_model import SearchModelLine
from app.ui.transcript.message.instructions import instructions_message
from app.ui.transcript.view import Transcript
from app.ui.widgets import accessibility
from app.ui.widgets.controls import Column, TextButton, set_property
from engine import Role


class ChatPage(QWidget):
    """Shows the current conversation; its child widgets emit the user's requests as signals."""

    draft_flushed = Signal(object, object)  # conversation id (None: not begun), unsent parts
    regenerate_requested = Signal(object)

    def __init__(self, states: States, typing_elsewhere: Callable[[], bool]) -> None:
        """`typing_elsewhere` returns whether a text field outside this page has the focus."""
        super().__init__()
        state, attachments = states.chat, states.attachments
        self._state, self._settings, self._attachments = state, states.chat_settings, attachments
        self._collections, self._pictures = states.collections, states.pictures
        self._typing_elsewhere = typing_elsewhere
        self._shown: int | None = None
        self.empty_view = EmptyView(state, states.library, states.presets)
        self.transcript = Transcript()
        self.transcript.calls.use(states.tools, state.title)
        self.find_bar = FindBar(self.transcript.finder)
        self.waiting = WaitingMessages()
        self.composer = Composer()
        self.fit_line = FitLine(state, attachments)
        self.changed_line = ChangedLine(attachments)
        self.indexing_line = IndexingLine(states)
        self.search_model_line = SearchModelLine(states)
        for line in (
            self.fit_line, self.indexing_line, self.changed_line, self.search_model_line
        ):  # fmt: skip
            self.composer.add_below_chips(line)
        self.destination = DestinationLine(states.connections)
        self.status_line = StatusLine(state, attachments)
        self.resume_line = ResumeLine(states.sessions)
        self.model_line = ModelLine(state)
        self.download_line = BetterModelLine(state, states.library, only_download=True)
        self._rule = QFrame()  # separator above the text, visible while scrolled
        self._rule.setFixedHeight(1)
        self._rule.setObjectName("rule")
        self.jump_button = _jump_button(self)
        self._lay_out()
        self._connect()
        self._show_conversation()
        self._show_reading()

    def _lay_out(self) -> None:
        self._pages = QStackedWidget()
        self._pages.addWidget(self.empty_view)
        self._pages.addWidget(self.transcript)
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.setSpacing(0)
        self._find_row = Column(self.find_bar)
        self._find_row.hide()
        page.addWidget(self._find_row)
        page.addWidget(self._rule)
        page.addWidget(self._pages, 1)
        page.addSpacing(8)
        self._download_row = Column(self.download_line)
        page.addWidget(self._download_row)
        page.addWidget(Column(self.resume_line))
        self._waiting_row = Column(self.waiting)
        page.addWidget(self._waiting_row)
        page.addWidget(Column(self.model_line))
        page.addWidget(Column(self.composer))
        page.addWidget(Column(self.destination))
        page.addSpacing(4)
        page.addWidget(Column(self.status_line))
        page.addSpacing(8)

    def _connect(self) -> None:
        state = self._state
        state.conversation_changed.connect(self._show_conversation)
        state.draft_found.connect(self._show_found_draft)
        state.message_added.connect(self.transcript.append_message)
        state.message_added.connect(self._show_page)
        state.message_changed.connect(self.transcript.update_message)
        state.message_removed.connect(self.transcript.remove_message)
        state.compared_changed.connect(self._show_compared)
        state.text_added.connect(self.transcript.append_text)
        state.memory_changed.connect(self._show_memory)
        state.waiting_changed.connect(self.transcript.set_waiting)
        state.generations_changed.connect(self._show_busy)
        state.outbox_changed.connect(self._show_waiting)
        state.reading_changed.connect(self._show_reading)
        state.model_changed.connect(self._show_model)
        self._settings.changed.connect(self._show_instructions)
        state.chat_model_changed.connect(self._show_model)
        self._pictures.read.connect(self.transcript.thumbnails.show)
        self.composer.chips.use_thumbnails(self.transcript.thumbnails)
        self.transcript.at_end_changed.connect(self._show_jump)
        self.jump_button.clicked.connect(self.transcript.jump_to_end)
        self.transcript.verticalScrollBar().valueChanged.connect(self._show_rule)
        self._attachments.changed.connect(self._show_files)
        for changed in (
            state.settings_changed, self._collections.changed, self._collections.views_changed
        ):  # fmt: skip
            changed.connect(self._show_collections)
        self.transcript.editing.began.connect(self._show_interrupted)
        self.composer.edited.connect(self._emit_draft)
        self.composer.edit_last_requested.connect(self._edit_last)
        self.find_bar.closed.connect(self.close_find)
        state.found_opened.connect(self._show_found)

    # --- called by the window -------------------------------------------------------------------

    def _show_reading(self) -> None:
        state = self._state
        self.transcript.set_reading(state.reading, offered=state.can_read)

    def flush_draft(self) -> None:
        """Emit the unsent text now instead of with the next `Composer.edited`."""
        self.composer.end_composition()
        self.draft_flushed.emit(self._shown, self.composer.parts())

    def regenerate_last(self) -> None:
        """Request regenerating the last answer."""
        messages = self._state.messages
        if messages and messages[-1].role is Role.ASSISTANT:
            self.regenerate_requested.emit(messages[-1].id)

    @property
    def can_find(self) -> bool:
        """Whether a conversation with messages is shown."""
        return bool(self._state.messages)

    def open_find(self) -> None:
        """Open the find bar; a selected text becomes the query."""
        if self.can_find:
            self._find_row.show()
            self.find_bar.open(self.transcript.selected_text())

    def find_again(self, *, forward: bool) -> None:
        """Go to the next or previous match; opens the find bar if it is closed."""
        if self.find_bar.isHidden():
            self.open_find()
        else:
            self.find_bar.step(forward=forward)

    def close_find(self) -> None:
        """Close the find bar; the current match becomes the selection."""
        if not self._find_row.isHidden():
            self._find_row.hide()
            self.find_bar.hide()
            self.transcript.stop_finding()
            self.transcript.setFocus()

    def copy_answer(self) -> None:
        """Copy the Markdown source of the last answer to the clipboard."""
        for message in reversed(self._state.messages):
            if message.role is Role.ASSISTANT:
                QGuiApplication.clipboard().setText(clipboard_text(message.parts))
                return

    # --- the state ------------------------------------------------------------------------------

    def _show_conversation(self) -> None:
        state = self._state
        switched = state.current != self._shown
        if switched:
            self.composer.end_composition()
        # `Composer.edited` is throttled: the text in the field may be newer than the saved draft.
        self.draft_flushed.emit(self._shown, self.composer.parts())
        if switched:
            self._shown = state.current
            self.close_find()
            self.composer.set_text(state.drafts.get(state.current, ()))
            self._show_files(state.current)
            self._show_collections()
            if not self._typing_elsewhere():
                self.composer.setFocus()
        self.transcript.set_messages(state.messages, state.compared, self._instructions())
        self._show_memory()
        for number, note in state.waiting.items():  # those of other chats are not shown
            self.transcript.set_waiting(number, note)
        self._show_page()
        self._show_busy(announce=not switched)
        self._show_waiting()

    def _show_collections(self) -> None:
        """Show the collections that the shown chat is answered from."""
        ids = self._state.settings(self._shown).collections
        self.composer.show_collections(self._collections.shown(ids))

    def _show_files(self, place: Place) -> None:
        """Show the attached files of the shown chat, or those at the editor of a message."""
        files = self._attachments.of(place)
        if place == self._shown:
            self.composer.show_files(files)
        elif isinstance(place, Editing):
            self.transcript.editing.show_files(place.message, files)

    def _show_interrupted(self, message: int) -> None:
        """Show the files of an edit that was interrupted."""
        if files := self._attachments.of(Editing(message)):
            self.transcript.editing.show_files(message, files)

    def _instructions(self) -> Message | None:
        shown = self._settings.shown
        return instructions_message(shown.instructions, shown.instruction_tokens)

    def _show_instructions(self) -> None:
        if self._shown == self._state.current:  # else the conversation is about to be shown
            self.transcript.set_instructions(self._instructions())

    def _show_compared(self) -> None:
        self.transcript.set_compared(self._state.compared)

    def _show_found(self, query: str, message: int) -> None:
        self._find_row.show()
        self.find_bar.show_found(query, message)

    def _show_memory(self) -> None:
        state = self._state
        self.transcript.set_memory_start(state.memory_start)
        left_out = state.left_out.get(state.current) if state.current is not None else None
        self.transcript.set_left_out(left_out or frozenset())

    def _show_found_draft(self, parts: Parts) -> None:
        if self._shown is None:
            self.composer.put_before(parts)
            self.draft_flushed.emit(None, self.composer.parts())  # the merged text, at once

    def _show_page(self) -> None:
        page = self.transcript if self._state.messages else self.empty_view
        self._pages.setCurrentWidget(page)
        self._download_row.setVisible(page is self.transcript)
        if page is self.empty_view:
            self.jump_button.hide()
        self._show_rule()

    def _show_busy(self, *, announce: bool = True) -> None:
        busy = self._state.busy
        if busy == self.composer.busy:  # `generations_changed` is emitted for every piece of text
            return
        self.composer.set_busy(busy)
        self.transcript.set_busy(busy)
        self._show_waiting()
        if announce and not busy:
            messages, compared = self._state.messages, self._state.compared
            two = bool(messages) and messages[-1].id in compared
            words = tr("Both answers have ended") if two else tr("The answer has ended")
            accessibility.announce(self, words)

    def _emit_draft(self, parts: Parts) -> None:
        self.draft_flushed.emit(self._shown, parts)

    def _show_waiting(self) -> None:
        state, shown = self._state, self._state.current
        messages = () if shown is None else state.outbox.get(shown, ())
        if len(messages) > len(self.waiting.rows) and state.busy:
            accessibility.announce(self, tr("Your message is sent after this answer"))
        self.waiting.show_messages(messages, busy=state.busy)
        self._waiting_row.setVisible(bool(messages))

    def _show_model(self) -> None:
        model, chat = self._state.model, self._state.chat_model
        loaded = model.name if model.phase is ModelPhase.READY else ""
        self.composer.set_model_name(chat.name if chat else loaded)

    def _show_jump(self, at_end: bool) -> None:
        self.jump_button.setVisible(not at_end and self._pages.currentWidget() is self.transcript)
        self._place_jump()

    def _show_rule(self) -> None:
        scrolled = self.transcript.verticalScrollBar().value() > 0
        under = scrolled and self._pages.currentWidget() is self.transcript
        set_property(self._rule, "under", under)

    def _place_jump(self) -> None:
        view = self.transcript
        corner = view.mapTo(self, QPoint((view.width() - 36) // 2, view.height() - 36 - 8))
        self.jump_button.move(corner)
        self.jump_button.raise_()

    def _edit_last(self) -> None:
        if self.waiting.rows:
            self.waiting.edit_requested.emit(self.waiting.rows[-1].message.number)
            return
        for message in reversed(self._state.messages):
            if message.role is Role.USER:
                self.transcript.edit_message(message.id)
                return

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_jump()


def _jump_button(page: QWidget) -> TextButton:
    button = TextButton("", "jump", "arrow_down", page)
    button.setObjectName("jump")
    button.setFixedSize(36, 36)
    button.setToolTip(tr("Jump to the end"))
    button.setAccessibleName(tr("Jump to the end"))
    button.hide()
    return button
