"""Editor of a preset: its texts, the parts of the settings that it has, and where it is used."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.domain.chat import Preset
from app.domain.chat_settings import PARTS
from app.settings.table import Setting
from app.state.presets import PresetState
from app.system.translation import tr, trn
from app.ui.chat.composer.settings_words import part_name
from app.ui.presets.words import part_words
from app.ui.settings.fields import LineField, TextField
from app.ui.settings.row import PreferenceRow
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.controls import TextButton, label
from app.ui.widgets.switch_row import SwitchRow

_NARROW = 460  # pixels: in a narrower editor fields are below their names
_INSTRUCTIONS = "instructions"


class PresetEditor(QWidget):
    """Shows one preset of the state; emits it as the user changes it."""

    changed = Signal(object)  # Preset
    taken = Signal(object)  # id: give it the settings of the shown chat
    new_chat_chosen = Signal(object)  # id, or 0: new chats begin with it
    model_chosen = Signal(object, object)  # path of a model, id or None

    def __init__(self, state: PresetState) -> None:
        super().__init__()
        self._state = state
        self._preset: Preset | None = None
        self.texts = {
            "name": PreferenceRow("name", Setting(tr("Name")), ""),
            "description": PreferenceRow("description", Setting(tr("Description")), ""),
            _INSTRUCTIONS: PreferenceRow(
                _INSTRUCTIONS,
                Setting(
                    tr("Instructions"),
                    tr(
                        "Given to the model at the start of the chat. {names} are replaced when "
                        "it begins.",
                        names="{{date}}, {{time}}, {{language}}",
                    ),
                    lines=8,
                ),
                "",
            ),
            "greeting": PreferenceRow(
                "greeting",
                Setting(
                    tr("Greeting"), tr("The first message of a new chat, by the model."), lines=3
                ),
                "",
            ),
        }
        self.others = label("", "secondary", SMALL)
        self.parts = {part: SwitchRow(part_name(part)) for part in PARTS}
        self.take_button = TextButton(tr("Take the settings of this chat"), "outlined")
        self.new_chat = SwitchRow(tr("New chats begin with it"))
        self.model = SwitchRow("")
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 12)
        layout.setSpacing(0)
        for row in self.texts.values():
            layout.addWidget(row)
        layout.addWidget(self.others)
        layout.addSpacing(12)
        layout.addWidget(_heading(tr("What it sets")))
        hint = label(tr("What is off stays as it is in the chat."), "secondary", SMALL, wraps=True)
        layout.addWidget(hint)
        for row in self.parts.values():
            layout.addWidget(row)
        layout.addSpacing(4)
        layout.addWidget(self.take_button, 0, Qt.AlignmentFlag.AlignLeading)
        layout.addSpacing(20)
        layout.addWidget(_heading(tr("New chats")))
        layout.addWidget(self.new_chat)
        layout.addWidget(self.model)
        layout.addStretch(1)

    def _connect(self) -> None:
        for row in self.texts.values():
            row.changed.connect(self._on_text)
        for part, row in self.parts.items():
            row.switched.connect(partial(self._on_part, part))
        self.take_button.clicked.connect(self._take)
        self.new_chat.switched.connect(self._on_new_chat)
        self.model.switched.connect(self._on_model)
        self._state.changed.connect(self.refresh)
        self._state.use_changed.connect(self.refresh)

    # --- called by the page ---------------------------------------------------------------------

    @property
    def shown(self) -> int | None:
        """The id of the shown preset."""
        return None if self._preset is None else self._preset.id

    def show_preset(self, id: int) -> None:
        """Show a preset; what was typed into the one before is emitted first."""
        self.finish()
        self._preset = self._state.preset(id)
        for row in self.texts.values():
            row.restore()
        self.refresh()

    def focus_name(self) -> None:
        """Select the name, so that typing replaces it."""
        field = self.texts["name"].field
        assert isinstance(field, LineField)
        field.line.setFocus()
        field.line.selectAll()

    def finish(self) -> None:
        """Emit what is typed but not committed."""
        for row in self.texts.values():
            if isinstance(row.field, LineField | TextField):
                row.field.finish()

    def refresh(self) -> None:
        """Show the preset as it is in the state now."""
        if self._preset is None or (found := self._state.preset(self._preset.id)) is None:
            return
        self._preset = preset = found
        values = {
            "name": preset.name,
            "description": preset.description,
            _INSTRUCTIONS: preset.settings.instructions or "",
            "greeting": preset.greeting,
        }
        for name, row in self.texts.items():
            row.set_default(values[name])  # nothing to reset
            row.show_value(values[name])
        count = len(preset.greetings)
        others = trn(
            "It has {count} other greeting, a version of the first message.",
            "It has {count} other greetings, versions of the first message.",
            count,
        )
        self.others.setText(others)
        self.others.setVisible(count > 0)
        for part, row in self.parts.items():
            on = part in preset.parts
            words = part_words(part, preset.settings) if on and part != _INSTRUCTIONS else ""
            row.show_state(part_name(part), words, on=on)
        use = self._state.use
        self.new_chat.show_state(tr("New chats begin with it"), "", on=use.new_chat == preset.id)
        self.model.setVisible(use.model_path is not None)
        name = tr("New chats with {model} begin with it", model=use.model_name)
        words = tr("It comes before the preset of all new chats.")
        self.model.show_state(name, words, on=use.model == preset.id)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for row in self.texts.values():
            row.set_narrow(self.width() < _NARROW)

    # --- steps ----------------------------------------------------------------------------------

    def _on_text(self, name: str, value: object) -> None:
        preset, text = self._preset, str(value)
        if preset is None:
            return
        if name != _INSTRUCTIONS:
            changed = replace(preset, **{name: text})
        else:
            settings = replace(preset.settings, instructions=text or None)
            parts = preset.parts | {_INSTRUCTIONS} if text else preset.parts
            changed = replace(preset, settings=settings, parts=parts)
        self._emit(changed)

    def _on_part(self, part: str, on: bool) -> None:
        if self._preset is not None:
            parts = self._preset.parts | {part} if on else self._preset.parts - {part}
            self._emit(replace(self._preset, parts=parts))

    def _emit(self, changed: Preset) -> None:
        self._preset = changed
        self.changed.emit(changed)
        self.refresh()

    def _take(self) -> None:
        if self._preset is not None:
            self.finish()
            self.taken.emit(self._preset.id)

    def _on_new_chat(self, on: bool) -> None:
        self.new_chat_chosen.emit(self.shown if on else 0)

    def _on_model(self, on: bool) -> None:
        self.model_chosen.emit(self._state.use.model_path, self.shown if on else None)


def _heading(words: str) -> QWidget:
    heading = label(words, "", BODY)
    heading.setFont(font(BODY, QFont.Weight.DemiBold))
    return heading
