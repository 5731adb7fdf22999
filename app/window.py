"""The main window: places the parts, and shows them what the state holds.

It knows no controller: what the person wants leaves as signals of the window and its parts, which
`app.wiring` connects.
"""

# ruff: noqa: N802  (Qt names the methods that are overridden)
from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QByteArray, QEvent, QObject, QPoint, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QAction,
    QCloseEvent,
    QDesktopServices,
    QDragEnterEvent,
    QDragLeaveEvent,
    QDropEvent,
    QGuiApplication,
    QKeyEvent,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.actions import ACTIONS
from app.state import ModelPhase, State
from app.ui import icons
from app.ui.banner import Banners
from app.ui.composer import Composer
from app.ui.controls import Column, IconButton, set_property
from app.ui.drop_area import DropArea, model_in
from app.ui.empty_view import EmptyView
from app.ui.model_picker import CARD_WIDTH, ModelButton, ModelPicker
from app.ui.popover import Popover
from app.ui.shortcuts import CARD_WIDTH as SHORTCUTS_WIDTH
from app.ui.shortcuts import Shortcuts, keys_of
from app.ui.sidebar import Sidebar
from app.ui.status_line import StatusLine
from app.ui.theme import Palette
from app.ui.transcript import Transcript
from engine import Role

_NARROW = 720  # pixels; below this the sidebar makes room for the conversation


