"""One call in full: what was called, its arguments and its result, as plain text."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.domain.tool_activity import ToolActivity
from app.domain.visible_text import on_one_line, written_out
from app.system.translation import tr
from app.ui.theme.theme import BODY, SMALL, code_font, font
from app.ui.tools.words import facts, tool_words, whole_arguments
from app.ui.widgets.controls import (
    IconButton,
    TextButton,
    align_text_at_start,
    label,
    make_selectable,
    set_margins,
)
from app.ui.widgets.direction import runs_right_to_left
from app.ui.widgets.plain_text import PlainTextField

_MOST_LINES = 6  # of the arguments that are shown without scrolling
_LEAST_LINES = 4  # of the result
_LONGEST_TITLE = 60  # characters


class CallDetails(QFrame):
    """Shows a call; its texts can be selected and copied."""

    chat_requested = Signal()
    closed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("news")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.title = label("", "", BODY, wraps=True)
        self.title.setFont(font(BODY, QFont.Weight.Medium))
        self.facts = label("", "secondary", SMALL, wraps=True)
        make_selectable(self.facts)
        self.chat_button = TextButton("", "link")
        align_text_at_start(self.chat_button)
        self.close_button = IconButton("close", tr("Close the call"), 16)
        self.arguments = _field(tr("Arguments"))
        self.result = _field(tr("Result"))
        self.result_heading = _heading(tr("Result"))
        top = QHBoxLayout()
        top.addWidget(self.title, 1)
        top.addWidget(self.close_button, 0, Qt.AlignmentFlag.AlignTop)
        rows = QWidget()
        rows.setObjectName("call")
        inner = QVBoxLayout(rows)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.setSpacing(4)
        inner.addWidget(self.facts)
        inner.addWidget(self.chat_button, 0, Qt.AlignmentFlag.AlignLeading)
        inner.addWidget(_heading(tr("Arguments")))
        inner.addWidget(self.arguments)
        inner.addWidget(self.result_heading)
        inner.addWidget(self.result, 1)
        inner.addStretch()
        view = QScrollArea()  # in a low window all of it scrolls
        view.setObjectName("call")
        view.setWidget(rows)
        view.setWidgetResizable(True)
        view.setFrameShape(QFrame.Shape.NoFrame)
        view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        layout = QVBoxLayout(self)
        set_margins(layout, 12, 8, 8, 8)
        layout.setSpacing(4)
        layout.addLayout(top)
        layout.addWidget(view, 1)
        line = self.result.fontMetrics().lineSpacing()
        policy = self.result.sizePolicy()
        policy.setVerticalPolicy(QSizePolicy.Policy.Ignored)  # it takes the room that there is
        self.result.setSizePolicy(policy)
        self.result.setMinimumHeight(_LEAST_LINES * line + 4)
        self.chat_button.clicked.connect(self.chat_requested)
        self.close_button.clicked.connect(self.closed)
        self.hide()

    def show_call(self, call: ToolActivity, titles: Mapping[str, str], *, is_live: bool) -> None:
        """Show a call; a text that is the same stays where it was scrolled to."""
        self.title.setText(tool_words(call, titles))
        self.facts.setText(facts(call, is_live=is_live, with_chat=False))
        name = on_one_line(call.title)
        cut = f"{name[:_LONGEST_TITLE]}…" if len(name) > _LONGEST_TITLE else name
        words = tr("Open the chat “{title}”", title=cut) if name else tr("deleted chat")
        self.chat_button.setText(words.replace("&", "&&"))
        self.chat_button.setEnabled(bool(name))
        arguments = whole_arguments(call.arguments)
        _show(self.arguments, arguments)
        lines = min(arguments.count("\n") + 1, _MOST_LINES)
        self.arguments.setFixedHeight(lines * self.arguments.fontMetrics().lineSpacing() + 4)
        _show(self.result, written_out(call.result))
        for part in (self.result_heading, self.result):
            part.setVisible(bool(call.result))


def _field(name: str) -> PlainTextField:
    field = PlainTextField()
    field.setReadOnly(True)
    field.setTabChangesFocus(True)
    field.setFrameShape(QFrame.Shape.NoFrame)
    field.setFont(code_font(SMALL))
    field.document().setDocumentMargin(0)
    field.setAccessibleName(name)
    return field


def _heading(words: str) -> QLabel:
    heading = label(words, "secondary", SMALL)
    heading.setFont(font(SMALL, QFont.Weight.DemiBold))
    return heading


def _show(field: PlainTextField, text: str) -> None:
    if text != field.text():
        field.set_text(text)
        field.set_code(not runs_right_to_left(text))
