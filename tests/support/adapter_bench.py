"""Adapter test bench: the panel of a chat over a fake engine, and user input helpers."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, QPoint, QPointF, QPropertyAnimation, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QLineEdit,
    QMenu,
    QWidget,
)

from adapter_stage import AdapterStage
from app.engines.client import Capabilities
from app.state.states import States
from app.ui.panel.panel import ChatPanel
from app.ui.theme.theme import Theme
from app.wiring import connect_adapters
from stage import flush, until


class Host(QWidget):
    """A window with a text field and the panel to its right."""

    def __init__(self, panel: ChatPanel) -> None:
        super().__init__()
        self.page = QLineEdit()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.page, 1)
        layout.addWidget(panel)
        self.resize(1000, 700)


class Bench(AdapterStage):
    """The adapter controller and, in a window, the panel that shows its state."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        application = QApplication.instance()
        assert isinstance(application, QApplication)
        self.theme = Theme(application, "light")
        self.state.set_capabilities(Capabilities(adapters=True))
        self.panel = ChatPanel(States(chat=self.state, adapters=self.shown))
        self.window = Host(self.panel)
        self.section = self.panel.adapters
        connect_adapters(self.section, self.adapters)
        self.panel.opened.connect(self.adapters.find_missing)
        self.window.show()
        self.window.activateWindow()
        self.window.page.setFocus()
        self.wait_until_idle()

    @property
    def sliding(self) -> bool:
        running = QPropertyAnimation.State.Running
        found = self.window.findChildren(QPropertyAnimation)
        return any(each.state() is running for each in found)

    def wait_for_animations(self) -> None:
        """Wait until every animation has ended."""
        until(lambda: not self.sliding)
        flush()

    def open(self, *paths: Path) -> None:
        """Load a model, add these adapters, all accepted, and open the panel."""
        self.load()
        for path in paths:
            self.adapters.add(path)
            self.answer_requests()
        self.panel.open()
        self.wait_for_animations()

    def finish(self) -> None:
        self.window.close()  # commits text that was typed but not confirmed
        self.window.deleteLater()
        flush()
        self.close()
        self.theme.deleteLater()
        flush()


def names(bench: Bench) -> list[str]:
    return [row.name.text() for row in bench.section.list.rows]


def menu_of(bench: Bench) -> QMenu:
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    return menu


def trigger_menu_entry(bench: Bench, text: str) -> None:
    """Trigger an entry of the open menu and close it."""
    menu = menu_of(bench)
    action = next(action for action in menu.actions() if action.text() == text)
    assert action.isEnabled()
    action.trigger()
    menu.close()
    flush()


def drop_files(panel: ChatPanel, *paths: Path) -> bool:
    """Drop files onto the panel; returns whether the panel accepted them."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    copy, left = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(QPoint(40, 40), copy, data, left, none)
    enter.ignore()
    QApplication.sendEvent(panel.sheet, enter)
    if not enter.isAccepted():
        return False
    QApplication.sendEvent(panel.sheet, QDropEvent(QPointF(40, 40), copy, data, left, none))
    flush()
    return True
