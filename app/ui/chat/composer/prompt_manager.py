"""Card with the saved prompts: save the message field, edit, insert, delete and restore."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QFont, QShowEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLineEdit, QScrollArea, QVBoxLayout, QWidget

from app.domain.snippet import Snippet
from app.state.snippets import SnippetState
from app.system.translation import isolated, tr
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import READING, SMALL, font
from app.ui.widgets.controls import (
    ElidedLabel,
    IconButton,
    TextButton,
    label,
    set_margins,
    set_property,
)
from app.ui.widgets.plain_text import PlainTextField

CARD_WIDTH = 520
_LIST_HEIGHT = 320  # pixels
_LINES = 5  # of the text while it is edited
_PREVIEW = 200  # characters


class PromptManager(QWidget):
    """The saved prompts, each with its name, its beginning and its buttons."""

    save_requested = Signal()  # the text of the message field
    changed = Signal(object, str, str)  # id, name, text
    deleted = Signal(object)  # id
    restore_requested = Signal()
    inserted = Signal(str)  # text
    resized = Signal()  # the size hint has changed

    def __init__(self, state: SnippetState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        title = label(tr("Saved prompts"), "", READING)
        title.setFont(font(READING, QFont.Weight.Medium))
        self.close_button = IconButton("close", tr("Close"))
        self.hint = label(
            tr("Type / in an empty message field to insert one."), "secondary", wraps=True
        )
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
        follow_palette(self._recolor)

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

    def _recolor(self, palette: Palette) -> None:
        line = 2 if palette.hairline == palette.text else 1
        self.setStyleSheet(
            f"QFrame#area {{ background: {palette.surface}; border: {line}px solid"
            f" {palette.hairline}; border-radius: 6px; }}"
            f'QFrame#area[focused="true"] {{ border-color: {palette.accent}; }}'
        )

    def refresh(self) -> None:
        """Show the prompts of the state; rows keep their order while the card is open.

        A row that is clicked while another one is edited would else move away under the mouse.
        """
        self.undo.setVisible(self._state.deleted is not None)
        known = {row.snippet.id: row for row in self.rows}
        shown = {snippet.id: snippet for snippet in self._state.snippets}
        order = list(shown)
        if self.isVisible():
            order = [id for id in known if id in shown]
            for place, id in enumerate(shown):
                if id not in known:
                    order.insert(place, id)
        for id in known.keys() - shown.keys():
            self._column.removeWidget(known[id])
            known[id].hide()
            known[id].deleteLater()
        self.rows = [known.get(id) or self._row(shown[id]) for id in order]
        for place, row in enumerate(self.rows):
            row.show_snippet(shown[row.snippet.id])
            if self._column.indexOf(row) != place:
                self._column.insertWidget(place, row)
                row.show()  # the layout leaves out a row that Qt would show later
        self.area.setVisible(bool(self.rows))
        self._fit()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QTimer.singleShot(0, self, self.refresh)

    def _fit(self) -> None:
        self._column.activate()
        height = min(self._column.sizeHint().height() + 2, _LIST_HEIGHT)
        if self.area.height() != height or self.area.minimumHeight() != height:
            self.area.setFixedHeight(height)
        self.resized.emit()

    def _row(self, snippet: Snippet) -> PromptRow:
        row = PromptRow(snippet)
        row.changed.connect(partial(self.changed.emit, snippet.id))
        row.folded.connect(self._fit)
        row.insert.clicked.connect(lambda: self.inserted.emit(row.snippet.text))
        row.delete.clicked.connect(lambda: self.deleted.emit(snippet.id))
        return row


class _TextArea(QFrame):
    """A framed text field of a few lines."""

    left = Signal()  # the focus has gone elsewhere

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("area")
        self.editor = PlainTextField()
        self.editor.setTabChangesFocus(True)
        self.editor.setFrameShape(QFrame.Shape.NoFrame)
        self.editor.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.editor.document().setDocumentMargin(0)
        self.editor.setFixedHeight(self.editor.fontMetrics().lineSpacing() * _LINES + 4)
        self.editor.installEventFilter(self)
        layout = QVBoxLayout(self)
        set_margins(layout, 10, 7, 4, 7)
        layout.addWidget(self.editor)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            set_property(self, "focused", event.type() == QEvent.Type.FocusIn)
            if event.type() == QEvent.Type.FocusOut:
                self.editor.end_composition()
                self.left.emit()
        return super().eventFilter(watched, event)


class PromptRow(QWidget):
    """One prompt: its name, the beginning of its text or all of it to edit, and three buttons."""

    changed = Signal(str, str)  # name, text
    folded = Signal()  # the text was shown or hidden

    def __init__(self, snippet: Snippet) -> None:
        super().__init__()
        self.snippet = snippet
        self.name = QLineEdit()
        self.name.setObjectName("rename")
        self.name.editingFinished.connect(self._commit)
        self.preview = ElidedLabel("secondary", font(SMALL))
        self.text = _TextArea()
        self.text.hide()
        self.text.left.connect(self._commit)
        self.edit = IconButton("edit", "")
        self.edit.setCheckable(True)
        self.edit.toggled.connect(self._unfold)
        self.insert = IconButton("arrow_down", "")
        self.delete = IconButton("trash", "")
        words = QVBoxLayout()
        words.setSpacing(2)
        for part in (self.name, self.preview, self.text):
            words.addWidget(part)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 4, 0, 4)
        layout.addLayout(words, 1)
        for button in (self.edit, self.insert, self.delete):
            layout.addWidget(button, 0, Qt.AlignmentFlag.AlignTop)
        self.show_snippet(snippet)

    def show_snippet(self, snippet: Snippet) -> None:
        """Show the prompt; what is being typed in its fields stays."""
        self.snippet = snippet
        if not self.name.hasFocus():
            self.name.setText(snippet.name)
            self.name.setCursorPosition(0)
        if not self.text.editor.hasFocus() and self.text.editor.text() != snippet.text:
            self.text.editor.set_text(snippet.text)
        begin = " ".join(snippet.text[: 2 * _PREVIEW].split())[:_PREVIEW]
        self.preview.show_words(isolated(begin))
        self.preview.setVisible(not self.edit.isChecked())
        self.name.setAccessibleName(tr("Name of the prompt {name}", name=snippet.name))
        self.text.editor.setAccessibleName(tr("Text of the prompt {name}", name=snippet.name))
        for button, words in (
            (self.edit, tr("Edit the text of {name}", name=snippet.name)),
            (self.insert, tr("Insert {name}", name=snippet.name)),
            (self.delete, tr("Delete {name}", name=snippet.name)),
        ):
            button.set_text(words)

    def _commit(self) -> None:
        self.changed.emit(self.name.text(), self.text.editor.text())
        self.show_snippet(self.snippet)  # what was emptied is as before

    def _unfold(self, shown: bool) -> None:
        self.text.setVisible(shown)
        self.preview.setVisible(not shown)
        if shown:
            self.text.editor.setFocus()
        self.folded.emit()
