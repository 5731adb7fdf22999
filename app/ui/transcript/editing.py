"""In-place editing of a message: positions the editor widget over the message.

While it is open, the message takes the editor's height in the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from app.domain.parts import Parts
from app.state.attachments import Attachment
from app.ui.blocks.style import ReadingStyle
from app.ui.pictures.thumbnails import Thumbnails
from app.ui.transcript.message.message_editor import AnswerEditor, MessageEditor
from app.ui.transcript.message.message_stack import MessageListLayout
from app.ui.transcript.message.message_view import CARD_SHARE
from engine import Role


class Editing(QObject):
    """Opens, positions and closes the message editor; at most one is open.

    `place()` returns the column's left edge and the scroll offset. `changed(index)` is called when
    a message's height changed, and `closed()` when the user submits or cancels.
    """

    began = Signal(object)  # message
    submitted = Signal(object, object)  # message, its new parts; after `closed()`
    cancelled = Signal(object)  # message
    files_pasted = Signal(object, list)  # message, the paths
    image_pasted = Signal(object, object)  # message, the bytes of a picture's file
    file_opened = Signal(object)  # Attachment, whose text is to be shown
    menu_requested = Signal(object)  # AttachmentChip of a picture
    file_removed = Signal(int)  # id of an attachment of the state
    file_restored = Signal(object, object, int)  # message, removed Attachment, and its place
    file_retried = Signal(int)  # as of `file_removed`
    file_reloaded = Signal(int)

    def __init__(
        self,
        viewport: QWidget,
        stack: MessageListLayout,
        place: Callable[[], tuple[int, int]],
        changed: Callable[[int], None],
        closed: Callable[[], None],
        thumbnails: Thumbnails,
    ) -> None:
        super().__init__(viewport)
        self.editor: MessageEditor | None = None
        self.message_id = 0
        self._unsent: dict[int, Parts] = {}  # edits that another chat or answer interrupted
        self._viewport = viewport
        self._stack = stack
        self._place = place
        self._changed = changed
        self._closed = closed
        self._thumbnails = thumbnails

    def begin(self, index: int, style: ReadingStyle) -> None:
        """Open the editor over a message."""
        view = self._stack.views[index]
        view.build(self._stack.column)
        view.hidden_for_edit = True
        self.message_id = view.message.id
        unsent = self._unsent.pop(self.message_id, None)
        kind = AnswerEditor if view.message.role is Role.ASSISTANT else MessageEditor
        self.editor = kind(view.message.parts, unsent, style, self._viewport)
        self.editor.submitted.connect(self._submit)
        self.editor.cancelled.connect(self._cancel)
        self.editor.files_pasted.connect(partial(self.files_pasted.emit, self.message_id))
        self.editor.image_pasted.connect(partial(self.image_pasted.emit, self.message_id))
        chips = self.editor.chips
        chips.use_thumbnails(self._thumbnails)
        chips.opened.connect(self.file_opened)
        chips.menu_requested.connect(self.menu_requested)
        self.editor.file_removed.connect(self.file_removed)
        restored = partial(self.file_restored.emit, self.message_id)
        self.editor.file_restored.connect(restored)
        chips.retried.connect(self.file_retried)
        chips.reloaded.connect(self.file_reloaded)
        self.editor.resized.connect(self.fit)
        self.editor.show()  # a hidden text edit does not wrap its lines
        self.fit()
        self.editor.place_cursor()
        self.editor.setFocus()
        self.began.emit(self.message_id)

    def show_files(self, message_id: int, files: Sequence[Attachment]) -> None:
        """Show the files of a message as they are now, if its editor is open."""
        if self.editor is not None and self.message_id == message_id:
            self.editor.show_files(files)

    def end(self) -> None:
        """Close the editor, if one is open, and show the unchanged message again.

        What was typed is there again when the message is edited the next time.
        """
        if self.editor is not None and self.editor.changed:
            self._unsent[self.message_id] = self.editor.parts()
        self._close()

    def keep(self, message_id: int, parts: Parts) -> None:
        """Let what was typed be there again when a message is edited the next time."""
        self._unsent[message_id] = parts

    def _close(self) -> None:
        if self.editor is None:
            return
        editor, self.editor = self.editor, None
        editor.hide()
        editor.deleteLater()
        index = self._stack.index_of(self.message_id)
        self.message_id = 0
        if index is not None:
            view = self._stack.views[index]
            view.hidden_for_edit = False
            view.edit_height = 0.0
            view.layout()
            self._changed(index)

    def fit(self) -> None:
        """Set the height of the editor, and of its message, to that of the text."""
        index = self._stack.index_of(self.message_id)
        if self.editor is None or index is None:
            return
        view = self._stack.views[index]
        view.hidden_for_edit = True
        most = max(self._viewport.height() // 2, 120)
        height = self.editor.wanted_height(self._width(), most)
        if height != view.edit_height or not view.built:
            view.edit_height = float(height)
            view.build(self._stack.column)
            view.layout()
            self._changed(index)
        self.move()

    def move(self) -> None:
        """Move the editor to the current position of its message."""
        index = self._stack.index_of(self.message_id)
        if self.editor is None or index is None:
            return
        left, offset = self._place()
        width = self._width()
        x = left if QGuiApplication.isRightToLeft() else left + round(self._stack.column) - width
        y = round(self._stack.top(index)) - offset
        height = round(self._stack.views[index].edit_height)
        self.editor.setGeometry(x, y, width, height)

    def _width(self) -> int:
        is_answer = isinstance(self.editor, AnswerEditor)
        return round(self._stack.column * (1 if is_answer else CARD_SHARE))

    def _submit(self, parts: Parts) -> None:
        message_id = self.message_id
        self._close()
        self._closed()
        self.submitted.emit(message_id, parts)

    def _cancel(self) -> None:
        message_id = self.message_id
        self._close()
        self._closed()
        self.cancelled.emit(message_id)
