"""One setting on the settings page: its name, what it does, its field, and the way back."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QVBoxLayout, QWidget

from app.settings.table import Setting
from app.ui.settings.fields import field_for, is_wide
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.controls import TextButton, label

_AT_LOAD = "Used when a model is loaded."


class PreferenceRow(QWidget):
    """Words on one side and the field on the other; below each other where it is narrow."""

    changed = Signal(str, object)  # name and value, which fits

    def __init__(self, name: str, setting: Setting, default: object) -> None:
        super().__init__()
        self.name = name
        self._default = default
        self._value = default
        self._wide_field = is_wide(setting, default)
        self.title = label(setting.label, "", BODY)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.title.setToolTip(setting.exact)
        help_text = f"{setting.help} {_AT_LOAD}" if setting.at_load else setting.help
        self.help = label(help_text, "secondary", SMALL)
        self.help.setWordWrap(True)
        self.reset = TextButton("Back to default", "link")
        self.reset.setFont(font(SMALL))
        self.reset.setAccessibleName(f"{setting.label}: back to default")
        kept = self.reset.sizePolicy()
        kept.setRetainSizeWhenHidden(True)  # or the row would grow when a value changes
        self.reset.setSizePolicy(kept)
        self.reset.hide()
        self.field = field_for(setting, default)
        self.problem = label("", "danger", SMALL)
        self.problem.setWordWrap(True)
        self.problem.hide()
        self._lay_out()
        self.reset.clicked.connect(lambda: self._pick(self._default))
        self.field.picked.connect(self._take)
        self.field.wrong.connect(self._show_problem)
        self.field.show_value(default)

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(4)
        top.addWidget(self.title)
        top.addWidget(self.reset)
        top.addStretch(1)
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addLayout(top)
        words.addWidget(self.help)
        self._line = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._line.addLayout(words, 1)
        self._line.addWidget(self.field)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 8)
        layout.setSpacing(4)
        layout.addLayout(self._line)
        layout.addWidget(self.problem)
        self.set_narrow(False)

    def set_narrow(self, narrow: bool) -> None:
        """Put the field below the words, or beside them where it is small enough."""
        below = narrow or self._wide_field
        direction = QBoxLayout.Direction
        self._line.setDirection(direction.TopToBottom if below else direction.LeftToRight)
        self._line.setSpacing(6 if below else 24)
        side = Qt.AlignmentFlag.AlignVCenter if not below else Qt.AlignmentFlag(0)
        self._line.setAlignment(self.field, side)

    def show_value(self, value: object) -> None:
        """Show the value that holds; what is being typed and not finished stays."""
        if value != self._value:
            self._value = value
            self.field.show_value(value)
        self.reset.setVisible(value != self._default)

    def restore(self) -> None:
        """Show the value that holds in the place of whatever was typed."""
        self.field.show_value(self._value)

    def _pick(self, value: object) -> None:
        self.field.show_value(value)
        self._take(value)

    def _take(self, value: object) -> None:
        self._value = value
        self.reset.setVisible(value != self._default)
        self.changed.emit(self.name, value)

    def _show_problem(self, sentence: str) -> None:
        self.problem.setText(sentence)
        self.problem.setVisible(bool(sentence))
