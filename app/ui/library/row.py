"""Row and heading widgets of the model library list.

Child widgets are positioned without a QLayout and the buttons are created on first use, so that a
row is cheap to create, to reuse for another view, and to measure.
"""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QFocusEvent,
    QFont,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPalette,
    QResizeEvent,
)
from PySide6.QtWidgets import QAbstractButton, QCheckBox, QMenu, QWidget

from app.system.translation import tr
from app.ui.library.row_values import Action, HeadingView, RowView
from app.ui.library.words import Fit, fit_words
from app.ui.theme.palette import Palette, follow_palette, shown_palette
from app.ui.theme.theme import BODY, READING, SMALL, figures, font
from app.ui.widgets.controls import (
    Bar,
    ElidedLabel,
    IconButton,
    TextButton,
    label,
    mirror_children,
    set_property,
)
from app.ui.widgets.menus import new_menu, popup_below

WIDE = 600  # pixels: in narrower rows the memory bar is below the text
_PADDING = 11
_GAP = 12
_METER_WIDTH = 156
_MOST_METER = 232  # where the words under it are longer
_ACTION_WIDTH = 92  # pixels: minimum width, so that the buttons of a list align
_ACTION_PADDING = 26
_NAME_WIDTH = 120  # pixels: less than that of a name is not left beside a badge
_LINE = 20
_NAVIGATION_KEYS = (
    Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Home,
    Qt.Key.Key_End, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown,
)  # fmt: skip


class _ListPart(QWidget):
    """A row or heading of the list, whose buttons report the keys that move the focus."""

    acted = Signal(object)  # Action
    navigated = Signal(int)  # Qt.Key that moves the focus between or inside rows
    entered_backwards = Signal()  # Shift+Tab moved the focus into the list from after its end

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QFocusEvent) and _is_backtab(event):
            self.entered_backwards.emit()
        key = _navigation_key(watched, event)
        if key > 0:
            self.navigated.emit(key)
        return key != 0 or super().eventFilter(watched, event)


