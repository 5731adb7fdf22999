"""Tool row below a message: which tools it has, their layout and painting.

The row is part of every message's height, so showing and hiding tools moves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QGuiApplication, QPainter, QPen

from app.domain.documents import TABLE_FAULTS, SearchFault
from app.domain.message import AdapterMark, Message, MessageState, StopReason
from app.domain.parts import clipboard_text, rewritten_text, sections
from app.system.translation import listed, number, tr
from app.ui.blocks.style import ReadingStyle
from app.ui.theme.icons import pixmap
from app.ui.theme.theme import RADIUS_CONTROL
from app.ui.transcript.message.endings import short_ending
from engine import Role

ROW = 32.0  # pixels: height of the tool row
_BOX = 28.0
_ICON = 16
# Those that are named otherwise.
_ICONS = {
    "save": "document",
    "show_marks": "marks",
    "delete": "trash",
    "keep": "check",
    "compared": "compare",
    "silence": "stop",
    "variants": "chevron_down",
    "again_with": "regenerate",
    "try_again": "search",
    "more_passages": "search",
    "without_passages": "continue",
}
_UNFINISHED = (MessageState.STOPPED, MessageState.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool button of a message, or a static text between the buttons."""

    name: str  # adapter_badge, copy, fork, regenerate, variants, compare, compared, info, edit, continue,
    # delete, previous, next, keep, stop, speak, silence, again_with, more_passages,
    # try_again, without_passages, save, show_marks, or word
    text: str  # tooltip and accessible name; of a "word", the text itself
    label: str = ""  # shown beside the icon
    enabled: bool = True
    lasting: bool = False  # visible without hover

    @property
    def can_act(self) -> bool:
        """Whether the tool can be activated."""
        return self.enabled and self.name != "word"


def tools_for(
    message: Message,
    *,
    busy: bool,
    last: bool = True,
    speech: str = "",
    passages: str = "",
    has_marks: bool = False,
) -> list[Tool]:
    """The tools of a message in its state; `busy` leaves out those that start a generation.

    Only the `last` answer of a branch can be continued. `speech` is "speak" where an answer can be
    read aloud, "silence" while it is; `passages` is "changed" where passages of a question were
    struck out, "listed" where they are shown; `has_marks` is whether an answer names boxes or points
    of a picture.
    """
    if message.state is MessageState.STREAMING:
        return []
    if message.role is Role.SYSTEM:
        edit = tr("Edit the instructions of this chat")
        return [Tool("edit", edit, tr("Edit")), Tool("copy", tr("Copy as Markdown"))]
    tools: list[Tool] = []
    if message.adapters:
        tools.append(Tool("adapter_badge", adapters_in_words(message.adapters), lasting=True))
    if word := short_ending(message):
        tools.append(Tool("word", word, lasting=True))
    if message.details and message.details.edited:
        tools.append(Tool("word", tr("Edited"), lasting=True))
    made, is_rewritten = sections(message.parts), bool(rewritten_text(message.parts))
    cut = message.state is MessageState.FAILED and bool(clipboard_text(message.parts))
    fault = message.error.fault if message.error else None
    is_unsearched = isinstance(fault, SearchFault) and fault.kind not in TABLE_FAULTS
    if is_unsearched and last and not busy:
        tools.append(
            Tool("try_again", tr("Look for passages again"), tr("Try again"), lasting=True)
        )
        word = tr("Answer without passages")
        tools.append(Tool("without_passages", word, word, lasting=True))
    elif (message.state in _UNFINISHED or cut) and last and not busy:
        full = message.stop == StopReason.CONTEXT
        tip = tr("Continue without the oldest messages") if full else tr("Continue this answer")
        tools.append(Tool("continue", tip, tr("Continue"), lasting=True))
    elif is_rewritten and any(part.cut or not part.text for part in made) and last and not busy:
        tip = tr("Read the parts again that are not complete")
        tools.append(Tool("continue", tip, tr("Continue"), lasting=True))
    if any(part.text for part in made):
        words = tr("Save as a file…")
        tools.append(Tool("save", words, words, lasting=True))
    if has_marks:
        words = tr("Show on the picture")
        tools.append(Tool("show_marks", words, words, lasting=True))
    if clipboard_text(message.parts):
        tools.append(Tool("copy", tr("Copy as Markdown")))
        if speech == "silence":
            tools.append(Tool("silence", tr("Stop reading aloud"), lasting=True))
        elif speech and message.role is Role.ASSISTANT:
            tools.append(Tool("speak", tr("Read aloud")))
    fork = Tool("fork", tr("Fork from here: copy the chat up to this message"))
    if busy:
        tools.append(fork)
    else:
        if message.is_greeting:
            pass  # there is no question to answer again
        elif message.role is Role.ASSISTANT:
            tools.append(Tool("regenerate", tr("Answer again")))
            tools.append(Tool("variants", tr("Answer again: shorter, longer…")))
            if message.state is MessageState.COMPLETE and last and not is_rewritten:
                tools.append(Tool("continue", tr("Let the model go on after this answer")))
            if clipboard_text(message.parts) and not is_rewritten:
                tools.append(Tool("edit", tr("Edit this answer")))
            tools.append(Tool("compare", tr("Compare two answers…")))
            if message.details or message.generated_tokens:
                tools.append(Tool("info", tr("About this answer")))
        elif message.role is Role.USER:
            if passages == "changed":
                tip = tr("Answer again with the passages that are not struck out")
                tools.append(Tool("again_with", tip, tr("Answer again with these"), lasting=True))
            elif passages == "listed":
                tip = tr("Look for more passages, and answer again")
                tools.append(Tool("more_passages", tip, tr("More passages")))
            tools.append(Tool("edit", tr("Edit and send again")))
        tools += [fork, Tool("delete", tr("Delete message"))]
        if message.siblings > 1:
            tools += _switch(message)
        if message.compared and last:
            tip = tr("Show both compared answers again")
            tools.append(Tool("compared", tip, tr("Compared"), lasting=True))
    return tools


