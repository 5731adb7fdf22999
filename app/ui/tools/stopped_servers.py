"""Servers that are on but do not run, so that their tools are not listed: why, with Start."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from app.domain.tool_servers import ServerPhase, ServerRow
from app.domain.visible_text import on_one_line, written_out
from app.state.tool_servers import ToolServersState
from app.system.translation import isolated, tr
from app.ui.theme.theme import SMALL
from app.ui.widgets.controls import TextButton, label


class StoppedServers(QWidget):
    """A line for each of them; hidden while there is none."""

    started = Signal(str, bool)  # id of a server, True

    def __init__(self, state: ToolServersState) -> None:
        super().__init__()
        self._state = state
        self._shown: list[ServerRow] = []
        self.buttons: dict[str, TextButton] = {}  # by id of the server
        self._lines = QVBoxLayout(self)
        self._lines.setContentsMargins(0, 4, 0, 0)
        self._lines.setSpacing(0)
        self.hide()
        state.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the servers of the state."""
        found = [
            row
            for row in self._state.rows
            if row.is_on and not row.asks_first and row.phase is not ServerPhase.READY
        ]
        if found == self._shown:
            return
        self._shown, self.buttons = found, {}
        while (item := self._lines.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for row in found:
            self._lines.addWidget(self._line(row))
        self.setVisible(bool(found))

    def _line(self, row: ServerRow) -> QWidget:
        made = QWidget()
        line = QHBoxLayout(made)
        line.setContentsMargins(0, 0, 0, 0)
        name = isolated(on_one_line(row.name))
        tone, words = "secondary", tr("{name} is not running.", name=name)
        if row.phase is ServerPhase.FAILED:
            tone, words = "danger", written_out(row.problem)
        elif row.phase is not ServerPhase.OFF:
            words = tr("{name} starts…", name=name)
        line.addWidget(label(words, tone, SMALL, wraps=True), 1)
        if row.phase in (ServerPhase.OFF, ServerPhase.FAILED):
            button = self.buttons[row.id] = TextButton(tr("Start"), "link")
            button.setAccessibleName(tr("{action}: {name}", action=button.text(), name=name))
            button.clicked.connect(partial(self.started.emit, row.id, True))
            line.addWidget(button, 0, Qt.AlignmentFlag.AlignTop)
        return made
