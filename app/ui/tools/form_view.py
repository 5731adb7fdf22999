"""Fields of a form that a server asks for, and what was entered in them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLineEdit, QMenu, QVBoxLayout, QWidget

from app.domain.forms import FieldKind, FormField, value_of
from app.domain.visible_text import on_one_line
from app.system.translation import isolated, tr
from app.ui.theme.theme import BODY, font
from app.ui.widgets.cards import show_words, wrapped
from app.ui.widgets.controls import TextButton, icon_after_text, label, set_property
from app.ui.widgets.menus import new_menu, popup_below
from app.ui.widgets.switch_row import SwitchRow


class ChoiceMenu(TextButton):
    """A button with a menu: one value of several."""

    def __init__(self, field: FormField, value: str) -> None:
        super().__init__("", "outlined", "chevron_down")
        self._title, self._choices = field.title, dict(field.choices)
        self.value = ""  # "": nothing is chosen
        icon_after_text(self)
        self.clicked.connect(lambda: popup_below(self.menu_of_choices(), self))
        self.choose(value if value in self._choices else "")

    def choose(self, value: str) -> None:
        """Choose a value."""
        self.value = value
        words = isolated(self._choices[value]) if value in self._choices else tr("Choose…")
        self.setText(words.replace("&", "&&"))
        self.setAccessibleName(tr("{setting}: {value}", setting=self._title, value=words))

    def menu_of_choices(self) -> QMenu:
        """The menu that a click opens."""
        menu = new_menu(self.window())
        for value, words in self._choices.items():
            action = menu.addAction(words.replace("&", "&&"), partial(self.choose, value))
            action.setCheckable(True)
            action.setChecked(value == self.value)
        return menu


class FieldView(QWidget):
    """One field, with its name, help and what is wrong with the entered value."""

    returned = Signal()  # Return was pressed in it

    def __init__(self, field: FormField) -> None:
        super().__init__()
        self.field = field
        self.problem = wrapped("", "danger")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 4, 0, 4)
        layout.setSpacing(2)
        self.line = self.box = self.switch = None
        self.checks: list[tuple[str, QCheckBox]] = []
        title = isolated(field.title)
        if field.kind is FieldKind.SWITCH:
            self.switch = SwitchRow(title)
            self.switch.show_state(title, field.help, on=field.default is True)
            layout.addWidget(self.switch)
        else:
            words = tr("{name} (needed)", name=field.title) if field.is_required else title
            heading = label(words, "", BODY, wraps=True)
            heading.setFont(font(BODY, QFont.Weight.Medium))
            layout.addWidget(heading)
            layout.addWidget(wrapped(field.help))
            self._add_input(layout)
        layout.addWidget(self.problem)

    @property
    def first(self) -> QWidget:
        """What has the focus first."""
        if self.switch is not None:
            return self.switch.switch
        if self.checks:
            return self.checks[0][1]
        return self.line or self.box or self

    def value(self) -> Any:
        """The value, None for nothing; what is wrong is shown."""
        value, wrong = value_of(self.field, self._entered())
        show_words(self.problem, wrong)
        if self.line is not None:
            set_property(self.line, "wrong", bool(wrong))
        return value

    @property
    def is_wrong(self) -> bool:
        """Whether the value that was last asked for is wrong."""
        return not self.problem.isHidden()

    def _add_input(self, layout: QVBoxLayout) -> None:
        field = self.field
        usual = field.default
        if field.kind is FieldKind.CHOICE:
            self.box = ChoiceMenu(field, "" if usual is None else str(usual))
            line = QHBoxLayout()  # an alignment would follow the direction of the button
            line.addWidget(self.box)
            line.addStretch(1)
            layout.addLayout(line)
        elif field.kind is FieldKind.CHOICES:
            on = cast("list[object]", usual) if isinstance(usual, list) else []
            chosen = set(map(str, on))
            for value, words in field.choices:
                row = SwitchRow(words)
                row.show_state(isolated(words), "", on=value in chosen)
                self.checks.append((value, row.switch))
                layout.addWidget(row)
        else:
            self.line = QLineEdit("" if usual is None else on_one_line(str(usual)))
            self.line.setFont(font(BODY))
            self.line.setAccessibleName(field.title)
            self.line.setAccessibleDescription(field.help)
            self.line.returnPressed.connect(self.returned)
            layout.addWidget(self.line)

    def _entered(self) -> object:
        if self.switch is not None:
            return self.switch.switch.isChecked()
        if self.box is not None:
            return self.box.value
        if self.line is not None:
            return self.line.text()
        return [value for value, check in self.checks if check.isChecked()]


class FormView(QWidget):
    """The fields of a form."""

    submitted = Signal()  # Return was pressed

    def __init__(self, fields: Sequence[FormField]) -> None:
        super().__init__()
        self.fields = [FieldView(each) for each in fields]
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        for each in self.fields:
            layout.addWidget(each)
            each.returned.connect(self.submitted)

    @property
    def first(self) -> QWidget:
        """What has the focus first."""
        return self.fields[0].first if self.fields else self

    def values(self) -> dict[str, Any] | None:
        """The values by their names, without those that are empty; None: one is wrong."""
        found = {each.field.name: each.value() for each in self.fields}
        wrong = next((each for each in self.fields if each.is_wrong), None)
        if wrong is not None:
            wrong.first.setFocus(Qt.FocusReason.OtherFocusReason)
            return None
        return {name: value for name, value in found.items() if value is not None}
