"""Input fields of the settings page: choice, number, single-line and multi-line text.

A field emits `picked` with a valid value only. It emits `wrong` with an error sentence when the
typed text is invalid, and with an empty text when the error is resolved.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QHideEvent, QKeyEvent
from PySide6.QtWidgets import (
    QApplication,
    QBoxLayout,
    QFrame,
    QHBoxLayout,
    QLineEdit,
    QMenu,
    QRadioButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.settings.table import Setting
from app.system.translation import LANGUAGES, number, tr
from app.ui.theme.palette import Palette
from app.ui.theme.theme import BODY, SMALL, figures, font
from app.ui.widgets.controls import TextButton, icon_after_text, label, set_margins, set_property
from app.ui.widgets.menus import new_menu, popup_below
from app.ui.widgets.plain_text import PlainTextField
from app.ui.widgets.units import typed_number

_NUMBER_WIDTH = 128
_TEXT_WIDTH = 380
_DEBOUNCE_MILLISECONDS = 600
_MOST_SEGMENTS = 4
_MAX_LENGTH = 2000  # maximum length of a single-line text


class Segments(QFrame):
    """Segmented control: one of a few visible choices, selectable with the arrow keys."""

    picked = Signal(object)
    wrong = Signal(str)

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setObjectName("segments")
        self.buttons: dict[str, QRadioButton] = {}
        self._line = layout = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        layout.setContentsMargins(2, 2, 2, 2)
        layout.setSpacing(2)
        for choice, words in zip(setting.choices, setting.words or setting.choices, strict=True):
            words = tr(words)
            button = QRadioButton(words)
            button.setFont(font(BODY))
            button.setCursor(Qt.CursorShape.PointingHandCursor)
            button.setAccessibleDescription(tr(setting.help))
            button.clicked.connect(lambda _=False, value=choice: self.picked.emit(value))
            button.setAccessibleName(
                tr("{setting}: {value}", setting=tr(setting.label), value=words)
            )
            self.buttons[choice] = button
            layout.addWidget(button)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    def fit(self, width: int) -> None:
        """Place the choices below one another where they have no room side by side."""
        shown = [
            button.sizeHint().width() for button in self.buttons.values() if button.isEnabled()
        ]
        directions = QBoxLayout.Direction
        is_narrow = sum(shown) + 2 * len(shown) + 2 > width
        self._line.setDirection(directions.TopToBottom if is_narrow else directions.LeftToRight)

    def offer(self, choices: Collection[str]) -> None:
        """Show only these choices, and a chosen one that is not among them, disabled."""
        for choice, button in self.buttons.items():
            button.setEnabled(choice in choices)
        self._show_offered()

    def _show_offered(self) -> None:
        for button in self.buttons.values():
            button.setVisible(button.isEnabled() or button.isChecked())

    def show_value(self, value: object) -> None:
        """Select a choice without emitting `picked`."""
        self.buttons[str(value)].setChecked(True)
        self.setFocusProxy(self.buttons[str(value)])
        self._show_offered()


class ChoiceButton(TextButton):
    """Button with a menu: one of more choices than `Segments` has room for."""

    picked = Signal(object)
    wrong = Signal(str)

    def __init__(self, setting: Setting) -> None:
        super().__init__("", "outlined", "chevron_down")
        self._label, self._current = tr(setting.label), ""
        words = dict(zip(setting.choices, setting.words or setting.choices, strict=True))
        # A language is named in itself: its speakers must find it in a window they cannot read.
        self._words = {each: LANGUAGES.get(each) or tr(words[each]) for each in words}
        self._offered, self._reason = frozenset(setting.choices), ""
        icon_after_text(self)
        self.setAccessibleDescription(tr(setting.help))
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)
        self.clicked.connect(self._open)

    def show_value(self, value: object) -> None:
        """Show a choice without emitting `picked`."""
        self._current = str(value)
        words = self._words[self._current]
        self.setText(words)
        self.setAccessibleName(tr("{setting}: {value}", setting=self._label, value=words))

    def offer(self, choices: Collection[str], reason: str) -> None:
        """Grey the other choices in the menu, which ends with the reason then."""
        self._offered, self._reason = frozenset(choices), reason

    def menu_of_choices(self) -> QMenu:
        """The menu that a click opens."""
        menu = new_menu(self.window())
        for choice, words in self._words.items():
            action = menu.addAction(words, partial(self._pick, choice))
            action.setCheckable(True)
            action.setChecked(choice == self._current)
            action.setEnabled(choice in self._offered)
        if not self._offered.issuperset(self._words):
            menu.addSeparator()
            menu.addAction(self._reason).setEnabled(False)
        return menu

    def _pick(self, choice: str) -> None:
        self.show_value(choice)
        self.picked.emit(choice)

    def _open(self) -> None:
        popup_below(self.menu_of_choices(), self)


class _Line(QLineEdit):
    """Line edit that reports Esc (revert) and Up, Down, Page Up and Page Down (steps)."""

    reverted = Signal()
    stepped = Signal(int)

    def keyPressEvent(self, arg__1: QKeyEvent) -> None:
        steps = {
            Qt.Key.Key_Up: 1,
            Qt.Key.Key_Down: -1,
            Qt.Key.Key_PageUp: 10,
            Qt.Key.Key_PageDown: -10,
        }
        if arg__1.key() == Qt.Key.Key_Escape and self.isModified():
            self.reverted.emit()
        elif arg__1.key() in steps:
            self.stepped.emit(steps[Qt.Key(arg__1.key())])
        else:
            super().keyPressEvent(arg__1)


class LineField(QWidget):
    """Single-line text field; commits on Enter and when it loses the focus."""

    picked = Signal(object)
    wrong = Signal(str)

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self._setting = setting
        self._value: object = ""
        self.line = _Line()
        self.line.setFont(font(BODY))
        self.line.setMaxLength(_MAX_LENGTH)
        self.line.setMaximumWidth(_TEXT_WIDTH)
        self.line.setAccessibleName(tr(setting.label))
        self.line.setAccessibleDescription(tr(setting.help))
        self.line.editingFinished.connect(self.finish)
        self.line.textEdited.connect(self._on_edited)
        self.line.reverted.connect(lambda: self.show_value(self._value))
        self.setFocusProxy(self.line)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.line, 1)
        layout.addStretch()

    def show_value(self, value: object) -> None:
        """Show a value and discard typed text."""
        self._value = value
        self.line.setText(self._format(value))
        self.line.setCursorPosition(0)
        self._set_error("")

    def _format(self, value: object) -> str:
        return str(value)

    def _parse(self, text: str) -> tuple[object, str]:
        """The value of a typed text, and an error sentence or an empty text."""
        stripped = text.strip()
        return stripped, self._setting.check(stripped) if self._setting.check else ""

    def finish(self) -> None:
        """Emit `picked` if a valid text was typed that is not emitted yet."""
        if not self.line.isModified():
            return
        value, wrong = self._parse(self.line.text())
        if wrong:
            self._set_error(wrong)
            return
        changed = value != self._value
        self.show_value(value)
        if changed:
            self.picked.emit(value)

    def _on_edited(self, text: str) -> None:
        if self.line.property("wrong") and not self._parse(text)[1]:
            self._set_error("")

    def _set_error(self, wrong: str) -> None:
        set_property(self.line, "wrong", bool(wrong))
        self.wrong.emit(wrong)


class NumberField(LineField):
    """Number field with a unit label; the arrow keys change the value.

    It can be empty, for the value None, once `offer_none` was called.
    """

    def __init__(self, setting: Setting, *, whole: bool) -> None:
        super().__init__(setting)
        self._whole = whole
        self.line.setFont(figures(BODY))
        self.line.setFixedWidth(_NUMBER_WIDTH)
        self.line.setToolTip(tr("From {low} to {high}", low=setting.low, high=setting.high))
        self.line.stepped.connect(self._step)
        self.unit = label(tr(setting.unit), "secondary", SMALL)  # inside the field, at its end
        self.unit.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        inside = QHBoxLayout(self.line)
        set_margins(inside, 0, 0, 10, 0)
        inside.addStretch()
        inside.addWidget(self.unit)
        if QApplication.isRightToLeft():  # digits alone would be at the left
            side = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignAbsolute
            self.line.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)
        self._show_unit(True)
        self.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Fixed)

    def offer_none(self, words: str) -> None:
        """Say in the empty field what no value means; "": there is always one."""
        self.line.setPlaceholderText(words)

    def _show_unit(self, shown: bool) -> None:
        self.unit.setVisible(shown)
        beside = self.unit.sizeHint().width() if shown else 0
        mirrored = QApplication.isRightToLeft()
        self.line.setTextMargins(beside if mirrored else 0, 0, 0 if mirrored else beside, 0)

    def _format(self, value: object) -> str:
        named = self._setting.named
        self._show_unit(value is not None and (named is None or value != named[0]))
        if value is None:
            return ""
        assert isinstance(value, int | float)
        return value_words(self._setting, value)

    def _parse(self, text: str) -> tuple[object, str]:
        named = self._setting.named
        if not text.strip() and self.line.placeholderText():
            return None, ""
        if named and text.strip().casefold() == tr(named[1]).casefold():
            return (int(named[0]) if self._whole else float(named[0])), ""
        value = typed_number(text)
        fits = value is not None and self._setting.low <= value <= self._setting.high
        if value is not None and fits and not (self._whole and value != int(value)):
            return (int(value) if self._whole else value), ""
        low, high = self._setting.low, self._setting.high
        if self._whole:
            return self._value, tr("Enter a whole number from {low} to {high}.", low=low, high=high)
        return self._value, tr("Enter a number from {low} to {high}.", low=low, high=high)

    def _step(self, steps: int) -> None:
        value, wrong = self._parse(self.line.text())
        if wrong or not isinstance(value, int | float):
            return
        moved = round(value + steps * self._setting.step, 6)
        moved = min(max(moved, self._setting.low), self._setting.high)
        self.line.setText(self._format(int(moved) if self._whole else moved))
        self.line.setModified(True)
        self.finish()


class TextField(QFrame):
    """Multi-line text field; commits after a pause in typing and when it loses the focus."""

    picked = Signal(object)
    wrong = Signal(str)

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setObjectName("area")
        self._value = ""
        self.editor = PlainTextField()
        self.editor.setFont(font(BODY))
        self.editor.setTabChangesFocus(True)
        self.editor.setFrameShape(QFrame.Shape.NoFrame)
        self.editor.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.editor.setAccessibleName(tr(setting.label))
        self.editor.setAccessibleDescription(tr(setting.help))
        self.editor.document().setDocumentMargin(0)
        self.editor.installEventFilter(self)
        height = self.editor.fontMetrics().lineSpacing() * setting.lines
        self.editor.setFixedHeight(height + 4)
        self._debounce = QTimer(self, singleShot=True, interval=_DEBOUNCE_MILLISECONDS)
        self._debounce.timeout.connect(self.finish)
        self.editor.textChanged.connect(self._debounce.start)
        self.setFocusProxy(self.editor)
        layout = QVBoxLayout(self)
        set_margins(layout, 10, 7, 4, 7)
        layout.addWidget(self.editor)

    @property
    def value(self) -> str:
        """The text that was shown or emitted last."""
        return self._value

    def show_value(self, value: object) -> None:
        """Show a text and discard typed text."""
        self._value = str(value)
        self.editor.set_text(self._value)
        self._debounce.stop()

    def finish(self) -> None:
        """Emit `picked` if the text changed."""
        self._debounce.stop()
        text = self.editor.text()
        if text != self._value:
            self._value = text
            self.picked.emit(text)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.FocusIn, QEvent.Type.FocusOut):
            set_property(self, "focused", event.type() == QEvent.Type.FocusIn)
            if isinstance(event, QFocusEvent) and event.lostFocus():
                self.finish()
        return super().eventFilter(watched, event)

    def hideEvent(self, event: QHideEvent) -> None:
        self.finish()
        super().hideEvent(event)


def segments_style(p: Palette) -> str:
    """The style sheet of segmented controls, for one palette."""
    line = 2 if p.hairline == p.text else 1
    rules = f"""