class LibraryRow(_ListPart):
    """Shows a `RowView`: name, details, memory bar, one action, icons and a menu."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.view = RowView("")
        middle, right = Qt.TextElideMode.ElideMiddle, Qt.TextElideMode.ElideRight
        self.name = ElidedLabel("", font(BODY, QFont.Weight.Medium), middle, self)
        self.badge = ElidedLabel("accent", font(SMALL, QFont.Weight.Medium), right, self)
        self.detail = ElidedLabel("secondary", figures(SMALL), right, self)
        self.status = ElidedLabel("secondary", font(BODY), right, self)
        self.status.setAlignment(Qt.AlignmentFlag.AlignTrailing)
        self.meter_words = ElidedLabel("secondary", figures(SMALL), right, self)
        self.meter_under = ElidedLabel("secondary", figures(SMALL), right, self)
        self.meter_bar = Bar(self)
        self.progress = Bar(self)
        self.note = label("", "secondary", SMALL, wraps=True)
        self.note.setParent(self)
        self.action = self._button("outlined")
        self.link = self._button("link")
        self.links: list[TextButton] = []
        self.option = QCheckBox(self)
        self.option.installEventFilter(self)
        self.option.clicked.connect(lambda: self._act(self.option))
        follow_palette(self._recolor)
        self.icons: list[_ActionIcon] = []
        self.more = IconButton("more", tr("More"), 18, self)
        self.more.clicked.connect(self._open_menu)
        self.more.installEventFilter(self)

    def _recolor(self, palette: Palette) -> None:
        """Outline the check box, which Qt derives from the colour of windows."""
        colors = self.option.palette()
        colors.setColor(QPalette.ColorRole.Window, QColor(palette.secondary))
        self.option.setPalette(colors)

    def _button(self, look: str) -> TextButton:
        button = TextButton("", look, parent=self)
        button.installEventFilter(self)
        button.clicked.connect(lambda: self._act(button))
        if look == "link":
            button.setFont(font(SMALL))
        return button

    # --- showing --------------------------------------------------------------------------------

    def show_view(self, view: RowView) -> None:
        """Show a view, of the same row or of another one."""
        if view == self.view:
            return
        had_focus = self.focused() is not None
        self.view = view
        self.name.show_words(view.name, view.name_tip)
        self.badge.show_words(view.badge)
        self.detail.show_words(view.detail, view.detail_tip)
        self.status.show_words("" if view.action else view.status)
        self._show_meter()
        self.progress.setVisible(view.progress is not None)
        self.progress.set_share(view.progress or 0.0)
        self.note.setText(view.note)
        self.note.setVisible(bool(view.note))
        set_property(self.note, "tone", view.note_tone)
        self._show_actions()
        self.setAccessibleName(view.name or view.note)
        parts = (view.badge, view.detail, view.status, view.note if view.name else "")
        meter = (view.meter.words, view.meter.under) if view.meter else ()
        self.setAccessibleDescription(". ".join(part for part in (*parts, *meter) if part))
        self._place_parts(self.width())
        if had_focus and self.focused() is None and (controls := self.controls()):
            controls[0].setFocus(Qt.FocusReason.OtherFocusReason)
        self.update()

    def _show_meter(self) -> None:
        meter = self.view.meter
        self.meter_words.show_words(meter.words if meter else "", meter.tip if meter else "")
        self.meter_under.show_words(meter.under if meter else "", meter.tip if meter else "")
        self.meter_bar.setVisible(meter is not None)
        if meter is not None:
            self.meter_bar.set_share(meter.share)
            self.meter_bar.setToolTip(meter.tip)
            set_property(self.meter_under, "tone", meter.tone)

    def _show_actions(self) -> None:
        view = self.view
        _set_action(self.action, view.action, view.name)
        _set_action(self.link, view.link, view.name)
        while len(self.links) < len(view.links):
            self.links.append(self._button("link"))
        for place, button in enumerate(self.links):
            _set_action(button, view.links[place] if place < len(view.links) else None, view.name)
        while len(self.icons) < len(view.icons):
            self.icons.append(self._icon_button())
        for place, button in enumerate(self.icons):
            action = view.icons[place] if place < len(view.icons) else None
            _set_action(button, action, view.name)
            if action is not None:
                button.show_icon(action.icon)
        option = view.option
        _set_action(self.option, option.action if option else None, view.name)
        self.option.setChecked(option is not None and option.checked)
        self.more.setVisible(bool(view.menu))
        self.more.setAccessibleName(tr("More for {name}", name=view.name))

    def _icon_button(self) -> _ActionIcon:
        button = _ActionIcon(self)
        button.installEventFilter(self)
        button.clicked.connect(lambda: self._act(button))
        return button

    # --- layout ---------------------------------------------------------------------------------

    def height_for(self, width: int) -> int:
        """The height of the row at a width, for the current view."""
        return self._place_parts(width)

    def _place_parts(self, width: int) -> int:
        """Set the geometry of all child widgets; returns the height."""
        view = self.view
        wide = width >= WIDE
        right = self._place_right(width)
        left = view.indent * 20
        meter = view.meter is not None
        if meter and wide:
            words = (fit_words(fit) for fit in Fit)  # one width for all rows, in any language
            longest = max(map(self.meter_under.fontMetrics().horizontalAdvance, words)) + 2
            meter_width = max(_METER_WIDTH, min(longest, _MOST_METER))
            right -= meter_width + 2 * _GAP
            self._place_meter(right + _GAP, meter_width, _PADDING)
        y = _PADDING
        if view.name:
            y = self._place_name(left, right - _GAP, y)
        if view.detail or view.link:
            self._place_detail(left, right - _GAP, y)
            y += _LINE
        if meter and not wide:
            y = self._place_meter(left, min(width - left, 300), y + 2) + 4
        elif meter:
            y = max(y, _PADDING + 2 * _LINE + (4 if view.note else 0))
        if view.progress is not None:
            self.progress.setGeometry(left, y + 6, width - left, self.progress.height())
            y += 14
        if view.note or view.links:
            beside = view.name and y < _PADDING + 2 * _LINE  # the buttons are on the same lines
            y = self._place_note(left, right - _GAP if beside else width, y)
        if view.option:
            height = max(self.option.sizeHint().height(), _LINE)
            wanted = min(self.option.sizeHint().width(), width - left)
            self.option.setGeometry(left, y + 2, wanted, height)
            y += height + 2
        mirror_children(self, width)
        return max(y, _PADDING + 2 * _LINE if view.name else 0) + _PADDING

    def _place_right(self, width: int) -> int:
        """Place the menu, the icons and the action from the right; returns their left edge."""
        view, x, middle = self.view, width, _PADDING + _LINE
        if view.menu:
            x = _place_left_of(self.more, x, middle) - 4
        for place in reversed(range(len(view.icons))):
            x = _place_left_of(self.icons[place], x, middle)
        if view.action or view.status:
            part = self.action if view.action else self.status
            wanted = _size(part).width() if view.action else self.status.natural_width()
            usual = self.action.fontMetrics().horizontalAdvance(tr("Download")) + _ACTION_PADDING
            size = QSize(max(wanted, usual, _ACTION_WIDTH), max(_size(part).height(), 28))
            part.setGeometry(QRect(QPoint(x - size.width(), middle - size.height() // 2), size))
            x -= size.width()
        return x if x < width else width + _GAP

    def _place_name(self, left: int, right: int, y: int) -> int:
        """Place the name and the badge, which is below where it leaves the name little room."""
        badge = self.badge.natural_width() + 8 if self.view.badge else 0
        name, space = self.name.natural_width(), max(right - left - badge, 40)
        if badge and space < min(name, _NAME_WIDTH):
            self.name.setGeometry(left, y, min(name, right - left), _LINE)
            self.badge.setGeometry(left, y + _LINE, min(badge - 8, right - left), _LINE)
            return y + 2 * _LINE
        wanted = min(name, space)
        self.name.setGeometry(left, y, wanted, _LINE)
        self.badge.setGeometry(left + wanted + 8, y, max(badge - 8, 0), _LINE)
        return y + _LINE

    def _place_detail(self, left: int, right: int, y: int) -> None:
        link = _size(self.link).width() if self.view.link else 0
        space = max(right - left - link, 40)
        wanted = min(self.detail.natural_width(), space)
        self.detail.setGeometry(left, y, wanted, _LINE)
        height = _size(self.link).height()
        self.link.setGeometry(left + wanted - 3, y + (_LINE - height) // 2, link, height)

    def _place_meter(self, left: int, width: int, y: int) -> int:
        self.meter_words.setGeometry(left, y, width, 18)
        self.meter_bar.setGeometry(left, y + 19, width, self.meter_bar.height())
        if not self.view.meter or not self.view.meter.under:
            return y + 26
        self.meter_under.setGeometry(left, y + 24, width, 18)
        return y + 42

    def _place_note(self, left: int, right: int, y: int) -> int:
        links = self.links[: len(self.view.links)]
        beside = sum(_size(button).width() for button in links)
        space = right - left
        text = self.note.fontMetrics().horizontalAdvance(self.note.text()) + 4
        below = text > max(space - beside - 8, 0) if links else False
        note_width = space if below or not links else text
        height = max(self.note.heightForWidth(note_width), _LINE) if self.view.note else 0
        self.note.setGeometry(left, y, note_width, height)
        x, line = (left, y + height) if below or not self.view.note else (left + text + 4, y)
        for button in links:
            size = _size(button)
            button.setGeometry(x, line + (_LINE - size.height()) // 2, size.width(), size.height())
            x += size.width()
        return max(y + height, line + _LINE) if links else y + height

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_parts(self.width())

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.view.ruled:
            painter = QPainter(self)
            palette = shown_palette()
            line = 2 if palette.hairline == palette.text else 1
            left = self.view.indent * 20
            start = 0 if self.layoutDirection() is Qt.LayoutDirection.RightToLeft else left
            rule = QRect(start, self.height() - line, self.width() - left, line)
            painter.fillRect(rule, QColor(palette.hairline))
            painter.end()

    # --- actions --------------------------------------------------------------------------------

    def controls(self) -> list[QAbstractButton]:
        """The visible buttons in Tab order, the main action first."""
        view = self.view
        found: list[QAbstractButton] = [self.action] if view.action else []
        found += self.icons[: len(view.icons)]
        found += [self.more] if view.menu else []
        found += [self.option] if view.option else []
        found += [self.link] if view.link else []
        return [*found, *self.links[: len(view.links)]]

    def focused(self) -> QAbstractButton | None:
        """The control of this row with the keyboard focus, or None."""
        return next((each for each in self.controls() if each.hasFocus()), None)

    def _act(self, button: QAbstractButton) -> None:
        action = button.property("action")
        if isinstance(action, Action):
            self.acted.emit(action)

    def menu(self) -> QMenu:
        """A new menu of the row's further actions."""
        menu = new_menu(self)
        for action in self.view.menu:
            entry = menu.addAction(action.text)
            entry.triggered.connect(lambda _checked=False, each=action: self.acted.emit(each))
        return menu

    def _open_menu(self) -> None:
        popup_below(self.menu(), self.more)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        if not self.view.menu:
            event.ignore()
        elif event.reason() is QContextMenuEvent.Reason.Keyboard:
            self._open_menu()
        else:
            self.menu().popup(event.globalPos())


