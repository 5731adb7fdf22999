"""Switches of tools: one for each, below the name of its server, with a search where there are many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QIcon
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from app.domain.visible_text import on_one_line
from app.system.translation import isolated, listed, number, tr, trn
from app.ui.theme import icons
from app.ui.theme.palette import Palette, follow_palette
from app.ui.theme.theme import BODY, SMALL, font
from app.ui.widgets.controls import ElidedLabel, TextButton, label, set_property
from app.ui.widgets.switch import Switch
from app.ui.widgets.tips import plain_tip

_MANY = 12  # tools; more can be searched
_MOST = 60  # rows; a server can have a thousand tools


@dataclass(frozen=True, slots=True)
class ToolSwitch:
    """What is shown of a tool; its texts can be those of a server, which is not trusted."""

    id: str
    name: str
    server: str = ""  # "": built in
    about: str = ""
    facts: str = ""
    problem: str = ""  # why it is greyed, one sentence
    on: bool = False
    can_switch: bool = True


class ToolRow(QWidget):
    """The name of a tool, a line about it and its facts, with the switch at the end."""

    switched = Signal(bool)

    def __init__(self) -> None:
        super().__init__()
        self.title = label("", "", BODY, wraps=True)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.about = ElidedLabel("secondary", font(SMALL))
        self.problem = label("", "secondary", SMALL, wraps=True)
        self.facts = label("", "secondary", SMALL, wraps=True)
        self.switch = Switch()
        self.switch.clicked.connect(self.switched)
        texts = QVBoxLayout()
        texts.setSpacing(0)
        for part in (self.title, self.about, self.problem, self.facts):
            texts.addWidget(part)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 5, 0, 5)
        layout.addLayout(texts, 1)
        layout.addWidget(self.switch, 0, Qt.AlignmentFlag.AlignTop)

    def show_tool(self, tool: ToolSwitch) -> None:
        """Show a tool."""
        name, about = isolated(on_one_line(tool.name)), on_one_line(tool.about)
        self.title.setText(name)
        set_property(self.title, "tone", "" if tool.can_switch else "secondary")
        self.about.show_words("" if tool.problem else about)
        self.about.setToolTip(plain_tip(tool.about))
        self.problem.setText(tool.problem)
        self.problem.setVisible(bool(tool.problem))
        self.facts.setText(tool.facts)
        self.facts.setVisible(bool(tool.facts) and not tool.problem)
        self.switch.setChecked(tool.on)
        self.switch.setEnabled(tool.can_switch)
        self.switch.setAccessibleName(name)
        words = "\n".join(filter(None, (tool.problem or about, tool.facts)))
        self.switch.setAccessibleDescription(words)


class ToolSwitches(QWidget):
    """A row for each tool; of very many only some, and all of those that a search finds."""

    switched = Signal(str, bool)  # id of the tool
    several_switched = Signal(object, bool)  # ids of tools of one server
    rebuilt = Signal()  # `rows` are others

    def __init__(self, *, has_servers: bool = False) -> None:
        """`has_servers`: a button beside the name of a server switches all of its tools."""
        super().__init__()
        self._has_servers = has_servers
        self.heads: dict[str, TextButton] = {}  # these buttons, by server
        self._tools: tuple[ToolSwitch, ...] = ()
        self._shape: list[tuple[str, str]] = []  # server and id of each row
        self.rows: dict[str, ToolRow] = {}  # by id of the tool
        self.search = QLineEdit(placeholderText=tr("Find a tool"), clearButtonEnabled=True)
        self.search.setAccessibleName(tr("Find a tool"))
        self._icon = self.search.addAction(QIcon(), QLineEdit.ActionPosition.LeadingPosition)
        self._icon.setText(tr("Find"))  # the accessible name of its button
        self.search.textChanged.connect(self._refresh)
        self._rows = QVBoxLayout()
        self._rows.setSpacing(0)
        self.more = label("", "secondary", SMALL, wraps=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(self.search)
        layout.addLayout(self._rows)
        layout.addWidget(self.more)
        follow_palette(self._recolor)
        self.show_tools(())

    def show_tools(self, tools: Iterable[ToolSwitch]) -> None:
        """Show these tools, those of one server together."""
        self._tools = tuple(sorted(tools, key=lambda tool: tool.server.casefold()))
        is_searched = len(self._tools) > _MANY
        if not is_searched:
            self.search.clear()
        self.search.setVisible(is_searched)
        self._refresh()

    # --- steps ----------------------------------------------------------------------------------

    def _refresh(self) -> None:
        query = self.search.text().casefold().split()
        found = [tool for tool in self._tools if _matches(tool, query)]
        shown = self._most(found)
        shape = [(tool.server, tool.id) for tool in shown]
        if shape != self._shape:
            self._rebuild(shown)
            self._shape = shape
        for tool in shown:
            self.rows[tool.id].show_tool(tool)
        for server in self.heads:
            self._show_head(server, found)
        left = len(found) - len(shown)
        words = ""
        if left:
            words = tr("And {count} more: find them by their names.", count=number(left))
        elif self._tools and not found:
            words = tr("No tool has this in its name or its description.")
        self.more.setText(words)
        self.more.setVisible(bool(words))

    def _most(self, found: Sequence[ToolSwitch]) -> list[ToolSwitch]:
        """As many as can be shown, in their order: first those that are on, or were shown."""
        ranked = sorted(found, key=lambda tool: (not tool.on, tool.id not in self.rows))
        kept = {tool.id for tool in ranked[:_MOST]}
        return [tool for tool in found if tool.id in kept]

    def _rebuild(self, shown: Sequence[ToolSwitch]) -> None:
        focused = next((id for id, row in self.rows.items() if row.switch.hasFocus()), None)
        while (item := self._rows.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        self.rows, self.heads = {}, {}
        servers = list(dict.fromkeys(tool.server for tool in shown))
        for server in servers:
            if servers != [""]:
                self._rows.addWidget(self._head(server))
            for tool in shown:
                if tool.server == server:
                    row = self.rows[tool.id] = ToolRow()
                    row.switched.connect(partial(self.switched.emit, tool.id))
                    self._rows.addWidget(row)
        before: QWidget = self.search
        tools = {tool.id: tool for tool in shown}
        for id, row in self.rows.items():
            head = self.heads.get(tools[id].server)
            for part in (row.switch,) if head is None else (head, row.switch):
                QWidget.setTabOrder(before, part)
                before = part
        if focused in self.rows:
            self.rows[focused].switch.setFocus(Qt.FocusReason.OtherFocusReason)
        self.rebuilt.emit()

    def _head(self, server: str) -> QWidget:
        """The name of a server, with the button that switches all of its tools."""
        if not (server and self._has_servers):
            return _heading(server)
        head = QWidget()
        line = QHBoxLayout(head)
        line.setContentsMargins(0, 8, 0, 0)
        words = _heading(server)
        words.setContentsMargins(0, 0, 0, 0)
        button = self.heads[server] = TextButton("", "link")
        button.clicked.connect(partial(self._switch_server, server))
        line.addWidget(words, 1)
        line.addWidget(button)
        return head

    def _show_head(self, server: str, found: Sequence[ToolSwitch]) -> None:
        button = self.heads[server]
        tools = [tool for tool in found if tool.server == server and tool.can_switch]
        all_on = all(tool.on for tool in tools)
        button.setText(tr("All off") if all_on else tr("All on"))
        button.setVisible(len(tools) > 1)
        name = isolated(on_one_line(server))
        button.setAccessibleName(tr("{action}: {name}", action=button.text(), name=name))

    def _switch_server(self, server: str) -> None:
        """Switch the tools of a server that the search finds: off if all of them are on."""
        query = self.search.text().casefold().split()
        tools = [
            tool
            for tool in self._tools
            if tool.server == server and tool.can_switch and _matches(tool, query)
        ]
        on = not all(tool.on for tool in tools)
        self.several_switched.emit(tuple(tool.id for tool in tools if tool.on != on), on)

    def _recolor(self, palette: Palette) -> None:
        self._icon.setIcon(icons.icon("search", palette.secondary, 16))


def _matches(tool: ToolSwitch, query: Sequence[str]) -> bool:
    text = f"{tool.name} {tool.about} {tool.server}".casefold()
    return all(word in text for word in query)


def _heading(server: str) -> QWidget:
    words = isolated(on_one_line(server)) if server else tr("Built in")
    heading = label(words, "secondary", SMALL, wraps=True)
    heading.setFont(font(SMALL, QFont.Weight.DemiBold))
    heading.setContentsMargins(0, 8, 0, 0)
    return heading


def tokens_words(tokens: int) -> str:
    """About how many tokens there are; "": it is not known."""
    return trn("≈ {count} token", "≈ {count} tokens", tokens) if tokens else ""


def facts_words(tokens: int, *, asks: bool) -> str:
    """What a tool costs, and whether a call of it waits for consent."""
    return listed((tokens_words(tokens), tr("asks first") if asks else ""))
