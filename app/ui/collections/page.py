"""Page of collections: the list of all, and of the chosen one what is in it and what is wrong."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QEvent, QSize, Qt, Signal, SignalInstance
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QHBoxLayout, QInputDialog, QVBoxLayout, QWidget

from app.domain.collection import Collection, CollectionView
from app.state.chat import State
from app.state.collection_words import sources_words, state_words
from app.state.collections import CollectionsState
from app.system.translation import number, tr
from app.ui.file_dialogs import Chosen, choose_files, choose_folder
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.widgets.controls import (
    Column,
    TextButton,
    label,
    page_head,
    set_property,
    with_scroll_bar_margin,
)
from app.ui.widgets.drop_area import DropArea
from app.ui.widgets.file_drops import FileDrops
from app.ui.widgets.page import Page
from app.ui.widgets.row_list import RowList
from app.ui.widgets.undo_line import UndoLine
from app.ui.widgets.wrap import WrapLayout

_MOST_PROBLEMS = 200  # rows
_ICON = 18  # pixels


class _Row(NamedTuple):
    """What is shown of a folder or file of a collection, or of a problem."""

    icon: str
    words: str
    path: str
    remove: str = ""  # words of the button that removes it; "": it cannot be removed
    is_source: bool = False


class CollectionsPage(Page):
    """Shows the collections of the state; emits the user's requests as signals."""

    added = Signal(list)  # paths: a collection of them
    use_switched = Signal(object, bool)  # id, and whether the shown chat is to be answered from it
    sources_added = Signal(object, list)  # id, paths
    source_removed = Signal(object, str)  # id, path
    let_go = Signal(object, str)  # id, path: forget what was read of a folder that is away
    renamed = Signal(object, str)  # id, name
    deleted = Signal(object)  # id
    undone = Signal()
    look_requested = Signal(object)  # id
    folder_requested = Signal(object)  # Path of a folder or file, to be shown in its folder

    def __init__(self, chat: State, state: CollectionsState) -> None:
        super().__init__(tr("Collections"))
        self._chat, self._state = chat, state
        self._known = {each.id for each in state.collections}
        self._folder = Path.home()  # of the last dialog
        self.folder_button = TextButton(tr("New from a folder…"), "outlined", "plus")
        self.files_button = TextButton(tr("New from files…"), "outlined", "plus")
        self.use_button = TextButton("", "primary")
        self.more_folder = TextButton(tr("Add a folder…"), "outlined")
        self.more_files = TextButton(tr("Add files…"), "outlined")
        self.rename_button = TextButton(tr("Rename…"), "outlined")
        self.look_button = TextButton(tr("Look again"), "outlined")
        self.look_button.setToolTip(
            tr("Reads new and changed files now, and tries failed ones again")
        )
        self.delete_button = TextButton(tr("Delete"), "outlined", "trash")
        self.delete_button.setToolTip(tr("Your files stay where they are"))
        self.undo = UndoLine()
        self.list = RowList(tr("Collections"), several=False)
        self.nothing = label(
            tr("There is no collection yet. Drop a folder here, or choose one."),
            "secondary",
            wraps=True,
        )
        self.contents_title = label(tr("Folders, files and problems"), "secondary", wraps=True)
        self.contents = RowList(tr("Folders, files and problems"), several=False)
        self.contents.setIconSize(QSize(_ICON, _ICON))
        self.show_button = TextButton(tr("Show in folder"), "link")
        self.remove_button = TextButton("", "link")
        self.remove_button.setToolTip(tr("Your files stay where they are"))
        for button in (self.show_button, self.remove_button):
            kept = button.sizePolicy()
            kept.setRetainSizeWhenHidden(True)
            button.setSizePolicy(kept)
        self._rows: list[_Row] = []  # of `contents`
        self.drop_area = DropArea(self, collects=True)
        self.drops = FileDrops(self, self.drop_area, lambda: False)
        self._lay_out()
        self._connect()
        self.refresh()
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        words = label(
            tr(
                "Folders and files that chats are answered from. What changes in them is read again."
            ),
            "secondary",
            wraps=True,
        )
        self._all, self._one = QWidget(), QWidget()
        _row(self._all, self.folder_button, self.files_button)
        _row(
            self._one, self.use_button, self.more_folder, self.more_files, self.rename_button,
            self.look_button, self.delete_button,
        )  # fmt: skip
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 12)
        column.setSpacing(12)
        for part in (words, self._all, self.undo, self.nothing):
            column.addWidget(part)
        column.addWidget(self.list, 3)
        column.addWidget(self._one)
        head = QHBoxLayout()
        head.addWidget(self.contents_title, 1)
        head.addWidget(self.remove_button)
        head.addWidget(self.show_button)
        column.addLayout(head)
        column.addWidget(self.contents, 2)
        for first, second in pairwise((self.contents, self.remove_button, self.show_button)):
            QWidget.setTabOrder(first, second)  # they are there once a row is chosen
        column.addStretch()  # takes the room of lists that are hidden while they are empty
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.addWidget(page_head(tr("Collections"), self.close_button))
        page.addWidget(with_scroll_bar_margin(Column(content)), 1)

    def _connect(self) -> None:
        new, more = self.added.emit, self._add_sources
        self.folder_button.clicked.connect(partial(self._ask, new, folder=True))
        self.files_button.clicked.connect(partial(self._ask, new, folder=False))
        self.more_folder.clicked.connect(partial(self._ask, more, folder=True))
        self.more_files.clicked.connect(partial(self._ask, more, folder=False))
        for button, signal in (
            (self.look_button, self.look_requested),
            (self.delete_button, self.deleted),
        ):
            button.clicked.connect(partial(self._request, signal))
        self.use_button.clicked.connect(self._switch_use)
        self.rename_button.clicked.connect(self._ask_for_name)
        self.undo.undone.connect(self.undone)
        self.list.removed.connect(partial(self._request, self.deleted))
        self.list.entered.connect(self._ask_for_name)
        self.list.currentRowChanged.connect(self._show_chosen)
        self.remove_button.clicked.connect(self._remove)
        self.show_button.clicked.connect(self._show_in_folder)
        self.contents.entered.connect(self._show_in_folder)
        self.contents.itemDoubleClicked.connect(self._show_in_folder)
        self.contents.removed.connect(self._remove)
        self.contents.currentRowChanged.connect(self._show_actions)
        self.drops.files_dropped.connect(self.added)
        self._chat.settings_changed.connect(self._show_use)
        self._chat.conversation_changed.connect(self._show_use)
        self._state.changed.connect(self.refresh)
        self._state.views_changed.connect(self.refresh)

    # --- Qt -------------------------------------------------------------------------------------

    def event(self, event: QEvent) -> bool:
        kind, kinds = event.type(), QEvent.Type
        is_undo = isinstance(event, QKeyEvent) and event.matches(QKeySequence.StandardKey.Undo)
        if not is_undo or self._state.deleted is None:
            return super().event(event)
        if kind is kinds.KeyPress:
            self.undone.emit()
        elif kind is kinds.ShortcutOverride:
            event.accept()  # else the window would undo the deletion of a chat
        return True

    # --- called by the window -------------------------------------------------------------------

    @property
    def first(self) -> QWidget:
        """What has the focus first; Tab would skip what is before a focus proxy."""
        return self.list if self.list.count() else self.folder_button

    def show_collection(self, id: int | None) -> None:
        """Choose a collection."""
        for row in range(self.list.count()):
            if self.list.entry(row) == id:
                self.list.setCurrentRow(row)

    def _recolor(self, palette: Palette) -> None:
        self._rows = []  # its icons have the old colours
        self._show_chosen()

    def refresh(self) -> None:
        """Show the collections of the state; the choice is kept, and a new one is chosen."""
        shown = self._state.collections
        new = [each.id for each in shown if each.id not in self._known]
        self._known = {each.id for each in shown}
        chosen, row = (new[-1] if new else self.chosen), max(self.list.currentRow(), 0)
        texts = [f"{e.name}\n{state_words(e, self._state.view(e.id))}" for e in shown]
        blocked = self.list.blockSignals(True)
        if [self.list.entry(n) for n in range(self.list.count())] != [e.id for e in shown]:
            self.list.clear()
            for each, text in zip(shown, texts, strict=True):
                self.list.add_row(text, each.id)
            rows = [n for n, each in enumerate(shown) if each.id == chosen]
            self.list.setCurrentRow(rows[0] if rows else min(row, len(shown) - 1))
        for n, (each, text) in enumerate(zip(shown, texts, strict=True)):
            item = self.list.item(n)
            if item.text() != text:
                item.setText(text)
            item.setToolTip(f"{each.name}\n{sources_words(each)}")
        self.list.blockSignals(blocked)
        parts = (self.list, self.contents, *self._one.findChildren(TextButton))
        if not shown and any(each.hasFocus() for each in parts):
            self.folder_button.setFocus()  # they are hidden, which would pass it out of the page
        self.list.setVisible(bool(shown))
        self.list.setMaximumHeight(self.list.height_of_rows)
        deleted = self._state.deleted
        self.nothing.setVisible(not shown)
        self.undo.show_words(
            "" if deleted is None else tr("“{name}” was deleted.", name=deleted.name)
        )
        self._show_chosen()

    @property
    def chosen(self) -> int | None:
        """The id of the chosen collection."""
        row = self.list.currentRow()
        return None if row < 0 else int(self.list.entry(row))

    # --- steps ----------------------------------------------------------------------------------

    def _show_chosen(self, *_: object) -> None:
        collection = self._state.collection(self.chosen)
        for part in (self._one, self.contents_title, self.contents):
            part.setVisible(collection is not None)
        rows = _contents(collection, self._state.view(collection.id)) if collection else []
        if rows != self._rows:
            row, before = self.contents.currentRow(), self._chosen_row
            bar = self.contents.verticalScrollBar()
            place = bar.value()
            self._rows = rows
            self.contents.clear()
            for each in rows:
                self.contents.add_row(each.words, each.path)
                item, color = self.contents.item(self.contents.count() - 1), _color(each.icon)
                item.setIcon(icons.icon(each.icon, getattr(shown_palette(), color), _ICON))
                item.setToolTip(each.path)
            if before in rows:
                self.contents.setCurrentRow(rows.index(before))
            elif self.contents.hasFocus():
                self.contents.setCurrentRow(min(max(row, 0), len(rows) - 1))
            bar.setValue(place)  # it is filled again and again while files are read
        self._show_actions()
        self._show_use()

    def _show_use(self) -> None:
        used = self._is_used
        self.use_button.setText(tr("Stop using in this chat") if used else tr("Use in this chat"))
        set_property(self.use_button, "look", "outlined" if used else "primary")

    def _show_actions(self, *_: object) -> None:
        self.remove_button.setText(self._chosen_row.remove)
        self.remove_button.setVisible(bool(self._chosen_row.remove))
        self.show_button.setVisible(bool(self._chosen_row.path))

    @property
    def _chosen_row(self) -> _Row:
        """The chosen row of the contents."""
        row = self.contents.currentRow()
        return self._rows[row] if 0 <= row < len(self._rows) else _Row("", "", "")

    def _show_in_folder(self, *_: object) -> None:
        if path := self._chosen_row.path:
            self.folder_requested.emit(Path(path))

    @property
    def _is_used(self) -> bool:
        return self.chosen in self._chat.settings(self._chat.current).collections

    def _switch_use(self) -> None:
        if (id := self.chosen) is not None:
            self.use_switched.emit(id, not self._is_used)

    def _remove(self) -> None:
        row = self._chosen_row
        if (id := self.chosen) is not None and row.remove:
            if self.remove_button.hasFocus():
                self.contents.setFocus()  # the button is hidden until another is chosen
            (self.source_removed if row.is_source else self.let_go).emit(id, row.path)

    def _add_sources(self, paths: list[Path]) -> None:
        if (id := self.chosen) is not None:
            self.sources_added.emit(id, paths)

    def _request(self, signal: SignalInstance) -> None:
        if (id := self.chosen) is not None:
            signal.emit(id)

    def _ask_for_name(self) -> None:
        collection = self._state.collection(self.chosen)
        if collection is None:
            return
        dialog = QInputDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle(tr("Rename the collection"))
        dialog.setLabelText(tr("Name"))
        dialog.setTextValue(collection.name)
        dialog.textValueSelected.connect(partial(self.renamed.emit, collection.id))
        dialog.open()

    def _ask(self, then: Chosen, *, folder: bool) -> None:
        def chosen(paths: list[Path]) -> None:
            self._folder = paths[0].parent
            then(paths)

        (choose_folder if folder else choose_files)(self, self._folder, chosen, attach=False)


def _contents(collection: Collection, view: CollectionView) -> list[_Row]:
    """The folders and files of a collection, then what is wrong with it."""
    take_out = tr("Take out of the collection")
    rows = [
        _Row(_icon(each), f"{Path(each).name}\n{each}", each, take_out, is_source=True)
        for each in collection.sources
    ]
    for each in view.problems[:_MOST_PROBLEMS]:
        forget = tr("Forget its files") if each.kept else ""
        words = f"{each.sentence}\n{each.remedy or each.path}"
        rows.append(_Row("warning", words, each.path, forget))
    if (more := len(view.problems) - _MOST_PROBLEMS) > 0:
        rows.append(_Row("warning", tr("And {count} more", count=number(more)), ""))
    return rows


def _icon(source: str) -> str:
    """That of a folder or a file, as the name looks: the path may be on a drive that is away."""
    return "document" if Path(source).suffix else "folder"


def _color(icon: str) -> str:
    """The name of its colour in a palette."""
    return "warning" if icon == "warning" else "secondary"


def _row(parent: QWidget, *buttons: QWidget) -> None:
    row = WrapLayout(parent, 8, centred=False)
    for button in buttons:
        row.addWidget(button)
