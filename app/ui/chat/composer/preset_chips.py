"""Chips on the empty page: one for each of the first presets, and one for all of them."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.domain.chat import Preset
from app.state.presets import PresetState
from app.system.translation import tr
from app.ui.theme.theme import SMALL, font
from app.ui.widgets.controls import TextButton
from app.ui.widgets.wrap import WrapLayout

_MOST = 8
_NAME_LENGTH = 28  # characters


class PresetChips(QWidget):
    """The chip of the preset that the new chat has is marked; a click on it gives it back."""

    chosen = Signal(object)  # id
    manage_requested = Signal()

    def __init__(self, state: PresetState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = state
        self.chips: dict[int, TextButton] = {}
        self.more_button = TextButton(tr("All presets…"), "chip")
        self.more_button.setFont(font(SMALL))
        self.more_button.clicked.connect(self.manage_requested)
        self._row = QWidget()
        self._wrap = WrapLayout(self._row, 6)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._row)
        state.changed.connect(self.refresh)
        state.use_changed.connect(self._show_chosen)
        self.refresh()

    def refresh(self) -> None:
        """Show the presets of the state."""
        while self._wrap.takeAt(0) is not None:
            pass
        for chip in self.chips.values():
            chip.hide()
            chip.deleteLater()
        self.chips = {preset.id: self._chip(preset) for preset in self._state.presets[:_MOST]}
        for button in (*self.chips.values(), self.more_button):
            self._wrap.addWidget(button)
        before = self._row
        for chip in self.chips.values():
            QWidget.setTabOrder(before, chip)
            before = chip
        QWidget.setTabOrder(before, self.more_button)
        self._show_chosen()

    def _chip(self, preset: Preset) -> TextButton:
        name = preset.name
        cut = len(name) > _NAME_LENGTH
        chip = TextButton(f"{name[: _NAME_LENGTH - 1].rstrip()}…" if cut else name, "chip")
        chip.setFont(font(SMALL))
        chip.setCheckable(True)
        chip.setToolTip(preset.description or (name if cut else ""))
        chip.setAccessibleName(tr("Preset {name}", name=name))
        chip.setAccessibleDescription(preset.description)
        chip.clicked.connect(partial(self._choose, preset.id))
        return chip

    def _choose(self, id: int) -> None:
        self.chosen.emit(id)
        self._show_chosen()  # Qt has switched the chip, whatever became of the request

    def _show_chosen(self) -> None:
        for id, chip in self.chips.items():
            chip.setChecked(id == self._state.use.shown)
