"""Format chip: the row above the message field that names the format of the chat's answers."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QWidget

from app.domain.chat_settings import AnswerFormat, ChatSettings
from app.state.chat_settings import FormatFault
from app.system.translation import tr
from app.ui.chat.composer.format_words import full_name
from app.ui.theme.theme import SMALL, font
from app.ui.widgets.controls import ElidedLabel, IconButton, TextButton, set_margins, set_property


class FormatChip(QFrame):
    """Hidden while answers may be any text."""

    opened = Signal()  # the options
    cleared = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("pasted")  # looks like the row of a pasted text
        self.words = ElidedLabel("secondary", font(SMALL))
        self.change_button = TextButton(tr("Change"), "link")
        self.change_button.setAccessibleName(tr("Change the answer format"))
        self.clear_button = IconButton("close", tr("Answer with any text again"), 16)
        row = QHBoxLayout(self)
        set_margins(row, 12, 2, 4, 2)
        row.setSpacing(8)
        row.addWidget(self.words, 1)
        row.addWidget(self.change_button)
        row.addWidget(self.clear_button)
        self.change_button.clicked.connect(self.opened)
        self.clear_button.clicked.connect(self.cleared)
        self.hide()

    def show_options(self, options: ChatSettings, fault: FormatFault | None) -> None:
        """Show the format, and whether it cannot be used."""
        name = full_name(options.format)
        wrong = tr("{format}: cannot be used yet", format=name)
        self.words.setText(wrong if fault else tr("Answer format: {format}", format=name))
        self.words.setToolTip(fault.sentence if fault else options.text[:400])
        set_property(self.words, "tone", "danger" if fault else "secondary")
        self.setVisible(options.format is not AnswerFormat.FREE)
