"""Adapters section of the panel: the stack of the chat, its mixes, and comparing two answers."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QWidget

from app.state.adapters import AdapterState
from app.state.chat import ModelPhase, State
from app.system.translation import sentences, tr
from app.ui.adapters.list import AdapterList
from app.ui.adapters.mixes import Mixes
from app.ui.panel.section import Section
from app.ui.widgets.controls import TextButton, align_text_at_end, align_text_at_start, label
from app.ui.widgets.menus import new_menu, popup_below

_MAX_RECENT = 8  # files offered in the menu, most recently added first


class AdapterSection(Section):
    """Shows the adapter stack and mixes of the state; emits the user's changes as signals."""

    added = Signal(Path)  # a GGUF file or a PEFT folder
    removed = Signal(int)  # index in the stack, as in the other signals
    cleared = Signal()
    switched = Signal(int, bool)
    strength_changed = Signal(int, float)  # also while a slider is dragged
    strength_settled = Signal()
    moved = Signal(int, int)
    compare_requested = Signal()  # of the last answer's question
    mix_saved = Signal(str)
    mix_chosen = Signal(str)
    mix_deleted = Signal(str)
    reached = Signal(QWidget)  # a row to scroll into view
    noted = Signal()  # `note` has changed

    def __init__(self, state: State, adapter_state: AdapterState) -> None:
        super().__init__("adapters")
        self._state = state
        self._adapters = adapter_state
        self.note, self.is_fault = "", False  # a sentence for the foot of the panel
        # Created without parents: the layouts add them in visual order, which sets the Tab order.
        self.list = AdapterList(adapter_state)
        self.sentence = label("", "secondary", wraps=True)
        self.add_button = TextButton(tr("Add adapter"), "outlined", "plus")
        self.clear_button = TextButton(tr("Remove all"), "link")
        self.compare_button = TextButton(tr("Compare two answers…"), "link")
        align_text_at_start(self.compare_button)
        align_text_at_end(self.clear_button)
        self.mixes = Mixes(adapter_state)
        self._lay_out()
        self._connect()
        self.refresh()

    def _lay_out(self) -> None:
        buttons, compare = QHBoxLayout(), QHBoxLayout()
        buttons.addWidget(self.add_button)
        buttons.addStretch(1)
        buttons.addWidget(self.clear_button)
        compare.addWidget(self.compare_button)
        compare.addStretch(1)
        self.body.addWidget(self.sentence)
        self.body.addWidget(self.list)
        self.body.addLayout(buttons)
        self.body.addLayout(compare)
        self.body.addWidget(self.mixes)

    def _connect(self) -> None:
        adapters, rows = self._adapters, self.list
        self.add_button.clicked.connect(self.open_menu)
        self.clear_button.clicked.connect(self.cleared)
        self.compare_button.clicked.connect(self.compare_requested)
        rows.switched.connect(self.switched)
        rows.strength_changed.connect(self.strength_changed)
        rows.strength_settled.connect(self.strength_settled)
        rows.moved.connect(self.moved)
        rows.removed.connect(self.removed)
        rows.reached.connect(self.reached)
        rows.reordered.connect(self._order_tabs)
        self.mixes.saved.connect(self.mix_saved)
        self.mixes.chosen.connect(self.mix_chosen)
        self.mixes.deleted.connect(self.mix_deleted)
        self.mixes.changed.connect(self._order_tabs)
        self._state.capabilities_changed.connect(self.refresh)
        adapters.stack_changed.connect(self.refresh)
        adapters.applied_changed.connect(self.refresh)
        adapters.mixes_changed.connect(self.refresh)
        state = self._state
        state.model_changed.connect(self._show_note)
        for signal in (
            state.conversation_changed,
            state.message_added,
            state.message_changed,
            state.message_removed,
            state.generations_changed,
        ):
            signal.connect(self._show_compare)

    def refresh(self) -> None:
        """Show the stack and the mixes."""
        stack, mixes = self._adapters.stack, self._adapters.mixes
        self.list.refresh()
        self.list.setVisible(bool(stack))
        reason = self._state.capabilities.reason("adapters")
        usual = tr("Adapters (LoRA) change a model's style or add a skill.")
        self.sentence.setText(reason or usual)
        self.sentence.setVisible(bool(reason) or not stack)
        for part in (self.list, self.add_button, self.clear_button, self.mixes):
            part.setEnabled(not reason)
        self.clear_button.setVisible(len(stack) > 1)
        self.mixes.refresh()
        self.mixes.setVisible(bool(stack or mixes))
        self._show_compare()
        self._show_note()

    def open_menu(self) -> None:
        """Open the menu of recently added files and file choosers; does not block."""
        menu = new_menu(self)
        menu.setToolTipsVisible(True)
        used = {entry.path for entry in self._adapters.stack}
        known = [each for each in reversed(self._adapters.known) if each.path not in used]
        for each in known[:_MAX_RECENT]:
            words = tr("{name} (missing)", name=each.name) if each.missing else each.name
            short = self.fontMetrics().elidedText(words, Qt.TextElideMode.ElideMiddle, 240)
            action = menu.addAction(short.replace("&", "&&"), partial(self.added.emit, each.path))
            action.setEnabled(not each.missing)
            action.setToolTip(str(each.path))
        if known:
            menu.addSeparator()
        menu.addAction(tr("Choose files…"), partial(self._choose, folder=False))
        menu.addAction(tr("Choose a folder…"), partial(self._choose, folder=True))
        popup_below(menu, self.add_button)

    # --- steps ----------------------------------------------------------------------------------

    def _choose(self, *, folder: bool) -> None:
        """Open a file or folder dialog; does not block."""
        known = self._adapters.known
        last_path = known[-1].path if known else self._state.model.path
        start = last_path.parent if last_path is not None else Path.home()
        title = tr("Choose an adapter folder") if folder else tr("Choose adapters")
        dialog = QFileDialog(self.window(), title, str(start))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if folder:
            dialog.setFileMode(QFileDialog.FileMode.Directory)
        else:
            dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
            dialog.setNameFilters(
                [
                    f"{tr('Adapters')} (*.gguf *.GGUF adapter_model.safetensors)",
                    f"{tr('All files')} (*)",
                ]
            )
        dialog.filesSelected.connect(self._chosen)
        dialog.open()

    def _chosen(self, names: list[str]) -> None:
        for name in names:
            self.added.emit(Path(name))

    def _show_note(self) -> None:
        """What the foot of the panel says of the adapters, where it shifts no other widget."""
        adapters = self._adapters
        fault = sentences(*adapters.fault)
        words = fault
        if not self._state.capabilities.adapters:
            words = fault = ""  # none is applied
        elif not words and self._state.model.phase is not ModelPhase.READY and adapters.stack:
            words = tr("Adapters take effect once a model is loaded.")
        elif not words and adapters.pending:
            words = tr("Takes effect with the next answer.")
        self.note, self.is_fault = words, bool(fault)
        self.noted.emit()

    def _show_compare(self) -> None:
        """Offer the comparison where there is something to compare, and an answer to do it with."""
        messages = self._state.messages
        open_now = bool(messages) and messages[-1].undecided
        self.compare_button.setVisible(bool(self._adapters.stack and messages) and not open_now)
        offered = not self._state.capabilities.reason("adapters")
        self.compare_button.setEnabled(offered and not self._state.busy)

    def _order_tabs(self) -> None:
        rows = [stop for row in self.list.rows for stop in row.stops()]
        stops = [
            self.reset,
            *rows,
            self.add_button,
            self.clear_button,
            self.compare_button,
            *self.mixes.stops(),
        ]
        for before, after in pairwise(stops):
            QWidget.setTabOrder(before, after)
