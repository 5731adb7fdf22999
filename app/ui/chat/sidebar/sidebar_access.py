"""Accessible tree of the sidebar: levels, open and closed folders, and the selection.

Its children are the rows, one below the other as QListView numbers them in its events; their level
is an attribute. Qt's own interface of a list has neither levels nor folders.
"""

# ruff: noqa: N803  (Qt names the arguments of the methods that are overridden)
from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QItemSelectionModel, QModelIndex, QObject, QPoint, QRect, Qt, QTimer
from PySide6.QtGui import (
    QAccessible,
    QAccessibleActionInterface,
    QAccessibleAttributesInterface,
    QAccessibleEvent,
    QAccessibleInterface,
    QAccessibleSelectionInterface,
    QColor,
    QPalette,
    QWindow,
)
from PySide6.QtWidgets import QAccessibleWidget, QListView
from shiboken6 import isValid

from app.ui.chat.sidebar.sidebar_list import DEPTH_ROLE, ID_ROLE, ConversationListModel
from app.ui.widgets.accessibility import NO_INTERFACE

_Select = QItemSelectionModel.SelectionFlag


class AccessibleRows:
    """Creates, caches and deletes the accessible interfaces of the rows.

    `open_row` opens a chat, or opens and closes a folder; `open_menu` opens the menu of a row.
    """

    def __init__(
        self,
        view: QListView,
        model: ConversationListModel,
        open_row: Callable[[QModelIndex], object],
        open_menu: Callable[[QModelIndex], object],
    ) -> None:
        self.view, self.model = view, model
        self.open_row, self.open_menu = open_row, open_menu
        self._rows: dict[int, AccessibleRow] = {}
        model.modelAboutToBeReset.connect(self._forget)
        view.destroyed.connect(self._forget)

    def row(self, number: int) -> AccessibleRow | None:
        """The cached interface of a row; None if there is no such row."""
        if not 0 <= number < self.model.rowCount():
            return None
        if number not in self._rows:
            self._rows[number] = AccessibleRow(self, number)
        return self._rows[number]

    def report_focus(self) -> None:
        """Report the keyboard focus of the current row, which Qt reports only when it changes."""
        found = self.row(self.view.currentIndex().row()) if QAccessible.isActive() else None
        if found is not None and self.view.hasFocus():
            event = QAccessibleEvent(found, QAccessible.Event.Focus)
            QAccessible.updateAccessibility(event)

    def _forget(self) -> None:
        for item in self._rows.values():
            QAccessible.deleteAccessibleInterface(QAccessible.uniqueId(item))
        self._rows.clear()


class AccessibleRow(QAccessibleInterface):
    """Interface of a folder, a chat or a heading."""

    def __init__(self, rows: AccessibleRows, number: int) -> None:
        super().__init__()
        self._rows, self.number = rows, number
        self._action, self._attributes = _RowActions(self), _RowAttributes(self)

    @property
    def index(self) -> QModelIndex:
        """The row's place in the model; invalid after its removal."""
        return self._rows.model.index(self.number) if isValid(self._rows.view) else QModelIndex()

    @property
    def is_heading(self) -> bool:
        """Whether the row is neither a chat nor a folder."""
        return self.index.data(ID_ROLE) is None and self.open is None

    @property
    def open(self) -> bool | None:
        """Whether a folder is open; None for other rows."""
        row = self._rows.model.folder_row(self.index)
        return None if row is None else row.open

    def open_row(self) -> None:
        """Open the chat, or open or close the folder."""
        self._rows.open_row(self.index)

    def open_menu(self) -> None:
        """Open the menu of the row, which becomes the current one."""
        self._rows.view.setCurrentIndex(self.index)
        self._rows.open_menu(self.index)

    def isValid(self) -> bool:
        return self.index.isValid()

    def object(self) -> QObject | None:  # type: ignore[override]
        return None

    def role(self) -> QAccessible.Role:
        roles = QAccessible.Role
        return roles.Heading if self.isValid() and self.is_heading else roles.TreeItem

    def state(self) -> QAccessible.State:
        state, view, index = QAccessible.State(), self._rows.view, self.index
        if not index.isValid():
            state.invalid = True  # type: ignore[attr-defined]
            return state
        state.invisible = not view.isVisible()  # type: ignore[attr-defined]
        seen = view.viewport().rect().intersects(view.visualRect(index))
        state.offscreen = not seen  # type: ignore[attr-defined]
        if self.is_heading:
            return state
        current = view.currentIndex() == index
        state.focusable = state.selectable = True  # type: ignore[attr-defined]
        state.extSelectable = True  # type: ignore[attr-defined]
        state.selected = view.selectionModel().isSelected(index)  # type: ignore[attr-defined]
        state.focused = current and view.hasFocus()  # type: ignore[attr-defined]
        if (is_open := self.open) is not None:
            state.expandable = True  # type: ignore[attr-defined]
            state.expanded = is_open  # type: ignore[attr-defined]
            state.collapsed = not is_open  # type: ignore[attr-defined]
        return state

    def text(self, t: QAccessible.Text) -> str:
        roles = {
            QAccessible.Text.Name: Qt.ItemDataRole.AccessibleTextRole,
            QAccessible.Text.Description: Qt.ItemDataRole.AccessibleDescriptionRole,
        }
        if t not in roles or not self.isValid():
            return ""
        words = self.index.data(roles[t])
        if words is None and t is QAccessible.Text.Name:
            words = self.index.data()
        return str(words or "")

    def setText(self, t: QAccessible.Text, text: str) -> None:
        """Do nothing: a row is renamed in its editor."""

    def rect(self) -> QRect:
        if not self.isValid():
            return QRect()
        view = self._rows.view
        place = view.visualRect(self.index)
        return QRect(view.viewport().mapToGlobal(place.topLeft()), place.size())

    def parent(self) -> QAccessibleInterface:
        return QAccessible.queryAccessibleInterface(self._rows.view)

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        return None

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        return None

    def childCount(self) -> int:
        return 0

    def indexOfChild(self, arg__1: QAccessibleInterface) -> int:
        return -1

    def backgroundColor(self) -> QColor:
        return self._rows.view.palette().color(QPalette.ColorRole.Base)

    def foregroundColor(self) -> QColor:
        return self._rows.view.palette().color(QPalette.ColorRole.Text)

    def window(self) -> QWindow | None:  # type: ignore[override]
        return self._rows.view.window().windowHandle()

    def interface_cast(self, t: QAccessible.InterfaceType) -> object:  # type: ignore[override]
        if self.isValid() and not self.is_heading:
            if t is QAccessible.InterfaceType.ActionInterface:
                return self._action
            if t is QAccessible.InterfaceType.AttributesInterface:
                return self._attributes
        return NO_INTERFACE


