"""The visible frame of the panel: slide animation and drop target of adapters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEasingCurve, QPoint, QPropertyAnimation, Qt, Signal
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QFrame, QStyle, QWidget

from app.state.adapters import is_adapter_name
from app.system.translation import tr
from app.ui.theme.palette import Palette, follow_palette
from app.ui.widgets.controls import set_property

_SLIDE_MILLISECONDS = 140


class Sheet(QFrame):
    """Animates its position and accepts dropped adapter files."""

    dropped = Signal(Path)
    escaped = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.setAccessibleName(tr("Chat settings"))
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAcceptDrops(True)
        self._animation: QPropertyAnimation | None = None
        follow_palette(self._recolor)

    def slide(self, start: QPoint, end: QPoint, arrived: Callable[[], None]) -> None:
        """Animate from `start` to `end`, then call `arrived`; jumps if animations are disabled."""
        if self._animation is not None:
            start = self.pos()  # a running animation is reversed from the current position
            self._animation.stop()
            self._animation = None
        hint = QStyle.StyleHint.SH_Widget_Animation_Duration
        if self.style().styleHint(hint, None, self) <= 0 or not self.isVisible():
            self.move(end)
            arrived()
            return

        def done() -> None:
            self._animation = None
            arrived()

        animation = QPropertyAnimation(self, b"pos", self)
        animation.setDuration(_SLIDE_MILLISECONDS)
        animation.setStartValue(start)
        animation.setEndValue(end)
        animation.setEasingCurve(QEasingCurve.Type.OutCubic)
        animation.finished.connect(done)
        self._animation = animation
        animation.start(QPropertyAnimation.DeletionPolicy.DeleteWhenStopped)

    def move_to(self, corner: QPoint) -> None:
        """Move the top-left corner to `corner`; a running animation ends there instead."""
        if self._animation is not None:
            self._animation.setEndValue(corner)
        else:
            self.move(corner)

    def _recolor(self, palette: Palette) -> None:
        self.setStyleSheet(_style(palette))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
        else:
            super().keyPressEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _adapters_in(event):
            set_property(self, "dropping", True)
            event.acceptProposedAction()

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        set_property(self, "dropping", False)

    def dropEvent(self, event: QDropEvent) -> None:
        set_property(self, "dropping", False)
        if paths := _adapters_in(event):
            event.acceptProposedAction()
            for path in paths:
                self.dropped.emit(path)


def _adapters_in(event: QDropEvent) -> list[Path]:
    """The dragged local paths that look like adapters by their names."""
    urls = [url for url in event.mimeData().urls() if url.isLocalFile()]
    return [path for url in urls if is_adapter_name(path := Path(url.toLocalFile()))]


def _style(p: Palette) -> str:
    """The style sheet of the panel for one palette."""
    line = 2 if p.hairline == p.text else 1
    start = "right" if QApplication.isRightToLeft() else "left"
    return f"""
QFrame#panel {{ background: {p.sunken}; border: none; border-{start}: {line}px solid {p.hairline}; }}
QFrame#panel[dropping="true"] {{ border: 2px solid {p.accent}; }}
QFrame#adapter_row {{ background: transparent; border: none; border-radius: 6px; }}
QFrame#adapter_row[dragged="true"] {{ background: {p.accent_soft}; }}
QDoubleSpinBox {{
    background: transparent; selection-background-color: {p.accent};
    selection-color: {p.on_accent};
}}
QDoubleSpinBox QLineEdit {{
    background: transparent; border: none; padding: 0 5px; min-height: 0;
}}
"""
