"""The controls of one of two answers: model, adapters, numbers of the sampler, and thinking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QWidget

from app.domain.generation_settings import GenerationSettings, UsedAdapter
from app.engines.capabilities import Capabilities
from app.settings.table import SETTINGS
from app.system.translation import tr
from app.ui.adapters.strength_slider import StrengthField
from app.ui.comparison.values import Mixes, Models, mix_name
from app.ui.settings.fields import NumberField, Segments
from app.ui.widgets.controls import TextButton, icon_after_text
from app.ui.widgets.menus import new_menu, popup_below
from app.ui.widgets.switch import Switch
from engine import Sampling

_NUMBERS = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty")
_THINKING = {"auto": None, "on": True, "off": False}
_FIELD_WIDTH = 92
COLUMN_WIDTH = 168


class AdapterControls(QWidget):
    """Switch and strength of one adapter."""

    changed = Signal()

    def __init__(self, entry: UsedAdapter, column: str) -> None:
        super().__init__()
        self._entry = entry
        self.switch = Switch()
        self.switch.setChecked(entry.on)
        self.field = StrengthField()
        self.field.setValue(entry.strength)
        self.switch.setAccessibleName(tr("{column}: {name}", column=column, name=entry.name))
        strength = tr("Strength of {name}", name=entry.name)
        self.field.setAccessibleName(tr("{column}: {name}", column=column, name=strength))
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.switch)
        layout.addWidget(self.field)
        self.switch.toggled.connect(self._on_switch)
        self.field.valueChanged.connect(self.changed)
        self.field.setEnabled(entry.on)

    def entry(self) -> UsedAdapter:
        """The adapter as it is chosen now."""
        return replace(self._entry, on=self.switch.isChecked(), strength=self.field.value())

    def _on_switch(self, on: bool) -> None:
        self.field.setEnabled(on)
        self.changed.emit()


class MenuButton(TextButton):
    """Opens a menu of choices; shows the name of the chosen one."""

    picked = Signal(object)  # the value of a choice

    def __init__(
        self, choices: Sequence[tuple[object, str]], column: str, what: str, none: str
    ) -> None:
        """`choices` are values and their names, `none` is shown while none of them is chosen."""
        super().__init__("", "outlined", "chevron_down")
        self._choices, self._none = choices, none
        self._spoken = tr("{column}: {name}", column=column, name=what)
        self._current: object = None
        icon_after_text(self)
        self.setFixedWidth(COLUMN_WIDTH)
        self.clicked.connect(self._open)

    def show_choice(self, value: object) -> None:
        """Show which choice is chosen, if any."""
        self._current = value
        name = next((name for each, name in self._choices if each == value), "")
        self.setText(_short(self, name or self._none, COLUMN_WIDTH - 52))
        words = tr("{setting}: {value}", setting=self._spoken, value=name or self._none)
        self.setAccessibleName(words)
        self.setToolTip(name)

    def menu_of_choices(self) -> QMenu:
        """The menu that a click opens."""
        menu = new_menu(self.window())
        for value, name in self._choices:
            action = menu.addAction(_short(menu, name, 240), partial(self.picked.emit, value))
            action.setCheckable(True)
            action.setChecked(value == self._current)
        return menu

    def _open(self) -> None:
        popup_below(self.menu_of_choices(), self)


class ChoiceColumn(QObject):
    """Creates the controls of one answer; the card places them."""

    changed = Signal()

    def __init__(
        self, choice: GenerationSettings, name: str, mixes: Mixes, models: Models, *, thinks: bool
    ) -> None:
        """`name` tells the two columns apart for a screen reader; `thinks`: offer thinking."""
        super().__init__()
        self._choice, self._mixes = choice, mixes
        saved = [(mix, mix) for mix in mixes]
        self.mix = MenuButton(saved, name, tr("Mix"), tr("Choose a mix")) if mixes else None
        self.model = None
        if len(models) > 1:
            self.model = MenuButton(models, name, tr("Model"), choice.model_name)
            self.model.show_choice(choice.model)
        self.adapters = [AdapterControls(entry, name) for entry in choice.adapters or ()]
        for each in self.adapters:
            each.changed.connect(self.changed)
        self.numbers: dict[str, NumberField] = {key: self._number(key, name) for key in _NUMBERS}
        self.thinking = self._segments(name) if thinks else None
        if self.mix is not None:
            self._show_mix(self.mix)
            self.changed.connect(partial(self._show_mix, self.mix))

    def choice(self) -> GenerationSettings:
        """What is chosen now."""
        entries = tuple(each.entry() for each in self.adapters)
        return replace(self._choice, adapters=entries)

    def show_capabilities(self, capabilities: Capabilities) -> bool:
        """Grey what the engine of its model does not use; returns whether that is anything."""
        reasons: list[tuple[QWidget, str]] = [
            (field.line, capabilities.sampler_reason(key)) for key, field in self.numbers.items()
        ]
        reasons += [(each, capabilities.reason("adapters")) for each in self.adapters]
        if self.thinking is not None:
            reasons.append((self.thinking, capabilities.reason("thinking")))
        for widget, reason in reasons:
            if reason:
                widget.setEnabled(False)
                widget.setToolTip(reason)
        return any(reason for _, reason in reasons)

    def _show_mix(self, button: MenuButton) -> None:
        button.show_choice(mix_name(self.choice().adapters or (), self._mixes))

    def _segments(self, column: str) -> Segments:
        # What the settings demand is not left to the template here: an answer cannot undo it.
        thinking, setting = self._choice.thinking, SETTINGS["thinking"]
        words = {"auto": tr("Auto"), "on": tr("On"), "off": tr("Off")}
        offered = [key for key, value in _THINKING.items() if value is not None or thinking is None]
        made = Segments(
            replace(setting, choices=tuple(offered), words=tuple(words[key] for key in offered))
        )
        for key, button in made.buttons.items():
            name = tr("{column}: {name}", column=column, name=tr(setting.label))
            button.setAccessibleName(tr("{setting}: {value}", setting=name, value=words[key]))
        made.show_value(next(key for key, value in _THINKING.items() if value is thinking))
        made.picked.connect(self._pick_thinking)
        return made

    def _number(self, key: str, column: str) -> NumberField:
        value = getattr(self._choice.sampling or Sampling(), key)
        setting = SETTINGS[key]
        field = NumberField(setting, whole=isinstance(value, int))
        words = tr("{column}: {name}", column=column, name=tr(setting.label))
        field.line.setAccessibleName(words)
        field.line.setFixedWidth(_FIELD_WIDTH)
        field.show_value(value)

        def pick(picked: object) -> None:
            sampling = replace(self._choice.sampling or Sampling(), **{key: picked})
            self._choice = replace(self._choice, sampling=sampling)
            self.changed.emit()

        field.picked.connect(pick)
        return field

    def _pick_thinking(self, value: object) -> None:
        self._choice = replace(self._choice, thinking=_THINKING[str(value)])
        self.changed.emit()


def _short(widget: QWidget, name: str, width: int) -> str:
    """A name that is cut to a width in pixels, as the text of a button or a menu."""
    cut = widget.fontMetrics().elidedText(name, Qt.TextElideMode.ElideMiddle, width)
    return cut.replace("&", "&&")
