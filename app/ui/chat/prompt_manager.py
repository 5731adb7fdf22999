"""Card with the saved prompts: save the message field, rename, insert, delete and restore."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QScrollArea, QVBoxLayout, QWidget

from app.domain.snippet import Snippet
from app.state.snippets import SnippetState
from app.system.translation import isolated, tr
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import READING, SMALL, font
from app.ui.widgets.controls import ElidedLabel, IconButton, TextButton, label, set_margins

CARD_WIDTH = 520
_LIST_HEIGHT = 320  # pixels
_PREVIEW = 200  # characters


class PromptManager(QWidget):
    """The saved prompts, each with its name, its beginning and its buttons."""

    save_requested = Signal()  # the text of the message field
    renamed = Signal(object, str)  # id, name
    deleted = Signal(object)  # id
    restore_requested = Signal()
    inserted = Signal(str)  # text
    resized = Signal()  # the size hint has changed

    def __init__(self, state: SnippetState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._palette = LIGHT
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        title = label(tr("Saved prompts"), "", READING)
        title.setFont(font(READING, QFont.Weight.Medium))
        self.close_button = IconButton("close", tr("Close"))
        self.hint = label(tr("Type / in an empty message field to insert one."), "secondary")
        self.hint.setWordWrap(True)
        self.save_button = TextButton(tr("Save the text of the message field"), "outlined", "plus")
        self.save_button.clicked.connect(self.save_requested)
        self.undo = TextButton(tr("Undo"), "link")
        self.undo.clicked.connect(self.restore_requested)
        self.rows: list[PromptRow] = []
        self._column = QVBoxLayout()
        set_margins(self._column, 0, 0, 8, 0)
        self._column.setSpacing(4)
        self._lay_out(title)
        state.changed.connect(self.refresh)
        self.refresh()

    def _lay_out(self, title: QWidget) -> None:
        head = QHBoxLayout()
        head.addWidget(title, 1)
        head.addWidget(self.close_button)
        page = QWidget()
        page.setObjectName("rows")
        page.setLayout(self._column)
        self.area = QScrollArea()
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setWidgetResizable(True)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setStyleSheet("QScrollArea, QWidget#rows { background: transparent; }")
        self.area.setWidget(page)
        foot = QHBoxLayout()
        foot.addWidget(self.save_button)
        foot.addStretch(1)
        foot.addWidget(self.undo)
        layout = QVBoxLayout(self)
        set_margins(layout, 24, 16, 16, 20)
        layout.setSpacing(8)
        layout.addLayout(head)
        layout.addWidget(self.hint)
        layout.addWidget(self.area)
        layout.addLayout(foot)

    def set_can_save(self, can_save: bool) -> None:
        """Whether the message field has a text to save."""
        self.save_button.setEnabled(can_save)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette
        for part in (self.close_button, self.save_button, *self.rows):
            part.apply_palette(palette)

    def refresh(self) -> None:
        """Show the prompts of the state; a name that is being typed stays."""
        self.undo.setVisible(self._state.deleted is not None)
        shown = [row.snippet for row in self.rows]
        if shown == list(self._state.snippets):
            return
        for row in self.rows:
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = [self._row(snippet) for snippet in self._state.snippets]
        self.area.setVisible(bool(self.rows))
        self.area.setFixedHeight(min(self._column.sizeHint().height() + 2, _LIST_HEIGHT))
        self.resized.emit()

    def _row(self, snippet: Snippet) -> PromptRow:
        row = PromptRow(snippet)
        row.apply_palette(self._palette)
        row.name.editingFinished.connect(lambda: self.renamed.emit(snippet.id, row.name.text()))
        row.insert.clicked.connect(lambda: self.inserted.emit(snippet.text))
        row.delete.clicked.connect(lambda: self.deleted.emit(snippet.id))
        self._column.addWidget(row)
        row.show()  # the layout leaves out a row that Qt would show later
        return row


class PromptRow(QWidget):
    """One prompt: its name, which can be edited, its beginning, and two buttons."""

    def __init__(self, snippet: Snippet) -> None:
        super().__init__()
        self.snippet = snippet
        self.name = QLineEdit(snippet.name)
        self.name.setObjectName("rename")
        self.name.setCursorPosition(0)
        self.name.setAccessibleName(tr("Name of the prompt {name}", name=snippet.name))
        begin = " ".join(snippet.text[: 2 * _PREVIEW].split())[:_PREVIEW]
        self.preview = ElidedLabel("secondary", font(SMALL))
        self.preview.show_words(isolated(begin))
        self.insert = IconButton("edit", tr("Insert {name}", name=snippet.name))
        self.delete = IconButton("trash", tr("Delete {name}", name=snippet.name))
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(self.name)
        words.addWidget(self.preview)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 4, 0, 4)
        layout.addLayout(words, 1)
        layout.addWidget(self.insert)
        layout.addWidget(self.delete)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self.insert.apply_palette(palette)
        self.delete.apply_palette(palette)
