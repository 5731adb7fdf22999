"""Adapter panel: slides in from the right, docked beside the conversation or as an overlay.

`AdapterPanel` is only the spacer in the window's layout. The visible part is a `Sheet`, a direct
child of the window, so that it can overlap the conversation when the window is narrow.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QFont, QMoveEvent, QResizeEvent
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QFrame,
    QHBoxLayout,
    QMenu,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.state.adapters import AdapterEntry, AdapterState
from app.state.chat import ModelPhase, State
from app.system.translation import tr
from app.ui.adapters.list import AdapterList
from app.ui.adapters.mixes import Mixes
from app.ui.adapters.sheet import Sheet, sheet_style
from app.ui.theme import icons
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import READING, SMALL, font
from app.ui.widgets.controls import IconButton, TextButton, label, set_margins, set_property

PANEL_WIDTH = 320
_PAGE_WIDTH = 480  # pixels: the conversation's minimum width with the panel docked
_MAX_RECENT = 8  # files offered in the menu, most recently added first


class AdapterPanel(QWidget):
    """Shows the adapter stack and mixes of the state; emits the user's changes as signals."""

    opened = Signal()
    closed = Signal()
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

    def __init__(
        self, state: State, adapter_state: AdapterState, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._state = state
        self._adapters = adapter_state
        self._palette = LIGHT
        self._available: int | None = None
        self._focus_before: QWidget | None = None
        self.is_open = False
        self.setFixedWidth(0)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        self.sheet = Sheet(self)
        self.sheet.hide()
        self._make_parts()
        self._lay_out()
        self._connect()
        self.refresh()

    def _make_parts(self) -> None:
        # Created without parents: the layouts add them in visual order, which sets the Tab order.
        self.title = label(tr("Adapters"), "", READING)
        self.title.setFont(font(READING, QFont.Weight.Medium))
        self.close_button = IconButton("close", tr("Close the adapters"))
        self.list = AdapterList(self._adapters)
        self.picture = label("")
        self.picture.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.sentence = label(
            tr("Adapters (LoRA) change a model's style or add a skill."), "secondary"
        )
        self.sentence.setWordWrap(True)
        self.sentence.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.add_button = TextButton(tr("Add adapter"), "outlined", "plus")
        self.clear_button = TextButton(tr("Remove all"), "link")
        self.compare_button = TextButton(tr("Compare two answers…"), "link")
        self.mixes = Mixes(self._adapters)
        self.note = label("", "secondary", SMALL)
        self.note.setWordWrap(True)

    def _lay_out(self) -> None:
        head, buttons = QHBoxLayout(), QHBoxLayout()
        set_margins(head, 14, 12, 8, 8)
        head.addWidget(self.title, 1)
        head.addWidget(self.close_button)
        set_margins(buttons, 10, 8, 8, 0)
        self._before_add, self._after_add = QWidget(), QWidget()
        buttons.addWidget(self._before_add, 1)
        buttons.addWidget(self.add_button)
        buttons.addWidget(self._after_add, 1)
        buttons.addWidget(self.clear_button)
        content = QWidget()
        content.setObjectName("adapters_content")
        inner = QVBoxLayout(content)
        inner.setContentsMargins(4, 0, 4, 12)
        inner.setSpacing(0)
        inner.addStretch(1)
        inner.addWidget(self.picture)
        inner.addWidget(self.sentence)
        inner.addWidget(self.list)
        inner.addLayout(buttons)
        compare = QHBoxLayout()
        set_margins(compare, 5, 6, 8, 0)
        compare.addWidget(self.compare_button)
        compare.addStretch(1)
        inner.addLayout(compare)
        inner.addSpacing(20)
        inner.addWidget(self.mixes)
        inner.addStretch(2)
        self._inner = inner
        self.area = QScrollArea()
        self.area.setWidget(content)
        self.area.setWidgetResizable(True)
        self.area.setFrameShape(QFrame.Shape.NoFrame)
        self.area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        layout = QVBoxLayout(self.sheet)
        set_margins(layout, 1, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addWidget(self.area, 1)
        layout.addWidget(self.note)
        self.note.setContentsMargins(14, 8, 14, 12)
        self.sentence.setContentsMargins(24, 12, 24, 8)

    def _connect(self) -> None:
        adapters, rows = self._adapters, self.list
        self.close_button.clicked.connect(self.close_panel)
        self.sheet.dropped.connect(self.added)
        self.sheet.escaped.connect(self.close_panel)
        self.add_button.clicked.connect(self.open_menu)
        self.clear_button.clicked.connect(self.cleared)
        self.compare_button.clicked.connect(self.compare_requested)
        rows.switched.connect(self.switched)
        rows.strength_changed.connect(self.strength_changed)
        rows.strength_settled.connect(self.strength_settled)
        rows.moved.connect(self.moved)
        rows.removed.connect(self.removed)
        rows.reached.connect(self._reveal)
        rows.reordered.connect(self._order_tabs)
        self.mixes.saved.connect(self.mix_saved)
        self.mixes.chosen.connect(self.mix_chosen)
        self.mixes.deleted.connect(self.mix_deleted)
        self.mixes.changed.connect(self._order_tabs)
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

    # --- called by the window -------------------------------------------------------------------

    @property
    def stack(self) -> tuple[AdapterEntry, ...]:
        """The adapters of the shown conversation."""
        return self._adapters.stack

    @property
    def saved_mixes(self) -> Mapping[str, tuple[AdapterEntry, ...]]:
        """The saved mixes, by name."""
        return self._adapters.mixes

    def open(self) -> None:
        """Slide in and take the keyboard focus."""
        if self.is_open:
            return
        self.is_open = True
        self._focus_before = QApplication.focusWidget()
        self._reparent_sheet()
        self.sheet.show()
        self.sheet.raise_()
        self._update_docked_width()
        self.sheet.slide(
            self._closed_position(), self._open_position(), partial(self._finish_slide, hide=False)
        )
        self.sheet.setFocus(Qt.FocusReason.OtherFocusReason)
        self.opened.emit()

    def close_panel(self) -> None:
        """Slide out and restore the previous keyboard focus."""
        if not self.is_open:
            return
        self.is_open = False
        inside = self.sheet.isAncestorOf(QApplication.focusWidget() or self)
        focused = inside or self.sheet.hasFocus()
        before, self._focus_before = self._focus_before, None
        if focused and before is not None and before.isVisible():
            before.setFocus(Qt.FocusReason.OtherFocusReason)
        self.sheet.slide(
            self._open_position(), self._closed_position(), partial(self._finish_slide, hide=True)
        )
        self._update_docked_width()
        self.closed.emit()

    def toggle(self) -> None:
        """Open the panel if it is closed, else close it."""
        if self.is_open:
            self.close_panel()
        else:
            self.open()

    def set_available_width(self, width: int) -> None:
        """Set the width shared by the conversation and the panel, in pixels."""
        if width != self._available:
            self._available = width
            self._update_docked_width()

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self._palette = palette
        for part in (
            self.close_button,
            self.add_button,
            self.clear_button,
            self.list,
            self.mixes,
        ):
            part.apply_palette(palette)
        ratio = self.devicePixelRatioF()
        self.picture.setPixmap(icons.pixmap("leaf", palette.accent, 36, ratio))
        self.sheet.setStyleSheet(sheet_style(palette))

    def refresh(self) -> None:
        """Show the stack, the mixes and the note with the engine's error or pending changes."""
        stack, mixes = self._adapters.stack, self._adapters.mixes
        self.list.refresh()
        self.list.setVisible(bool(stack))
        self.picture.setVisible(not stack)
        self.sentence.setVisible(not stack)
        self._before_add.setVisible(not stack)
        self.clear_button.setVisible(len(stack) > 1)
        self.mixes.refresh()
        self.mixes.setVisible(bool(stack or mixes))
        self._inner.setStretch(0, 0 if stack else 1)
        self._show_compare()
        self._show_note()

    def open_menu(self) -> None:
        """Open the menu of recently added files and file choosers; does not block."""
        menu = QMenu(self.sheet)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
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
        menu.popup(self.add_button.mapToGlobal(self.add_button.rect().bottomLeft()))

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
        """Show the note at the foot of the panel, where its appearance shifts no other widget."""
        adapters = self._adapters
        fault = " ".join(adapters.fault).strip()
        words = fault
        if not words and self._state.model.phase is not ModelPhase.READY and adapters.stack:
            words = tr("Adapters take effect once a model is loaded.")
        elif not words and adapters.pending:
            words = tr("Takes effect with the next answer.")
        set_property(self.note, "tone", "danger" if fault else "secondary")
        self.note.setText(words)
        self.note.setVisible(bool(words))

    def _show_compare(self) -> None:
        """Offer the comparison where there is something to compare, and an answer to do it with."""
        messages = self._state.messages
        open_now = bool(messages) and messages[-1].undecided
        self.compare_button.setVisible(bool(self._adapters.stack and messages) and not open_now)
        self.compare_button.setEnabled(not self._state.busy)

    def _reveal(self, row: QWidget) -> None:
        self.area.ensureWidgetVisible(row, 0, 24)

    def _order_tabs(self) -> None:
        rows = [stop for row in self.list.rows for stop in row.stops()]
        stops = [
            self.close_button,
            *rows,
            self.add_button,
            self.clear_button,
            self.compare_button,
            *self.mixes.stops(),
        ]
        for before, after in pairwise(stops):
            QWidget.setTabOrder(before, after)

    # --- geometry -------------------------------------------------------------------------------

    def _reparent_sheet(self) -> None:
        window = self.window()
        if self.sheet.parentWidget() is not window:
            self.sheet.setParent(window)

    def _update_docked_width(self) -> None:
        """Reserve the panel's width in the layout if the window is wide enough, else none."""
        width = self.window().width() if self._available is None else self._available
        alone = self.window() is self
        docked = self.is_open and (alone or width >= PANEL_WIDTH + _PAGE_WIDTH)
        self.setFixedWidth(PANEL_WIDTH if docked else 0)
        parent = self.parentWidget()
        layout = parent.layout() if parent else None
        if layout is not None:
            layout.activate()
        self._place_sheet()

    def _open_position(self) -> QPoint:
        """The top-left corner of the open sheet, in window coordinates."""
        corner = self.mapTo(self.window(), QPoint(0, 0))
        mirrored = self.layoutDirection() is Qt.LayoutDirection.RightToLeft
        return corner if mirrored else corner + QPoint(self.width() - self.sheet.width(), 0)

    def _closed_position(self) -> QPoint:
        mirrored = self.layoutDirection() is Qt.LayoutDirection.RightToLeft
        away = -PANEL_WIDTH if mirrored else PANEL_WIDTH
        return self._open_position() + QPoint(away, 0)

    def _place_sheet(self) -> None:
        """Resize the sheet and move it, or its running animation, to the open position."""
        self.sheet.resize(min(PANEL_WIDTH, self.window().width()), self.height())
        if self.is_open:
            self.sheet.move_to(self._open_position())

    def _finish_slide(self, *, hide: bool) -> None:
        if hide:
            self.sheet.hide()
        else:
            self._place_sheet()

    def moveEvent(self, event: QMoveEvent) -> None:
        super().moveEvent(event)
        self._place_sheet()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_sheet()
