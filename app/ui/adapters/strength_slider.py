"""How strongly an adapter is applied: a slider with a detent at 1 and at 0, and a field beside it.

The slider counts in hundredths, because Qt's sliders know whole numbers only; screen readers are
told the number a person sees.
"""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QAccessible,
    QAccessibleValueInterface,
    QColor,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QAccessibleWidget,
    QDoubleSpinBox,
    QSizePolicy,
    QSlider,
    QWidget,
)

from app.state.adapters import STRONGEST
from app.ui.theme.palette import LIGHT, Palette
from app.ui.theme.theme import RADIUS_CONTROL, SMALL, figures
from app.ui.widgets import accessibility

HUNDREDTHS = 100  # of the slider's numbers in a strength of 1
STEP = 0.05
_PULL = 6.0  # pixels around a detent from where the knob jumps onto it
_KNOB = 7.0  # pixels, radius
_EDGE = 9.0  # pixels left and right of the track, for the knob and its ring
_DETENTS = (HUNDREDTHS, 0)


class StrengthSlider(QSlider):
    """From -2 to 2; a tick at 1, a small ring at 0, where the adapter does nothing."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        accessibility.register(StrengthSlider, _SliderAccess)
        self._palette = LIGHT
        self._acts = True
        most = round(STRONGEST * HUNDREDTHS)
        self.setRange(-most, most)
        self.setSingleStep(round(STEP * HUNDREDTHS))
        self.setPageStep(5 * round(STEP * HUNDREDTHS))
        self.setValue(HUNDREDTHS)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    @property
    def strength(self) -> float:
        """The value as a strength."""
        return self.value() / HUNDREDTHS

    def set_strength(self, strength: float) -> None:
        """Move the knob."""
        self.setValue(round(strength * HUNDREDTHS))

    def set_acting(self, acts: bool) -> None:
        """Whether its adapter is switched on: then the track is filled in the accent."""
        if acts != self._acts:
            self._acts = acts
            self.update()

    def apply_palette(self, palette: Palette) -> None:
        """Paint in another theme."""
        self._palette = palette
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(160, 28)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, 28)

    # --- the mouse ------------------------------------------------------------------------------

    def place_of(self, value: int) -> float:
        """Where the knob stands for a value, in pixels."""
        share = (value - self.minimum()) / (self.maximum() - self.minimum())
        if self.layoutDirection() is Qt.LayoutDirection.RightToLeft:
            share = 1.0 - share
        return _EDGE + share * (self.width() - 2 * _EDGE)

    def value_at(self, x: float) -> int:
        """The value a knob at `x` stands for: whole steps, and the detents from some pixels away."""
        for detent in _DETENTS:
            if abs(x - self.place_of(detent)) <= _PULL:
                return detent
        share = min(max((x - _EDGE) / max(self.width() - 2 * _EDGE, 1.0), 0.0), 1.0)
        if self.layoutDirection() is Qt.LayoutDirection.RightToLeft:
            share = 1.0 - share
        value = self.minimum() + share * (self.maximum() - self.minimum())
        return round(value / self.singleStep()) * self.singleStep()

    def mousePressEvent(self, ev: QMouseEvent) -> None:
        if ev.button() is Qt.MouseButton.LeftButton:
            self.setSliderDown(True)
            self.setValue(self.value_at(ev.position().x()))
        ev.accept()

    def mouseMoveEvent(self, ev: QMouseEvent) -> None:
        if self.isSliderDown():
            self.setValue(self.value_at(ev.position().x()))

    def mouseReleaseEvent(self, ev: QMouseEvent) -> None:
        if ev.button() is Qt.MouseButton.LeftButton:
            self.setSliderDown(False)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.setValue(HUNDREDTHS)
        self.sliderReleased.emit()

    def wheelEvent(self, e: QWheelEvent) -> None:
        e.ignore()  # the list scrolls; nothing changes in passing

    # --- drawing --------------------------------------------------------------------------------

    def paintEvent(self, ev: QPaintEvent) -> None:
        palette, middle = self._palette, self.height() / 2
        bare = palette.hairline == palette.accent  # high contrast: outlines
        knob, zero, one = (self.place_of(value) for value in (self.value(), 0, HUNDREDTHS))
        ink = QColor(palette.accent if self._acts else palette.faint)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(palette.faint if bare else palette.hairline))
        thin = 1.0 if bare else 2.0
        painter.drawRoundedRect(
            QRectF(_EDGE, middle - thin / 2 - 0.5, self.width() - 2 * _EDGE, thin + 1), 2, 2
        )
        painter.setBrush(ink)
        painter.drawRoundedRect(
            QRectF(min(zero, knob), middle - 1.5, abs(knob - zero), 3), 1.5, 1.5
        )
        painter.setPen(QPen(QColor(palette.secondary), 1.5))
        painter.drawLine(QPointF(one, middle - 9), QPointF(one, middle + 9))
        painter.setPen(QPen(QColor(palette.secondary), 1.5))
        painter.setBrush(QColor(palette.sunken))
        painter.drawEllipse(QPointF(zero, middle), 2.5, 2.5)
        painter.setPen(QPen(ink, 2))
        painter.setBrush(QColor(palette.surface))
        painter.drawEllipse(QPointF(knob, middle), _KNOB - 1, _KNOB - 1)
        if self.hasFocus():
            painter.setPen(QPen(QColor(palette.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 2, -1, -2), 6, 6)
        painter.end()


class StrengthField(QDoubleSpinBox):
    """The same number to type; the arrow keys change it by 0.05."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setRange(-STRONGEST, STRONGEST)
        self.setSingleStep(STEP)
        self.setDecimals(2)
        self.setValue(1.0)
        self.setKeyboardTracking(False)
        self.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.NoButtons)
        self.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.setFrame(False)  # drawn here, and only where it is reached for
        self._palette = LIGHT
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setFont(figures(SMALL))
        self.setFixedSize(52, 28)

    def apply_palette(self, palette: Palette) -> None:
        """Paint in another theme."""
        self._palette = palette
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        palette, focused = self._palette, self.hasFocus()
        bare = palette.hairline == palette.text
        if not (focused or self.underMouse() or bare):
            return
        line = 2.0 if focused else 1.0
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(QColor(palette.accent if focused else palette.hairline), line))
        painter.setBrush(QColor(palette.surface))
        inset = line / 2
        frame = QRectF(self.rect()).adjusted(inset, inset, -inset, -inset)
        painter.drawRoundedRect(frame, RADIUS_CONTROL - inset, RADIUS_CONTROL - inset)
        painter.end()


