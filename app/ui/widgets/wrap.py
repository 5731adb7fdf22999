"""Layout that places widgets in lines, as many as its width needs."""

from __future__ import annotations

from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtWidgets import QApplication, QLayout, QLayoutItem, QWidget


class WrapLayout(QLayout):
    """Lines of widgets in the direction of the window; `centred` ones, or from its beginning.

    A widget is as wide as its size hint, and no wider than the layout; lower ones are in the middle
    of their line.
    """

    def __init__(
        self, parent: QWidget | None = None, spacing: int = 8, *, centred: bool = True
    ) -> None:
        super().__init__(parent)
        self._centred = centred
        self._items: list[QLayoutItem] = []
        self.setSpacing(spacing)
        self.setContentsMargins(0, 0, 0, 0)

    def addItem(self, arg__1: QLayoutItem) -> None:
        self._items.append(arg__1)
        self.invalidate()

    def count(self) -> int:
        return len(self._items)

    def itemAt(self, index: int) -> QLayoutItem | None:  # type: ignore[override]
        return self._items[index] if 0 <= index < len(self._items) else None

    def takeAt(self, index: int) -> QLayoutItem | None:  # type: ignore[override]
        if not 0 <= index < len(self._items):
            return None
        self.invalidate()
        return self._items.pop(index)

    def expandingDirections(self) -> Qt.Orientation:
        return Qt.Orientation(0)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, arg__1: int) -> int:
        return self._place(QRect(0, 0, arg__1, 0), move=False)

    def setGeometry(self, arg__1: QRect) -> None:
        super().setGeometry(arg__1)
        self._place(arg__1, move=True)

    def sizeHint(self) -> QSize:
        shown = self._shown()
        width = sum(item.sizeHint().width() for item in shown) + self.spacing() * len(shown)
        return QSize(width, max((item.sizeHint().height() for item in shown), default=0))

    def minimumSize(self) -> QSize:
        width = max((item.minimumSize().width() for item in self._shown()), default=0)
        height = max((item.sizeHint().height() for item in self._shown()), default=0)
        return QSize(width, height)

    def _shown(self) -> list[QLayoutItem]:
        return [item for item in self._items if not item.isEmpty()]

    def _place(self, area: QRect, *, move: bool) -> int:
        """Place the items, or only measure them; returns the height of all lines."""
        gap, mirrored = self.spacing(), QApplication.isRightToLeft()
        lines: list[list[QLayoutItem]] = []
        room = 0
        for item in self._shown():
            width = min(item.sizeHint().width(), area.width())
            if not lines or width > room:
                lines.append([])
                room = area.width()
            lines[-1].append(item)
            room -= width + gap
        y = area.top()
        for line in lines:
            sizes = [item.sizeHint() for item in line]
            sizes = [QSize(min(size.width(), area.width()), size.height()) for size in sizes]
            whole = sum(size.width() for size in sizes) + gap * (len(line) - 1)
            before = (area.width() - whole) // 2 if self._centred else 0
            x = area.left() + (area.width() - before if mirrored else before)
            tallest = max(size.height() for size in sizes)
            for item, size in zip(line, sizes, strict=True):
                if move:
                    left = x - size.width() if mirrored else x
                    top = y + (tallest - size.height()) // 2
                    item.setGeometry(QRect(QPoint(left, top), size))
                x += -(size.width() + gap) if mirrored else size.width() + gap
            y += tallest + gap
        return max(y - gap - area.top(), 0)
