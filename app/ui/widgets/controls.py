"""Basic widgets: buttons, progress bar, centred column, labels, and a fade-in animation."""

from __future__ import annotations

from PySide6.QtCore import (
    QEasingCurve,
    QEvent,
    QPointF,
    QPropertyAnimation,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import (
    QColor,
    QEnterEvent,
    QFont,
    QGuiApplication,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QGraphicsOpacityEffect,
    QHBoxLayout,
    QLabel,
    QLayout,
    QPushButton,
    QSizePolicy,
    QStyle,
    QToolButton,
    QWidget,
)

from app.system.translation import isolated, tr
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette, mix, shown_palette
from app.ui.theme.theme import BODY, COLUMN_WIDTH, HEADING, READING, font
from app.ui.widgets.direction import has_right_to_left

FADE_MILLISECONDS = 140
_SCROLL_BAR = 10  # pixels, as in the style sheet


class IconButton(QToolButton):
    """Flat square icon button; `text` is its tooltip and its accessible name."""

    def __init__(self, name: str, text: str, size: int = 18, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._active = False
        self.setProperty("look", "icon")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setIconSize(QSize(size, size))
        self.set_text(text)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        follow_palette(self._recolor)

    def set_text(self, text: str) -> None:
        """Set the tooltip and the accessible name."""
        self.setToolTip(text)
        self.setAccessibleName(text)

    def set_active(self, *, active: bool) -> None:
        """Show by a dot that what the button opens is not as usual."""
        self._active = active
        self.update()

    def _recolor(self, palette: Palette) -> None:
        self.setIcon(icons.icon(self._name, palette.secondary, self.iconSize().width()))

    def paintEvent(self, arg__1: QPaintEvent) -> None:
        super().paintEvent(arg__1)
        if not self._active:
            return
        mirrored = self.layoutDirection() is Qt.LayoutDirection.RightToLeft
        middle = self.rect().center()
        centre = QPointF(middle.x() + (-7.5 if mirrored else 8.5), middle.y() - 6.5)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(shown_palette().background), 1.5))
        painter.setBrush(QColor(shown_palette().accent))
        painter.drawEllipse(centre, 4, 4)
        painter.end()

    def keyPressEvent(self, arg__1: QKeyEvent) -> None:
        if not click_by_enter(self, arg__1):
            super().keyPressEvent(arg__1)


