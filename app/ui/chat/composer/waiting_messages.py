"""Rows above the composer: messages that wait for an answer to end, or for the user."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.domain.file_words import attachment_words
from app.domain.parts import attachments, typed_text
from app.state.chat import WaitingMessage
from app.system.translation import isolated, tr
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.controls import ElidedLabel, IconButton, TextButton, label, set_margins

_ROW, _SPACING = 36, 4  # pixels
_MOST_ROWS = 4  # shown at once; more scroll


class _Row(QFrame):
    """One message: how it begins, when it is sent, and Send, Edit and Remove."""

    def __init__(self, message: WaitingMessage, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("pasted")
        self.setFixedHeight(_ROW)
        self.message = message
        words = ElidedLabel("", font(BODY), parent=self)
        words.show_words(_words(message))
        self.status = label("", "secondary", SMALL)
        self.send_button = TextButton(tr("Send"), "link")
        self.edit_button = IconButton("edit", tr("Edit the waiting message"), 16)
        self.remove_button = IconButton("close", tr("Remove the waiting message"), 16)
        row = QHBoxLayout(self)
        set_margins(row, 12, 2, 4, 2)
        row.setSpacing(4)
        row.addWidget(words, 1)
        row.addSpacing(8)
        for part in (self.status, self.send_button, self.edit_button, self.remove_button):
            row.addWidget(part)

    def show_state(self, *, busy: bool) -> None:
        """Say when the message is sent; `busy`: an answer of the conversation is not complete."""
        waits = busy and not self.message.held
        self.status.setText(tr("Sent after this answer") if waits else tr("Not sent yet"))
        self.send_button.setHidden(waits)
        self.send_button.setToolTip(tr("Send after this answer") if busy else "")


class WaitingMessages(QScrollArea):
    """The waiting messages of the shown conversation, the next one first; hidden without any."""

    send_requested = Signal(int)  # number of the message
    edit_requested = Signal(int)
    remove_requested = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows: list[_Row] = []
        self._inside = QWidget()
        self._layout = QVBoxLayout(self._inside)
        self._layout.setContentsMargins(0, 0, 0, _SPACING)
        self._layout.setSpacing(_SPACING)
        self.setWidget(self._inside)
        self.setWidgetResizable(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(tr("Messages that wait to be sent"))
        self.viewport().setAutoFillBackground(False)
        self._inside.setAutoFillBackground(False)
        self.hide()

    def show_messages(self, messages: Sequence[WaitingMessage], *, busy: bool) -> None:
        """Show these messages; `busy`: an answer of the conversation is not complete."""
        if [row.message for row in self.rows] != list(messages):
            for row in self.rows:
                row.hide()
                row.deleteLater()
            self.rows = [self._made(message) for message in messages]
            shown = min(len(self.rows), _MOST_ROWS)
            self.setFixedHeight(shown * (_ROW + _SPACING))
            self.setVisible(bool(self.rows))
        for row in self.rows:
            row.show_state(busy=busy)

    def _made(self, message: WaitingMessage) -> _Row:
        row = _Row(message, self._inside)
        row.send_button.clicked.connect(lambda: self.send_requested.emit(message.number))
        row.edit_button.clicked.connect(lambda: self.edit_requested.emit(message.number))
        row.remove_button.clicked.connect(lambda: self.remove_requested.emit(message.number))
        self._layout.addWidget(row)
        return row


def _words(message: WaitingMessage) -> str:
    """The typed text on one line, and what is attached."""
    attached = map(attachment_words, attachments(message.parts))
    return " · ".join(
        filter(None, (isolated(" ".join(typed_text(message.parts).split())), *attached))
    )
