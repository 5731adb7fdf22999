"""Message composer: a text field that grows with its content, and the Send/Stop button.

A long pasted text is a row above the field, and an attachment before the typed text in the message.
"""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QFontMetrics,
    QInputMethodEvent,
    QKeyEvent,
    QKeySequence,
    QResizeEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.domain.parts import (
    Content,
    FilePart,
    ImagePart,
    Parts,
    TextPart,
    parts_of,
    prompt_text,
    typed_text,
)
from app.system.translation import tr
from app.ui.chat.format_chip import FormatChip
from app.ui.chat.pasted_text import PastedText, PasteHistory, is_long
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import READING, font
from app.ui.widgets.controls import RoundButton, set_margins, set_property
from app.ui.widgets.message_field import MessageField
from engine import Role

_DEBOUNCE_MILLISECONDS = 400
_THROTTLE_MILLISECONDS = 150


class _Editor(MessageField):
    """Text field; Enter submits unless an input method is composing."""

    enter_pressed = Signal()
    up_pressed = Signal()  # Up was pressed in an empty field
    focused = Signal(bool)
    long_pasted = Signal(object)  # a text that is too long for the field; as `str` Qt alters it
    undo_pressed = Signal()
    typing = Signal()  # an input method is composing
    slash_typed = Signal()  # as the first character of the text
    save_requested = Signal()  # the text is to be kept as a prompt
    resized = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFont(font(READING))
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.setAccessibleName(tr("Message"))

    def resizeEvent(self, e: QResizeEvent) -> None:
        super().resizeEvent(e)
        self.resized.emit()

    def keyPressEvent(self, e: QKeyEvent) -> None:
        enter = e.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        plain = e.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if enter and not plain:
            if not self.composing:
                self.enter_pressed.emit()
            e.accept()
        elif e.key() == Qt.Key.Key_Up and not plain and self.document().isEmpty():
            self.up_pressed.emit()
            e.accept()
        elif e.matches(QKeySequence.StandardKey.Undo):
            self.undo_pressed.emit()
            e.accept()
        elif e.key() == Qt.Key.Key_Escape:
            e.ignore()  # handled by the window
        else:
            super().keyPressEvent(e)
            if e.text() == "/" and self.text() == "/":  # also in place of a selected text
                self.slash_typed.emit()

    def contextMenuEvent(self, e: QContextMenuEvent) -> None:
        menu = self.createStandardContextMenu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addSeparator()
        save = menu.addAction(tr("Save as a prompt"), self.save_requested.emit)
        save.setEnabled(bool(self.text().strip()))
        menu.popup(e.globalPos())

    def inputMethodEvent(self, e: QInputMethodEvent) -> None:
        super().inputMethodEvent(e)
        if e.commitString() in ("/", "\uff0f") and self.text() == e.commitString():
            self.slash_typed.emit()
        if self.composing:
            self.typing.emit()

    def insert_message_text(self, text: str) -> None:
        if is_long(text):
            self.long_pasted.emit(text)
        else:
            self.insert_text(text)

    def focusInEvent(self, e: QFocusEvent) -> None:
        super().focusInEvent(e)
        self.focused.emit(True)

    def focusOutEvent(self, e: QFocusEvent) -> None:
        super().focusOutEvent(e)
        self.focused.emit(False)


