"""Button beside the message field that says how many tools the model may call in this chat."""

from __future__ import annotations

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QWidget

from app.domain.chat_settings import AnswerFormat, ChatSettings
from app.domain.visible_text import on_one_line
from app.state.tools import ToolsState
from app.system.translation import listed, number, sentences, tr, trn
from app.ui.theme.theme import SMALL, figures
from app.ui.widgets.controls import TextButton, set_property
from app.ui.widgets.tips import plain_tip

_ICON = 36  # pixels: the icon, and the room around it and the number
_HEIGHT = 35  # pixels: as the button beside it
_NAMED = 12  # tools in the tip


class ToolsButton(TextButton):
    """Hidden while no tool is on; struck through while they are not used, with the reason."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__("", "quiet", "tools", parent)
        self.setFont(figures(SMALL))
        self.hide()

    def sizeHint(self) -> QSize:
        return QSize(_ICON + self.fontMetrics().horizontalAdvance(self.text()), _HEIGHT)

    def show_tools(self, settings: ChatSettings, state: ToolsState) -> None:
        """Show how many of the tools that there are the chat has on."""
        on = [
            row.tool for row in state.rows if row.tool.id in settings.tools and not row.tool.problem
        ]
        unused = state.reason
        if not unused and settings.format is not AnswerFormat.FREE:
            unused = tr("Tools are not used while answers have a format.")
        count = trn("{count} tool is on.", "{count} tools are on.", len(on))
        names = listed(on_one_line(tool.title or tool.name) for tool in on[:_NAMED])
        more = ", …" if len(on) > _NAMED else ""
        self.setText(number(len(on)))
        self.setAccessibleName(sentences(count, unused))
        self.setToolTip(plain_tip(f"{sentences(count, unused)}\n{names}{more}"))
        set_property(self, "unused", bool(unused))
        self.setVisible(bool(on))
