"""Card of one model's setting overrides: a field per setting, empty if the app's default applies.

While the context length or the KV cache type changes, the bar shows the predicted memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import (
    QButtonGroup,
    QGridLayout,
    QHBoxLayout,
    QLineEdit,
    QVBoxLayout,
    QWidget,
)

from app.settings.model_settings import AS_IN_SETTINGS, NUMBERS, ModelDefaults, fits
from app.settings.table import SETTINGS
from app.state.devices import device_name, prediction_words, refusal_words
from app.state.library import DefaultsView, LibraryState
from app.system.translation import number, sentences, tr
from app.ui.library.draft_button import DraftButton
from app.ui.library.words import memory_parts, predicted
from app.ui.theme.theme import BODY, SMALL, figures, font
from app.ui.widgets.controls import (
    Bar,
    ElidedLabel,
    IconButton,
    TextButton,
    label,
    set_margins,
    set_property,
)
from app.ui.widgets.units import typed_number
from engine import CacheType

CARD_WIDTH = 412
_DEBOUNCE_MILLISECONDS = 200
_FIELD_WIDTH = 132
_WHOLE = ("context", "top_k")
_PRECISIONS = (None, CacheType.Q8_0, CacheType.F16, CacheType.F32)


class ModelDefaultsCard(QWidget):
    """Shows `LibraryState.defaults`; emits the user's changes as signals."""

    changed = Signal(object)  # ModelDefaults
    closed = Signal()
    resized = Signal()  # the size hint changed

    def __init__(self, library: LibraryState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._library = library
        self._values = AS_IN_SETTINGS
        self._debounce = QTimer(self, singleShot=True, interval=_DEBOUNCE_MILLISECONDS)
        self._debounce.timeout.connect(self._commit)
        self.title = ElidedLabel(
            "", font(BODY, QFont.Weight.DemiBold), Qt.TextElideMode.ElideMiddle
        )
        self.close_button = IconButton("close", tr("Close"))
        self.close_button.clicked.connect(self.closed)
        self.fields: dict[str, QLineEdit] = {name: self._field(name) for name in NUMBERS}
        self.precisions = self._precision_buttons()
        self.devices = self._device_buttons()
        self.device_label = label(tr(SETTINGS["runs_on"].label))
        self.device_words = label("", "secondary", SMALL, wraps=True)
        self.draft = DraftButton()
        self.draft.picked.connect(self._choose_draft)
        self.memory_words = label("", "secondary", SMALL, wraps=True)
        self.memory_words.setFont(figures(SMALL))
        self.fit_words = label("", "secondary", SMALL)
        self.memory_parts = label("", "secondary", SMALL, wraps=True)
        self.bar = Bar()
        self.problem = label("", "warning", SMALL, wraps=True)
        self.hint = label(
            tr("Context and memory apply when the model is loaded."), "secondary", SMALL, wraps=True
        )
        self.reset = TextButton(tr("Reset to defaults"), "link")
        self.reset.setToolTip(tr("Use the app's settings for this model"))
        self.reset.clicked.connect(self._reset)
        self.setFocusProxy(self.fields["context"])
        self._lay_out()
        library.defaults_changed.connect(self.refresh)
        self.refresh()

    def _field(self, name: str) -> QLineEdit:
        row = SETTINGS[name]
        field = QLineEdit()
        field.setFixedWidth(_FIELD_WIDTH)
        field.setFont(figures(BODY))
        field.setAccessibleName(tr(row.label))
        field.setAccessibleDescription(tr(row.help))
        field.setToolTip(tr(row.help))
        field.textEdited.connect(lambda: self._debounce.start())
        field.editingFinished.connect(self._commit)
        return field

    def _precision_buttons(self) -> dict[CacheType | None, TextButton]:
        group = QButtonGroup(self)
        made: dict[CacheType | None, TextButton] = {}
        for kind in _PRECISIONS:
            words, tip = _precision_words(kind)
            button = TextButton(words, "quiet")
            button.setFont(font(SMALL))
            button.setCheckable(True)
            button.setToolTip(tip)
            button.setAccessibleName(
                tr("{setting}: {value}", setting=tr(SETTINGS["cache"].label), value=words)
            )
            button.clicked.connect(lambda _checked=False, each=kind: self._choose(each))
            group.addButton(button)
            made[kind] = button
        return made

    def _device_buttons(self) -> dict[str | None, TextButton]:
        setting, group = SETTINGS["runs_on"], QButtonGroup(self)
        texts = dict(zip(setting.choices, setting.words, strict=True))
        made: dict[str | None, TextButton] = {}
        for choice in (None, *setting.choices):
            words = tr("Default") if choice is None else tr(texts[choice])
            button = TextButton(words, "quiet")
            button.setFont(font(SMALL))
            button.setCheckable(True)
            button.setAccessibleName(
                tr("{setting}: {value}", setting=tr(setting.label), value=words)
            )
            button.clicked.connect(lambda _checked=False, each=choice: self._choose_device(each))
            group.addButton(button)
            made[choice] = button
        made[None].setToolTip(tr("As in the app's settings"))
        made["split"].setToolTip(tr(setting.exact))
        return made

    def _lay_out(self) -> None:
        head = QHBoxLayout()
        head.addWidget(self.title, 1)
        head.addWidget(self.close_button)
        grid = QGridLayout()
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(0, 1)
        for place, (name, field) in enumerate(self.fields.items()):
            setting = SETTINGS[name]
            words = label(tr(setting.label))
            if name == "memory_gb":  # others are in tokens
                text = tr("{setting} ({unit})", setting=words.text(), unit=tr(setting.unit))
                words.setText(text)
            words.setBuddy(field)
            words.setToolTip(tr(SETTINGS[name].help))
            grid.addWidget(words, place, 0)
            grid.addWidget(field, place, 1)
        memory = QHBoxLayout()
        memory.addWidget(self.memory_words, 1)
        memory.addWidget(self.fit_words)
        foot = QHBoxLayout()
        foot.addWidget(self.hint, 1)
        foot.addWidget(self.reset)
        layout = QVBoxLayout(self)
        set_margins(layout, 16, 12, 12, 12)
        layout.setSpacing(8)
        layout.addLayout(head)
        layout.addLayout(grid)
        cache = label(tr(SETTINGS["cache"].label))
        cache.setToolTip(tr(SETTINGS["cache"].help))
        layout.addWidget(cache)
        layout.addLayout(_in_lines(self.precisions.values()))
        layout.addWidget(self.device_label)
        layout.addLayout(_in_lines(self.devices.values()))
        layout.addWidget(self.device_words)
        drafting = QHBoxLayout()
        drafting.addWidget(self.draft.words, 1)
        drafting.addWidget(self.draft)
        layout.addLayout(drafting)
        layout.addLayout(memory)
        layout.addWidget(self.bar)
        layout.addWidget(self.memory_parts)
        layout.addWidget(self.problem)
        layout.addLayout(foot)

    # --- showing --------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Show the overrides of the state; unfinished typing is kept."""
        view = self._library.defaults
        if view is None:
            self._debounce.stop()
            return
        self._values = view.values
        self.title.setText(view.name)
        for name, field in self.fields.items():
            self._show_field(name, field, view)
        for kind, button in self.precisions.items():
            button.setChecked(kind is view.values.cache)
            set_property(button, "open", kind is view.values.cache)
        self._show_devices(view)
        self.draft.show_choice(view.drafts, view.values.draft)
        self.reset.setEnabled(view.values != AS_IN_SETTINGS)
        self._show_memory(view)
        self.resized.emit()

    def _show_field(self, name: str, field: QLineEdit, view: DefaultsView) -> None:
        standard = getattr(view.settings, name)
        named = SETTINGS[name].named
        if named is not None and standard == named[0]:
            field.setPlaceholderText(tr(named[1]))
        else:
            field.setPlaceholderText(_field_text(name, standard))
        text = _field_text(name, getattr(view.values, name))
        if not self._debounce.isActive() and self._parsed(name) != getattr(view.values, name):
            field.setText(text)
            self._validate(name)

    def _show_devices(self, view: DefaultsView) -> None:
        """Offer the devices there are; without any beside the processor there is no choice."""
        known = self._library.devices
        usable = [one for one in known if one.refusal is None]
        for part in (self.device_label, self.device_words, *self.devices.values()):
            part.setVisible(bool(known))
        refused = next((one.refusal for one in known if one.refusal is not None), None)
        for choice, button in self.devices.items():
            button.setChecked(choice == view.values.runs_on)
            set_property(button, "open", choice == view.values.runs_on)
            if choice in ("gpu", "split"):
                button.setEnabled(bool(usable))
                button.setVisible(bool(known) and (bool(usable) or button.isChecked()))
                if refused is not None and not usable:
                    button.setToolTip(refusal_words(refused))
        if usable:
            self.devices["gpu"].setToolTip(device_name(usable[0]))
        self.device_words.setText(prediction_words(view.runs_on, view.speedup, view.moved))

    def _show_memory(self, view: DefaultsView) -> None:
        meter = predicted(view.memory)
        for part in (self.memory_words, self.fit_words, self.memory_parts, self.bar):
            part.setVisible(meter is not None)
        if meter is not None and view.memory is not None:
            tokens = number(view.memory.context) if view.memory.context else ""
            self.memory_words.setText(
                tr("{memory}, {count} tokens", memory=meter.words, count=tokens)
                if tokens
                else meter.words
            )
            self.memory_words.setToolTip(meter.tip)
            self.fit_words.setText(meter.under)
            self.memory_parts.setText(memory_parts(view.memory))
            self.memory_parts.setVisible(bool(self.memory_parts.text()))
            set_property(self.fit_words, "tone", meter.tone)
            self.bar.set_share(meter.share)
        self.problem.setText(view.problem)
        self.problem.setVisible(bool(view.problem))

    # --- changing -------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Emit the typed values that are valid."""
        self._debounce.stop()
        values = self._values
        for name in self.fields:
            if self._validate(name):
                values = replace(values, **{name: self._parsed(name)})
        self._emit_change(values)

    def _choose(self, kind: CacheType | None) -> None:
        self._emit_change(replace(self._values, cache=kind))

    def _choose_device(self, choice: str | None) -> None:
        self._emit_change(replace(self._values, runs_on=choice))

    def _choose_draft(self, path: Path | None) -> None:
        self._emit_change(replace(self._values, draft=path))

    def _reset(self) -> None:
        for field in self.fields.values():
            field.clear()
        self._emit_change(AS_IN_SETTINGS)

    def _emit_change(self, values: ModelDefaults) -> None:
        if values != self._values:
            self._values = values
            self.changed.emit(values)

    def _validate(self, name: str) -> bool:
        """Whether a field is empty or valid; marks it as an error otherwise."""
        field, row = self.fields[name], SETTINGS[name]
        good = not field.text().strip() or self._parsed(name) is not None
        set_property(field, "wrong", not good)
        low, high = _field_text(name, row.low), _field_text(name, row.high)
        range_text = tr("Enter a number from {low} to {high}.", low=low, high=high)
        field.setToolTip(tr(row.help) if good else sentences(range_text, tr(row.help)))
        return good

    def _parsed(self, name: str) -> float | int | None:
        """The number in a field; None if it is empty, not a number or out of range."""
        value = typed_number(self.fields[name].text())
        if value is None or (name in _WHOLE and not value.is_integer()):
            return None
        value = int(value) if name in _WHOLE else value
        return value if fits(name, value) else None


def _in_lines(buttons: Iterable[QWidget]) -> QVBoxLayout:
    """The buttons side by side, on as many lines as they need."""
    lines, line, room = QVBoxLayout(), QHBoxLayout(), 0
    lines.setSpacing(2)
    for button in buttons:
        button.ensurePolished()
        wide = button.sizeHint().width() + 2
        if wide > room:
            line = QHBoxLayout()
            line.setSpacing(2)
            line.addStretch(1)
            lines.addLayout(line)
            room = CARD_WIDTH - 28
        line.insertWidget(line.count() - 1, button)
        room -= wide
    return lines


def _precision_words(kind: CacheType | None) -> tuple[str, str]:
    """The text and the tooltip of a button for the KV cache type, as in the settings."""
    setting = SETTINGS["cache"]
    texts = dict(zip(setting.choices, setting.words, strict=True))
    match kind:
        case None:
            return tr("Default"), tr("As in the app's settings")
        case CacheType.F32:
            return tr("Full (32-bit)"), tr("Exact, in twice the memory of 16-bit")
        case CacheType.F16:
            return tr(texts[kind.value]), tr("As good as 32-bit, in half its memory")
        case CacheType.Q8_0:
            return tr(texts[kind.value]), tr("Nearly as good as 16-bit, in half its memory")


def _field_text(name: str, value: float | None) -> str:
    """The text of a value in its field."""
    if value is None:
        return ""
    return number(value)
