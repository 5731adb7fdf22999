"""Release notes: what is new in this version, or in one that can be had."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFont, QKeyEvent
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.domain.message import Message, MessageState
from app.domain.parts import TextPart
from app.system.translation import tr
from app.ui.theme.theme import HEADING, font
from app.ui.transcript.view import Transcript
from app.ui.widgets.controls import Column, IconButton, label
from app.ui.widgets.links import open_link
from engine import Role


class NotesView(QWidget):
    """Shows Markdown as answers are shown: selected, copied, followed and read aloud in the same way."""

    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.title = label(tr("What is new"), "", HEADING)
        self.title.setFont(font(HEADING, QFont.Weight.DemiBold))
        self.close_button = IconButton("close", tr("Back to settings"))
        self.close_button.clicked.connect(self.closed)
        self.text = Transcript()
        self.text.tools.only_copy = True
        self.text.setAccessibleName(tr("What is new"))
        self.text.link_activated.connect(open_link)
        head = QWidget()
        top = QHBoxLayout(head)
        top.setContentsMargins(0, 16, 0, 8)
        top.addWidget(self.title)
        top.addStretch(1)
        top.addWidget(self.close_button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(Column(head))
        layout.addWidget(self.text, 1)

    def show_notes(self, markdown: str) -> None:
        """Show notes from their beginning."""
        words = markdown or tr("There are no notes.")
        notes = Message(
            1, 1, None, Role.ASSISTANT, (TextPart(words),), MessageState.COMPLETE, 0.0,
            "", "", 0, 0, 0.0, 1, 1,
        )  # fmt: skip
        self.text.set_messages([])
        self.text.set_messages([notes])
        QTimer.singleShot(0, self, self._to_top)  # a chat is shown at its end
        self.text.setFocus(Qt.FocusReason.OtherFocusReason)

    def _to_top(self) -> None:
        self.text.scroller.follow = False
        self.text.verticalScrollBar().setValue(0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.closed.emit()
        else:
            super().keyPressEvent(event)
