"""What was allowed to tools, with Revoke, and which tools that write can be allowed always."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QScrollArea, QVBoxLayout, QWidget

from app.domain.builtin_words import title_of
from app.domain.tool_activity import Grant
from app.domain.tools import Effect, ToolSpec
from app.state.chat import State
from app.state.tools import ToolsState
from app.system.translation import tr
from app.ui.tools.switches import ToolSwitch, ToolSwitches
from app.ui.tools.words import apart, with_server
from app.ui.widgets.controls import TextButton, label, section_heading
from app.ui.widgets.row_list import RowList
from app.ui.widgets.row_list import buttons as button_row
from app.ui.widgets.tips import plain_tip
from app.ui.widgets.units import moment

_MOST_HEIGHT = 320  # pixels; more rows scroll


class AllowedView(QWidget):
    """Shows the consents of the state; emits the user's requests as signals."""

    revoked = Signal(object)  # Grant
    all_revoked = Signal()
    may_always_changed = Signal(str, bool)  # id of a tool that writes; it can be allowed always

    def __init__(self, chat: State, state: ToolsState) -> None:
        super().__init__()
        self._chat, self._state = chat, state
        self.words = label("", "secondary", wraps=True)
        self.list = RowList(tr("What you allowed"))
        self.revoke_button = TextButton(tr("Revoke"), "outlined")
        self.revoke_all_button = TextButton(tr("Revoke all"), "outlined")
        self.writing_words = label("", "secondary", wraps=True)
        self.switches = ToolSwitches()
        self.view = QScrollArea(self)
        self._buttons = QWidget()
        self._lay_out()
        self.list.itemSelectionChanged.connect(self._show_buttons)
        self.list.removed.connect(self._revoke)
        self.revoke_button.clicked.connect(self._revoke)
        self.revoke_all_button.clicked.connect(self.all_revoked)
        self.switches.switched.connect(self.may_always_changed)
        state.grants_changed.connect(self.refresh)
        state.rows_changed.connect(self.refresh)
        chat.conversations_changed.connect(self._show_grants)
        self.refresh()

    def _lay_out(self) -> None:
        line = button_row(self.revoke_button, last=self.revoke_all_button)
        line.setContentsMargins(0, 0, 0, 0)
        self._buttons.setLayout(line)
        rows = QWidget()
        rows.setObjectName("rows")
        inner = QVBoxLayout(rows)
        inner.setContentsMargins(0, 0, 0, 24)
        inner.setSpacing(8)
        for part in (self.words, self.list, self._buttons):
            inner.addWidget(part)
        inner.addWidget(section_heading(tr("Tools that write")))
        inner.addWidget(self.writing_words)
        inner.addWidget(self.switches)
        inner.addStretch(1)
        self.view.setWidget(rows)
        self.view.setFrameShape(QFrame.Shape.NoFrame)
        self.view.setWidgetResizable(True)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.view)

    # --- called by the page ---------------------------------------------------------------------

    @property
    def first(self) -> QWidget | None:
        """What has the focus first."""
        if self._state.grants:
            return self.list
        return next((row.switch for row in self.switches.rows.values()), None)

    def refresh(self) -> None:
        """Show the consents, and the tools that write."""
        self._show_grants()
        state = self._state
        writing = [row.tool for row in state.rows if Effect.WRITES in row.tool.effects]
        self.switches.show_tools(
            ToolSwitch(
                tool.id,
                tool.title or tool.name,
                tool.server,
                tool.about or tool.description,
                tr("“Always” is offered") if tool.id in state.may_always else "",
                on=tool.id in state.may_always,
            )
            for tool in writing
        )
        usual = tr(
            "What writes files is allowed once or in one chat. Switch a tool on if you want to be "
            "able to allow it always: then it can write without asking you."
        )
        self.writing_words.setText(usual if writing else tr("There is no tool that writes."))

    # --- steps ----------------------------------------------------------------------------------

    def _show_grants(self) -> None:
        grants = self._state.grants
        tools = {row.tool.id: row.tool for row in self._state.rows}
        chosen = set(self.list.entries())
        had_focus = self.list.hasFocus() or self._buttons.isAncestorOf(
            self.window().focusWidget() or self
        )
        self.list.clear()
        for grant in grants:
            text = f"{_name(grant, tools)}\n{self._about(grant, tools.get(grant.tool))}"
            self.list.add_row(text, grant, selected=grant in chosen)
            self.list.item(self.list.count() - 1).setToolTip(plain_tip(text))
        self.list.setFixedHeight(min(self.list.height_of_rows, _MOST_HEIGHT))
        usual = tr(
            "These calls are carried out without asking you. A tool that has changed asks again."
        )
        none = tr("Nothing: you are asked about every call that changes, reads or sends something.")
        self.words.setText(usual if grants else none)
        for part in (self.list, self._buttons):
            part.setVisible(bool(grants))
        if had_focus and grants:
            self.list.setFocus(Qt.FocusReason.OtherFocusReason)
        self._show_buttons()

    def _about(self, grant: Grant, tool: ToolSpec | None) -> str:
        """Where it was allowed, what else it is bound to, and when."""
        parts: list[str] = []
        if tool is not None and tool.digest != grant.digest:
            parts.append(tr("changed since: it asks again"))
        if grant.conversation is None:
            parts.append(tr("in all chats"))
        else:
            title = apart(self._chat.title(grant.conversation))
            parts.append(tr("in the chat “{title}”", title=title) if title else tr("in one chat"))
        if grant.scope:
            parts.append(tr("only {scope}", scope=apart(grant.scope)))
        if grant.created:
            parts.append(tr("since {time}", time=moment(grant.created)))
        return " · ".join(parts)

    def _show_buttons(self) -> None:
        self.revoke_button.setEnabled(bool(self.list.entries()))

    def _revoke(self) -> None:
        for grant in self.list.entries():
            self.revoked.emit(grant)


def _name(grant: Grant, tools: dict[str, ToolSpec]) -> str:
    tool = tools.get(grant.tool)
    server, _, name = grant.tool.rpartition("/")
    if tool is not None:
        server, name = tool.server, tool.title or tool.name
    elif server == "builtin":
        server, name = "", title_of(name) or name
    return with_server(name, server)
