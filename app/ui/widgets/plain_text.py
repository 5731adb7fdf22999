"""Plain text field that gives back exactly what was typed and pasted, apart from its line ends.

`QPlainTextEdit.toPlainText` and its clipboard turn U+00A0 into a space; the raw text of the
document keeps it. Very long lines are folded, because Qt takes a minute to lay out one line of a
million characters: a fold is a line break of the document with a mark in its format, which is no
character of the text, so nothing that can be typed or pasted looks like one.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import QEvent, QMimeData, Qt
from PySide6.QtGui import (
    QFocusEvent,
    QGuiApplication,
    QInputMethodEvent,
    QKeyEvent,
    QKeySequence,
    QTextBlock,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFormat,
)
from PySide6.QtWidgets import QApplication, QPlainTextEdit, QWidget

from app.ui.widgets.direction import runs_right_to_left

LINE_LIMIT = 4000  # characters; a longer line is folded
_FOLDED = QTextFormat.Property.UserProperty + 1  # of a line break that is not in the text


class PlainTextField(QPlainTextEdit):
    """Text field without formatting; `text` is what was put into it, with `\\n` between lines."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._preedit = ""  # what an input method is composing
        self._has_folds = False  # perhaps
        self._is_code = False
        self.document().contentsChanged.connect(self._align)
        self._align()

    @property
    def composing(self) -> bool:
        """Whether an input method is composing text that is not in the field yet."""
        return bool(self._preedit)

    def text(self) -> str:
        """The text, without the text that is being composed."""
        return self._text_between(0, self.document().characterCount() - 1)

    def set_text(self, text: str) -> None:
        """Replace the text and forget the undo steps, without `textChanged`."""
        blocked = self.blockSignals(True)
        self.setPlainText("")
        self._preedit, self._has_folds = "", False
        self.document().setUndoRedoEnabled(False)
        self._put(QTextCursor(self.document()), text)
        self.document().setUndoRedoEnabled(True)
        self.blockSignals(blocked)

    def set_code(self, is_code: bool) -> None:
        """Begin every line at the left, also one of signs alone, as code and JSON are written."""
        if is_code != self._is_code:
            self._is_code = is_code
            self._align()

    def insert_text(self, text: str) -> None:
        """Replace the selection by a text, as if it was typed."""
        self._put(self.textCursor(), text)
        self.ensureCursorVisible()

    def insert_before(self, text: str) -> None:
        """Insert a text at the beginning; the cursor and a composition stay where they are."""
        self._put(QTextCursor(self.document()), text)

    def block_of_line(self, line: int) -> QTextBlock:
        """The block where a line of the text begins, counted from 1; invalid if there is none."""
        block, number = self.document().begin(), 1
        while block.isValid() and number != line:
            block = block.next()
            number += block.isValid() and not _is_fold(block)
        return block

    @property
    def folds(self) -> list[int]:
        """The positions of the folds in the document, in order."""
        found: list[int] = []
        block = self.document().begin() if self._has_folds else QTextBlock()
        while block.isValid():
            if _is_fold(block):
                found.append(block.position() - 1)
            block = block.next()
        return found

    def end_composition(self) -> None:
        """Turn the text that is being composed into text: it would be lost with its place."""
        if self._preedit:
            QGuiApplication.inputMethod().commit()
        if self._preedit:  # no input method listened
            event = QInputMethodEvent()
            event.setCommitString(for_qt(self._preedit))
            QApplication.sendEvent(self, event)

    def _align(self) -> None:
        """Begin the lines at the side where the text begins; Qt begins all of them at the left."""
        first, sides = self.document().begin().text(), Qt.AlignmentFlag
        to_right = not self._is_code and runs_right_to_left(first, otherwise=self.isRightToLeft())
        option = self.document().defaultTextOption()
        side = sides.AlignRight if to_right else sides.AlignLeft
        directions = Qt.LayoutDirection
        way = directions.LeftToRight if self._is_code else directions.LayoutDirectionAuto
        if option.alignment() != side or option.textDirection() != way:
            option.setAlignment(side)
            option.setTextDirection(way)
            self.document().setDefaultTextOption(option)

    # --- folds ----------------------------------------------------------------------------------

    def _put(self, cursor: QTextCursor, text: str) -> None:
        """Insert a text with its very long lines folded, as one undo step."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        cursor.beginEditBlock()
        for number, piece in enumerate(_pieces(text)):
            if number:
                folded = QTextCharFormat()
                folded.setProperty(_FOLDED, True)
                cursor.insertBlock(QTextBlockFormat(), folded)
                self._has_folds = True
            cursor.insertText(for_qt(piece), QTextCharFormat())
        cursor.endEditBlock()

    def _text_between(self, start: int, end: int) -> str:
        """The text between two positions of the document."""
        if not self._has_folds:
            cursor = QTextCursor(self.document())
            cursor.setPosition(start)
            cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            return cursor.selectedText().replace("\u2029", "\n")
        pieces: list[str] = []
        block = self.document().findBlock(start)
        while block.isValid() and block.position() <= end:
            if pieces and not _is_fold(block):
                pieces.append("\n")
            pieces.append(self._text_of(block, start, end))
            block = block.next()
        return "".join(pieces)

    def _text_of(self, block: QTextBlock, start: int, end: int) -> str:
        """The part of a block's text between two positions of the document."""
        last = block.position() + block.length() - 1
        cursor = QTextCursor(self.document())
        cursor.setPosition(max(block.position(), start))
        cursor.setPosition(min(last, end), QTextCursor.MoveMode.KeepAnchor)
        return cursor.selectedText()

    def _forget_fold_format(self) -> None:
        """What is typed next is plain: a line break typed at a fold is in the text."""
        if self._has_folds and self.currentCharFormat().hasProperty(_FOLDED):
            self.setCurrentCharFormat(QTextCharFormat())

    # --- Qt -------------------------------------------------------------------------------------

    def createMimeDataFromSelection(self) -> QMimeData:
        cursor, data = self.textCursor(), QMimeData()
        data.setText(for_qt(self._text_between(cursor.selectionStart(), cursor.selectionEnd())))
        return data

    def insertFromMimeData(self, source: QMimeData) -> None:
        self.insert_text(source.text())

    def changeEvent(self, e: QEvent) -> None:
        super().changeEvent(e)
        if e.type() is QEvent.Type.LayoutDirectionChange:
            self._align()

    def keyPressEvent(self, e: QKeyEvent) -> None:
        self._forget_fold_format()
        if e.matches(QKeySequence.StandardKey.InsertLineSeparator):  # Qt would insert U+2028
            self.insert_text("\n")
            e.accept()
        else:
            super().keyPressEvent(e)

    def inputMethodEvent(self, e: QInputMethodEvent) -> None:
        self._forget_fold_format()
        self._preedit = e.preeditString()
        super().inputMethodEvent(e)

    def focusOutEvent(self, e: QFocusEvent) -> None:
        self.end_composition()
        super().focusOutEvent(e)


def for_qt(text: str) -> str:
    """A text as Qt is to be given it: PySide takes a byte order mark at its beginning away."""
    return f"\ufeff{text}" if text.startswith(("\ufeff", "\ufffe")) else text


def _is_fold(block: QTextBlock) -> bool:
    """Whether a block continues the line of the block before."""
    return block.charFormat().hasProperty(_FOLDED)


def _pieces(text: str) -> Iterator[str]:
    """The text in pieces with short lines, each long line cut at a space if there is one."""
    if len(text) <= LINE_LIMIT:
        yield text
        return
    start = line = 0  # of the piece, and of what is left of the line
    while line < len(text):
        end = text.find("\n", line)
        end = len(text) if end < 0 else end
        while end - line > LINE_LIMIT:
            space = text.rfind(" ", line, line + LINE_LIMIT)
            line = space + 1 if space > line else line + LINE_LIMIT
            yield text[start:line]
            start = line
        line = end + 1
    yield text[start:]