class _RowActions(QAccessibleActionInterface):
    """What can be done with a row: open it, or open its menu."""

    def __init__(self, row: AccessibleRow) -> None:
        super().__init__()
        self._row = row

    def actionNames(self) -> list[str]:
        actions = QAccessibleActionInterface
        return [actions.pressAction(), actions.showMenuAction()]

    def doAction(self, actionName: str) -> None:
        row, actions = self._row, QAccessibleActionInterface
        uses = {actions.pressAction(): row.open_row, actions.showMenuAction(): row.open_menu}
        if row.isValid() and actionName in uses:
            QTimer.singleShot(0, uses[actionName])  # deferred: it may delete this object

    def keyBindingsForAction(self, actionName: str) -> list[str]:
        return []


class _RowAttributes(QAccessibleAttributesInterface):
    """The level of a row: 1 outside all folders."""

    def __init__(self, row: AccessibleRow) -> None:
        super().__init__()
        self._row = row

    def attributeKeys(self) -> list[QAccessible.Attribute]:
        return [QAccessible.Attribute.Level]

    def attributeValue(self, key: QAccessible.Attribute) -> object:
        if key is QAccessible.Attribute.Level and self._row.isValid():
            return int(self._row.index.data(DEPTH_ROLE) or 0) + 1
        return None


class AccessibleTree(QAccessibleWidget):
    """Interface of the list itself."""

    def __init__(self, rows: AccessibleRows) -> None:
        super().__init__(rows.view, QAccessible.Role.Tree, "")
        self._rows = rows
        self._selection = _Selection(rows)

    def state(self) -> QAccessible.State:
        state = super().state()
        state.multiSelectable = state.extSelectable = True  # type: ignore[attr-defined]
        return state

    def child(self, index: int) -> QAccessibleInterface | None:  # type: ignore[override]
        return self._rows.row(index)

    def childCount(self) -> int:
        return self._rows.model.rowCount()

    def indexOfChild(self, child: QAccessibleInterface) -> int:
        return child.number if isinstance(child, AccessibleRow) else -1

    def childAt(self, x: int, y: int) -> QAccessibleInterface | None:  # type: ignore[override]
        view = self._rows.view
        return self._rows.row(view.indexAt(view.viewport().mapFromGlobal(QPoint(x, y))).row())

    def focusChild(self) -> QAccessibleInterface | None:  # type: ignore[override]
        view = self._rows.view
        return self._rows.row(view.currentIndex().row()) if view.hasFocus() else None

    def interface_cast(self, t: QAccessible.InterfaceType) -> object:  # type: ignore[override]
        is_selection = t is QAccessible.InterfaceType.SelectionInterface
        return self._selection if is_selection else NO_INTERFACE


class _Selection(QAccessibleSelectionInterface):
    """The selected chats and folders."""

    def __init__(self, rows: AccessibleRows) -> None:
        super().__init__()
        self._rows = rows

    def selectedItemCount(self) -> int:
        return len(self._rows.view.selectedIndexes())

    def selectedItems(self) -> list[QAccessibleInterface]:
        numbers = sorted(index.row() for index in self._rows.view.selectedIndexes())
        return [found for number in numbers if (found := self._rows.row(number))]

    def select(self, childItem: QAccessibleInterface) -> bool:
        return self._change(childItem, _Select.Select)

    def unselect(self, childItem: QAccessibleInterface) -> bool:
        return self._change(childItem, _Select.Deselect)

    def selectAll(self) -> bool:
        self._rows.view.selectAll()
        return True

    def clear(self) -> bool:
        self._rows.view.clearSelection()
        return True

    def _change(self, item: QAccessibleInterface, flag: _Select) -> bool:
        if not isinstance(item, AccessibleRow) or not item.isValid() or item.is_heading:
            return False
        self._rows.view.selectionModel().select(item.index, flag)
        return True
