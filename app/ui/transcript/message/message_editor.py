"""Message editor: the attachments of a message, a text field, and Cancel and Send buttons.

Enter sends, Shift+Enter inserts a line break, Esc cancels; while an input method composes, all
keys go to the input method. An answer is often long: there Enter inserts a line break, and
Ctrl+Enter keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.domain.parts import Parts, TextPart, attachments, typed_text
from app.state.attachments import Attachment
from app.system.translation import tr
from app.ui.blocks.style import ReadingStyle
from app.ui.documents.chip import items_of
from app.ui.documents.chips import Chips
from app.ui.documents.history import ChipHistory
from app.ui.theme.theme import RADIUS_CARD
from app.ui.widgets.controls import TextButton, set_margins
from app.ui.widgets.message_field import MessageField

_BUTTONS = 44  # pixels of height below the text


class _Field(MessageField):
    """Text edit that reports Enter and Esc as signals."""

    submitted = Signal()
    cancelled = Signal()

    def __init__(self, name: str, submit: Qt.KeyboardModifier, parent: QWidget) -> None:
        """Enter submits with the modifier `submit`, or with none but Shift."""
        super().__init__(parent)
        self._submit = submit
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setAccessibleName(name)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def keyPressEvent(self, e: QKeyEvent) -> None:
        enter = e.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if self.composing:
            super().keyPressEvent(e)
        elif enter and self._submits(e):
            self.submitted.emit()
        elif e.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
        else:
            super().keyPressEvent(e)

    def _submits(self, event: QKeyEvent) -> bool:
        modifiers = event.modifiers()
        if self._submit is Qt.KeyboardModifier.NoModifier:
            return not modifiers & Qt.KeyboardModifier.ShiftModifier
        return bool(modifiers & self._submit)


class MessageEditor(QFrame):
    """Card with the attachments, which can be removed, the text field and its two buttons.

    The files of the message are those of the state, once it has said which (`show_files`).
    """

    submitted = Signal(object)  # parts
    cancelled = Signal()
    files_pasted = Signal(list)  # their paths
    image_pasted = Signal(object)  # the bytes of a picture's file
    file_removed = Signal(int)  # id of an attachment of the state
    file_restored = Signal(object, int)  # removed Attachment, and its place
    resized = Signal()  # the text changed, and with it the needed height
    SUBMIT = Qt.KeyboardModifier.NoModifier  # with Enter

    def __init__(
        self, parts: Parts, edited: Parts | None, style: ReadingStyle, parent: QWidget
    ) -> None:
        """`parts` is the message, and `edited` what an earlier editor of it contained."""
        super().__init__(parent)
        self.setObjectName("editor")
        self._field = _Field(self._name(), self.SUBMIT, self)
        self._field.set_text(self._text_of(parts))
        self._before = (*attachments(parts), *self._typed())
        if edited is not None:
            parts = edited
            self._field.set_text(typed_text(parts))
        self._field.setMinimumHeight(1)  # what there is below the chips; Qt would want more
        self._cancel = TextButton(tr("Cancel"), "quiet", parent=self)
        self._send = TextButton(self._verb(), "outlined", parent=self)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addStretch(1)
        buttons.addWidget(self._cancel)
        buttons.addWidget(self._send)
        layout = QVBoxLayout(self)
        set_margins(layout, 12, 8, 8, 8)  # plus the field's document margin of 4 pixels
        layout.setSpacing(4)
        self.chips = Chips(self)
        # Their ids are those that the state has not.
        self._own = items_of(parts, count(-1, -1).__next__)
        self._files: Sequence[Attachment] = ()  # of the state
        self._history = ChipHistory(self._field, self.chips)
        self.chips.removed.connect(self._remove)
        self.chips.left.connect(self._field.setFocus)
        layout.addWidget(self.chips)
        layout.addWidget(self._field, 1)
        layout.addLayout(buttons)
        self._field.submitted.connect(self.submit)
        self._field.files_pasted.connect(self.files_pasted)
        self._field.image_pasted.connect(self.image_pasted)
        self._send.clicked.connect(self.submit)
        self._field.cancelled.connect(self.cancelled)
        self._cancel.clicked.connect(self.cancelled)
        self._field.textChanged.connect(self._changed)
        self.apply_style(style)
        self._show_chips()

    def setFocus(self, reason: Qt.FocusReason = Qt.FocusReason.OtherFocusReason) -> None:
        """Focus the field; with a focus proxy, Tab would skip what is before the field."""
        self._field.setFocus(reason)

    def show_files(self, files: Sequence[Attachment]) -> None:
        """Show the files of the message as they are now, in place of those that it was sent with."""
        self._files = tuple(files)
        self._own = [each for each in self._own if not each.name and not each.is_image]
        self._show_chips()

    def _show_chips(self) -> None:
        if self.chips.show_items((*self._files, *self._own)):
            self.chips.order_tabs((), (self._field, self._cancel, self._send))
        self._changed()

    def _text_of(self, parts: Parts) -> str:
        return typed_text(parts)

    def _name(self) -> str:
        return tr("Edit your message")

    def _verb(self) -> str:
        return tr("Send")

    def place_cursor(self) -> None:
        """Move the cursor to the end; call it after the text was laid out."""
        cursor = self._field.textCursor()
        cursor.movePosition(cursor.MoveOperation.End)
        self._field.setTextCursor(cursor)
        self._field.horizontalScrollBar().setValue(0)

    def apply_style(self, style: ReadingStyle) -> None:
        """Style the editor like a message card, with a focus ring."""
        palette = style.palette
        self._field.setFont(style.body)
        self.setStyleSheet(
            f"QFrame#editor {{ background: {palette.surface}; border: {2 if style.high_contrast else 1}px solid {palette.accent};"
            f" border-radius: {RADIUS_CARD}px; }}"
            f"QPlainTextEdit {{ background: transparent; color: {palette.text}; border: none; }}"
        )

    def text(self) -> str:
        """The edited text."""
        return self._field.text()

    def wanted_height(self, width: int, most: int) -> int:
        """The height that shows all of the text, up to `most`."""
        self.resize(width, self.height())
        layout = self.layout()
        if layout:
            layout.activate()
        # QPlainTextDocumentLayout gives the document's height in lines.
        lines = max(int(self._field.document().size().height()), 1)
        height = lines * self._field.fontMetrics().lineSpacing() + 26 + _BUTTONS
        if self.chips.chips:
            height += self.chips.heightForWidth(width - 20) + 4
        bars = Qt.ScrollBarPolicy
        fits = height <= most
        self._field.setVerticalScrollBarPolicy(
            bars.ScrollBarAlwaysOff if fits else bars.ScrollBarAsNeeded
        )
        return min(height, most)

    @property
    def changed(self) -> bool:
        """Whether an attachment or the text is not as at the beginning."""
        self._field.end_composition()
        return self.parts() != self._before

    def parts(self) -> Parts:
        """The attachments that were not removed, then the text."""
        kept = [each.part for each in (*self._files, *self._own) if each.part]
        return (*kept, *self._typed())

    def _typed(self) -> Parts:
        text = self.text()
        return (TextPart(text),) if text.strip() else ()

    def _remove(self, item: Attachment) -> None:
        if item in self._own:
            place = self._own.index(item)
            del self._own[place]
            self._show_chips()
            self._history.add(lambda: self._put_back(item, place))
        else:
            place = self._files.index(item)
            self.file_removed.emit(item.id)
            self._history.add(lambda: self.file_restored.emit(item, place))

    def _put_back(self, item: Attachment, place: int) -> None:
        self._own.insert(place, item)
        self._show_chips()

    def submit(self) -> None:
        """Send what is in the field and attached."""
        self._field.end_composition()
        if (parts := self.parts()) or self._files:
            self.submitted.emit(parts)

    def _changed(self) -> None:
        self._send.setEnabled(bool(self.parts() or self._files))
        self.resized.emit()


class AnswerEditor(MessageEditor):
    """The text of an answer, which is kept as a new version instead of being sent."""

    SUBMIT = Qt.KeyboardModifier.ControlModifier

    def _text_of(self, parts: Parts) -> str:
        return typed_text(parts).strip("\n")  # blank lines after the thoughts

    def _name(self) -> str:
        return tr("Edit the answer (Ctrl+Enter keeps it)")

    def _verb(self) -> str:
        return tr("Keep this version")
