"""One row of the settings page: name, help text, input field and reset button."""

from __future__ import annotations

from collections.abc import Collection

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.settings.table import Setting
from app.system.translation import tr
from app.ui.settings.fields import LineField, Segments, TextField, field_for, is_wide
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets import accessibility
from app.ui.widgets.controls import TextButton, align_text_at_end, changed_mark, label


class PreferenceRow(QWidget):
    """Name and help text beside the input field, or above it in a narrow window."""

    changed = Signal(str, object)  # name and valid value
    given_up = Signal(str)  # Reset, where a recommendation may take the value's place

    def __init__(
        self,
        name: str,
        setting: Setting,
        default: object,
        *,
        has_origin: bool = False,
        is_compact: bool = False,
    ) -> None:
        """With `has_origin`, Reset emits `given_up`, and `show_origin` shows it.

        A compact row has the field beside its name, the help below both, and a mark where the
        value is not the default.
        """
        super().__init__()
        self._has_origin = has_origin
        self.name = name
        self._default = default
        self._value = default
        self._wide_field = is_wide(setting, default)
        self.title = label(tr(setting.label), "", BODY)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.title.setToolTip(tr(setting.exact))
        self._at_load, self._usual_help = setting.at_load, tr(setting.help)
        self.help = label(self._help(self._usual_help), "secondary", SMALL, wraps=True)
        self.source = label("", "secondary", SMALL)  # where a value of sampling comes from
        self.source.setWordWrap(True)
        self.source.hide()
        self.reset = TextButton(tr("Reset"), "link")
        self.reset.setFont(font(SMALL))
        self.reset.setAccessibleName(tr("Reset {name}", name=tr(setting.label)))
        kept = self.reset.sizePolicy()
        kept.setRetainSizeWhenHidden(
            not is_compact
        )  # keeps the row's height when the button appears
        self.reset.setSizePolicy(kept)
        self.reset.hide()
        self.mark = changed_mark() if is_compact else None
        self.field = field_for(setting, default)
        self.problem = label("", "danger", SMALL, wraps=True)
        self.problem.hide()
        self._lay_out()
        self.reset.clicked.connect(self._reset)
        self.field.picked.connect(self._commit)
        self.field.wrong.connect(self._show_problem)
        self.field.show_value(default)

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 8, 0, 8)
        layout.setSpacing(4)
        self._line = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        layout.addLayout(self._line)
        layout.addWidget(self.problem)
        if self.mark is None:
            self._fill_line()
            self.set_narrow(False)
        else:
            self._fill_compact_line(self.mark)
        self.help.setVisible(bool(self.help.text()))  # an empty line would take its height

    def _fill_line(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(4)
        top.addWidget(self.title)
        top.addWidget(self.reset)
        top.addStretch(1)
        words = QVBoxLayout()
        words.setSpacing(0)
        words.addLayout(top)
        words.addWidget(self.help)
        words.addWidget(self.source)
        self._line.addLayout(words, 1)
        self._line.addWidget(self.field)

    def _fill_compact_line(self, mark: QLabel) -> None:
        first, second = QHBoxLayout(), QHBoxLayout()
        self.title.setWordWrap(True)
        align_text_at_end(self.reset)
        first.setSpacing(6)
        first.addWidget(self.title, 1)
        first.addWidget(mark)
        first.addWidget(self.field)
        second.setSpacing(6)
        second.addWidget(self.help, 1)
        second.addWidget(self.reset, 0, Qt.AlignmentFlag.AlignTop)
        self._line.setDirection(QBoxLayout.Direction.TopToBottom)
        self._line.setSpacing(2)
        self._line.addLayout(first)
        self._line.addLayout(second)
        self._line.addWidget(self.source)

    def set_narrow(self, narrow: bool) -> None:
        """Place the field below the text (narrow window or wide field) or beside it."""
        below = narrow or self._wide_field
        direction = QBoxLayout.Direction
        self._line.setDirection(direction.TopToBottom if below else direction.LeftToRight)
        self._line.setSpacing(6 if below else 24)
        side = Qt.AlignmentFlag.AlignVCenter if not below else Qt.AlignmentFlag(0)
        self._line.setAlignment(self.field, side)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if isinstance(self.field, Segments):
            self.field.fit(self.width())

    def offer(self, choices: Collection[str], help: str = "") -> None:
        """Enable only these choices of a setting that has choices, and show this help if given."""
        if isinstance(self.field, Segments):
            self.field.offer(choices)
        self.help.setText(self._help(help or self._usual_help))
        self.help.setVisible(bool(self.help.text()))

    def show_reason(self, reason: str) -> None:
        """Grey the field for this reason, which is shown as its help; "": it can be used."""
        self.field.setEnabled(not reason)
        self.help.setText(self._help(reason or self._usual_help))
        self.help.setVisible(bool(self.help.text()))

    def _help(self, help: str) -> str:
        return tr("{help} Applies when a model is loaded.", help=help) if self._at_load else help

    def set_default(self, default: object) -> None:
        """Replace the value that Reset gives back."""
        self._default = default
        self._show_changed(self._value != default)

    def show_value(self, value: object) -> None:
        """Show the current value; unfinished typing is kept if the value has not changed."""
        if value != self._value:
            self._value = value
            self.field.show_value(value)
        self._show_changed(value != self._default)

    def show_origin(self, words: str, *, is_own: bool) -> None:
        """Show where the value comes from; one that is not the user's own cannot be reset."""
        self.source.setText(words)
        self.source.setVisible(bool(words))
        self.reset.setVisible(is_own)

    def finish(self) -> None:
        """Commit what is typed, or discard it if it is no value."""
        if isinstance(self.field, LineField | TextField):
            self.field.finish()
        self.restore()

    def restore(self) -> None:
        """Show the current value and discard typed text."""
        self.field.show_value(self._value)

    def _reset(self) -> None:
        if self.reset.hasFocus():  # it is hidden: the focus would go on to another setting
            self.field.setFocus(Qt.FocusReason.OtherFocusReason)
        if self._has_origin:
            self.given_up.emit(self.name)
        else:
            self._set_value(self._default)

    def _set_value(self, value: object) -> None:
        self.field.show_value(value)
        self._commit(value)

    def _commit(self, value: object) -> None:
        self._value = value
        self._show_changed(value != self._default)
        self.changed.emit(self.name, value)

    def _show_changed(self, changed: bool) -> None:
        self.reset.setVisible(changed)
        if self.mark is not None:
            self.mark.setVisible(changed)
            accessibility.set_note(self.field, self.mark.toolTip(), shown=changed)

    def _show_problem(self, sentence: str) -> None:
        self.problem.setText(sentence)
        self.problem.setVisible(bool(sentence))
