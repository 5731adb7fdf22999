"""One row of the adapter panel: drag handle, switch, name, strength, menu and file details."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QSignalBlocker, Qt, Signal
from PySide6.QtGui import (
    QFont,
    QKeyEvent,
    QMouseEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QVBoxLayout, QWidget

from app.state.adapters import AdapterEntry
from app.state.faults import explain
from app.system.byte_size import size
from app.system.file_manager import show_in_folder
from app.system.translation import tr, trn
from app.ui.adapters.strength_slider import StrengthField, StrengthSlider
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import ElidedLabel, IconButton, label, set_margins, set_property
from app.ui.widgets.menus import new_menu, popup_below
from app.ui.widgets.switch import Switch
from engine import AdapterInfo

_INDENT = 41  # pixels: the left edge of the switch's track


class Handle(IconButton):
    """Drag handle: reports mouse drags, and Up and Down keys as single steps."""

    pressed_at = Signal()
    dragged_to = Signal(int)  # global y coordinate, pixels
    released_at = Signal()
    stepped = Signal(int)

    def __init__(self) -> None:
        super().__init__("drag", tr("Drag to change the order (Alt+Up, Alt+Down)"), 16)
        self.setCursor(Qt.CursorShape.SizeVerCursor)

    def mousePressEvent(self, arg__1: QMouseEvent) -> None:
        if arg__1.button() is Qt.MouseButton.LeftButton:
            self.pressed_at.emit()

    def mouseMoveEvent(self, arg__1: QMouseEvent) -> None:
        if arg__1.buttons() & Qt.MouseButton.LeftButton:
            self.dragged_to.emit(round(arg__1.globalPosition().y()))

    def mouseReleaseEvent(self, arg__1: QMouseEvent) -> None:
        self.released_at.emit()

    def keyPressEvent(self, arg__1: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(arg__1.key()))
        if step:
            self.stepped.emit(step)
        else:
            super().keyPressEvent(arg__1)


class AdapterRow(QFrame):
    """Shows one adapter of the stack; emits the user's changes as signals."""

    switched = Signal(bool)
    strength_changed = Signal(float)
    strength_settled = Signal()
    stepped = Signal(int)  # places up (negative) or down
    removed = Signal()

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.setObjectName("adapter_row")
        self.path = path
        self._entry = AdapterEntry(path)
        self._info: AdapterInfo | None = None
        # Created without parents: the layouts add them in visual order, which sets the Tab order.
        self.handle = Handle()
        self.switch = Switch()
        self.name = ElidedLabel("", font(BODY, QFont.Weight.Medium), Qt.TextElideMode.ElideMiddle)
        self.name.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.more = IconButton("more", tr("More"), 16)
        self.slider = StrengthSlider()
        self.field = StrengthField()
        self.problem = label("", "danger", SMALL, wraps=True)
        self.details = label("", "secondary", SMALL)
        self.file = ElidedLabel("secondary", font(SMALL), Qt.TextElideMode.ElideMiddle)
        self.file.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self._lay_out()
        self._connect()
        self._show_details(shown=False)

    def _lay_out(self) -> None:
        first, second = QHBoxLayout(), QHBoxLayout()
        for widget in (self.handle, self.switch):
            first.addWidget(widget)
        first.setSpacing(2)
        first.addSpacing(6)
        first.addWidget(self.name, 1)
        first.addWidget(self.more)
        set_margins(second, _INDENT - 9, 0, 0, 0)  # minus the slider's own margin
        second.setSpacing(4)
        second.addWidget(self.slider, 1)
        second.addWidget(self.field)
        below = QVBoxLayout()
        set_margins(below, _INDENT, 0, 0, 0)
        below.setSpacing(2)
        for widget in (self.problem, self.details, self.file):
            below.addWidget(widget)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 6, 0, 8)
        layout.setSpacing(2)
        layout.addLayout(first)
        layout.addLayout(second)
        layout.addLayout(below)

    def _connect(self) -> None:
        self.switch.toggled.connect(self.switched)
        self.slider.valueChanged.connect(self._on_slider)
        self.slider.sliderReleased.connect(self.strength_settled)
        self.field.valueChanged.connect(self._on_field)
        self.more.clicked.connect(self.open_menu)
        self.handle.stepped.connect(self.stepped)
        for stop in self.stops():
            stop.installEventFilter(self)

    # --- showing --------------------------------------------------------------------------------

    def show_entry(
        self, entry: AdapterEntry, info: AdapterInfo | None, *, reading: bool, alone: bool
    ) -> None:
        """Show an entry without emitting signals; `alone` disables the drag handle."""
        self._entry, self._info = entry, info
        blockers = [QSignalBlocker(each) for each in (self.switch, self.slider, self.field)]
        self.switch.setChecked(entry.on)
        self.slider.set_strength(entry.strength)
        if self.field.value() != entry.strength:  # setting an equal value would discard typed text
            self.field.setValue(entry.strength)
        del blockers
        self.slider.set_acting(entry.acts)
        self.switch.update()
        self.slider.update()
        self.name.setText(entry.name)
        self.name.setToolTip(str(entry.path))
        set_property(self.name, "tone", "" if entry.acts else "secondary")
        self.handle.setEnabled(not alone)
        shown = explain(entry.fault, entry.path.name, entry.error, entry.remedy)
        problem = shown.text
        if problem and problem != self.problem.text():
            accessibility.announce(self, problem)
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))
        facts = tr("Reading the file…") if reading else details_of(info)
        self.details.setText(shown.detail or facts)
        self._name_parts(entry, problem)

    def _name_parts(self, entry: AdapterEntry, problem: str) -> None:
        """Set the accessible names and descriptions of the controls."""
        name = entry.name
        self.setAccessibleName(name)
        self.switch.setAccessibleName(name)
        self.switch.setAccessibleDescription(problem)
        self.slider.setAccessibleName(tr("Strength of {name}", name=name))
        self.field.setAccessibleName(tr("Strength of {name}", name=name))
        self.handle.setAccessibleName(tr("Move {name}", name=name))
        self.handle.setAccessibleDescription(tr("Move with Alt+Up and Alt+Down"))
        self.more.setAccessibleName(tr("More about {name}", name=name))

    def stops(self) -> tuple[QWidget, ...]:
        """The tab stops in order."""
        return (self.handle, self.switch, self.more, self.slider, self.field)

    def open_menu(self) -> None:
        """Open the menu of further actions; does not block."""
        menu = new_menu(self)
        shown = not self.details.isHidden()
        words = tr("Hide details") if shown else tr("Details")
        menu.addAction(words, self.hide_details if shown else self.open_details)
        menu.addAction(tr("Show in folder"), self._show_in_folder)
        menu.addSeparator()
        up = menu.addAction(tr("Move up"), lambda: self.stepped.emit(-1))
        down = menu.addAction(tr("Move down"), lambda: self.stepped.emit(1))
        for action in (up, down):
            action.setEnabled(self.handle.isEnabled())
        menu.addSeparator()
        menu.addAction(tr("Remove"), self.removed.emit)
        popup_below(menu, self.more)

    def open_details(self) -> None:
        """Show the file details below the strength."""
        self._show_details(shown=True)

    def hide_details(self) -> None:
        """Hide the file details."""
        self._show_details(shown=False)

    # --- steps ----------------------------------------------------------------------------------

    def _show_details(self, *, shown: bool) -> None:
        self.details.setVisible(shown)
        self.file.setVisible(shown)
        self.file.setText(str(self.path))
        self.file.setToolTip(str(self.path))

    def _show_in_folder(self) -> None:
        show_in_folder(self.path)

    def _on_slider(self) -> None:
        strength = self.slider.strength
        with QSignalBlocker(self.field):
            self.field.setValue(strength)
        self.strength_changed.emit(strength)
        if not self.slider.isSliderDown():
            self.strength_settled.emit()

    def _on_field(self, strength: float) -> None:
        with QSignalBlocker(self.slider):
            self.slider.set_strength(strength)
        self.slider.update()
        self.strength_changed.emit(strength)
        self.strength_settled.emit()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Move the row on Alt+Up and Alt+Down before the focused control handles those keys."""
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
            if step and event.modifiers() & Qt.KeyboardModifier.AltModifier:
                self.stepped.emit(step)
                return True
        return super().eventFilter(watched, event)


def details_of(info: AdapterInfo | None) -> str:
    """One line on a loaded adapter: kind, rank, number of adapted matrices and size."""
    if info is None:
        return tr("Not loaded yet")
    matrices = trn("{count} matrix", "{count} matrices", info.targets)
    rank = tr("rank {rank}", rank=info.rank)
    return " · ".join((info.kind, rank, matrices, size(info.size_bytes)))