def column_tools(message: Message, *, busy: bool) -> list[Tool]:
    """The tools of one of two compared answers, which are always visible.

    `busy` is whether either of the two is being written. One that has ended can be kept then, which
    stops the other, unless it has no text.
    """
    if message.state is MessageState.STREAMING:
        return [Tool("stop", tr("Stop this answer"), tr("Stop"), lasting=True)]
    tip = (
        tr("Keep this answer, and stop the other")
        if busy
        else tr("Keep this answer, and go on from it")
    )
    can_keep = not busy or bool(clipboard_text(message.parts))
    tools = [Tool("keep", tip, tr("Keep this answer"), enabled=can_keep)]
    if word := short_ending(message):
        tools.append(Tool("word", word))
    if clipboard_text(message.parts):
        tools.append(Tool("copy", tr("Copy as Markdown")))
    if message.details or message.generated_tokens:
        tools.append(Tool("info", tr("About this answer")))
    return tools


def adapters_in_words(marks: Sequence[AdapterMark]) -> str:
    """A sentence with the adapters and strengths that an answer was generated with."""
    if not marks:
        return ""
    *before, last = (
        tr("{name} at {strength}", name=mark.name, strength=number(mark.strength, 2))
        for mark in marks
    )
    if not before:
        return tr("Written with {adapter}", adapter=last)
    return tr("Written with {adapters} and {last}", adapters=listed(before), last=last)


def _switch(message: Message) -> list[Tool]:
    at, count = message.sibling, message.siblings
    return [
        Tool("previous", tr("Previous version"), enabled=at > 1, lasting=True),
        Tool("word", f"{number(at)}/{number(count)}", lasting=True),
        Tool("next", tr("Next version"), enabled=at < count, lasting=True),
    ]


def place(
    tools: Sequence[Tool], style: ReadingStyle, edge: float, top: float, *, from_right: bool
) -> list[QRectF]:
    """The rectangles of the tools in a row that starts (`from_right`: ends) at `edge`."""
    metrics = QFontMetricsF(style.small)
    widths: list[float] = []
    for tool in tools:
        if tool.name == "word":
            widths.append(metrics.horizontalAdvance(tool.text) + 8)
        elif tool.name == "variants":  # belongs to the tool before it
            widths.append(_BOX - 8)
        elif tool.label:
            widths.append(_BOX + metrics.horizontalAdvance(tool.label) + 6)
        else:
            widths.append(_BOX)
    inset = (_BOX - _ICON) / 2  # aligns the outermost icon's drawing with the text
    x = edge + inset - sum(widths) if from_right else edge - inset
    if tools and tools[0].name == "word" and not from_right:
        x = edge - 4
    areas: list[QRectF] = []
    for width in widths:
        areas.append(QRectF(x, top + (ROW - _BOX) / 2, width, _BOX))
        x += width
    return areas


def paint(
    painter: QPainter,
    tool: Tool,
    area: QRectF,
    style: ReadingStyle,
    *,
    hovered: bool = False,
    focused: bool = False,
    done: bool = False,
) -> None:
    """Paint one tool; `done` shows a tick instead of its icon."""
    if hovered and tool.can_act:
        painter.setPen(style.ink if style.high_contrast else Qt.PenStyle.NoPen)
        painter.setBrush(style.card)
        painter.drawRoundedRect(area, RADIUS_CONTROL, RADIUS_CONTROL)
        painter.setBrush(Qt.BrushStyle.NoBrush)
    if focused:
        painter.setPen(QPen(style.accent, 2))
        painter.drawRoundedRect(area.adjusted(1, 1, -1, -1), RADIUS_CONTROL, RADIUS_CONTROL)
    painter.setFont(style.small)
    if tool.name == "word":
        painter.setPen(style.secondary)
        painter.drawText(area, Qt.AlignmentFlag.AlignCenter, tool.text)
        return
    color = style.ink if hovered or tool.label else style.secondary
    if tool.label or tool.name == "adapter_badge" or done:
        color = style.accent
    painter.setOpacity(1.0 if tool.enabled else 0.35)
    ratio = painter.device().devicePixelRatio()
    name = _ICONS.get(tool.name, tool.name)
    picture = pixmap("check" if done else name, color.name(), _ICON, ratio)
    inset = (_BOX - _ICON) / 2
    mirrored = QGuiApplication.isRightToLeft()
    box = _BOX if tool.label else area.width()  # of the icon
    left = area.right() - box if mirrored else area.left()
    painter.drawPixmap(QPointF(left + (box - _ICON) / 2, area.top() + inset), picture)
    if tool.label:
        painter.setPen(color)
        words = area.adjusted(0, 0, 2 - _BOX, 0) if mirrored else area.adjusted(_BOX - 2, 0, 0, 0)
        align = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
        painter.drawText(words, align, tool.label)
    painter.setOpacity(1.0)
