"""Page of presets: the list of all, and the editor of one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.domain.chat import Preset
from app.state.presets import PresetState
from app.system.file_names import safe_name
from app.system.translation import listed, tr
from app.ui.presets.editor import PresetEditor
from app.ui.settings.fields import segments_style
from app.ui.theme.palette import Palette, follow_palette
from app.ui.widgets.controls import Column, TextButton, label, page_title, set_margins
from app.ui.widgets.page import Page
from app.ui.widgets.row_list import RowList
from app.ui.widgets.undo_line import UndoLine
from app.ui.widgets.wrap import WrapLayout


class PresetsPage(Page):
    """Shows the presets of the state; emits the user's requests as signals."""

    changed = Signal(object)  # Preset
    started = Signal(object)  # id: begin a chat with it
    add_requested = Signal()
    chat_saved = Signal()  # make a preset of the shown chat
    taken = Signal(object)  # id: give it the settings of the shown chat
    deleted = Signal(object)  # id
    undone = Signal()
    restore_requested = Signal()  # the presets of the app, as they came
    new_chat_chosen = Signal(object)  # id, or 0
    model_chosen = Signal(object, object)  # path of a model, id or None
    files_chosen = Signal(list)  # of Path
    exported = Signal(object, Path)  # id

    def __init__(self, state: PresetState) -> None:
        super().__init__(tr("Presets"))
        self._state = state
        self._known = {preset.id for preset in state.presets}
        self.back_button = TextButton(tr("All presets"), "outlined", "previous")
        self.add_button = TextButton(tr("New preset"), "outlined", "plus")
        self.chat_button = TextButton(tr("Make a preset of this chat"), "outlined")
        self.import_button = TextButton(tr("Import…"), "outlined")
        self.restore_button = TextButton(tr("Restore the app's presets"), "outlined")
        self.restore_button.setToolTip(tr("Presets that you changed stay as well"))
        self.start_button = TextButton(tr("Start a chat"), "primary")
        self.edit_button = TextButton(tr("Edit"), "outlined")
        self.export_button = TextButton(tr("Export…"), "outlined")
        self.export_button.setToolTip(
            tr("Without its model and adapters, which are files on this computer")
        )
        self.delete_button = TextButton(tr("Delete preset"), "outlined")
        self.undo = UndoLine()
        self.list = RowList(tr("Presets"), several=False)
        self.editor = PresetEditor(state)
        self.first = self.list  # has the focus first; Tab would skip what is before a focus proxy
        self._lay_out()
        self._connect()
        self.refresh()
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        self.title = page_title(tr("Presets"))
        words = tr("Instructions and settings with a name, to begin chats with or to use in one.")
        self.words = label(words, "secondary", wraps=True)
        head = QHBoxLayout()
        head.setSpacing(8)
        head.addWidget(self.back_button)
        head.addWidget(self.title)
        head.addStretch(1)
        head.addWidget(self.close_button)
        self._all = QWidget()
        every = (self.add_button, self.chat_button, self.import_button, self.restore_button)
        _row(self._all, *every)
        self._one = QWidget()
        one = (self.start_button, self.edit_button, self.export_button, self.delete_button)
        _row(self._one, *one)
        self._area = QScrollArea()
        self._area.setWidgetResizable(True)
        self._area.setFrameShape(QFrame.Shape.NoFrame)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        inside = QWidget()
        inside.setObjectName("rows")
        margins = QVBoxLayout(inside)
        set_margins(margins, 0, 0, 12, 0)
        margins.addWidget(self.editor)
        self._area.setWidget(inside)
        self._stack = QStackedWidget()
        self._stack.addWidget(self.list)
        self._stack.addWidget(self._area)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 12, 0, 12)
        column.setSpacing(12)
        column.addLayout(head)
        for part in (self.words, self._all, self.undo, self._one):
            column.addWidget(part)
        column.addWidget(self._stack, 1)
        page = QVBoxLayout(self)
        page.setContentsMargins(0, 0, 0, 0)
        page.addWidget(Column(content))

    def _connect(self) -> None:
        self.back_button.clicked.connect(self.show_all)
        self.add_button.clicked.connect(self.add_requested)
        self.chat_button.clicked.connect(self.chat_saved)
        self.import_button.clicked.connect(self._ask_for_files)
        self.restore_button.clicked.connect(self.restore_requested)
        self.undo.undone.connect(self.undone)
        self.start_button.clicked.connect(self._start)
        self.edit_button.clicked.connect(self._edit)
        self.export_button.clicked.connect(self._ask_for_place)
        self.delete_button.clicked.connect(self._delete)
        self.list.entered.connect(self._edit)
        self.list.itemDoubleClicked.connect(self._edit)
        self.list.removed.connect(self._delete)
        self.list.currentRowChanged.connect(self._show_buttons)
        self.editor.changed.connect(self.changed)
        self.editor.taken.connect(self.taken)
        self.editor.new_chat_chosen.connect(self.new_chat_chosen)
        self.editor.model_chosen.connect(self.model_chosen)
        self._state.changed.connect(self.refresh)
        self._state.use_changed.connect(self.refresh)

    # --- called by the window -------------------------------------------------------------------

    def _recolor(self, palette: Palette) -> None:
        line = 2 if palette.hairline == palette.text else 1
        self.setStyleSheet(
            f"QScrollArea, QWidget#rows {{ background: transparent; border: none; }}"
            f"{segments_style(palette)}"
            f"QFrame#area {{ background: {palette.surface}; border-radius: 6px;"
            f" border: {line}px solid {palette.hairline}; }}"
            f'QFrame#area[focused="true"] {{ border-color: {palette.accent}; }}'
        )

    def show_all(self) -> None:
        """Show the list."""
        shown = self.editor.shown
        self.editor.finish()
        self._stack.setCurrentWidget(self.list)
        self.refresh()
        self._select(shown)
        self.list.setFocus()

    def show_preset(self, id: int) -> None:
        """Show the editor of a preset."""
        self._select(id)
        self.editor.show_preset(id)
        self._area.verticalScrollBar().setValue(0)
        self._stack.setCurrentWidget(self._area)
        self.refresh()
        self.editor.focus_name()

    def refresh(self) -> None:
        """Show the presets of the state; the choice is kept, and a new preset is chosen."""
        presets = self._state.presets
        if self._edits and self._state.preset(self.editor.shown) is None:
            self._stack.setCurrentWidget(self.list)
        new = [preset.id for preset in presets if preset.id not in self._known]
        self._known = {preset.id for preset in presets}
        chosen = new[-1] if new else self.chosen
        row = max(self.list.currentRow(), 0)
        blocked = self.list.blockSignals(True)
        self.list.clear()
        for preset in presets:
            self.list.add_row(f"{preset.name}\n{self._line(preset)}", preset.id)
        self.list.blockSignals(blocked)
        if not self._select(chosen) and presets:
            self.list.setCurrentRow(min(row, len(presets) - 1))
        deleted = None if self._edits else self._state.deleted
        words = "" if deleted is None else tr("“{name}” was deleted.", name=deleted.name)
        self.undo.show_words(words)
        self.restore_button.setVisible(self._state.restorable)
        self._show_buttons()

    @property
    def chosen(self) -> int | None:
        """The id of the chosen preset."""
        if self._edits:
            return self.editor.shown
        row = self.list.currentRow()
        return None if row < 0 else int(self.list.entry(row))

    # --- steps ----------------------------------------------------------------------------------

    @property
    def _edits(self) -> bool:
        return self._stack.currentWidget() is self._area

    def _line(self, preset: Preset) -> str:
        """The second line of a row: its description, and what begins with it."""
        use = self._state.use
        return " · ".join(
            filter(
                None,
                (
                    preset.description,
                    listed(
                        [
                            tr("for new chats") if preset.id == use.new_chat else "",
                            tr("for new chats with {model}", model=use.model_name)
                            if preset.id == use.model
                            else "",
                        ]
                    ),
                ),
            )
        )

    def _select(self, id: int | None) -> bool:
        for row in range(self.list.count()):
            if self.list.entry(row) == id:
                self.list.setCurrentRow(row)
                return True
        return False

    def _show_buttons(self) -> None:
        edits, some = self._edits, self.chosen is not None
        self.back_button.setVisible(edits)
        self.title.setVisible(not edits)
        self.words.setVisible(not edits)
        self._all.setVisible(not edits)
        self.edit_button.setVisible(not edits)
        for button in (self.start_button, self.edit_button, self.export_button, self.delete_button):
            button.setEnabled(some)

    def _start(self) -> None:
        if (id := self.chosen) is not None:
            self.editor.finish()
            self.started.emit(id)

    def _edit(self) -> None:
        if (id := self.chosen) is not None:
            self.show_preset(id)

    def _delete(self) -> None:
        if (id := self.chosen) is not None:
            self.editor.finish()
            if self._edits:
                self.show_all()
            self.deleted.emit(id)

    def _ask_for_files(self) -> None:
        dialog = QFileDialog(self, tr("Import presets or character cards"), str(Path.home()))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        kinds = f"{tr('Presets and character cards')} (*.json *.JSON *.png *.PNG)"
        dialog.setNameFilters([kinds, f"{tr('All files')} (*)"])
        dialog.filesSelected.connect(self._choose_files)
        dialog.open()

    def _choose_files(self, names: list[str]) -> None:
        self.files_chosen.emit([Path(name) for name in names])

    def _ask_for_place(self) -> None:
        preset = self._state.preset(self.chosen)
        if preset is None:
            return
        self.editor.finish()
        start = Path.home() / f"{safe_name(preset.name, 'preset')}.json"
        dialog = QFileDialog(self, tr("Export the preset"), str(start))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("json")
        dialog.selectFile(start.name)
        dialog.fileSelected.connect(partial(self._export, preset.id))
        dialog.open()

    def _export(self, id: int, name: str) -> None:
        self.exported.emit(id, Path(name))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._edits:
            self.show_all()
        else:
            super().keyPressEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not event.spontaneous():
            self.show_all()

    def hideEvent(self, event: QHideEvent) -> None:
        self.editor.finish()
        super().hideEvent(event)


def _row(parent: QWidget, *buttons: QWidget) -> None:
    row = WrapLayout(parent, 8, centred=False)
    for button in buttons:
        row.addWidget(button)
