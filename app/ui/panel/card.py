"""Card with the answer options of the shown chat: what answers have to be, and their sampling."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from app.domain.chat_settings import NO_SETTINGS, ChatSettings
from app.settings.samplers import (
    FIRST,
    SAMPLERS,
    THINKING,
    USUAL_BUDGET,
    Thinking,
    is_whole,
    usual_value,
)
from app.state.chat_settings import ChatSettingsState
from app.system.translation import tr
from app.ui.panel.format_field import FormatField
from app.ui.settings.fields import segments_style
from app.ui.settings.row import PreferenceRow
from app.ui.theme.palette import Palette
from app.ui.theme.theme import READING, SMALL, font
from app.ui.widgets.controls import IconButton, TextButton, align_text_at_start, label, set_margins

CARD_WIDTH = 540
_NARROW = 460  # pixels: in a narrower card fields are below their names


class _Area(QScrollArea):
    """Scroll area that wants to be as high as its content."""

    def __init__(self, content: QWidget) -> None:
        super().__init__()
        self.setWidgetResizable(True)
        self.setFrameShape(QScrollArea.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setWidget(content)

    def sizeHint(self) -> QSize:
        content = self.widget()
        return super().sizeHint() if content is None else content.sizeHint()


class OptionsCard(QWidget):
    """Shows `ChatSettingsState`; emits the options that the user changes."""

    changed = Signal(object)  # ChatSettings
    closed = Signal()
    resized = Signal()  # the size hint has changed

    def __init__(self, state: ChatSettingsState) -> None:
        super().__init__()
        self._state = state
        self.title = label(tr("Answers in this chat"), "", READING)
        self.title.setFont(font(READING, QFont.Weight.Medium))
        self.close_button = IconButton("close", tr("Close"))
        self.format = FormatField()
        self.thinking = PreferenceRow("thinking", THINKING["thinking"], Thinking.USUAL.value)
        self.budget = PreferenceRow("thinking_budget", THINKING["thinking_budget"], USUAL_BUDGET)
        self.rows = {name: self._row(name) for name in SAMPLERS}
        self.more_button = TextButton(tr("More values"), "link")
        align_text_at_start(self.more_button)
        self.reset_button = TextButton(tr("Reset all"), "link")
        self.reset_button.setToolTip(tr("Any text, thinking and sampling as in the settings"))
        self._lay_out()
        self.close_button.clicked.connect(self.closed)
        self.more_button.clicked.connect(self._toggle_more)
        self.reset_button.clicked.connect(lambda: self.changed.emit(NO_SETTINGS))
        self.format.changed.connect(self._on_format)
        self.format.resized.connect(self._fit)
        self.thinking.set_narrow(True)  # below its name, like the formats
        self.thinking.changed.connect(self._on_thinking)
        self.budget.changed.connect(self._on_thinking)
        for row in self.rows.values():
            row.changed.connect(self._on_value)
        state.changed.connect(self.refresh)
        self._show_more(shown=False)
        self.refresh()

    def _lay_out(self) -> None:
        head, below = QHBoxLayout(), QHBoxLayout()
        head.addWidget(self.title, 1)
        head.addWidget(self.reset_button)
        head.addWidget(self.close_button)
        self._content = QWidget()
        self._content.setObjectName("rows")
        rows = QVBoxLayout(self._content)
        set_margins(rows, 0, 0, 8, 0)
        rows.setSpacing(0)
        rows.addWidget(_heading(tr("Format")))
        rows.addSpacing(6)
        rows.addWidget(self.format)
        rows.addSpacing(24)
        self._thinking = QWidget()
        thinking = QVBoxLayout(self._thinking)
        thinking.setContentsMargins(0, 0, 0, 16)
        thinking.setSpacing(0)
        thinking.addWidget(_heading(tr("Thinking")))
        thinking.addWidget(self.thinking)
        thinking.addWidget(self.budget)
        rows.addWidget(self._thinking)
        rows.addWidget(_heading(tr("Sampling")))
        for name in sorted(self.rows, key=lambda name: name not in FIRST):  # the others below
            rows.addWidget(self.rows[name])
        below.addWidget(self.more_button)
        below.addStretch(1)
        rows.addLayout(below)
        rows.addStretch(1)
        self._area = _Area(self._content)
        layout = QVBoxLayout(self)
        set_margins(layout, 24, 16, 16, 20)
        layout.setSpacing(12)
        layout.addLayout(head)
        layout.addWidget(self._area, 1)

    def _row(self, name: str) -> PreferenceRow:
        setting, usual = SAMPLERS[name], usual_value(self._state.shown.usual, name)
        return PreferenceRow(name, setting, str(usual) if setting.choices else usual)

    # --- called by the page ---------------------------------------------------------------------

    def refresh(self) -> None:
        """Show the options of the state."""
        state = self._state
        options = state.settings
        self.format.show_options(options, state.shown.fault, checking=state.shown.checking)
        self.thinking.show_value(options.thinking.value)
        self.budget.show_value(options.thinking_budget)
        shown = state.shown.can_think, options.thinking is Thinking.BUDGET
        if shown != (not self._thinking.isHidden(), not self.budget.isHidden()):
            self._thinking.setVisible(shown[0])
            self.budget.setVisible(shown[1])
            self._fit()
        for name, row in self.rows.items():
            usual = usual_value(state.shown.usual, name)
            value = options.sampling.get(name, usual)
            chosen = bool(SAMPLERS[name].choices)
            row.set_default(str(usual) if chosen else usual)
            row.show_value(str(value) if chosen else value)
        self.reset_button.setVisible(options != NO_SETTINGS)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < _NARROW
        self.budget.set_narrow(narrow)
        self.format.set_narrow(narrow)
        for row in self.rows.values():
            row.set_narrow(narrow)

    def finish(self) -> None:
        """Emit what is typed but not committed: the card closes."""
        self.format.finish()

    def apply_palette(self, palette: Palette) -> None:
        """Apply the colours of a theme."""
        self.setStyleSheet(_style(palette))
        self.close_button.apply_palette(palette)
        self.format.apply_palette(palette)

    # --- steps ----------------------------------------------------------------------------------

    def _on_format(self, changed: ChatSettings) -> None:
        options = self._state.settings
        self.changed.emit(replace(options, format=changed.format, texts=changed.texts))

    def _on_thinking(self, name: str, value: object) -> None:
        options = self._state.settings
        if name == "thinking_budget":
            self.changed.emit(replace(options, thinking_budget=int(str(value))))
        else:
            self.changed.emit(replace(options, thinking=Thinking(str(value))))

    def _on_value(self, name: str, value: object) -> None:
        number = float(str(value))
        usual = usual_value(self._state.shown.usual, name)
        kept = None if number == usual else int(number) if is_whole(name) else number
        self.changed.emit(self._state.settings.with_value(name, kept))

    def _toggle_more(self) -> None:
        self._show_more(shown=self.rows["typical_p"].isHidden())

    def _show_more(self, *, shown: bool) -> None:
        changed = self._state.settings.sampling
        for name, row in self.rows.items():
            row.setVisible(shown or name in FIRST or name in changed)
        self.more_button.setText(tr("Fewer values") if shown else tr("More values"))
        self._fit()

    def _fit(self) -> None:
        self._area.updateGeometry()
        self.resized.emit()


def _heading(words: str) -> QWidget:
    heading = label(words, "secondary", SMALL)
    heading.setFont(font(SMALL, QFont.Weight.DemiBold))
    return heading


def _style(p: Palette) -> str:
    """The style sheet of the card, for one palette."""
    line = 2 if p.hairline == p.text else 1
    return f"""
QScrollArea, QWidget#rows {{ background: transparent; border: none; }}
{segments_style(p)}
QRadioButton[narrow="true"] {{ padding: 3px 2px; }}
QFrame#area {{
    background: {p.background}; border: {line}px solid {p.hairline}; border-radius: 6px;
}}
QFrame#area[focused="true"] {{ border-color: {p.accent}; }}
QFrame#area[wrong="true"] {{ border-color: {p.danger}; }}
QLineEdit[wrong="true"], QLineEdit[wrong="true"]:focus {{ border-color: {p.danger}; }}
"""