class Composer(QFrame):
    """The message editor with one button, which is Send, or Stop while an answer is generated."""

    submitted = Signal(object)  # its parts: the pasted texts, then the typed one
    stopped = Signal()
    edited = Signal(object)  # its parts, debounced
    typing = Signal()  # the user changes the text now, perhaps with an input method
    typed = Signal(str)  # the text, throttled; also when it was replaced
    edit_last_requested = Signal()
    refused = Signal(list)  # the paths of pasted files; none: a picture was pasted
    prompt_saved = Signal(str)  # the typed text is to be kept as a prompt

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._busy = False
        self._limit = 240  # pixels
        self._debounce = QTimer(self, singleShot=True, interval=_DEBOUNCE_MILLISECONDS)
        self._debounce.timeout.connect(self._emit_edited)
        self._throttle = QTimer(self, singleShot=True, interval=_THROTTLE_MILLISECONDS)
        self._throttle.timeout.connect(lambda: self.typed.emit(self.text()))
        self.editor = _Editor(self)
        self.chip = FormatChip(self)
        self.button = RoundButton(self)
        self.pasted: list[PastedText] = []
        self._history = PasteHistory(self.editor)
        self._palette = LIGHT
        self._rows = QVBoxLayout()
        set_margins(self._rows, 0, 0, 8, 0)
        self._rows.setSpacing(4)
        field = QHBoxLayout()
        field.setSpacing(8)
        field.addWidget(self.editor, 1)
        field.addWidget(self.button, 0, Qt.AlignmentFlag.AlignBottom)
        layout = QVBoxLayout(self)
        set_margins(layout, 16, 8, 8, 8)
        layout.setSpacing(0)
        self._chip_row = QVBoxLayout()
        set_margins(self._chip_row, 0, 0, 8, 4)
        self._chip_row.addWidget(self.chip)
        layout.addLayout(self._chip_row)
        layout.addLayout(self._rows)
        layout.addLayout(field)
        self.setFocusProxy(self.editor)
        self.editor.enter_pressed.connect(self._submit)
        self.editor.up_pressed.connect(self.edit_last_requested)
        self.editor.focused.connect(self._on_focus)
        self.editor.refused.connect(self.refused)
        self.editor.long_pasted.connect(self._on_long_pasted)
        self.editor.undo_pressed.connect(self._history.undo)
        self.editor.textChanged.connect(self._on_text)
        self.editor.typing.connect(self.typing)
        self.editor.save_requested.connect(self.save_prompt)
        self.editor.resized.connect(self._fit_placeholder)
        self.editor.document().documentLayout().documentSizeChanged.connect(self._fit_height)
        self.button.clicked.connect(self._on_button)
        self.set_model_name("")
        self._show_button()
        self._fit_height()

    def text(self) -> str:
        """The attachments, then the typed text, as they are sent to the model."""
        return prompt_text(self.parts())

    def parts(self) -> Parts:
        """The attachments, then the typed text."""
        text = self.editor.text()
        attached = tuple(row.part for row in self.pasted)
        return (*attached, TextPart(text)) if text else attached

    def set_text(self, content: Content) -> None:
        """Replace the text and the attachments without emitting `edited`."""
        self._debounce.stop()
        for row in self.pasted:
            self._drop(row)
        self.pasted.clear()
        self._history.clear()
        parts = parts_of(Role.USER, content)
        self._attach(parts)
        self._set_typed(typed_text(parts))
        self._start_throttle()

    def put_before(self, parts: Parts) -> None:
        """Put unsent parts before what was typed meanwhile, which goes on undisturbed."""
        rows = list(self.pasted)
        for row in rows:
            self._rows.removeWidget(row)
        self.pasted.clear()
        self._attach(parts)
        for row in rows:
            self.pasted.append(row)
            self._rows.addWidget(row)
        if text := typed_text(parts):
            blank = self.editor.document().isEmpty() and not self.editor.composing
            blocked = self.editor.blockSignals(True)
            self.editor.insert_before(text if blank else f"{text}\n")
            self.editor.blockSignals(blocked)
        self._show_button()
        self._fit_height()
        self._start_throttle()

    def end_composition(self) -> None:
        """Take the text that an input method is composing into the field."""
        self.editor.end_composition()

    def _attach(self, parts: Parts) -> None:
        for part in parts:
            if isinstance(part, FilePart | ImagePart):
                self._add(part)

    def _set_typed(self, text: str) -> None:
        self.editor.set_text(text)
        cursor = self.editor.textCursor()
        cursor.movePosition(cursor.MoveOperation.End)
        self.editor.setTextCursor(cursor)
        self._show_button()
        self._fit_height()

    def save_prompt(self) -> None:
        """Ask to keep the typed text as a prompt."""
        self.end_composition()
        if (text := self.editor.text()).strip():
            self.prompt_saved.emit(text)

    def replace_text(self, text: str) -> None:
        """Put another text in place of the typed one, which Undo brings back."""
        cursor = self.editor.textCursor()
        cursor.select(QTextCursor.SelectionType.Document)
        self.editor.setTextCursor(cursor)
        if text:
            self.editor.insert_text(text)
        else:
            cursor.removeSelectedText()
        self.editor.setFocus()

    def insert(self, text: str) -> None:
        """Insert text at the cursor, as if typed."""
        self.editor.insert_text(text)

    @property
    def busy(self) -> bool:
        """Whether the button is Stop."""
        return self._busy

    def set_busy(self, busy: bool) -> None:
        """Set whether an answer is being generated, which turns the button into Stop."""
        if busy != self._busy:
            self._busy = busy
            self._show_button()

    def set_model_name(self, name: str) -> None:
        """Show the model's name in the placeholder text."""
        self._model_name = name
        self._fit_placeholder()

    def _fit_placeholder(self) -> None:
        """Shorten the model's name in the placeholder, which is one line."""
        whole = tr("Message {name}", name=self._model_name)
        metrics, room = QFontMetrics(self.editor.font()), self.editor.viewport().width() - 2
        more = metrics.horizontalAdvance(whole) - metrics.horizontalAdvance(self._model_name)
        name = metrics.elidedText(self._model_name, Qt.TextElideMode.ElideMiddle, room - more)
        words = tr("Message {name}", name=name) if self._model_name else tr("Write a message")
        if words != self.editor.placeholderText():
            self.editor.setPlaceholderText(words)
            self.editor.viewport().update()  # Qt does not repaint for a changed placeholder

    def set_limit(self, pixels: int) -> None:
        """Set the maximum height of the editor; longer text scrolls."""
        if pixels != self._limit:
            self._limit = pixels
            self._fit_height()

    def set_zoom(self, zoom: float) -> None:
        """Set the text size; 1 is the normal one."""
        face = font(round(READING * zoom))
        for part in (self.editor, self.editor.viewport()):  # the latter paints the placeholder
            part.setFont(face)
        self._fit_placeholder()
        self._fit_height()

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette
        self.button.apply_palette(palette)
        self.chip.apply_palette(palette)
        for row in self.pasted:
            row.apply_palette(palette)

    # --- pasted text ----------------------------------------------------------------------------

    def _on_long_pasted(self, text: str) -> None:
        row = self._add(FilePart("", text))
        self._history.add(lambda: self._remove(row))
        self._on_text()

    def _add(self, part: FilePart | ImagePart, place: int = -1) -> PastedText:
        row = PastedText(part, self)
        row.apply_palette(self._palette)
        row.shown.connect(lambda: self._show_pasted(row))
        row.removed.connect(lambda: self._on_removed(row))
        self.pasted.insert(place if place >= 0 else len(self.pasted), row)
        self._rows.insertWidget(place, row)
        return row

    def _on_removed(self, row: PastedText) -> None:
        place = self.pasted.index(row)
        self._remove(row)
        self._history.add(lambda: self._restore(row.part, place))

    def _restore(self, part: FilePart | ImagePart, place: int) -> None:
        self._add(part, place)
        self._on_text()

    def _remove(self, row: PastedText) -> None:
        if row in self.pasted:  # undoing a paste finds it gone if it was restored as another row
            self.pasted.remove(row)
            self._drop(row)
        self._on_text()
        self.editor.setFocus()

    def _show_pasted(self, row: PastedText) -> None:
        """Put a pasted text into the editor, above the typed one."""
        before, place = self.editor.text(), self.pasted.index(row)
        self._remove(row)
        self._set_typed(f"{row.text}\n\n{before}" if before else row.text)

        def fold_again() -> None:
            self._set_typed(before)
            self._restore(row.part, place)

        self._history.add(fold_again)

    def _drop(self, row: PastedText) -> None:
        self._rows.removeWidget(row)
        row.hide()
        row.deleteLater()

    # --- steps ----------------------------------------------------------------------------------

    def _submit(self) -> None:
        self.end_composition()
        if self.text().strip():
            self._debounce.stop()
            self.submitted.emit(self.parts())

    def _on_button(self) -> None:
        if self._busy:
            self.stopped.emit()
        else:
            self._submit()

    def _on_text(self) -> None:
        self.typing.emit()
        self._show_button()
        self._debounce.start()
        self._start_throttle()

    def _start_throttle(self) -> None:
        if not self._throttle.isActive():
            self._throttle.start()

    def _emit_edited(self) -> None:
        self.edited.emit(self.parts())

    def _on_focus(self, focused: bool) -> None:
        set_property(self, "focused", focused)

    def _show_button(self) -> None:
        if self._busy:
            self.button.show_as("stop", tr("Stop the answer (Esc)"))
            self.button.setEnabled(True)
        else:
            self.button.show_as("send", tr("Send (Enter)"))
            self.button.setEnabled(bool(self.pasted) or not self.editor.document().isEmpty())

    def _fit_height(self) -> None:
        """Set the editor's height to that of the text, up to the limit, then show a scroll bar."""
        metrics = QFontMetrics(self.editor.font())
        lines = max(1, int(self.editor.document().size().height()))
        wanted = lines * metrics.lineSpacing()
        floor = self.button.height()
        height = min(max(wanted, floor), max(self._limit, floor))
        # Centre a single line vertically beside the button.
        top = max((floor - wanted) // 2, 0)
        self.editor.setViewportMargins(0, top, 0, 0)
        self.editor.setFixedHeight(height)
        scrolls = wanted > height
        policy = Qt.ScrollBarPolicy
        self.editor.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if scrolls else policy.ScrollBarAlwaysOff
        )
