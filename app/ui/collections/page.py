"""Page of collections: the list of all, how far they are read, and what is wrong with the chosen."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible
from PySide6.QtWidgets import QFileDialog, QInputDialog, QVBoxLayout, QWidget

from app.state.collections import CollectionsState
from app.system.translation import tr
from app.ui.collections.words import sources_words, state_words
from app.ui.theme.palette import Palette
from app.ui.widgets import accessibility
from app.ui.widgets.controls import Column, IconButton, TextButton, label, page_head
from app.ui.widgets.row_list import RowList
from app.ui.widgets.undo_line import UndoLine
from app.ui.widgets.wrap import WrapLayout


class CollectionsPage(QWidget):
    """Shows the collections of the state; emits the user's requests as signals."""

    added = Signal(list)  # paths: a collection of them
    sources_added = Signal(object, list)  # id, paths
    renamed = Signal(object, str)  # id, name
    deleted = Signal(object)  # id
    undone = Signal()
    look_requested = Signal(object)  # id
    closed = Signal()

    def __init__(self, state: CollectionsState) -> None:
        super().__init__()
        self.setObjectName("page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        accessibility.register_role(CollectionsPage, QAccessible.Role.Pane)
        self.setAccessibleName(tr("Collections"))
        self._state = state
        self._known = {each.id for each in state.collections}
        self.close_button = IconButton("close", tr("Back to the chat"))
        self.folder_button = TextButton(tr("New from a folder…"), "outlined", "plus")
        self.files_button = TextButton(tr("New from files…"), "outlined", "plus")
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
        self.nothing = label(tr("There is no collection yet."), "secondary")
        self.problems_title = label(tr("Problems"), "secondary")
        self.problems = RowList(tr("Problems"), several=False)
        self.first = self.list  # has the focus first; Tab would skip what is before a focus proxy
        self._lay_out()
        self._connect()
        self.refresh()

    def _lay_out(self) -> None:
        words = label(
            tr(
                "Folders and files that chats are answered from. What changes in them is read again."
            ),
            "secondary",
        )
        words.setWordWrap(True)
        self._all, self._one = QWidget(), QWidget()
        _row(self._all, self.folder_button, self.files_button)
        _row(
            self._one, self.more_folder, self.more_files, self.rename_button, self.look_button,
            self.delete_button,
        )  # fmt: skip
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 12)
        column.setSpacing(12)
        for part in (words, self._all, self.undo, self._one, self.nothing):
            column.addWidget(part)
        column.addWidget(self.list, 2)
        column.addWidget(self.problems_title)
        column.addWidget(self.problems, 1)
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.addWidget(page_head(tr("Collections"), self.close_button))
        page.addWidget(Column(content), 1)

    def _connect(self) -> None:
        self.close_button.clicked.connect(self.closed)
        self.folder_button.clicked.connect(partial(self._ask_for_folder, self.added.emit))
        self.files_button.clicked.connect(partial(self._ask_for_files, self.added.emit))
        self.more_folder.clicked.connect(partial(self._ask_for_folder, self._add_sources))
        self.more_files.clicked.connect(partial(self._ask_for_files, self._add_sources))
        self.rename_button.clicked.connect(self._ask_for_name)
        self.look_button.clicked.connect(self._look)
        self.delete_button.clicked.connect(self._delete)
        self.undo.undone.connect(self.undone)
        self.list.removed.connect(self._delete)
        self.list.entered.connect(self._ask_for_name)
        self.list.currentRowChanged.connect(self._show_chosen)
        self._state.changed.connect(self.refresh)
        self._state.views_changed.connect(self.refresh)

    # --- called by the window -------------------------------------------------------------------

    def show_collection(self, id: int) -> None:
        """Choose a collection."""
        for row in range(self.list.count()):
            if self.list.entry(row) == id:
                self.list.setCurrentRow(row)

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        for part in (
            self.close_button, self.folder_button, self.files_button, self.delete_button,
            self.list, self.problems,
        ):  # fmt: skip
            part.apply_palette(palette)

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
            item.setToolTip(sources_words(each))
        self.list.blockSignals(blocked)
        if not shown and self.list.hasFocus():
            self.folder_button.setFocus()  # a hidden list would pass the focus out of the page
        self.list.setVisible(bool(shown))
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
        id = self.chosen
        self._one.setEnabled(id is not None)
        problems = () if id is None else self._state.view(id).problems
        texts = [f"{each.sentence}\n{each.remedy or each.path}" for each in problems]
        if texts != [self.problems.item(n).text() for n in range(self.problems.count())]:
            self.problems.clear()
            for each, text in zip(problems, texts, strict=True):
                self.problems.add_row(text, each.path)
                self.problems.item(self.problems.count() - 1).setToolTip(each.path)
        if not problems and self.problems.hasFocus():
            self.list.setFocus()
        self.problems.setVisible(bool(problems))
        self.problems_title.setVisible(bool(problems))

    def _add_sources(self, paths: list[Path]) -> None:
        if (id := self.chosen) is not None:
            self.sources_added.emit(id, paths)

    def _look(self) -> None:
        if (id := self.chosen) is not None:
            self.look_requested.emit(id)

    def _delete(self) -> None:
        if (id := self.chosen) is not None:
            self.deleted.emit(id)

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

    def _ask_for_folder(self, then: Callable[[list[Path]], object]) -> None:
        dialog = choose_folder(self)

        def chosen(names: list[str]) -> None:
            then([Path(name) for name in names])

        dialog.filesSelected.connect(chosen)
        dialog.open()

    def _ask_for_files(self, then: Callable[[list[Path]], object]) -> None:
        dialog = QFileDialog(self, tr("Add files"), str(Path.home()))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)

        def chosen(names: list[str]) -> None:
            then([Path(name) for name in names])

        dialog.filesSelected.connect(chosen)
        dialog.open()


def choose_folder(parent: QWidget) -> QFileDialog:
    """A dialog to choose a folder of documents, to be connected and opened."""
    dialog = QFileDialog(parent, tr("Add a folder"), str(Path.home()))
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    dialog.setOption(QFileDialog.Option.ShowDirsOnly)
    return dialog


def _row(parent: QWidget, *buttons: QWidget) -> None:
    row = WrapLayout(parent, 8, centred=False)
    for button in buttons:
        row.addWidget(button)
