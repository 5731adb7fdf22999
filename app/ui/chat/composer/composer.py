"""Message composer: chips of files and collections, a text field that grows, and Send or Stop.

A long pasted text is a chip too, and an attachment before the typed text in the message. It belongs
to the composer; files belong to the state, which says what is known of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, count

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import (
    QContextMenuEvent,
    QFocusEvent,
    QFontMetrics,
    QInputMethodEvent,
    QKeyEvent,
    QResizeEvent,
    QTextCursor,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.domain.file_words import is_long
from app.domain.parts import (
    Content,
    FilePart,
    Parts,
    TextPart,
    parts_of,
    prompt_text,
    typed_text,
)
from app.state.attachments import Attachment
from app.state.collections import ShownCollection
from app.system.translation import tr
from app.ui.blocks.text import units
from app.ui.chat.composer.format_chip import FormatChip
from app.ui.chat.composer.tools_button import ToolsButton
from app.ui.documents.chip import Item, items_of
from app.ui.documents.chips import Chips
from app.ui.documents.history import ChipHistory
from app.ui.theme.theme import READING, font
from app.ui.widgets.controls import IconButton, RoundButton, set_margins, set_property
from app.ui.widgets.menus import new_menu
from app.ui.widgets.message_field import MessageField
from engine import Role

_SAVE_MILLISECONDS = 400  # the most of typing that a crash loses
_THROTTLE_MILLISECONDS = 150


class _Editor(MessageField):
    """Text field; Enter submits unless an input method is composing."""

    enter_pressed = Signal()
    up_pressed = Signal()  # Up was pressed in an empty field
    focused = Signal(bool)
    long_pasted = Signal(object)  # a text that is too long for the field; as `str` Qt alters it
    typing = Signal()  # an input method is composing
    slash_typed = Signal()  # as the first character of the text
    at_typed = Signal()  # "@" was typed, anywhere
    save_requested = Signal()  # the text is to be kept as a prompt
    attach_requested = Signal()
    folder_requested = Signal()  # whose files are to be attached
    screenshot_requested = Signal()
    collections_requested = Signal()
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
        elif e.key() == Qt.Key.Key_Escape:
            e.ignore()  # handled by the window
        else:
            super().keyPressEvent(e)
            if e.text() == "/" and self.text() == "/":  # also in place of a selected text
                self.slash_typed.emit()
            elif e.text() == "@":
                self.at_typed.emit()

    def text_before_cursor(self, most: int) -> str:
        """The end of the text before the cursor, up to so many characters."""
        cursor = self.textCursor()
        end = cursor.selectionStart()
        cursor.setPosition(max(end - most, 0))
        cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
        return cursor.selectedText().replace("\u2029", "\n")

    def replace_before_cursor(self, count: int, text: str) -> None:
        """Put a text in place of so many characters before the cursor, as one undo step."""
        cursor = self.textCursor()
        end = cursor.selectionStart()
        gone = units(self.text_before_cursor(end)[-count:])
        cursor.setPosition(end - gone)
        cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
        cursor.insertText(text)
        self.setTextCursor(cursor)

    def contextMenuEvent(self, e: QContextMenuEvent) -> None:
        menu = self.createStandardContextMenu()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addSeparator()
        menu.addAction(tr("Attach files…"), self.attach_requested.emit)
        menu.addAction(tr("Attach a folder…"), self.folder_requested.emit)
        menu.addAction(tr("Take a screenshot…"), self.screenshot_requested.emit)
        menu.addAction(tr("Collections…"), self.collections_requested.emit)
        save = menu.addAction(tr("Save as a prompt"), self.save_requested.emit)
        save.setEnabled(bool(self.text().strip()))
        menu.popup(e.globalPos())

    def inputMethodEvent(self, e: QInputMethodEvent) -> None:
        super().inputMethodEvent(e)
        if e.commitString() in ("/", "\uff0f") and self.text() == e.commitString():
            self.slash_typed.emit()
        elif e.commitString() in ("@", "\uff20"):
            self.at_typed.emit()
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
    edited = Signal(object)  # its parts, throttled, to be saved
    typing = Signal()  # the user changes the text now, perhaps with an input method
    typed = Signal(str)  # the text, throttled; also when it was replaced
    edit_last_requested = Signal()
    files_pasted = Signal(list)  # their paths
    image_pasted = Signal(object)  # the bytes of a picture's file
    attach_requested = Signal()  # the user is to choose files
    folder_requested = Signal()  # the user is to choose a folder
    screenshot_requested = Signal()  # the user is to choose what of the screen is attached
    collections_requested = Signal()  # the collections are to be shown
    file_opened = Signal(object)  # Attachment, whose text is to be shown
    menu_requested = Signal(object)  # AttachmentChip of a picture
    attach_menu_opened = Signal(object)  # QMenu, to be filled further
    pasted_opened = Signal(object)  # FilePart of a pasted text, which is to be shown
    file_removed = Signal(int)  # id of an attachment
    file_restored = Signal(object, int)  # removed Attachment, and its place
    file_retried = Signal(int)  # id of an attachment that could not be read
    file_reloaded = Signal(int)  # id of an attachment that has changed on disk
    collection_opened = Signal(object)  # id of a collection of the chat, which is to be shown
    collection_switched = Signal(object, bool)  # its id, and whether the chat is to use it
    prompt_saved = Signal(str)  # the typed text is to be kept as a prompt
    tools_requested = Signal()  # the tools of the chat are to be shown

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("composer")
        self._busy = False
        self._limit = 240  # pixels
        self._unsaved = QTimer(self, singleShot=True, interval=_SAVE_MILLISECONDS)
        self._unsaved.timeout.connect(self._emit_edited)
        self._throttle = QTimer(self, singleShot=True, interval=_THROTTLE_MILLISECONDS)
        self._throttle.timeout.connect(lambda: self.typed.emit(self.text()))
        self.editor = _Editor(self)
        self.chip = FormatChip(self)
        self.button = RoundButton(self)
        self.attach_button = IconButton("attach", tr("Attach files"))
        self.attach_button.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.tools_button = ToolsButton(self)
        self.chips = Chips(self)
        self._collections: Sequence[ShownCollection] = ()  # of the state
        self._files: Sequence[Attachment] = ()  # of the state
        self._below_chips: list[QWidget] = []
        self._own: list[Attachment] = []  # pasted texts, and what else came with a draft
        self._number = count(-1, -1).__next__  # ids of pasted texts, which the state has not
        self._history = ChipHistory(self.editor, self.chips)
        field = QHBoxLayout()
        field.setSpacing(8)
        first = QHBoxLayout()
        first.setSpacing(0)
        first.addWidget(self.attach_button, 0, Qt.AlignmentFlag.AlignBottom)
        first.addWidget(self.tools_button, 0, Qt.AlignmentFlag.AlignBottom)
        field.addLayout(first)
        field.addWidget(self.editor, 1)
        field.addWidget(self.button, 0, Qt.AlignmentFlag.AlignBottom)
        layout = QVBoxLayout(self)
        set_margins(layout, 8, 8, 8, 8)
        layout.setSpacing(0)
        self._chip_row = QVBoxLayout()
        set_margins(self._chip_row, 4, 0, 4, 0)
        self._chip_row.addWidget(self.chip)
        self._chip_row.addWidget(self.chips)
        layout.addLayout(self._chip_row)
        layout.addLayout(field)
        self.editor.enter_pressed.connect(self.submit)
        self.editor.up_pressed.connect(self.edit_last_requested)
        self.editor.focused.connect(self._on_focus)
        self.editor.files_pasted.connect(self.files_pasted)
        self.editor.image_pasted.connect(self.image_pasted)
        for source in (self.editor.attach_requested, self.attach_button.clicked):
            source.connect(self.attach_requested.emit)
        self.editor.folder_requested.connect(self.folder_requested)
        self.editor.screenshot_requested.connect(self.screenshot_requested)
        self.editor.collections_requested.connect(self.collections_requested)
        self.attach_button.customContextMenuRequested.connect(self._open_attach_menu)
        self._connect_chips()
        self.editor.long_pasted.connect(self._on_long_pasted)
        self.editor.textChanged.connect(self._on_text)
        self.editor.typing.connect(self.typing)
        self.editor.save_requested.connect(self.save_prompt)
        self.editor.resized.connect(self._fit_placeholder)
        self.editor.resized.connect(self._fit_height)  # its lines wrap elsewhere
        self.editor.document().documentLayout().documentSizeChanged.connect(self._fit_height)
        self.button.clicked.connect(self._on_button)
        self.tools_button.clicked.connect(self.tools_requested)
        self.set_model_name("")
        self._order_tabs()
        self._show_button()
        self._fit_height()

    def setFocus(self, reason: Qt.FocusReason = Qt.FocusReason.OtherFocusReason) -> None:
        """Focus the field; with a focus proxy, Tab would skip what is before the field."""
        self.editor.setFocus(reason)

    def text(self) -> str:
        """The pasted texts, then the typed text, as they are sent to the model."""
        return prompt_text(self.parts())

    def parts(self) -> Parts:
        """The pasted texts, then the typed text: all but the files of the state."""
        text = self.editor.text()
        attached = tuple(each.part for each in self._own if each.part)
        return (*attached, TextPart(text)) if text else attached

    def add_below_chips(self, widget: QWidget) -> None:
        """Place a widget between the chips and the field."""
        self._chip_row.addWidget(widget)
        self._below_chips.append(widget)
        self._order_tabs()

    def _order_tabs(self) -> None:
        """Tab goes through what is seen from top to bottom."""
        tab = Qt.FocusPolicy.TabFocus
        above, *below = (
            [each for each in row.findChildren(QWidget) if each.focusPolicy() & tab]
            for row in (self.chip, *self._below_chips)
        )
        field = (self.attach_button, self.tools_button, self.editor, self.button)
        self.chips.order_tabs(above, (*chain(*below), *field))

    def show_collections(self, collections: Sequence[ShownCollection]) -> None:
        """Show the collections that the shown chat is answered from, before its files."""
        self._collections = tuple(collections)
        self._show_chips()

    def show_files(self, files: Sequence[Attachment]) -> None:
        """Show the attached files of the shown chat, before the pasted texts."""
        self._files = tuple(files)
        self._show_chips()

    def set_text(self, content: Content) -> None:
        """Replace the text and the pasted texts without emitting `edited`."""
        self._unsaved.stop()
        self._history.clear()
        parts = parts_of(Role.USER, content)
        self._own = items_of(parts, self._number)
        self._show_chips()
        self._set_typed(typed_text(parts))
        self._start_throttle()

    def put_before(self, parts: Parts) -> None:
        """Put unsent parts before what was typed meanwhile, which goes on undisturbed."""
        self._own = [*items_of(parts, self._number), *self._own]
        self._show_chips()
        if text := typed_text(parts):
            blank = self.editor.document().isEmpty() and not self.editor.composing
            blocked = self.editor.blockSignals(True)
            self.editor.insert_before(text if blank else f"{text}\n")
            self.editor.blockSignals(blocked)
        self._fit_height()
        self._start_throttle()

    def end_composition(self) -> None:
        """Take the text that an input method is composing into the field."""
        self.editor.end_composition()

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

    # --- chips ----------------------------------------------------------------------------------

    def _connect_chips(self) -> None:
        chips = self.chips
        chips.opened.connect(self._open)
        chips.menu_requested.connect(self.menu_requested)
        chips.removed.connect(self._on_removed)
        chips.retried.connect(self.file_retried)
        chips.reloaded.connect(self.file_reloaded)
        chips.left.connect(self.editor.setFocus)

    def insert_pasted(self, part: FilePart) -> None:
        """Put a pasted text into the field, above the typed one, in place of its chip."""
        place = next((n for n, item in enumerate(self._own) if item.part is part), None)
        if place is None:
            return
        self.end_composition()
        before, item = self.editor.text(), self._own.pop(place)
        self._set_typed(f"{part.text}\n\n{before}" if before else part.text)
        self._on_own()

        def fold_again() -> None:
            self._set_typed(before)
            self._put(item, place)

        self._history.add(fold_again)
        self.editor.setFocus()

    def _show_chips(self) -> None:
        if self.chips.show_items((*self._collections, *self._files, *self._own)):
            self._order_tabs()
        self._show_button()

    def _on_own(self) -> None:
        self._show_chips()
        self._on_text()

    def _on_long_pasted(self, text: str) -> None:
        item, *_ = items_of((FilePart("", text),), self._number)
        self._put(item, len(self._own))

        def take_back() -> None:
            if item in self._own:  # it is gone if it was put into the field
                self._own.remove(item)
                self._on_own()

        self._history.add(take_back)

    def _put(self, item: Attachment, place: int) -> None:
        self._own.insert(place, item)
        self._on_own()

    def _open(self, item: Attachment | ShownCollection) -> None:
        if isinstance(item, ShownCollection):
            self.collection_opened.emit(item.collection.id)
        elif item in self._own:
            self.pasted_opened.emit(item.file)
        else:
            self.file_opened.emit(item)

    def _on_removed(self, item: Item) -> None:
        if isinstance(item, ShownCollection):
            switch = partial(self.collection_switched.emit, item.collection.id)
            switch(False)
            self._history.add(partial(switch, True))
        elif item in self._own:
            place = self._own.index(item)
            del self._own[place]
            self._on_own()
            self._history.add(lambda: self._put(item, place))
        else:
            place = self._files.index(item)
            self.file_removed.emit(item.id)
            self._history.add(lambda: self.file_restored.emit(item, place))

    def _open_attach_menu(self, point: QPoint) -> None:
        menu = new_menu(self)
        menu.addAction(tr("Attach files…"), self.attach_requested.emit)
        menu.addAction(tr("Attach a folder…"), self.folder_requested.emit)
        menu.addAction(tr("Take a screenshot…"), self.screenshot_requested.emit)
        menu.addAction(tr("Collections…"), self.collections_requested.emit)
        self.attach_menu_opened.emit(menu)
        menu.popup(self.attach_button.mapToGlobal(point))

    # --- steps ----------------------------------------------------------------------------------

    def submit(self) -> None:
        """Send what is in the field and attached."""
        self.end_composition()
        if self.text().strip() or self._files:
            self._unsaved.stop()
            self.submitted.emit(self.parts())

    def _on_button(self) -> None:
        if self._busy:
            self.stopped.emit()
        else:
            self.submit()

    def _on_text(self) -> None:
        self.typing.emit()
        self._show_button()
        for timer in (self._unsaved, self._throttle):
            if not timer.isActive():
                timer.start()

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
            has_text = not self.editor.document().isEmpty()
            self.button.setEnabled(has_text or bool(self._files or self._own))

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
