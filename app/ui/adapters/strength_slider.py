"""Adapter strength: a slider with detents at 0 and 1, and a spin box for the exact number.

QSlider holds integers only, so its value is in hundredths; the accessible value is the strength.
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
from app.system.translation import number
from app.ui.theme.palette import shown_palette
from app.ui.theme.theme import RADIUS_CONTROL, SMALL, figures
from app.ui.widgets import accessibility

HUNDREDTHS = 100  # slider units in a strength of 1
STEP = 0.05
_SNAP_DISTANCE = 6.0  # pixels: the knob snaps to a detent within this distance
_KNOB_RADIUS = 7.0  # pixels, radius
_TRACK_MARGIN = 9.0  # pixels left and right of the track, for the knob and its focus ring
_DETENTS = (HUNDREDTHS, 0)


class StrengthSlider(QSlider):
    """Slider from -2 to 2 with a tick at 1 and a ring at 0, where the adapter has no effect."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        accessibility.register(StrengthSlider, _AccessibleSlider)
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
        """Set the value from a strength, rounded to hundredths."""
        self.setValue(round(strength * HUNDREDTHS))

    def set_acting(self, acts: bool) -> None:
        """Set whether the adapter is switched on, which fills the track in the accent colour."""
        if acts != self._acts:
            self._acts = acts
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(160, 28)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, 28)

    # --- mouse ----------------------------------------------------------------------------------

    def x_for_value(self, value: int) -> float:
        """The x coordinate of the knob's centre for a value, in pixels."""
        share = (value - self.minimum()) / (self.maximum() - self.minimum())
        if self.layoutDirection() is Qt.LayoutDirection.RightToLeft:
            share = 1.0 - share
        return _TRACK_MARGIN + share * (self.width() - 2 * _TRACK_MARGIN)

    def value_at(self, x: float) -> int:
        """The value for a knob centred at `x`, rounded to whole steps or snapped to a detent."""
        for detent in _DETENTS:
            if abs(x - self.x_for_value(detent)) <= _SNAP_DISTANCE:
                return detent
        share = min(max((x - _TRACK_MARGIN) / max(self.width() - 2 * _TRACK_MARGIN, 1.0), 0.0), 1.0)
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
        e.ignore()  # the list scrolls instead: the wheel must not change a strength by accident

    # --- drawing --------------------------------------------------------------------------------

    def paintEvent(self, ev: QPaintEvent) -> None:
        palette, middle = shown_palette(), self.height() / 2
        high_contrast = palette.hairline == palette.accent  # high contrast: outlines
        knob, zero, one = (self.x_for_value(value) for value in (self.value(), 0, HUNDREDTHS))
        ink = QColor(palette.accent if self._acts else palette.faint)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(palette.faint if high_contrast else palette.hairline))
        thin = 1.0 if high_contrast else 2.0
        painter.drawRoundedRect(
            QRectF(
                _TRACK_MARGIN, middle - thin / 2 - 0.5, self.width() - 2 * _TRACK_MARGIN, thin + 1
            ),
            2,
            2,
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
        painter.drawEllipse(QPointF(knob, middle), _KNOB_RADIUS - 1, _KNOB_RADIUS - 1)
        if self.hasFocus():
            painter.setPen(QPen(QColor(palette.accent), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(1, 2, -1, -2), 6, 6)
        painter.end()


class StrengthField(QDoubleSpinBox):
    """Spin box for the strength; the arrow keys change it by 0.05."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setRange(-STRONGEST, STRONGEST)
        self.setSingleStep(STEP)
        self.setDecimals(2)
        self.setValue(1.0)
        self.setKeyboardTracking(False)
        self.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.NoButtons)
        self.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.setFrame(False)  # `paintEvent` draws it on hover and focus only
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setFont(figures(SMALL))
        self.setFixedSize(52, 28)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        palette, focused = shown_palette(), self.hasFocus()
        high_contrast = palette.hairline == palette.text
        if not (focused or self.underMouse() or high_contrast):
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


class _AccessibleStrength(QAccessibleValueInterface):
    """Accessible value interface of a `StrengthSlider`, in units of strength."""

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


class _AccessibleSlider(QAccessibleWidget):
    """Accessible interface of a `StrengthSlider`: its value text is the strength."""

    def __init__(self, slider: StrengthSlider) -> None:
        super().__init__(slider, QAccessible.Role.Slider, "")
        self._slider = slider
        self._value = _AccessibleStrength(slider)

    def text(self, t: QAccessible.Text) -> str:
        if t is QAccessible.Text.Value:
            return number(self._slider.strength, 2)
        if t is QAccessible.Text.Name:
            return self._slider.accessibleName()
        return super().text(t)

    def interface_cast(self, t: QAccessible.InterfaceType) -> object:  # type: ignore[override]
        if t is QAccessible.InterfaceType.ValueInterface:
            return self._value
        return super().interface_cast(t) or accessibility.NO_INTERFACE
