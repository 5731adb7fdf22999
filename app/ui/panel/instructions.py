"""Instructions section of the panel: the text, its tokens, and where the usual one comes from."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QHBoxLayout

from app.settings.table import Setting
from app.state.chat import State
from app.state.chat_settings import ChatSettingsState, ShownSettings
from app.system.translation import isolated, listed, sentences, tr, trn
from app.ui.panel.section import Section, note
from app.ui.settings.fields import TextField
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets.controls import TextButton, align_text_at_start, label

_LINES, _MOST_LINES = 4, 14  # height of the field, which grows with its text
_PLACEHOLDER = 400  # characters of the usual instructions in the empty field
_VARIABLES = ("{{date}}", "{{time}}", "{{language}}")


class InstructionsSection(Section):
    """A text field, which shows the usual instructions while the chat has none of its own."""

    typed = Signal(str)  # the instructions as they are typed, whose tokens are to be counted

    def __init__(self, state: State, settings: ChatSettingsState) -> None:
        super().__init__("instructions")
        self._state, self._settings = state, settings
        self._help = tr("Given to the model at the start of this chat.")
        self.field = TextField(Setting(tr("Instructions"), self._help, lines=_LINES))
        self.origin = label("", "secondary", SMALL)  # where the placeholder comes from
        self.tokens = label("", "secondary", SMALL)
        self.tokens.setFont(figures(SMALL))
        self.copy_button = TextButton(tr("Edit a copy"), "link")
        self.none_button = TextButton(tr("Use no instructions"), "link")
        self.none_button.setToolTip(tr("This chat begins without instructions"))
        align_text_at_start(self.copy_button)
        below, links = QHBoxLayout(), QHBoxLayout()
        hint = tr("{variables} are replaced when the chat begins.", variables=listed(_VARIABLES))
        below.setSpacing(12)
        below.addWidget(note(hint), 1)
        below.addWidget(self.tokens, 0, Qt.AlignmentFlag.AlignTop)
        links.setSpacing(12)
        links.addWidget(self.copy_button)
        links.addWidget(self.none_button)
        links.addStretch(1)
        self.body.addWidget(self.origin)
        self.marked = (self.field,)
        self.body.addWidget(self.field)
        self.body.addLayout(below)
        self.body.addLayout(links)
        self.field.picked.connect(self._on_picked)
        editor = self.field.editor
        editor.textChanged.connect(self._on_text)
        editor.document().documentLayout().documentSizeChanged.connect(self._fit)
        self.copy_button.clicked.connect(self._copy)
        self.none_button.clicked.connect(lambda: self.edit(instructions=""))

    def show_settings(self, shown: ShownSettings) -> None:
        """Show the instructions of the chat, or the usual ones as a placeholder."""
        own, usual = shown.settings.instructions, shown.usual_instructions
        editor = self.field.editor
        if (own or "") != self.field.value:
            self.field.show_value(own or "")
        is_usual = own is None and bool(usual.strip())
        self.copy_button.setVisible(is_usual)
        self.none_button.setVisible(is_usual)
        self.origin.setVisible(is_usual)
        folder = self._state.folder_instructions(self._state.current)
        is_settings = folder is None
        self.origin.setText(tr("From the settings:") if is_settings else tr("From the folder:"))
        if own is not None:
            editor.setPlaceholderText(tr("No instructions in this chat"))
        else:
            editor.setPlaceholderText(
                isolated(usual[:_PLACEHOLDER]) or tr("None yet: write some here")
            )
        shown_instead = sentences(self.origin.text(), usual) if is_usual else ""
        editor.setAccessibleDescription("\n".join(filter(None, (self._help, shown_instead))))
        count = shown.instruction_tokens
        self.tokens.setText(trn("{count} token", "{count} tokens", count) if count else "")

    def restore(self, shown: ShownSettings) -> None:
        """Show those of another chat."""
        self.field.show_value(shown.settings.instructions or "")
        self.show_settings(shown)

    def finish(self) -> None:
        """Commit what is typed."""
        self.field.finish()

    # --- steps ----------------------------------------------------------------------------------

    def _on_picked(self, value: object) -> None:
        self.edit(instructions=str(value) or None)

    def _copy(self) -> None:
        self.edit(instructions=self._settings.shown.usual_instructions)
        self.field.editor.setFocus()

    def _on_text(self) -> None:
        shown = self._settings.shown
        usual = shown.usual_instructions if shown.settings.instructions is None else ""
        self.typed.emit(self.field.editor.text() or usual)

    def _fit(self) -> None:
        """Make the field as high as its text, within limits."""
        editor = self.field.editor
        layout, block = editor.document().documentLayout(), editor.document().begin()
        line = editor.fontMetrics().lineSpacing()
        high, most = 0.0, line * _MOST_LINES
        while block.isValid() and high < most:
            high += layout.blockBoundingRect(block).height()
            block = block.next()
        height = round(min(max(high, line * _LINES), most)) + 4
        if height != editor.height():
            editor.setFixedHeight(height)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
