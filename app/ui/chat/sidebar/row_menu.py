"""Menu of the sidebar's rows: everything that can be done with the selected chats and folders."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QModelIndex, QObject, Signal
from PySide6.QtWidgets import QListView, QMenu

from app.domain.folders import in_order, inside
from app.state.chat import State
from app.system.translation import tr, trn
from app.ui.transfer.menu import add_formats
from app.ui.widgets.menus import new_menu


class RowMenu(QObject):
    """Makes the menu; its signals are what the user chose."""

    stop_requested = Signal(object)
    delete_requested = Signal()  # what is selected
    moved = Signal(list, object)  # ids of chats, and the folder; None: out of all folders
    folder_moved = Signal(object, object, object)  # id, the folder around, None: at its end
    folder_requested = Signal(object, list)  # a new folder: in which one, and with which chats
    pinned = Signal(list, bool)
    archived = Signal(list, bool)
    duplicate_requested = Signal(list)
    export_requested = Signal(list, object)  # ids of chats, and ExportFormat
    copy_requested = Signal(list)  # of ids of chats
    settings_requested = Signal(object)  # of a folder
    new_requested = Signal(object)  # a chat in this folder

    def __init__(self, state: State, view: QListView) -> None:
        super().__init__(view)
        self._state, self._view = state, view

    def put_back(self, chats: Sequence[int]) -> None:
        """Request to put archived chats back into the list."""
        self.archived.emit([*chats], False)

    def make(self, index: QModelIndex, chats: Sequence[int], folders: Sequence[int]) -> QMenu:
        """The menu of the row at an index, for the selected chats and folders."""
        menu = new_menu(self._view)
        if folders and not chats and len(folders) == 1:
            self._add_folder(menu, folders[0])
        elif not folders:
            self._add_answers(menu, chats)
        rename = menu.addAction(tr("Rename"))
        rename.setEnabled(len(chats) + len(folders) == 1)
        rename.triggered.connect(partial(self._view.edit, index))
        if not folders:
            pinned = all(self._row(chat, "pinned") for chat in chats)
            words = tr("Unpin") if pinned else tr("Pin")
            menu.addAction(words, partial(self.pinned.emit, [*chats], not pinned))
        menu.addMenu(self._places(menu, chats, folders))
        everything = [*chats, *self._inside(folders)]
        if not folders:
            archived = all(self._row(chat, "archived") for chat in chats)
            words = tr("Put back in the list") if archived else tr("Archive")
            menu.addAction(words, partial(self.archived.emit, [*chats], not archived))
            menu.addAction(tr("Duplicate"), partial(self.duplicate_requested.emit, [*chats]))
        if everything:
            count = len(everything)
            export = menu.addMenu(trn("Export", "Export {count} chats", count))
            add_formats(export, partial(self.export_requested.emit, everything))
            words = trn("Copy whole chat", "Copy {count} whole chats", count)
            menu.addAction(words, partial(self.copy_requested.emit, everything))
        menu.addSeparator()
        menu.addAction(_delete_words(len(chats), len(folders)), self.delete_requested.emit)
        return menu

    def _row(self, chat: int, name: str) -> bool:
        return bool(getattr(self._state.conversation(chat), name, False))

    def _inside(self, folders: Sequence[int]) -> list[int]:
        """The chats in folders and below them, also the archived ones."""
        held = inside(self._state.folders, folders)
        return [chat.id for chat in self._state.conversations if chat.folder in held]

    def _add_answers(self, menu: QMenu, chats: Sequence[int]) -> None:
        """The action that stops the answers of the chats, if there are some."""
        if busy := [each for each in chats if each in self._state.busy_conversations]:
            several = trn("Stop {count} answer", "Stop {count} answers", len(busy))
            stop = menu.addAction(several if len(busy) > 1 else tr("Stop the answer"))
            stop.triggered.connect(lambda: [self.stop_requested.emit(each) for each in busy])

    def _add_folder(self, menu: QMenu, folder: int) -> None:
        menu.addAction(tr("New chat in this folder"), partial(self.new_requested.emit, folder))
        menu.addAction(tr("New folder in it"), partial(self.folder_requested.emit, folder, []))
        menu.addAction(tr("Folder settings…"), partial(self.settings_requested.emit, folder))
        menu.addSeparator()

    def _places(self, parent: QMenu, chats: Sequence[int], folders: Sequence[int]) -> QMenu:
        """The submenu of the places that the chats and folders can be moved to."""
        state = self._state
        menu = QMenu(tr("Move to"), parent)
        if not folders:
            menu.addAction(tr("New folder…"), partial(self.folder_requested.emit, None, [*chats]))
        places = {state.folder_of(chat) for chat in chats}
        places |= {f.parent for folder in folders if (f := state.folder(folder)) is not None}
        out = menu.addAction(tr("No folder"), partial(self._move, chats, folders, None))
        out.setEnabled(places != {None})
        menu.addSeparator()
        within = inside(state.folders, folders)
        for folder, depth in in_order(state.folders):
            if folder.id in within:
                continue
            name = folder.name.replace("&", "&&")
            action = menu.addAction("    " * depth + name)
            action.triggered.connect(partial(self._move, chats, folders, folder.id))
            action.setEnabled(places != {folder.id})
        return menu

    def _move(self, chats: Sequence[int], folders: Sequence[int], place: int | None) -> None:
        if chats:
            self.moved.emit([*chats], place)
        for folder in folders:
            self.folder_moved.emit(folder, place, None)


def _delete_words(chats: int, folders: int) -> str:
    if not folders:
        words = trn("Delete {count} chat", "Delete {count} chats", chats)
        return tr("Delete") if chats == 1 else words
    if not chats:
        return trn("Delete folder", "Delete {count} folders", folders)
    return tr("Delete selected")
