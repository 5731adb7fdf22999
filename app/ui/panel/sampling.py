"""Sampling section of the panel: a row for each value, the less usual ones on request."""

from __future__ import annotations

from PySide6.QtCore import Qt

from app.domain.chat_settings import ChatSettings
from app.engines.capabilities import Capabilities
from app.settings.samplers import FIRST, SAMPLERS, is_whole, usual_value
from app.state.chat_settings import ShownSettings
from app.system.translation import tr
from app.ui.panel.section import Section
from app.ui.settings.fields import NumberField
from app.ui.settings.row import PreferenceRow
from app.ui.widgets.controls import TextButton, align_text_at_start


class SamplingSection(Section):
    """Rows whose default is the value by the settings and the model, or is the server's own."""

    def __init__(self) -> None:
        super().__init__("sampling")
        self._shown = ShownSettings()
        self.rows = {name: self._row(name) for name in SAMPLERS}
        self.body.setSpacing(0)
        for name in sorted(self.rows, key=lambda name: name not in FIRST):  # the others below
            self.body.addWidget(self.rows[name])
        self.more_button = TextButton(tr("More values"), "link")
        align_text_at_start(self.more_button)
        self.body.addWidget(self.more_button, 0, Qt.AlignmentFlag.AlignLeading)
        self._has_more = False
        self.more_button.clicked.connect(self._toggle_more)

    def _row(self, name: str) -> PreferenceRow:
        setting, usual = SAMPLERS[name], usual_value(self._shown.usual, name)
        default = str(usual) if setting.choices else usual
        row = PreferenceRow(name, setting, default, is_compact=True)
        row.changed.connect(self._on_value)
        return row

    def show_settings(self, shown: ShownSettings) -> None:
        """Show the values of the chat."""
        self._shown = shown
        for name, row in self.rows.items():
            usual = self._usual(name)
            value = shown.settings.sampling.get(name, usual)
            chosen = bool(SAMPLERS[name].choices)
            if isinstance(row.field, NumberField):
                row.field.offer_none(tr("By the server") if usual is None else "")
            row.set_default(str(usual) if chosen else usual)
            row.show_value(str(value) if chosen else value)
        self._show_more()

    def show_capabilities(self, capabilities: Capabilities) -> None:
        """Grey the values that the engine does not use, with the reason."""
        for name, row in self.rows.items():
            row.show_reason(capabilities.sampler_reason(name))

    def finish(self) -> None:
        """Commit what is typed."""
        for row in self.rows.values():
            row.finish()

    # --- steps ----------------------------------------------------------------------------------

    def _usual(self, name: str) -> float | None:
        """The value where the chat has none; None: only the server of its model knows."""
        unknown = name in self._shown.unknown_usual and not SAMPLERS[name].choices
        return None if unknown else usual_value(self._shown.usual, name)

    def _on_value(self, name: str, value: object) -> None:
        number = None if value is None else float(str(value))
        kept = None if number is None or number == self._usual(name) else number
        kept = int(kept) if kept is not None and is_whole(name) else kept
        changed: ChatSettings = self._shown.settings.with_value(name, kept)
        self.edit(sampling=changed.sampling)

    def _toggle_more(self) -> None:
        self._has_more = not self._has_more
        self._show_more()

    def _show_more(self) -> None:
        changed = self._shown.settings.sampling
        for name, row in self.rows.items():
            row.setVisible(self._has_more or name in FIRST or name in changed)
        self.more_button.setText(tr("Fewer values") if self._has_more else tr("More values"))
