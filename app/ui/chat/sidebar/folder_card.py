"""Card with the settings of a folder: its name, and what its chats begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtGui import QFont, QHideEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QMenu, QVBoxLayout, QWidget

from app.domain.chat import Folder, Preset
from app.state.chat import State
from app.state.presets import PresetState
from app.system.translation import tr
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import BODY, READING, SMALL, font
from app.ui.widgets.controls import IconButton, TextButton, icon_after_text, label, set_margins
from app.ui.widgets.menus import new_menu, popup_below
from app.ui.widgets.plain_text import PlainTextField
from app.ui.widgets.popover import Popover

_CARD_WIDTH = 460
_MAX_LENGTH = 200  # of the name
_SAVE_MILLISECONDS = 600  # after the last key
_LINES = 6


class FolderCard(QWidget):
    """Edits one folder; what is typed is emitted soon after, and when the card is closed."""

    changed = Signal(object)  # Folder

    def __init__(self) -> None:
        super().__init__()
        self._folder: Folder | None = None
        self.close_button = IconButton("close", tr("Close"))
        self.name = QLineEdit(maxLength=_MAX_LENGTH)
        self.name.setAccessibleName(tr("Name of the folder"))
        self.name.setFont(font(BODY))
        self.instructions = PlainTextField()
        self.instructions.setAccessibleName(tr("Instructions"))
        self.instructions.setFont(font(BODY))
        self.instructions.setTabChangesFocus(True)
        lines = self.instructions.fontMetrics().lineSpacing() * _LINES
        self.instructions.setFixedHeight(lines + 20)
        self.instructions.setPlaceholderText(tr("As for other chats"))
        self._presets: Sequence[Preset] = ()
        self.preset_button = TextButton("", "outlined", "chevron_down")
        icon_after_text(self.preset_button)
        self.preset_button.clicked.connect(self._open_presets)
        self._timer = QTimer(self, singleShot=True, interval=_SAVE_MILLISECONDS)
        self._timer.timeout.connect(self.flush)
        self.name.textEdited.connect(lambda: self._timer.start())
        self.name.returnPressed.connect(self.flush)
        self.instructions.textChanged.connect(lambda: self._timer.start())
        self.setFocusProxy(self.name)
        self._lay_out()
        self.set_presets(())
        follow_palette(self._recolor)

    def _lay_out(self) -> None:
        title = label(tr("Folder"), "", READING)
        title.setFont(font(READING, QFont.Weight.Medium))
        head = QHBoxLayout()
        head.addWidget(title, 1)
        head.addWidget(self.close_button)
        hint = label(
            tr("For chats in this folder that have none of their own."),
            "secondary",
            SMALL,
            wraps=True,
        )
        self._preset_words = label(tr("New chats begin with"))
        layout = QVBoxLayout(self)
        set_margins(layout, 24, 16, 16, 24)
        layout.setSpacing(8)
        layout.addLayout(head)
        for part in (
            label(tr("Name")),
            self.name,
            label(tr("Instructions")),
            self.instructions,
            hint,
            self._preset_words,
        ):
            layout.addWidget(part)
        row = QHBoxLayout()  # an alignment would follow the direction of the button
        row.addWidget(self.preset_button)
        row.addStretch(1)
        layout.addLayout(row)

    def set_presets(self, presets: Sequence[Preset]) -> None:
        """Offer these presets; without any, the choice is not shown."""
        self._presets = presets
        self.preset_button.setVisible(bool(presets))
        self._preset_words.setVisible(bool(presets))
        self._show_preset()

    def show_folder(self, folder: Folder) -> None:
        """Edit another folder."""
        self.flush()
        self._folder = folder
        self.name.setText(folder.name)
        self.instructions.set_text(folder.instructions or "")
        self._show_preset()

    def flush(self) -> None:
        """Emit what was typed, if it changes something."""
        self._timer.stop()
        before = self._folder
        if before is None:
            return
        name, text = self.name.text().strip() or before.name, self.instructions.text()
        after = replace(before, name=name, instructions=text if text.strip() else None)
        if after != before:
            self._folder = after
            self.changed.emit(after)

    def _recolor(self, palette: Palette) -> None:
        line = 2 if palette.hairline == palette.text else 1  # high contrast
        self.instructions.setStyleSheet(
            f"QPlainTextEdit {{ background: {palette.surface}; border-radius: 6px; padding: 3px;"
            f" border: {line}px solid {palette.hairline}; }}"
            f"QPlainTextEdit:focus {{ border-color: {palette.accent}; }}"
        )

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.flush()

    def menu_of_presets(self) -> QMenu:
        """The menu of the presets that new chats can begin with."""
        menu = new_menu(self.window())
        chosen = self._folder.preset if self._folder else None
        for number, name in ((None, tr("No preset")), *((p.id, p.name) for p in self._presets)):
            words = name.replace("&", "&&")
            action = menu.addAction(words, partial(self._pick_preset, number))
            action.setCheckable(True)
            action.setChecked(number == chosen)
        return menu

    def _open_presets(self) -> None:
        popup_below(self.menu_of_presets(), self.preset_button)

    def _pick_preset(self, preset: int | None) -> None:
        self.flush()
        if self._folder is not None and preset != self._folder.preset:
            self._folder = replace(self._folder, preset=preset)
            self.changed.emit(self._folder)
        self._show_preset()

    def _show_preset(self) -> None:
        chosen = self._folder.preset if self._folder else None
        name = next((preset.name for preset in self._presets if preset.id == chosen), None)
        words = tr("No preset") if name is None else name
        self.preset_button.setText(words.replace("&", "&&"))
        self.preset_button.setAccessibleName(
            tr("{setting}: {value}", setting=tr("New chats begin with"), value=words)
        )


class FolderSettings(QObject):
    """The card in its window."""

    changed = Signal(object)  # Folder

    def __init__(self, state: State, presets: PresetState, window: QWidget) -> None:
        super().__init__(window)
        self._state, self._presets = state, presets
        self.content = FolderCard()
        self.card = Popover(window, self.content, _CARD_WIDTH, tr("Folder"))
        self.content.changed.connect(self.changed)
        self.content.close_button.clicked.connect(self.card.close_card)
        presets.changed.connect(self._show_presets)
        self._show_presets()

    def open(self, folder_id: int) -> None:
        """Open the settings of a folder."""
        folder = self._state.folder(folder_id)
        if folder is not None:
            self.content.show_folder(folder)
            self.card.open_centred()

    def _show_presets(self) -> None:
        self.content.set_presets(self._presets.presets)