class _ActionIcon(IconButton):
    """An icon button whose icon can be replaced."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__("close", "", 18, parent)

    def show_icon(self, name: str) -> None:
        """Replace the icon."""
        self._name = name
        self._recolor(shown_palette())


class LibraryHeading(_ListPart):
    """Shows a `HeadingView`: text, a detail and links."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.view = HeadingView("", "")
        bold, right = QFont.Weight.DemiBold, Qt.TextElideMode.ElideRight
        self.large = ElidedLabel("", font(READING, bold), right, self)
        self.small = ElidedLabel("secondary", font(SMALL, bold), right, self)
        self.detail = ElidedLabel("secondary", figures(SMALL), Qt.TextElideMode.ElideMiddle, self)
        self.links: list[TextButton] = []

    def show_view(self, view: HeadingView) -> None:
        """Show a view, of the same heading or of another one."""
        if view == self.view:
            return
        self.view = view
        self.large.show_words("" if view.small else view.text)
        self.small.show_words(view.text if view.small else "")
        self.detail.show_words(view.detail)
        while len(self.links) < len(view.links):
            self.links.append(self._link())
        for place, button in enumerate(self.links):
            _set_action(button, view.links[place] if place < len(view.links) else None, "")
        self.setAccessibleName(view.text)
        self._place_parts(self.width())

    def _link(self) -> TextButton:
        button = TextButton("", "link", parent=self)
        button.setFont(font(SMALL))
        button.clicked.connect(lambda: self.acted.emit(button.property("action")))
        button.installEventFilter(self)
        return button

    def height_for(self, width: int) -> int:
        """The height of the heading."""
        self._place_parts(width)
        return 36 if self.view.small else 62

    def _place_parts(self, width: int) -> None:
        bottom = 34 if self.view.small else 54
        right = width
        for button in reversed(self.links[: len(self.view.links)]):
            size = _size(button)
            right -= size.width()
            button.setGeometry(right, bottom - 22, size.width(), size.height())
        words = self.small if self.view.small else self.large
        text = min(words.natural_width(), right)
        words.setGeometry(0, bottom - 22, text, 22)
        self.detail.setGeometry(text + 12, bottom - 21, max(right - text - 20, 0), 22)
        mirror_children(self, width)

    def controls(self) -> list[QAbstractButton]:
        """The visible links in Tab order."""
        return list(self.links[: len(self.view.links)])

    def focused(self) -> QAbstractButton | None:
        """The control of this heading with the keyboard focus, or None."""
        return next((each for each in self.controls() if each.hasFocus()), None)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_parts(self.width())