class TextButton(QPushButton):
    """Text button with an optional icon; `look` selects a rule of the style sheet."""

    def __init__(self, text: str, look: str, name: str = "", parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self._name = name
        self.setProperty("look", look)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFont(font(BODY))
        self.setIconSize(QSize(18, 18))
        follow_palette(self._recolor)

    def _recolor(self, palette: Palette) -> None:
        if self._name:
            self.setIcon(icons.icon(self._name, palette.secondary, 18))

    def keyPressEvent(self, arg__1: QKeyEvent) -> None:
        if not click_by_enter(self, arg__1):
            super().keyPressEvent(arg__1)


def set_margins(layout: QLayout, start: int, top: int, end: int, bottom: int) -> None:
    """Set the margins of a layout in the direction of the window; Qt does not mirror them."""
    left, right = (end, start) if QApplication.isRightToLeft() else (start, end)
    layout.setContentsMargins(left, top, right, bottom)


def mirror_children(widget: QWidget, width: int) -> None:
    """Mirror the places of all children, just set from left to right, where the window is."""
    if widget.layoutDirection() is Qt.LayoutDirection.RightToLeft:
        for child in widget.findChildren(
            QWidget, options=Qt.FindChildOption.FindDirectChildrenOnly
        ):
            place = child.geometry()
            child.move(width - place.x() - place.width(), place.y())


def align_text_at_start(button: QAbstractButton) -> None:
    """Move a link, which has a padding, so that its text begins where others do."""
    mirrored = QApplication.isRightToLeft()
    button.setStyleSheet("margin-right: -5px;" if mirrored else "margin-left: -5px;")


def make_selectable(words: QLabel) -> None:
    """Let the mouse select a text, which stays at its side of the window in any direction."""
    words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
    if QApplication.isRightToLeft():  # Qt would place a Latin name at the left
        side = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignAbsolute
        words.setAlignment(side | Qt.AlignmentFlag.AlignVCenter)


def align_text_at_end(button: QAbstractButton) -> None:
    """Move a link, which has a padding, so that its text ends where others do."""
    mirrored = QApplication.isRightToLeft()
    button.setStyleSheet("margin-left: -5px;" if mirrored else "margin-right: -5px;")


def icon_after_text(button: QAbstractButton) -> None:
    """Place the icon of a button behind its text, in the direction of the window."""
    directions, mirrored = Qt.LayoutDirection, QApplication.isRightToLeft()
    button.setLayoutDirection(directions.LeftToRight if mirrored else directions.RightToLeft)


class RoundButton(QAbstractButton):
    """Round button filled with the accent colour: Send or Stop."""

    DIAMETER = 32

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = "send"
        self._hovered = False
        self.setFixedSize(self.DIAMETER + 6, self.DIAMETER + 6)  # plus the focus ring
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def show_as(self, name: str, text: str) -> None:
        """Set the icon, and the text for the tooltip and the accessible name."""
        self._name = name
        self.setToolTip(text)
        self.setAccessibleName(text)
        self.update()

    def enterEvent(self, event: QEnterEvent) -> None:
        self._hovered = True
        self.update()
        super().enterEvent(event)

    def leaveEvent(self, event: QEvent) -> None:
        self._hovered = False
        self.update()
        super().leaveEvent(event)

    def keyPressEvent(self, e: QKeyEvent) -> None:
        if not click_by_enter(self, e):
            super().keyPressEvent(e)

    def paintEvent(self, event: QPaintEvent) -> None:
        palette = shown_palette()
        fill, ink = palette.accent, palette.on_accent
        if not self.isEnabled():
            fill, ink = palette.hairline, palette.faint
            if palette.hairline == palette.faint:  # high contrast: an outline instead
                fill = palette.surface
        elif self._hovered:
            fill = mix(palette.accent, palette.text, 0.18)
        disc = QRectF(3, 3, self.DIAMETER, self.DIAMETER)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        if fill == palette.surface:
            painter.setPen(QPen(QColor(palette.text), 2))
        painter.setBrush(QColor(fill))
        painter.drawEllipse(disc)
        if self.hasFocus():
            painter.setPen(QPen(QColor(palette.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(disc.adjusted(-2, -2, 2, 2))
        picture = icons.pixmap(self._name, ink, 20, self.devicePixelRatioF())
        painter.drawPixmap(9, 9, picture)
        painter.end()


class Bar(QWidget):
    """Thin rounded progress bar without a frame."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._share = 0.0
        self._warning = False
        self.setFixedHeight(4)

    def set_share(self, share: float) -> None:
        """Set the filled share, clamped to 0..1."""
        share = min(max(share, 0.0), 1.0)
        if share != self._share:
            self._share = share
            self.update()

    def set_warning(self, warning: bool) -> None:
        """Set whether the bar has the colour of warnings."""
        if warning != self._warning:
            self._warning = warning
            self.update()

    @property
    def warning(self) -> bool:
        """Whether the bar has the colour of warnings."""
        return self._warning

    @property
    def share(self) -> float:
        """The filled share, 0 to 1."""
        return self._share

    def paintEvent(self, event: QPaintEvent) -> None:
        palette = shown_palette()
        full = QRectF(self.rect())
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        if palette.hairline == palette.accent:  # high contrast: an outline instead
            painter.setPen(QColor(palette.hairline))
            painter.drawRoundedRect(full.adjusted(0.5, 0.5, -0.5, -0.5), 2, 2)
            painter.setPen(Qt.PenStyle.NoPen)
        else:
            painter.setBrush(QColor(palette.hairline))
            painter.drawRoundedRect(full, 2, 2)
        if self._share > 0:
            width = max(full.width() * self._share, full.height())
            left = full.width() - width if self.isRightToLeft() else 0.0
            painter.setBrush(QColor(palette.warning if self._warning else palette.accent))
            painter.drawRoundedRect(QRectF(left, 0, width, full.height()), 2, 2)
        painter.end()

    def isRightToLeft(self) -> bool:
        return self.layoutDirection() is Qt.LayoutDirection.RightToLeft


class Column(QWidget):
    """Centres one widget, at most as wide as the text column."""

    MARGIN = 24

    def __init__(self, content: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        content.setMaximumWidth(COLUMN_WIDTH)
        content.setSizePolicy(QSizePolicy.Policy.Expanding, content.sizePolicy().verticalPolicy())
        layout = QHBoxLayout(self)
        layout.setContentsMargins(self.MARGIN, 0, self.MARGIN, 0)
        layout.addWidget(content)


class ElidedLabel(QLabel):
    """Single-line plain-text label that is elided when too narrow."""

    def __init__(
        self,
        tone: str,
        face: QFont,
        mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._mode = mode
        self._tip: str | None = None  # None until `show_words`: the owner sets the tooltip
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setFont(face)
        self.setProperty("tone", tone)

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def show_words(self, text: str, tip: str = "") -> None:
        """Show a text, or hide the label; the tooltip is the full text if elided, then `tip`."""
        if (text, tip) != (self.text(), self._tip):
            self.setText(text)
            self._tip = tip
            self._fit_tip()
        self.setVisible(bool(text))

    def natural_width(self) -> int:
        """The width of the whole text, in pixels."""
        return self.fontMetrics().horizontalAdvance(self.text()) + 2

    def _fit_tip(self) -> None:
        if self._tip is not None:
            whole = self.text() if self.natural_width() > self.width() else ""
            self.setToolTip("\n".join(part for part in (whole, self._tip) if part))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_tip()

    @property
    def shown(self) -> str:
        """The elided text at the current width."""
        width = self.contentsRect().width()
        return self.fontMetrics().elidedText(self.text(), self._mode, width)

    def paintEvent(self, arg__1: QPaintEvent) -> None:
        rect, text = self.contentsRect(), self.shown
        if not has_right_to_left(text):
            text = isolated(text)  # else the dots of a Latin name would be before it
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        painter.drawText(rect, int(self.alignment() | Qt.AlignmentFlag.AlignVCenter), text)
        painter.end()


def click_by_enter(button: QAbstractButton, event: QKeyEvent) -> bool:
    """Click a button for the Enter key, which Qt does in dialogs only; False for other keys."""
    if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
        return False
    if not event.isAutoRepeat():
        button.click()
    return True


def label(text: str, tone: str = "", pixels: int = BODY, *, wraps: bool = False) -> QLabel:
    """A plain-text label (markup is shown as text) in one of the style sheet's tones."""
    result = QLabel(text)
    result.setWordWrap(wraps)
    result.setTextFormat(Qt.TextFormat.PlainText)
    result.setFont(font(pixels))
    if QGuiApplication.layoutDirection() is Qt.LayoutDirection.RightToLeft:
        flag = Qt.AlignmentFlag  # else a Latin name stands at the left
        result.setAlignment(flag.AlignRight | flag.AlignAbsolute | flag.AlignVCenter)
    if tone:
        result.setProperty("tone", tone)
    return result


def page_title(title: str) -> QLabel:
    """The title of a page, in its head."""
    words = label(title, "", HEADING)
    words.setFont(font(HEADING, QFont.Weight.DemiBold))
    return words


def page_head(title: str, *buttons: QWidget) -> QWidget:
    """The head of a page with a scroll bar: its title, and buttons at the end."""
    content = QWidget()
    top = QHBoxLayout(content)
    top.setContentsMargins(0, 16, 0, 8)
    top.addWidget(page_title(title))
    top.addStretch(1)
    for button in buttons:
        top.addWidget(button)
    return with_scroll_bar_margin(Column(content))


def with_scroll_bar_margin(column: Column) -> QWidget:
    """Add a margin that aligns a column with one beside a scroll bar."""
    result = QWidget()
    layout = QHBoxLayout(result)
    set_margins(layout, 0, 0, _SCROLL_BAR, 0)
    layout.addWidget(column)
    return result


def section_heading(title: str) -> QLabel:
    """The heading of a section of a page, with the space above it."""
    heading = label(title, "", READING)
    heading.setFont(font(READING, QFont.Weight.DemiBold))
    heading.setContentsMargins(0, 24, 0, 4)
    return heading


def changed_mark() -> QLabel:
    """A dot beside what is not as usual; hidden."""
    mark = label("•", "accent", READING)
    mark.setAccessibleName(tr("Changed"))
    mark.setToolTip(tr("Changed in this chat"))
    mark.hide()
    return mark


def set_property(widget: QWidget, name: str, value: object) -> None:
    """Set a property used as a style sheet selector and, if it changed, restyle the widget."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        widget.style().unpolish(widget)
        widget.style().polish(widget)


def fade_in(widget: QWidget) -> None:
    """Fade in a widget that was just shown, unless the desktop disables animations."""
    duration = widget.style().styleHint(QStyle.StyleHint.SH_Widget_Animation_Duration, None, widget)
    if duration <= 0:
        return
    effect = QGraphicsOpacityEffect(widget)
    widget.setGraphicsEffect(effect)
    animation = QPropertyAnimation(effect, b"opacity", effect)
    animation.setDuration(FADE_MILLISECONDS)
    animation.setStartValue(0.0)
    animation.setEndValue(1.0)
    animation.setEasingCurve(QEasingCurve.Type.OutCubic)

    def done() -> None:
        if widget.graphicsEffect() is effect:
            widget.setGraphicsEffect(None)  # type: ignore[arg-type]  # Qt takes null here

    animation.finished.connect(done)
    animation.start(QPropertyAnimation.DeletionPolicy.DeleteWhenStopped)
