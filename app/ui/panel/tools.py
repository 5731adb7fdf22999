"""Tools section of the panel: which ones the model may call, and what of the files they may use."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout

from app.domain.chat_settings import NO_SETTINGS, AnswerFormat
from app.state.chat_settings import ShownSettings
from app.state.tool_servers import ToolServersState
from app.state.tools import ToolRow, ToolsState
from app.system.translation import number, sentences, tr, trn
from app.ui.panel.section import Section, note
from app.ui.panel.tool_paths import ToolPathList
from app.ui.tools.stopped_servers import StoppedServers
from app.ui.tools.switches import ToolSwitch, ToolSwitches, facts_words
from app.ui.widgets.controls import TextButton, align_text_at_start, label, set_property


class ToolsSection(Section):
    """Shows the tools of the state; emits the user's requests as signals."""

    activity_requested = Signal()  # the list of all calls
    servers_requested = Signal()  # the page of MCP servers
    paths_wanted = Signal(object)  # tuple of Path: what is there is to be looked at

    def __init__(self, state: ToolsState, servers: ToolServersState) -> None:
        super().__init__("tools")
        self._state = state
        self._settings = NO_SETTINGS
        self._looked: tuple[Path, ...] = ()
        self.words = note("")
        self.switches = ToolSwitches(has_servers=True)
        self.stopped = StoppedServers(servers)
        self.total = label("", "secondary", wraps=True)
        self.paths = ToolPathList()
        self.activity_button = TextButton(tr("What tools did…"), "link")
        self.servers_button = TextButton(tr("Servers of tools…"), "link")
        foot = QVBoxLayout()
        foot.setSpacing(0)
        for button in (self.activity_button, self.servers_button):
            align_text_at_start(button)
            foot.addWidget(button)
            foot.setAlignment(button, Qt.AlignmentFlag.AlignLeading)
        for part in (self.words, self.switches, self.stopped, self.total, self.paths):
            self.body.addWidget(part)
        self.body.addLayout(foot)
        self.activity_button.clicked.connect(self.activity_requested)
        self.servers_button.clicked.connect(self.servers_requested)
        self.switches.switched.connect(self._switch)
        self.switches.several_switched.connect(self._switch_several)
        self.switches.rebuilt.connect(self._mark)
        self.paths.changed.connect(self._change_paths)
        state.rows_changed.connect(self.refresh)
        state.paths_changed.connect(self._show_paths)
        self.refresh()

    def show_settings(self, shown: ShownSettings) -> None:
        """Show which tools the chat has on, and what they may use."""
        self._settings = shown.settings
        self.refresh()
        if self.paths.paths != self._looked:
            self.look()

    def look(self) -> None:
        """Ask what is at the paths now."""
        self._looked = self.paths.paths
        if self._looked:
            self.paths_wanted.emit(self._looked)

    def refresh(self) -> None:
        """Show the tools of the state."""
        state, on = self._state, self._settings.tools
        known = {row.tool.id for row in state.rows}
        gone = [id for id in on if id not in known] if known else []  # none is read yet
        self.switches.show_tools(
            (*(self._tool(row) for row in state.rows), *(self._gone(id) for id in gone))
        )
        reason = state.reason
        if not reason and self._settings.format is not AnswerFormat.FREE:
            reason = tr("Tools are not used while answers have a format.")
        usual = tr("The model calls these by itself. Those that ask first wait for your consent.")
        self.words.setText(reason or usual)
        set_property(self.words, "tone", "warning" if reason else "secondary")
        self._show_total()
        self._show_paths()

    # --- steps ----------------------------------------------------------------------------------

    def _tool(self, row: ToolRow) -> ToolSwitch:
        tool, on = row.tool, row.tool.id in self._settings.tools
        return ToolSwitch(
            tool.id,
            tool.title or tool.name,
            tool.server,
            tool.about or tool.description,
            facts_words(row.tokens, asks=not tool.is_given),
            tool.problem,
            on,
            can_switch=not self._state.reason and (on or not tool.problem),
        )

    def _gone(self, id: str) -> ToolSwitch:
        """One that the chat has on, and that there is no more."""
        server, _, name = id.rpartition("/")
        problem = tr("It is not there now: its server is off, or was removed.")
        return ToolSwitch(
            id, name, server, problem=problem, on=True, can_switch=not self._state.reason
        )

    def _show_total(self) -> None:
        used = [
            row
            for row in self._state.rows
            if row.tool.id in self._settings.tools and not row.tool.problem
        ]
        words = trn("{count} tool is on.", "{count} tools are on.", len(used)) if used else ""
        if tokens := sum(row.tokens for row in used):
            cost = tr("That is ≈ {count} tokens of each prompt.", count=number(tokens))
            words = sentences(words, cost)
        self.total.setText(words)
        self.total.setVisible(bool(words) and not self._state.reason)

    def _show_paths(self) -> None:
        settings = self._settings
        has_servers = any(row.tool.server for row in self._state.rows)
        self.paths.show_paths(settings.readable, settings.writable, self._state.paths)
        self.paths.servers.setVisible(has_servers)
        self.paths.setEnabled(not self._state.reason)

    def _mark(self) -> None:
        self.marked = tuple(row.switch for row in self.switches.rows.values())
        self.show_changed(not self.mark.isHidden())

    def _switch(self, id: str, on: bool) -> None:
        self._switch_several((id,), on)

    def _switch_several(self, ids: tuple[str, ...], on: bool) -> None:
        kept = tuple(each for each in self._settings.tools if each not in ids)
        self.edit(tools=(*kept, *ids) if on else kept)

    def _change_paths(self, readable: tuple[Path, ...], writable: tuple[Path, ...]) -> None:
        self.edit(readable=readable, writable=writable)