class Window(QWidget):
    """The one window."""

    painted = Signal()  # once, after the first paint
    closing = Signal()  # the person wants to quit
    draft_left = Signal(object, str)  # conversation or None, and what is typed there
    model_chosen = Signal(Path)
    sidebar_toggled = Signal(bool)
    theme_requested = Signal()
    regenerate_requested = Signal(int)

    def __init__(self, state: State) -> None:
        super().__init__()
        self.setObjectName("window")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAcceptDrops(True)
        self.setMinimumSize(420, 360)
        self.resize(1080, 760)
        self.setWindowIcon(icons.application_icon())
        self._state = state
        self._shown: int | None = None
        self._wants_sidebar = True
        self._may_close = False
        self._has_painted = False
        self.actions_by_id: dict[str, QAction] = {}
        self._make_parts()
        self._lay_out()
        self._connect()
        self._make_actions()
        self.composer.installEventFilter(self)
        self._show_conversation()
        self.composer.setFocus()

    def _make_parts(self) -> None:
        state = self._state
        self.sidebar = Sidebar(state)
        self.show_button = IconButton("sidebar", "Show the sidebar (Ctrl+B)")
        self.new_button = IconButton("plus", "New chat (Ctrl+N)")
        self.model_button = ModelButton(state)
        self.keys_button = IconButton("keyboard", "Keyboard shortcuts (F1)")
        self.banners = Banners(state)
        self.empty_view = EmptyView(state)
        self.transcript = Transcript()
        self.composer = Composer()
        self.status_line = StatusLine(state)
        self.picker = ModelPicker(state)
        self.picker_card = Popover(self, self.picker, CARD_WIDTH)
        self.shortcuts_card = Popover(self, Shortcuts(), SHORTCUTS_WIDTH)
        self.drop_area = DropArea(self)
        self._rule = QFrame()  # under the top bar while the conversation runs beneath it
        self._rule.setFixedHeight(1)
        self._rule.setObjectName("rule")
        self.jump_button = QPushButton(self)
        self.jump_button.setObjectName("jump")
        self.jump_button.setFixedSize(36, 36)
        self.jump_button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.jump_button.setToolTip("Jump to the end")
        self.jump_button.setAccessibleName("Jump to the end")
        self.jump_button.setCursor(Qt.CursorShape.PointingHandCursor)
        self.jump_button.hide()

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setContentsMargins(12, 10, 12, 6)
        top.setSpacing(4)
        for widget in (self.show_button, self.new_button, self.model_button):
            top.addWidget(widget)
        top.addStretch(1)
        top.addWidget(self.keys_button)
        self._pages = QStackedWidget()
        self._pages.addWidget(self.empty_view)
        self._pages.addWidget(self.transcript)
        page = QVBoxLayout()
        page.setSpacing(0)
        page.addLayout(top)
        page.addWidget(self._rule)
        page.addWidget(Column(self.banners))
        page.addWidget(self._pages, 1)
        page.addSpacing(8)
        page.addWidget(Column(self.composer))
        page.addSpacing(4)
        page.addWidget(Column(self.status_line))
        page.addSpacing(8)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.sidebar)
        layout.addLayout(page, 1)

    def _connect(self) -> None:
        state = self._state
        state.conversation_changed.connect(self._show_conversation)
        state.draft_found.connect(self._show_found_draft)
        state.conversations_changed.connect(self._show_title)
        state.message_added.connect(self.transcript.append_message)
        state.message_added.connect(self._show_page)
        state.message_changed.connect(self.transcript.update_message)
        state.message_removed.connect(self.transcript.remove_message)
        state.text_added.connect(self.transcript.append_text)
        state.waiting_changed.connect(self.transcript.set_waiting)
        state.generation_changed.connect(self._show_busy)
        state.model_changed.connect(self._show_model)
        self.transcript.at_end_changed.connect(self._show_jump)
        self.transcript.link_activated.connect(open_link)
        self.jump_button.clicked.connect(self.transcript.jump_to_end)
        self.transcript.verticalScrollBar().valueChanged.connect(self._show_rule)
        self.model_button.clicked.connect(self.open_picker)
        self.picker.chosen.connect(self._choose_model)
        self.picker.open_requested.connect(self.open_file)
        self.picker.resized.connect(self._fit_picker)
        self.empty_view.open_requested.connect(self.open_file)
        self.keys_button.clicked.connect(self.shortcuts_card.open_centred)
        self.show_button.clicked.connect(self.toggle_sidebar)
        self.sidebar.hide_button.clicked.connect(self.toggle_sidebar)
        self.composer.edit_last_requested.connect(self._edit_last)

    def _make_actions(self) -> None:
        calls = {
            "new": self.sidebar.new_requested.emit,
            "search": self.search,
            "regenerate": self._regenerate_last,
            "copy_answer": self._copy_answer,
            "model": self.open_picker,
            "open": self.open_file,
            "sidebar": self.toggle_sidebar,
            "theme": self.theme_requested.emit,
            "shortcuts": self.shortcuts_card.open_centred,
            "quit": self.close,
        }
        for row in ACTIONS:
            action = QAction(row.text, self)
            action.setShortcuts(keys_of(row))
            action.triggered.connect(calls[row.id])
            self.addAction(action)
            self.actions_by_id[row.id] = action

    # --- what the program asks ------------------------------------------------------------------

    def apply_palette(self, palette: Palette) -> None:
        """Paint in another theme."""
        for part in (
            self.sidebar,
            self.show_button,
            self.new_button,
            self.model_button,
            self.keys_button,
            self.banners,
            self.empty_view,
            self.transcript,
            self.composer,
            self.status_line,
            self.picker,
            self.picker_card,
            self.shortcuts_card,
            self.drop_area,
        ):
            part.apply_palette(palette)
        self.jump_button.setIcon(icons.icon("arrow_down", palette.secondary, 18))

    def set_sidebar(self, wanted: bool) -> None:
        """Show or hide the sidebar, as far as the window is wide enough."""
        self._wants_sidebar = wanted
        self._fit_sidebar()

    def geometry_text(self) -> str:
        """Size and place, as text for the settings."""
        return bytes(self.saveGeometry().toBase64().data()).decode("ascii")

    def restore_geometry(self, text: str) -> None:
        """Take the size and place of the last time, if there is any."""
        if text:
            self.restoreGeometry(QByteArray.fromBase64(text.encode("ascii")))

    def leave_draft(self) -> None:
        """Tell what is typed, without the pause that typing is given."""
        self.draft_left.emit(self._shown, self.composer.text())

    def come_forward(self) -> None:
        """Put the window in front of the others, as a second start wants it."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def finish(self) -> None:
        """Really close, without asking anyone."""
        self._may_close = True
        self.close()

    def open_picker(self) -> None:
        """Open the card of models."""
        self.picker_card.open_below(self.model_button)

    def open_file(self) -> None:
        """Ask for a model file; returns at once."""
        self.picker_card.close_card()
        beside = self._state.model.path
        folder = beside.parent if beside is not None else Path.home()
        dialog = QFileDialog(self, "Open a model", str(folder))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.setNameFilters(["Models (*.gguf *.GGUF)", "All files (*)"])
        dialog.fileSelected.connect(self._choose_file)
        dialog.open()

    def search(self) -> None:
        """Show the sidebar with the cursor in its search field."""
        if self.sidebar.isHidden():
            self.toggle_sidebar()
        self.sidebar.start_search()

    def toggle_sidebar(self) -> None:
        """Show or hide the sidebar."""
        self.set_sidebar(self.sidebar.isHidden())
        if self._wants_sidebar:
            self.sidebar.show()  # asked for: also where it is tight
            self._fit_top()
        self.sidebar_toggled.emit(self._wants_sidebar)

    # --- the state ------------------------------------------------------------------------------

    def _show_conversation(self) -> None:
        state = self._state
        if state.current != self._shown:
            self.draft_left.emit(self._shown, self.composer.text())
            self._shown = state.current
            self.composer.set_text(state.drafts.get(state.current, ""))
            if not self.sidebar.renaming:
                self.composer.setFocus()
        elif not self.composer.text():
            self.composer.set_text(state.drafts.get(state.current, ""))
        self.transcript.set_messages(state.messages)
        for message in state.messages:
            if note := state.waiting.get(message.id):
                self.transcript.set_waiting(message.id, note)
        self._show_page()
        self._show_busy()
        self._show_title()

    def _show_found_draft(self, text: str) -> None:
        if self._shown is None:
            typed = self.composer.text()
            self.composer.set_text(f"{text}\n{typed}" if typed.strip() else text)
            self.leave_draft()  # with what was typed since the last pause

    def _show_page(self) -> None:
        page = self.transcript if self._state.messages else self.empty_view
        self._pages.setCurrentWidget(page)
        if page is self.empty_view:
            self.jump_button.hide()
        self._show_rule()

    def _show_busy(self) -> None:
        busy = self._state.busy
        if busy == self.composer.busy:  # asked for with every piece of text
            return
        self.composer.set_busy(busy)
        self.transcript.set_busy(busy)
        if not busy and QAccessible.isActive():
            event = QAccessibleAnnouncementEvent(self, "The answer has ended")
            QAccessible.updateAccessibility(event)

    def _show_model(self) -> None:
        model = self._state.model
        ready = model.phase is ModelPhase.READY
        self.composer.set_model_name(model.name if ready else "")

    def _show_title(self) -> None:
        title = self._state.title(self._state.current)
        self.setWindowTitle(f"{title} — Tokonoma" if title else "Tokonoma")

    def _show_jump(self, at_end: bool) -> None:
        self.jump_button.setVisible(not at_end and self._pages.currentWidget() is self.transcript)
        self._place_jump()

    def _show_rule(self) -> None:
        scrolled = self.transcript.verticalScrollBar().value() > 0
        under = scrolled and self._pages.currentWidget() is self.transcript
        set_property(self._rule, "under", under)

    def _place_jump(self) -> None:
        view = self.transcript
        corner = view.mapTo(self, QPoint((view.width() - 36) // 2, view.height() - 36 - 8))
        self.jump_button.move(corner)
        self.jump_button.raise_()

    # --- actions --------------------------------------------------------------------------------

    def _choose_model(self, path: Path) -> None:
        self.picker_card.close_card()
        self.model_chosen.emit(path)

    def _choose_file(self, name: str) -> None:
        self.model_chosen.emit(Path(name))

    def _fit_picker(self) -> None:
        if not self.picker_card.isHidden():
            self.picker_card.fit()

    def _regenerate_last(self) -> None:
        messages = self._state.messages
        if messages and messages[-1].role is Role.ASSISTANT:
            self.regenerate_requested.emit(messages[-1].id)

    def _copy_answer(self) -> None:
        for message in reversed(self._state.messages):
            if message.role is Role.ASSISTANT:
                QGuiApplication.clipboard().setText(message.text)
                return

    def _edit_last(self) -> None:
        for message in reversed(self._state.messages):
            if message.role is Role.USER:
                self.transcript.edit_message(message.id)
                return

    # --- Qt -------------------------------------------------------------------------------------

    def _fit_sidebar(self) -> None:
        self.sidebar.setVisible(self._wants_sidebar and self.width() >= _NARROW)
        self._fit_top()

    def _fit_top(self) -> None:
        hidden = self.sidebar.isHidden()
        self.show_button.setVisible(hidden)
        self.new_button.setVisible(hidden)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        modifiers = event.modifiers() & ~Qt.KeyboardModifier.ShiftModifier
        text = event.text()
        if event.key() == Qt.Key.Key_Escape:
            if self._state.busy:
                self.composer.stopped.emit()
            self.composer.setFocus()
        elif text and text.isprintable() and not modifiers:
            self.composer.setFocus()
            self.composer.insert(text)
        else:
            super().keyPressEvent(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and not self._has_painted:
            self._has_painted = True
            self.composer.removeEventFilter(self)
            QTimer.singleShot(0, self.painted.emit)
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.composer.set_limit(self.height() // 3)
        if event.oldSize().width() != self.width():
            self._fit_sidebar()
        for card in (self.picker_card, self.shortcuts_card):
            if not card.isHidden():
                card.fit()
        self._place_jump()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._may_close:
            event.accept()
        else:
            event.ignore()  # first the answer and the settings are saved
            self.leave_draft()
            self.closing.emit()

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        path = model_in(event.mimeData())
        if path is not None:
            self.drop_area.show_for(path)
            event.acceptProposedAction()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        self.drop_area.hide()

    def dropEvent(self, event: QDropEvent) -> None:
        self.drop_area.hide()
        path = model_in(event.mimeData())
        if path is not None:
            event.acceptProposedAction()
            self.model_chosen.emit(path)


def open_link(address: str) -> bool:
    """Open a link of an answer in the browser; anything but the web and mail is refused."""
    url = QUrl(address)
    if url.scheme().lower() not in ("http", "https", "mailto"):
        return False
    return QDesktopServices.openUrl(url)
