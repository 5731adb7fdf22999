"""Main window: layout of the screens, shortcuts, and switching between pages.

It has no reference to a controller: the window and its child widgets emit the user's requests as
signals, which `app.wiring` connects.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QMimeData, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QAction, QCloseEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.actions import ACTIONS
from app.domain.model_ref import Local, ModelRef
from app.settings.table import Settings
from app.state.states import States
from app.system.translation import tr
from app.ui.chat.attaching import Attaching
from app.ui.chat.composer.preset_menu import PresetMenu
from app.ui.chat.composer.prompt_list import PromptList
from app.ui.chat.composer.prompt_manager import CARD_WIDTH as PROMPTS_WIDTH
from app.ui.chat.composer.prompt_manager import PromptManager
from app.ui.chat.composer.settings_words import panel_words
from app.ui.chat.models.model_picker import CARD_WIDTH as PICKER_WIDTH
from app.ui.chat.models.model_picker import ModelPicker
from app.ui.chat.page import ChatPage
from app.ui.chat.sidebar.folder_card import FolderSettings
from app.ui.chat.sidebar.sidebar import Sidebar
from app.ui.chat.top_bar import TopBar
from app.ui.comparison.cards import AnswerCards
from app.ui.file_dialogs import choose_model
from app.ui.page_opener import PageOpener
from app.ui.panel.panel import ChatPanel
from app.ui.placement import Placement
from app.ui.settings.shortcuts import CARD_WIDTH as SHORTCUTS_WIDTH
from app.ui.settings.shortcuts import Shortcuts, keys_of
from app.ui.theme import icons
from app.ui.tools.question_place import QuestionPlace
from app.ui.transfer.view import TransferView
from app.ui.widgets.banner import Banners
from app.ui.widgets.controls import Column
from app.ui.widgets.drop_area import DropArea
from app.ui.widgets.file_drops import FileDrops
from app.ui.widgets.links import open_link
from app.ui.widgets.page import Page
from app.ui.widgets.popover import Popover
from app.ui.widgets.text_undo import TextUndo
from app.ui.widgets.typing import ComposingElsewhere, Field, type_into, types_text

if TYPE_CHECKING:
    from app.ui.chat.sidebar.archive import ArchivePage
    from app.ui.chat.sidebar.trash import TrashPage
    from app.ui.collections.page import CollectionsPage
    from app.ui.connections.page import ConnectionsPage
    from app.ui.library.page import LibraryPage
    from app.ui.performance.page import PerformancePage
    from app.ui.presets.page import PresetsPage
    from app.ui.settings.page import Preferences
    from app.ui.tools.page import ActivityPage
    from app.ui.tools.servers import ServersPage

_NARROW = 720  # pixels: in a narrower window the sidebar is hidden


class Window(QWidget):
    """The application's only top-level window."""

    painted = Signal()  # once, after the first paint
    closing = Signal()  # the user requested to quit
    model_chosen = Signal(object)  # ModelRef
    other_model_chosen = Signal(object, object)  # answer that it writes again, ModelRef
    files_dropped = Signal(list)  # paths
    sidebar_toggled = Signal(bool)
    theme_requested = Signal()
    zoom_requested = Signal(int)  # steps; 0: the normal size
    undo_requested = Signal()
    restore_requested = Signal(list)  # of ids of deleted conversations
    remove_requested = Signal(list)  # of ids of deleted conversations
    models_restored = Signal(list)  # of TrashedModel
    models_removed = Signal(list)  # of TrashedModel
    performance_opened = Signal()  # its page is shown, or has something new to show

    def __init__(self, states: States, settings: Callable[[], Settings]) -> None:
        """`settings` gives the present ones to the settings page when it is first opened."""
        super().__init__()
        self.setObjectName("window")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setMinimumSize(420, 360)
        self.resize(1080, 760)
        self.setWindowIcon(icons.application_icon())
        self._states = states
        self._state = states.chat
        self._wants_sidebar = True
        self._again: int | None = None  # answer that the model to be chosen writes again
        self._close_confirmed = False
        self.stays_on_close: Callable[[], bool] = lambda: False  # it is then hidden instead
        self.was_closed = False  # it is hidden so
        self._has_painted = False
        self.actions_by_id: dict[str, QAction] = {}
        self._settings = settings
        self.library = PageOpener(self._make_library, self)
        self.trash = PageOpener(self._make_trash, self)
        self.archive = PageOpener(self._make_archive, self)
        self.performance = PageOpener(self._make_performance, self)
        self.activity = PageOpener(self._make_activity, self)
        self.servers = PageOpener(self._make_servers, self)
        self.connections = PageOpener(self._make_connections, self)
        self.collections = PageOpener(self._make_collections, self)
        self.presets = PageOpener(self._make_presets, self)
        self.preferences = PageOpener(self._make_preferences, self)
        self.placement = Placement(self)
        self._make_parts()
        self._lay_out()
        self._connect()
        self._make_actions()
        self.composer.installEventFilter(self)
        TextUndo(self)
        ComposingElsewhere(self, self._field_for)
        self._show_title()
        self._show_settings()
        self._show_capabilities()
        self.composer.setFocus()

    def _make_parts(self) -> None:
        states, state = self._states, self._state
        self.sidebar = Sidebar(state, states.library)
        self.top_bar = TopBar(state)
        self.banners = Banners(state)
        self.chat = ChatPage(states, lambda: self.has_typing_focus)
        self.transcript, self.composer = self.chat.transcript, self.chat.composer
        self.panel = ChatPanel(states)
        self.picker = ModelPicker(state)
        self.picker_card = Popover(self, self.picker, PICKER_WIDTH, tr("Models"))
        self.shortcuts_card = Popover(self, Shortcuts(), SHORTCUTS_WIDTH, tr("Keyboard shortcuts"))
        self.folder = FolderSettings(state, states.presets, self)
        self.drop_area = DropArea(self)
        self.drops = FileDrops(self, self.drop_area, lambda: self.shown_page is self.chat)
        self.cards = AnswerCards(self, state)
        self.prompts = PromptManager(states.snippets)
        self.prompts_card = Popover(self, self.prompts, PROMPTS_WIDTH, tr("Saved prompts"))
        self.prompt_list = PromptList(states, self.composer, self.chat)
        self.attaching = Attaching(self, states, self.chat)
        self.transfer = TransferView(states.transfer, self)
        self.questions = QuestionPlace(states.tool_servers, self)
        self.preset_menu = PresetMenu(states.presets, self)

    def _lay_out(self) -> None:
        self._pages = QStackedWidget()
        self._pages.addWidget(self.chat)
        policies = QSizePolicy.Policy
        self._pages.setSizePolicy(policies.Preferred, policies.Ignored)  # it takes what is left
        page = QVBoxLayout()
        page.setSpacing(0)
        page.addWidget(self.top_bar)
        page.addWidget(Column(self.banners))
        page.addWidget(Column(self.transfer))
        page.addWidget(Column(self.questions))
        page.addWidget(self._pages, 1)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.sidebar)
        layout.addLayout(page, 1)
        layout.addWidget(self.panel)

    def _connect(self) -> None:
        state, top = self._state, self.top_bar
        state.conversation_changed.connect(self._show_title)
        state.conversation_changed.connect(self.close_page)
        state.conversations_changed.connect(self._show_title)
        state.capabilities_changed.connect(self._show_capabilities)
        self._states.tools.asked.connect(lambda: QApplication.alert(self))
        self._states.tools.live_changed.connect(self._show_asking)
        self.drops.files_dropped.connect(self.attaching.on_dropped)
        self.drops.files_dropped.connect(self.files_dropped)
        self.attaching.chat_requested.connect(self.close_page)
        self.drops.text_dropped.connect(self._insert_dropped)
        self.transcript.link_activated.connect(open_link)
        self.transcript.zoom_requested.connect(self.zoom_requested)
        self.transcript.details_requested.connect(self._open_details)
        top.model_button.clicked.connect(self.open_picker)
        top.library_button.clicked.connect(self.library.toggle)
        top.panel_button.clicked.connect(self.toggle_panel)
        top.settings_button.clicked.connect(self.preferences.toggle)
        top.keys_button.clicked.connect(self.shortcuts_card.open_centred)
        top.show_button.clicked.connect(self.toggle_sidebar)
        self.picker.chosen.connect(self._choose_model)
        self.picker.open_requested.connect(self.open_file)
        self.picker.browse_requested.connect(self.library.open)
        self.picker.elsewhere_requested.connect(self.open_engines)
        self.picker.unload_requested.connect(self.picker_card.close_card)
        self.picker.resized.connect(self._fit_picker)
        self.picker_card.closed.connect(self._forget_again)
        self.prompt_list.manage_requested.connect(self.open_prompts)
        self.prompts.close_button.clicked.connect(self.prompts_card.close_card)
        self.prompts.save_requested.connect(self.composer.save_prompt)
        self.prompts.inserted.connect(self._insert_prompt)
        self.prompts.resized.connect(self._fit_prompts)
        self.chat.empty_view.open_requested.connect(self.open_file)
        self.chat.empty_view.browse_requested.connect(self.library.open)
        self.chat.empty_view.elsewhere_requested.connect(self.open_engines)
        self.sidebar.preset_button.clicked.connect(
            lambda: self.preset_menu.open_below(self.sidebar.preset_button)
        )
        self.preset_menu.manage_requested.connect(self.presets.toggle)
        self.chat.empty_view.chips.manage_requested.connect(self.presets.toggle)
        chat, chip = self.chat, self.composer.chip
        self._states.chat_settings.changed.connect(self._show_settings)
        chat.status_line.policy_requested.connect(partial(self.open_panel, "policy"))
        chip.opened.connect(partial(self.open_panel, "format"))
        chip.cleared.connect(self.panel.clear_format)
        self._states.tools.rows_changed.connect(self._show_settings)
        self.composer.tools_requested.connect(partial(self.open_panel, "tools"))
        self.panel.closed.connect(self._on_panel_closed)
        for asked in (  # first: what is typed in the panel is for this answer
            self.composer.submitted,
            chat.empty_view.suggested,
            chat.regenerate_requested,
            self.transcript.regenerate_requested,
            self.transcript.edit_submitted,
            self.transcript.continue_requested,
        ):
            asked.connect(self.panel.finish)
        self.sidebar.trash_button.clicked.connect(self.trash.toggle)
        self.sidebar.archive_button.clicked.connect(self.archive.toggle)
        self.sidebar.menu.settings_requested.connect(self.folder.open)
        self.sidebar.hide_button.clicked.connect(self.toggle_sidebar)

    def _make_actions(self) -> None:
        calls = {
            "new": self.sidebar.request_new,
            "undo": self.undo_requested.emit,
            "search": self.search,
            "prompts": self.open_prompts,
            "presets": self.presets.toggle,
            "collections": self.collections.toggle,
            "find": self.open_find,
            "find_next": partial(self.chat.find_again, forward=True),
            "find_previous": partial(self.chat.find_again, forward=False),
            "regenerate": self.regenerate_last,
            "consent": self.answer_consent,
            "copy_answer": self.chat.copy_answer,
            "model": self.open_picker,
            "open": self.open_file,
            "attach": partial(self._on_chat, self.attaching.choose_files),
            "attach_folder": partial(self._on_chat, self.attaching.choose_folder),
            "screenshot": partial(self._on_chat, self.attaching.take_screenshot),
            "panel": self.toggle_panel,
            "library": self.library.toggle,
            "adapters": self.toggle_adapters,
            "zoom_in": partial(self.zoom_requested.emit, 1),
            "zoom_out": partial(self.zoom_requested.emit, -1),
            "zoom_reset": partial(self.zoom_requested.emit, 0),
            "settings": self.preferences.toggle,
            "sidebar": self.toggle_sidebar,
            "theme": self.theme_requested.emit,
            "performance": self.performance.toggle,
            "activity": self.activity.toggle,
            "connections": self.connections.toggle,
            "shortcuts": self.shortcuts_card.open_centred,
            "rename": self.rename_chat,
            "quit": self.quit,
        }
        for row in ACTIONS:
            action = QAction(tr(row.text), self)
            action.setShortcuts(keys_of(row))
            action.triggered.connect(calls[row.id])
            self.addAction(action)
            self.actions_by_id[row.id] = action

    # --- called by actions and the wiring -------------------------------------------------------

    def set_zoom(self, percent: int) -> None:
        """Set the size of the text of chats and of the composer."""
        self.transcript.set_zoom(percent / 100)
        self.composer.set_zoom(percent / 100)

    def set_sidebar(self, wanted: bool) -> None:
        """Show or hide the sidebar; in a narrow window it stays hidden."""
        self._wants_sidebar = wanted
        self._update_sidebar()

    def come_forward(self) -> None:
        """Raise and activate the window, when a second instance is started."""
        self.was_closed = False
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def quit(self) -> None:
        """Request to quit, when what is typed is kept."""
        self.chat.flush_draft()
        self.panel.finish()
        self.closing.emit()

    def finish(self) -> None:
        """Close the window without emitting `closing` again."""
        self._close_confirmed = True
        self.attaching.regions.close()
        self.close()

    def open_picker(self) -> None:
        """Open the model picker."""
        self.picker_card.open_below(self.top_bar.model_button)

    def open_prompts(self) -> None:
        """Open the card of the saved prompts."""
        self.prompts.set_can_save(bool(self.composer.editor.text().strip()))
        self.prompts_card.open_centred()

    def choose_model_for(self, message_id: int) -> None:
        """Open the model picker; the chosen model writes an answer again, and no other one."""
        self.open_picker()
        self._again = message_id

    def close_page(self) -> None:
        """Show the conversation, if another page is shown."""
        self.picker_card.close_card()
        if self.shown_page is not self.chat:
            self.show_page(self.chat)
            self.composer.setFocus()

    def open_engines(self) -> None:
        """Show the connections at the engines elsewhere."""
        self.connections.open().show_engines()

    def open_panel(self, part: str = "") -> None:
        """Open the settings of the shown chat at a part of them, a key of `PARTS`."""
        self.close_page()
        self.panel.open(part)

    def open_adapters(self) -> None:
        """Open the panel at the adapters, if the engine has some."""
        if self._state.capabilities.shows("adapters"):
            self.open_panel("adapters")

    def toggle_panel(self) -> None:
        """Open or close the settings of the shown chat."""
        self.close_page()
        self.panel.toggle()

    def toggle_adapters(self) -> None:
        """Open the panel at the adapters, or close it if it was opened there."""
        if self._state.capabilities.shows("adapters"):
            self.close_page()
            self.panel.toggle("adapters")

    def regenerate_last(self) -> None:
        """Request regenerating the last answer, if the conversation is shown."""
        if self.shown_page is self.chat:
            self.chat.regenerate_last()

    def answer_consent(self) -> None:
        """Focus the first consent that a tool waits for: in the shown chat, else in another one."""
        asking, current = self._states.tools.asking, self._state.current
        if not asking:
            return
        self.close_page()
        live = next((each for each in asking if each.conversation == current), asking[0])
        self.transcript.calls.focus(live)
        if live.conversation != current:
            self.sidebar.opened.emit(live.conversation)

    def _show_asking(self) -> None:
        asking = self._states.tools.asking
        self.sidebar.model.set_asking(frozenset(live.conversation for live in asking))

    def open_file(self) -> None:
        """Open a file dialog for a model; does not block."""
        self.picker_card.close_card()
        folder = path.parent if (path := self._state.model.path) else Path.home()
        choose_model(self, folder, lambda file: self.model_chosen.emit(Local(file)))

    def open_find(self) -> None:
        """Find in the shown conversation; without one, search all conversations."""
        if self.shown_page is self.chat and self.chat.can_find:
            self.chat.open_find()
        else:
            self.search()

    def rename_chat(self) -> None:
        """Edit the title of the chat chosen in the sidebar, or of the shown one.

        Without the sidebar it is edited in the top bar, if that has room for it.
        """
        if self.sidebar.isHidden() and self.top_bar.title.can_edit:
            self.top_bar.title.edit()
            return
        if self.sidebar.isHidden():
            self.toggle_sidebar()
        self.sidebar.rename()

    @property
    def has_typing_focus(self) -> bool:
        """Whether the user types outside the chat: a search or a title."""
        return self.sidebar.has_typing_focus or self.top_bar.title.field.hasFocus()

    def search(self) -> None:
        """Show the sidebar and focus its search field."""
        if self.sidebar.isHidden():
            self.toggle_sidebar()
        self.sidebar.start_search()

    def toggle_sidebar(self) -> None:
        """Show or hide the sidebar."""
        self.set_sidebar(self.sidebar.isHidden())
        if self._wants_sidebar:
            self.sidebar.show()  # requested explicitly: also in a narrow window
            self._update_top_bar()
        self.sidebar_toggled.emit(self._wants_sidebar)

    # --- pages ----------------------------------------------------------------------------------

    def _make_library(self) -> LibraryPage:
        from app.ui.library.page import LibraryPage

        return LibraryPage(self._state, self._states.library)

    def _make_presets(self) -> PresetsPage:
        from app.ui.presets.page import PresetsPage

        return PresetsPage(self._states.presets)

    def _make_preferences(self) -> Preferences:
        from app.ui.settings.page import Preferences

        states, settings = self._states, self._settings()
        page = Preferences(
            settings, states.sessions, states.connections, states.gpu, states.updates
        )
        page.performance_requested.connect(self.performance.toggle)
        page.tools.activity_requested.connect(self.activity.toggle)
        page.tools.servers_requested.connect(self.servers.open)
        page.connections_requested.connect(self.connections.toggle)
        return page

    def _make_trash(self) -> TrashPage:
        from app.ui.chat.sidebar.trash import TrashPage

        page = TrashPage(self._state, self._states.library)
        page.restore_requested.connect(self.restore_requested)
        page.remove_requested.connect(self.remove_requested)
        page.models_restored.connect(self.models_restored)
        page.models_removed.connect(self.models_removed)
        return page

    def _make_archive(self) -> ArchivePage:
        from app.ui.chat.sidebar.archive import ArchivePage

        page = ArchivePage(self._state)
        page.opened.connect(self.sidebar.opened)
        page.restore_requested.connect(self.sidebar.menu.put_back)
        page.delete_requested.connect(self.sidebar.delete_requested)
        return page

    def _make_performance(self) -> PerformancePage:
        from app.ui.performance.page import PerformancePage

        page = PerformancePage(self._states.performance)
        page.opened.connect(self.performance_opened)
        return page

    def _make_activity(self) -> ActivityPage:
        from app.ui.tools.page import ActivityPage

        page = ActivityPage(self._state, self._states.tools)
        page.servers_requested.connect(self.servers.open)
        return page

    def _make_servers(self) -> ServersPage:
        from app.ui.tools.servers import ServersPage

        return ServersPage(self._states.tool_servers)

    def _make_connections(self) -> ConnectionsPage:
        from app.ui.connections.page import ConnectionsPage

        states = self._states
        page = ConnectionsPage(self._settings(), states.connections, states.server)
        page.tool_servers_requested.connect(self.servers.open)
        return page

    def _make_collections(self) -> CollectionsPage:
        from app.ui.collections.page import CollectionsPage

        return CollectionsPage(self._state, self._states.collections)

    @property
    def shown_page(self) -> QWidget | None:
        """The conversation, or the page that is shown instead."""
        return self._pages.currentWidget()

    def add_page(self, page: Page) -> None:
        """Add a page that was created on demand."""
        page.closed.connect(self.close_page)
        self._pages.addWidget(page)

    def show_page(self, page: QWidget) -> None:
        """Show a page, or the conversation."""
        if page is not self.chat:
            self.panel.close_panel()
            getattr(page, "first", page).setFocus()
        self.picker_card.close_card()
        self._pages.setCurrentWidget(page)
        self.top_bar.title.set_on_chat(page is self.chat)

    # --- the state ------------------------------------------------------------------------------

    def _show_title(self) -> None:
        title = self._state.title(self._state.current)
        self.setWindowTitle(f"{title} — Tokonoma" if title else "Tokonoma")

    def _show_capabilities(self) -> None:
        """Offer only what the engine can do, or what the panel has a reason for."""
        self.actions_by_id["adapters"].setEnabled(self._state.capabilities.shows("adapters"))

    def _show_settings(self) -> None:
        """Show in the top bar and the composer what is set in the shown chat."""
        shown = self._states.chat_settings.shown
        self.composer.chip.show_options(shown.settings, shown.fault)
        self.composer.tools_button.show_tools(shown.settings, self._states.tools)
        changed = shown.changed
        self.top_bar.panel_button.set_text(panel_words(changed))
        self.top_bar.panel_button.set_active(active=bool(changed))

    def _on_panel_closed(self) -> None:
        if self.panel.sheet.isAncestorOf(QApplication.focusWidget() or self):
            self.composer.setFocus()

    # --- actions --------------------------------------------------------------------------------

    def _choose_model(self, model: ModelRef) -> None:
        again, self._again = self._again, None
        self.picker_card.close_card()
        if again is None:
            self.close_page()
            self.model_chosen.emit(model)
        else:
            self.other_model_chosen.emit(again, model)

    def _open_details(self, message_id: int) -> None:
        self.cards.open_details(message_id, self.transcript.selected_text())

    def _insert_prompt(self, text: str) -> None:
        self.prompts_card.close_card()
        self.close_page()
        self.composer.insert(text)
        self.composer.setFocus()

    def _on_chat(self, act: Callable[[], None]) -> None:
        """Show the conversation, and do something in it."""
        self.close_page()
        act()

    def _insert_dropped(self, data: QMimeData) -> None:
        self.composer.setFocus()
        self.composer.editor.insertFromMimeData(data)

    def _fit_prompts(self) -> None:
        if not self.prompts_card.isHidden():
            self.prompts_card.centre()

    def _forget_again(self) -> None:
        self._again = None

    def _fit_picker(self) -> None:
        if not self.picker_card.isHidden():
            self.picker_card.fit()

    # --- Qt -------------------------------------------------------------------------------------

    def _update_sidebar(self) -> None:
        self.sidebar.setVisible(self._wants_sidebar and self.width() >= _NARROW)
        self._update_top_bar()

    def _update_top_bar(self) -> None:
        hidden = self.sidebar.isHidden()
        self.top_bar.show_sidebar_buttons(hidden)
        self.panel.set_available_width(self.width() - (0 if hidden else self.sidebar.width()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.shown_page is not self.chat:
            if event.key() == Qt.Key.Key_Escape:
                self.close_page()
            else:
                super().keyPressEvent(event)
        elif event.key() == Qt.Key.Key_Escape:
            if self._state.busy:
                self.composer.stopped.emit()
            self.composer.setFocus()
        elif types_text(event):
            type_into(self.composer.editor, event)
        else:
            super().keyPressEvent(event)

    def _field_for(self, widget: QWidget) -> Field | None:
        """The text field that a key typed in another widget goes to."""
        library, chat = self.library.page, self.shown_page is self.chat
        parts = (self.chat, self.sidebar, self.top_bar) if chat else ()
        for place, field in (
            (self.picker, self.picker.search),
            *(((library, library.search),) if library else ()),
            *((part, self.composer.editor) for part in parts),
        ):
            if place.isAncestorOf(widget):
                return field
        return None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Paint and not self._has_painted:
            self._has_painted = True
            self.composer.removeEventFilter(self)
            self.placement.start()
            QTimer.singleShot(0, self.painted.emit)
        return super().eventFilter(watched, event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.composer.set_limit(self.height() // 3)
        if event.oldSize().width() != self.width():
            self._update_sidebar()
        for card in (
            self.picker_card,
            self.shortcuts_card,
            self.folder.card,
            self.prompts_card,
            *self.cards.popovers,
            *self.attaching.popovers,
        ):
            if not card.isHidden():
                card.fit()
        self.transfer.fit()
        self.questions.fit()

    def closeEvent(self, event: QCloseEvent) -> None:
        event.setAccepted(self._close_confirmed)  # else `closing` first saves what is unsaved
        if self._close_confirmed:
            return
        self.was_closed = self.stays_on_close()
        if self.was_closed:
            self.chat.flush_draft()
            self.hide()
        else:
            self.quit()