QFrame#segments {{
    background: {p.sunken}; border: {line}px solid {p.hairline}; border-radius: 8px;
}}
QRadioButton {{
    color: {p.secondary}; background: transparent; border: 2px solid transparent;
    border-radius: 6px; padding: 3px 10px; min-height: 22px; spacing: 0;
}}
QRadioButton::indicator {{ width: 0; height: 0; border: none; }}
QRadioButton:hover {{ color: {p.text}; }}
QRadioButton:disabled {{ color: {p.faint}; }}
QRadioButton:checked {{ color: {p.text}; background: {p.surface}; border-color: {p.hairline}; }}
QRadioButton:focus {{ border-color: {p.accent}; }}
"""
    if line == 2:  # high contrast: the checked choice is filled, focus is dashed
        rules += f"""
QRadioButton:checked {{ color: {p.on_accent}; background: {p.accent}; }}
QRadioButton:focus {{ border: 2px dashed {p.text}; }}
QRadioButton:checked:focus {{ border: 2px dashed {p.on_accent}; }}
"""
    return f"""{rules}
QRadioButton:checked:disabled {{ color: {p.faint}; background: transparent; }}
"""


Field = Segments | ChoiceButton | LineField | TextField


def field_for(setting: Setting, default: object) -> Field:
    """Create the input field for a setting."""
    if setting.choices:
        return (ChoiceButton if len(setting.choices) > _MOST_SEGMENTS else Segments)(setting)
    if isinstance(default, int | float):
        return NumberField(setting, whole=isinstance(default, int))
    return TextField(setting) if setting.lines > 1 else LineField(setting)


def is_wide(setting: Setting, default: object) -> bool:
    """Whether the field needs the full width, below the setting's name."""
    return isinstance(default, str) and not setting.choices


def value_words(setting: Setting, value: float) -> str:
    """A number of a setting as its field shows it, without its unit."""
    named = setting.named
    if named is not None and value == named[0]:
        return tr(named[1])
    return str(value) if setting.is_code else number(value)