def _is_backtab(event: QFocusEvent) -> bool:
    # `LibraryList` always sets focus with TabFocusReason, so Backtab comes from outside the list.
    return event.gotFocus() and event.reason() is Qt.FocusReason.BacktabFocusReason


def _navigation_key(button: QObject, event: QEvent) -> int:
    """The pressed navigation key; -1 if the event activated the button; 0 for other events."""
    if not isinstance(event, QKeyEvent) or event.type() is not QEvent.Type.KeyPress:
        return 0
    if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
        if isinstance(button, QAbstractButton) and not event.isAutoRepeat():
            button.click()
        return -1
    return event.key() if event.key() in _NAVIGATION_KEYS and not event.modifiers() else 0


def _set_action(button: QAbstractButton, action: Action | None, about: str) -> None:
    """Set a button's action, text and accessible name; hides the button without an action."""
    button.setVisible(action is not None)
    button.setProperty("action", action)
    if action is None:
        return
    if action.icon:
        button.setToolTip(action.text)
    else:
        button.setText(action.text)
    button.setAccessibleName(
        action.name or tr("{action} {name}", action=action.text, name=about).strip()
    )


def _size(part: QWidget) -> QSize:
    """The size hint of a widget with the style sheet applied."""
    part.ensurePolished()
    return part.sizeHint()


def _place_left_of(part: QWidget, x: int, middle: int) -> int:
    """Place a widget left of `x`, vertically centred on `middle`; returns its left edge."""
    size = _size(part)
    part.setGeometry(x - size.width(), middle - size.height() // 2, size.width(), size.height())
    return x - size.width()
