"""The rows of the panel of adapters in their order, which is changed by dragging or with Alt+arrows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.state.adapters import AdapterEntry, AdapterState
from app.ui.adapters.row import AdapterRow
from app.ui.theme.palette import LIGHT, Palette
from app.ui.widgets import accessibility
from app.ui.widgets.controls import set_property


class AdapterList(QWidget):
    """One row for each entry; a row stays the same widget while its adapter stays in the stack."""

    switched = Signal(int, bool)
    strength_changed = Signal(int, float)
    strength_settled = Signal()
    moved = Signal(int, int)  # from this place to that
    removed = Signal(int)
    reached = Signal(QWidget)  # a row that should be in view
    reordered = Signal()  # other rows, or in another order

    def __init__(self, adapter_state: AdapterState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = adapter_state
        self._palette = LIGHT
        self._rows: dict[Path, AdapterRow] = {}
        self.rows: list[AdapterRow] = []  # as they stand
        self._dragged: AdapterRow | None = None
        self._dragged_from = 0
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(4)
        self.setAccessibleName("Adapters, the first is applied first")

    def apply_palette(self, palette: Palette) -> None:
        """Paint in another theme."""
        self._palette = palette
        for row in self.rows:
            row.apply_palette(palette)

    def refresh(self) -> None:
        """Show the stack of the state."""
        stack, state = self._state.stack, self._state
        paths = [entry.path for entry in stack]
        if paths != [row.path for row in self.rows]:
            self._drop_drag()
            self._arrange(paths)
        for row, entry in zip(self.rows, stack, strict=True):
            info, reading = state.infos.get(entry.path), entry.path in state.reading
            row.show_entry(entry, info, reading=reading, alone=len(stack) == 1)

    def shift(self, row: AdapterRow, step: int) -> None:
        """Move a row some places, as far as there are any; the focus stays with it."""
        index = self.rows.index(row)
        place = min(max(index + step, 0), len(self.rows) - 1)
        if place != index:
            self.moved.emit(index, place)
            self.reached.emit(row)
            name = AdapterEntry(row.path).name
            accessibility.announce(self, f"{name}, {place + 1} of {len(self.rows)}")

    # --- the order ------------------------------------------------------------------------------

    def _arrange(self, paths: Sequence[Path]) -> None:
        """Have exactly these rows, in this order, and Tab go through them."""
        for path in set(self._rows) - set(paths):
            gone = self._rows.pop(path)
            self._layout.removeWidget(gone)
            gone.hide()
            gone.deleteLater()
        for path in paths:
            if path not in self._rows:
                self._rows[path] = self._make(path)
        self._stand([self._rows[path] for path in paths])

    def _stand(self, rows: list[AdapterRow]) -> None:
        self.rows = rows
        for place, row in enumerate(rows):
            if self._layout.indexOf(row) != place:
                self._layout.insertWidget(place, row)
        self.reordered.emit()

    def _make(self, path: Path) -> AdapterRow:
        row = AdapterRow(path)
        row.apply_palette(self._palette)
        self._layout.addWidget(row)
        row.switched.connect(partial(self._switch, row))
        row.strength_changed.connect(partial(self._weigh, row))
        row.strength_settled.connect(self.strength_settled)
        row.removed.connect(partial(self._remove, row))
        row.stepped.connect(partial(self.shift, row))
        row.handle.pressed_at.connect(partial(self._begin_drag, row))
        row.handle.dragged_to.connect(self._drag)
        row.handle.released_at.connect(self._end_drag)
        return row

    def _switch(self, row: AdapterRow, on: bool) -> None:
        self.switched.emit(self.rows.index(row), on)

    def _weigh(self, row: AdapterRow, strength: float) -> None:
        self.strength_changed.emit(self.rows.index(row), strength)

    def _remove(self, row: AdapterRow) -> None:
        self.removed.emit(self.rows.index(row))

    # --- dragging -------------------------------------------------------------------------------

    def _begin_drag(self, row: AdapterRow) -> None:
        self._dragged, self._dragged_from = row, self.rows.index(row)
        set_property(row, "dragged", True)

    def _drag(self, screen_y: int) -> None:
        """The row changes places with a neighbour whose middle the mouse has passed."""
        row = self._dragged
        if row is None:
            return
        y = self.mapFromGlobal(QPoint(0, screen_y)).y()
        others = [each for each in self.rows if each is not row]
        place = sum(y > each.geometry().center().y() for each in others)
        if place != self.rows.index(row):
            others.insert(place, row)
            self._stand(others)
            self._layout.activate()
            self.reached.emit(row)

    def _end_drag(self) -> None:
        row, began = self._dragged, self._dragged_from
        self._drop_drag()
        if row is not None and (place := self.rows.index(row)) != began:
            self.moved.emit(began, place)

    def _drop_drag(self) -> None:
        if self._dragged is not None:
            set_property(self._dragged, "dragged", False)
        self._dragged = None
