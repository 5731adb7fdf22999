"""Title of the shown chat in the top bar: a button that becomes a text field to rename it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QKeyEvent, QMouseEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSizePolicy, QWidget

from app.state.chat import State
from app.system.translation import isolated, tr
from app.ui.theme.theme import BODY, font
from app.ui.widgets.controls import TextButton

_LEAST_WIDTH = 96  # pixels: below it the title is not shown
_PADDING = 24  # pixels around the text of the button
_EDITED_WIDTH = 320  # pixels, while it is edited


class ChatTitle(QWidget):
    """Shows the title; a click, F2 or the keyboard edits it, Enter keeps it, Escape does not."""

    renamed = Signal(object, str)  # id of the conversation, its new title

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self._edited: int | None = None  # the conversation whose title is edited
        self._on_chat = True
        self.button = TextButton("", "quiet")
        self.button.setFont(font(BODY, QFont.Weight.Normal))
        self.button.setToolTip(tr("Rename the chat (F2)"))
        self.button.clicked.connect(self.edit)
        self.field = _TitleField()
        self.field.setAccessibleName(tr("Title of the chat"))
        self.field.hide()
        self.field.editingFinished.connect(self._finish)
        self.field.cancelled.connect(self._close)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.button)
        layout.addWidget(self.field)
        layout.addStretch(1)
        # The width that the other parts of the top bar leave.
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        state.conversation_changed.connect(self._on_shown)
        state.conversations_changed.connect(self.refresh)
        self.refresh()

    def set_on_chat(self, shown: bool) -> None:
        """Whether the page of the chat is shown: others have titles of their own."""
        self._on_chat = shown
        self.refresh()

    def refresh(self) -> None:
        """Show the title of the state."""
        title = self._state.title(self._state.current)
        self.button.setAccessibleName(tr("Chat: {title}", title=title))
        self.setVisible(bool(title) and self._on_chat)
        self._fit()

    @property
    def can_edit(self) -> bool:
        """Whether the title is visible and wide enough to be edited."""
        return self.isVisible() and self.width() >= _LEAST_WIDTH

    def edit(self) -> None:
        """Edit the title in place."""
        if self._state.current is None:
            return
        self._edited = self._state.current
        self.field.setText(self._state.title(self._edited))
        self.button.hide()
        self.field.show()
        self.field.selectAll()
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)

    def _on_shown(self) -> None:
        if self._edited is not None and self._edited != self._state.current:
            self._finish()
        self.refresh()

    def _finish(self) -> None:
        """Keep what was typed, unless it is empty or the same."""
        edited, typed = self._edited, self.field.text().strip()
        self._close()
        if edited is not None and typed and typed != self._state.title(edited):
            self.renamed.emit(edited, typed)

    def _close(self) -> None:
        if self._edited is None:
            return
        had_focus = self.field.hasFocus()
        self._edited = None
        self.field.hide()
        self._fit()
        if had_focus:
            self.button.setFocus(Qt.FocusReason.OtherFocusReason)

    def _fit(self) -> None:
        """Fit button and field to the width; one that is too narrow shows neither."""
        title, metrics = self._state.title(self._state.current), self.button.fontMetrics()
        width = min(metrics.horizontalAdvance(title) + _PADDING + 2, self.width())
        mode = Qt.TextElideMode.ElideRight
        shown = metrics.elidedText(title, mode, max(width - _PADDING, 0))
        self.button.setText(isolated(shown.replace("&", "&&")))  # no mnemonic
        self.button.setFixedWidth(max(width, 0))
        self.button.setVisible(self.width() >= _LEAST_WIDTH and self._edited is None)
        self.field.setFixedWidth(max(min(_EDITED_WIDTH, self.width()), 0))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()


class _TitleField(QLineEdit):
    """The text field: Escape cancels, a double click selects the whole title."""

    cancelled = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("rename")
        self.setFont(font(BODY))
        self.setMinimumWidth(0)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.cancelled.emit()
        else:
            super().keyPressEvent(event)
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                event.accept()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.selectAll()