class _Value(QAccessibleValueInterface):
    """The number of a slider as screen readers read and set it."""

    def __init__(self, slider: StrengthSlider) -> None:
        super().__init__()
        self._slider = slider

    def currentValue(self) -> float:
        return self._slider.strength

    def setCurrentValue(self, value: float) -> None:
        self._slider.set_strength(value)

    def minimumValue(self) -> float:
        return -STRONGEST

    def maximumValue(self) -> float:
        return STRONGEST

    def minimumStepSize(self) -> float:
        return STEP


class _SliderAccess(QAccessibleWidget):
    """A slider whose value is the strength it stands for."""

    def __init__(self, slider: StrengthSlider) -> None:
        super().__init__(slider, QAccessible.Role.Slider, "")
        self._slider = slider
        self._value = _Value(slider)

    def text(self, t: QAccessible.Text) -> str:
        if t is QAccessible.Text.Value:
            return f"{self._slider.strength:.2f}"
        if t is QAccessible.Text.Name:
            return self._slider.accessibleName()
        return super().text(t)

    def interface_cast(self, t: QAccessible.InterfaceType) -> object:  # type: ignore[override]
        if t is QAccessible.InterfaceType.ValueInterface:
            return self._value
        return super().interface_cast(t) or accessibility.NO_INTERFACE
