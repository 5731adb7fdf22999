"""Reorderable list of adapter rows: by drag and drop, or with Alt+Up and Alt+Down."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QPoint, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.state.adapters import AdapterEntry, AdapterState
from app.system.translation import tr
from app.ui.adapters.row import AdapterRow
from app.ui.widgets import accessibility
from app.ui.widgets.controls import set_property


class AdapterList(QWidget):
    """One row widget per adapter, reused while that adapter stays in the stack."""

    switched = Signal(int, bool)
    strength_changed = Signal(int, float)
    strength_settled = Signal()
    moved = Signal(int, int)  # old index, new index
    removed = Signal(int)
    reached = Signal(QWidget)  # a row to scroll into view
    reordered = Signal()  # rows were added, removed or reordered

    def __init__(self, adapter_state: AdapterState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = adapter_state
        self._rows: dict[Path, AdapterRow] = {}
        self.rows: list[AdapterRow] = []  # in display order
        self._dragged: AdapterRow | None = None
        self._dragged_from = 0
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(4)
        self.setAccessibleName(tr("Adapters, in the order they are applied"))

    def refresh(self) -> None:
        """Show the adapter stack of the state."""
        stack, state = self._state.stack, self._state
        paths = [entry.path for entry in stack]
        if paths != [row.path for row in self.rows]:
            self._drop_drag()
            self._sync_rows(paths)
        for row, entry in zip(self.rows, stack, strict=True):
            info, reading = state.infos.get(entry.path), entry.path in state.reading
            row.show_entry(entry, info, reading=reading, alone=len(stack) == 1)

    def shift(self, row: AdapterRow, step: int) -> None:
        """Move a row by `step` places, clamped to the list; the row keeps the keyboard focus."""
        index = self.rows.index(row)
        target = min(max(index + step, 0), len(self.rows) - 1)
        if target != index:
            self.moved.emit(index, target)
            self.reached.emit(row)
            name = AdapterEntry(row.path).name
            place = tr(
                "{name}, {place} of {count}", name=name, place=target + 1, count=len(self.rows)
            )
            accessibility.announce(self, place)

    # --- the order ------------------------------------------------------------------------------

    def _sync_rows(self, paths: Sequence[Path]) -> None:
        """Create and delete row widgets to match `paths`, in that order."""
        for path in set(self._rows) - set(paths):
            removed = self._rows.pop(path)
            self._layout.removeWidget(removed)
            removed.hide()
            removed.deleteLater()
        for path in paths:
            if path not in self._rows:
                self._rows[path] = self._make_row(path)
        self._apply_order([self._rows[path] for path in paths])

    def _apply_order(self, rows: list[AdapterRow]) -> None:
        self.rows = rows
        for place, row in enumerate(rows):
            if self._layout.indexOf(row) != place:
                self._layout.insertWidget(place, row)
        self.reordered.emit()

    def _make_row(self, path: Path) -> AdapterRow:
        row = AdapterRow(path)
        self._layout.addWidget(row)
        row.switched.connect(partial(self._emit_switched, row))
        row.strength_changed.connect(partial(self._emit_strength, row))
        row.strength_settled.connect(self.strength_settled)
        row.removed.connect(partial(self._emit_removed, row))
        row.stepped.connect(partial(self.shift, row))
        row.handle.pressed_at.connect(partial(self._begin_drag, row))
        row.handle.dragged_to.connect(self._drag)
        row.handle.released_at.connect(self._end_drag)
        return row

    def _emit_switched(self, row: AdapterRow, on: bool) -> None:
        self.switched.emit(self.rows.index(row), on)

    def _emit_strength(self, row: AdapterRow, strength: float) -> None:
        self.strength_changed.emit(self.rows.index(row), strength)

    def _emit_removed(self, row: AdapterRow) -> None:
        self.removed.emit(self.rows.index(row))

    # --- dragging -------------------------------------------------------------------------------

    def _begin_drag(self, row: AdapterRow) -> None:
        self._dragged, self._dragged_from = row, self.rows.index(row)
        set_property(row, "dragged", True)

    def _drag(self, screen_y: int) -> None:
        """Move the dragged row past every neighbour whose vertical centre the mouse has passed."""
        row = self._dragged
        if row is None:
            return
        y = self.mapFromGlobal(QPoint(0, screen_y)).y()
        others = [each for each in self.rows if each is not row]
        target = sum(y > each.geometry().center().y() for each in others)
        if target != self.rows.index(row):
            others.insert(target, row)
            self._apply_order(others)
            self._layout.activate()
            self.reached.emit(row)

    def _end_drag(self) -> None:
        row, start = self._dragged, self._dragged_from
        self._drop_drag()
        if row is not None and (end := self.rows.index(row)) != start:
            self.moved.emit(start, end)

    def _drop_drag(self) -> None:
        if self._dragged is not None:
            set_property(self._dragged, "dragged", False)
        self._dragged = None
