"""Saved adapter mixes: a list of presets, and a field to save the current stack under a name."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QSizePolicy, QVBoxLayout, QWidget

from app.state.adapters import AdapterEntry, AdapterState
from app.system.translation import tr, trn
from app.ui.theme.theme import SMALL
from app.ui.widgets.controls import (
    IconButton,
    TextButton,
    align_text_at_end,
    icon_after_text,
    label,
)

_MAX_NAME_LENGTH = 80


class MixLine(QWidget):
    """One saved mix: a button that applies it and a button that deletes it."""

    def __init__(self, name: str, count: int, *, current: bool) -> None:
        super().__init__()
        self._name, self._current = name, current
        self.button = TextButton("", "quiet", "check" if current else "")
        self.button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.button.setStyleSheet("text-align: left;")
        if current:  # the tick comes after the name
            icon_after_text(self.button)
            self.button.setStyleSheet("text-align: right;")  # Qt mirrors it
        words = trn("{count} adapter", "{count} adapters", count)
        self.button.setToolTip(tr("{name} ({adapters})", name=name, adapters=words))
        spoken = tr("Mix {name}, {adapters}", name=name, adapters=words)
        if current:
            spoken = tr("Mix {name}, {adapters}, in use", name=name, adapters=words)
        self.button.setAccessibleName(spoken)
        self.remove = IconButton("close", tr("Delete the mix {name}", name=name), 14)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.button, 1)
        layout.addWidget(self.remove)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        available = self.button.width() - 20 - (22 if self._current else 0)
        elide = Qt.TextElideMode.ElideMiddle
        self.button.setText(self.button.fontMetrics().elidedText(self._name, elide, available))


class Mixes(QWidget):
    """Lists the saved mixes; the panel hides it while there are no adapters and no mixes."""

    saved = Signal(str)
    chosen = Signal(str)
    deleted = Signal(str)
    changed = Signal()  # the lines or the tab stops changed

    def __init__(self, adapter_state: AdapterState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state = adapter_state
        self._shown: tuple[tuple[str, int, bool], ...] = ()
        self.lines: list[MixLine] = []
        self.heading = label(tr("Mixes"), "secondary", SMALL)
        self.heading.setMinimumHeight(28)  # constant, whether or not the save button is visible
        self.save_button = TextButton(tr("Save mix"), "link")
        self.save_button.setToolTip(tr("Save these adapters and strengths under a name"))
        self.field = QLineEdit(placeholderText=tr("Name of the mix"))
        self.field.setAccessibleName(tr("Name of the mix"))
        self.field.setMaxLength(_MAX_NAME_LENGTH)
        self.field.installEventFilter(self)
        self.field.hide()
        head = QHBoxLayout()
        align_text_at_end(self.save_button)
        head.addWidget(self.heading, 1)
        head.addWidget(self.save_button)
        edge = QHBoxLayout()
        edge.setContentsMargins(0, 2, 0, 4)
        edge.addWidget(self.field)
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self._layout.setSpacing(0)
        self._layout.addLayout(head)
        self._layout.addLayout(edge)
        self.save_button.clicked.connect(self._open_name_field)
        self.field.returnPressed.connect(self._save)

    def refresh(self) -> None:
        """Show the saved mixes and mark the one that equals the current stack."""
        state = self._state
        current = state.mix
        shown = tuple((name, len(mix), name == current) for name, mix in state.mixes.items())
        can_save = bool(state.stack) and not current
        self.save_button.setVisible(can_save and self.field.isHidden())
        if not state.stack:
            self._close_field()
        if shown != self._shown:
            self._shown = shown
            self._make_lines()
            self.changed.emit()

    def stops(self) -> list[QWidget]:
        """The tab stops in order."""
        lines = [part for line in self.lines for part in (line.button, line.remove)]
        return [self.save_button, self.field, *lines]

    # --- steps ----------------------------------------------------------------------------------

    def _make_lines(self) -> None:
        focused = next((n for n, line in enumerate(self.lines) if line.button.hasFocus()), -1)
        for line in self.lines:
            self._layout.removeWidget(line)
            line.hide()
            line.deleteLater()
        self.lines = []
        for name, count, current in self._shown:
            line = MixLine(name, count, current=current)
            line.button.clicked.connect(partial(self.chosen.emit, name))
            line.remove.clicked.connect(partial(self.deleted.emit, name))
            self._layout.addWidget(line)
            self.lines.append(line)
        if 0 <= focused < len(self.lines):
            self.lines[focused].button.setFocus(Qt.FocusReason.TabFocusReason)

    def _open_name_field(self) -> None:
        active = [entry for entry in self._state.stack if entry.acts] or self._state.stack
        self.field.setText(" + ".join(map(_shortened_name, active))[:_MAX_NAME_LENGTH])
        self.field.show()
        self.save_button.hide()
        self.field.setFocus(Qt.FocusReason.OtherFocusReason)
        self.field.selectAll()
        self.changed.emit()

    def _save(self) -> None:
        if name := self.field.text().strip():
            self._close_field()
            self.saved.emit(name)
            self.refresh()

    def _close_field(self) -> None:
        self.field.hide()
        self.field.clear()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        pressed = event.type() == QEvent.Type.KeyPress
        if pressed and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            self._close_field()
            self.refresh()
            self.save_button.setFocus(Qt.FocusReason.OtherFocusReason)
            return True
        return super().eventFilter(watched, event)


def _shortened_name(entry: AdapterEntry) -> str:
    """The adapter's name, cut to 20 characters with an ellipsis."""
    return entry.name if len(entry.name) <= 20 else entry.name[:19].rstrip() + "…"
