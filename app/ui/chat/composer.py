"""Where messages are written: grows with the text, never waits for the engine."""

from __future__ import annotations

from PySide6.QtCore import QMimeData, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QFontMetrics, QInputMethodEvent, QKeyEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QWidget

from app.ui.theme.palette import Palette
from app.ui.theme.theme import READING, font
from app.ui.widgets.controls import RoundButton, set_property
from app.ui.widgets.long_lines import folded, unfolded

_EDITED_MILLISECONDS = 400


class _Editor(QPlainTextEdit):
    """Plain text; Enter sends unless an input method is composing."""

    entered = Signal()
    upped = Signal()  # Up, with nothing written
    focused = Signal(bool)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._composing = False
        self.setFont(font(READING))
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.setAccessibleName("Message")

    def keyPressEvent(self, e: QKeyEvent) -> None:
        enter = e.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        plain = e.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if enter and not plain:
            if not self._composing:
                self.entered.emit()
            e.accept()
        elif e.key() == Qt.Key.Key_Up and not plain and self.document().isEmpty():
            self.upped.emit()
            e.accept()
        elif e.key() == Qt.Key.Key_Escape:
            e.ignore()  # the window's
        else:
            super().keyPressEvent(e)

    def inputMethodEvent(self, e: QInputMethodEvent) -> None:
        self._composing = bool(e.preeditString())
        super().inputMethodEvent(e)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasText() and not source.hasUrls()  # files go to the window

    def insertFromMimeData(self, source: QMimeData) -> None:
        self.insertPlainText(folded(source.text()))
        self.ensureCursorVisible()

    def focusInEvent(self, e: QFocusEvent) -> None:
        super().focusInEvent(e)
        self.focused.emit(True)

    def focusOutEvent(self, e: QFocusEvent) -> None:
        self._composing = False
        super().focusOutEvent(e)
        self.focused.emit(False)


class Composer(QFrame):
    """The card with the text and the one round button, which is Send or Stop."""

    submitted = Signal(str)
    stopped = Signal()
    edited = Signal(str)  # what is written now, after a pause
    edit_last_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._busy = False
        self._limit = 240  # pixels
        self._edited = QTimer(self, singleShot=True, interval=_EDITED_MILLISECONDS)
        self._edited.timeout.connect(self._tell_edited)
        self.editor = _Editor(self)
        self.button = RoundButton(self)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 8, 8, 8)
        layout.setSpacing(8)
        layout.addWidget(self.editor, 1)
        layout.addWidget(self.button, 0, Qt.AlignmentFlag.AlignBottom)
        self.setFocusProxy(self.editor)
        self.editor.entered.connect(self._submit)
        self.editor.upped.connect(self.edit_last_requested)
        self.editor.focused.connect(self._on_focus)
        self.editor.textChanged.connect(self._on_text)
        self.editor.document().documentLayout().documentSizeChanged.connect(self._fit)
        self.button.clicked.connect(self._press)
        self.set_model_name("")
        self._show_button()
        self._fit()

    def text(self) -> str:
        """What is written."""
        return unfolded(self.editor.toPlainText())

    def set_text(self, text: str) -> None:
        """Replace what is written, without telling `edited`."""
        self._edited.stop()
        self.editor.blockSignals(True)
        self.editor.setPlainText(folded(text))
        self.editor.blockSignals(False)
        cursor = self.editor.textCursor()
        cursor.movePosition(cursor.MoveOperation.End)
        self.editor.setTextCursor(cursor)
        self._show_button()
        self._fit()

    def insert(self, text: str) -> None:
        """Write text at the cursor, as if typed."""
        self.editor.insertPlainText(text)

    @property
    def busy(self) -> bool:
        """Whether the button stops an answer."""
        return self._busy

    def set_busy(self, busy: bool) -> None:
        """Whether an answer is being written: the button stops it."""
        if busy != self._busy:
            self._busy = busy
            self._show_button()

    def set_model_name(self, name: str) -> None:
        """Say whom the message goes to."""
        self.editor.setPlaceholderText(f"Message {name}" if name else "Write a message")
        self.editor.viewport().update()  # Qt repaints only when it comes or goes

    def set_limit(self, pixels: int) -> None:
        """How tall the text may get before it scrolls."""
        if pixels != self._limit:
            self._limit = pixels
            self._fit()

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self.button.apply_palette(palette)

    # --- steps ----------------------------------------------------------------------------------

    def _submit(self) -> None:
        text = self.text()
        if not self._busy and text.strip():
            self._edited.stop()
            self.submitted.emit(text)

    def _press(self) -> None:
        if self._busy:
            self.stopped.emit()
        else:
            self._submit()

    def _on_text(self) -> None:
        self._show_button()
        self._edited.start()

    def _tell_edited(self) -> None:
        self.edited.emit(self.text())

    def _on_focus(self, focused: bool) -> None:
        set_property(self, "focused", focused)

    def _show_button(self) -> None:
        if self._busy:
            self.button.show_as("stop", "Stop the answer (Esc)")
            self.button.setEnabled(True)
        else:
            self.button.show_as("send", "Send (Enter)")
            self.button.setEnabled(not self.editor.document().isEmpty())

    def _fit(self) -> None:
        """As tall as the text, within the limit; the bar shows only when it scrolls."""
        metrics = QFontMetrics(self.editor.font())
        lines = max(1, int(self.editor.document().size().height()))
        wanted = lines * metrics.lineSpacing()
        floor = self.button.height()
        height = min(max(wanted, floor), max(self._limit, floor))
        # A single line sits in the middle of the button's height.
        top = max((floor - wanted) // 2, 0)
        self.editor.setViewportMargins(0, top, 0, 0)
        self.editor.setFixedHeight(height)
        scrolls = wanted > height
        policy = Qt.ScrollBarPolicy
        self.editor.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if scrolls else policy.ScrollBarAlwaysOff
        )
