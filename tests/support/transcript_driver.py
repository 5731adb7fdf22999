"""Transcript test driver: opens a transcript, streams text into it, and sends mouse events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QWheelEvent
from pytestqt.qtbot import QtBot

from app.domain.growing import append_text
from app.domain.message import Message, MessageState
from app.domain.parts import ErrorPart, parts_of
from app.ui.theme.theme import load_fonts
from app.ui.transcript.view import Transcript
from engine import Role

LONG = "\n\n".join(
    f"Paragraph {n} of a long answer, with enough words for a line." for n in range(60)
)
CODE = "Run this:\n\n```python\ndef f(x):\n    return x + 1  # one more\n```\n\nDone."


def message(
    number: int,
    text: str,
    *,
    is_user: bool = False,
    state: MessageState = MessageState.COMPLETE,
    sibling: int = 1,
    siblings: int = 1,
    error: str = "",
) -> Message:
    role = Role.USER if is_user else Role.ASSISTANT
    parts = (*parts_of(role, text), ErrorPart(message=error)) if error else parts_of(role, text)
    return Message(
        number, 1, None, role, parts, state, 0.0, "model", "", 0, 0, 6.0, sibling, siblings
    )


def streaming(number: int) -> Message:
    return message(number, "", state=MessageState.STREAMING)


def wait_for_layout(view: Transcript, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not view.working, timeout=60_000)


def grow(view: Transcript, number: int, text: str) -> None:
    """Append text to a message, which need not be shown yet, as the state does."""
    waiting = view._updates._added.get(number)
    index = view.stack.index_of(number)
    shown = streaming(number) if index is None else view.stack.views[index].message
    before = waiting[0] if waiting else shown
    view.append_text(replace(before, parts=append_text(before.parts, text)), text)


def stream_text(view: Transcript, qtbot: QtBot, number: int, text: str) -> None:
    """Append text in pieces of 20 characters and wait until all of it is shown."""
    index = view.stack.index_of(number)
    assert index is not None
    shown = view.stack.views[index]
    wanted = shown.message.text + text
    for at in range(0, len(text), 20):
        grow(view, number, text[at : at + 20])
    qtbot.waitUntil(lambda: shown.message.text == wanted, timeout=5000)


def part_point(view: Transcript, index: int, part: int, x: float, y: float) -> QPoint:
    place = view.stack.views[index].parts[part]
    top = view.message_layout.message_top(index)
    return QPoint(round(view.message_layout.left_of(index) + place.x + x), round(top + place.y + y))


def tool_point(view: Transcript, index: int, name: str) -> QPoint:
    tools, areas = view.tools.shown(index)
    area = next(area for tool, area in zip(tools, areas, strict=True) if tool.name == name)
    left, top = view.message_layout.left_of(index), view.message_layout.message_top(index)
    return (area.center() + QPointF(left, top)).toPoint()


def hover(qtbot: QtBot, view: Transcript, point: QPoint) -> None:
    """Move the mouse to a message; an earlier test may have left it at that very place."""
    qtbot.mouseMove(view.viewport(), QPoint(1, 1))

    def moved() -> bool:
        qtbot.mouseMove(view.viewport(), point)
        return view.message_layout.hovered >= 0

    qtbot.waitUntil(moved)


def click(qtbot: QtBot, view: Transcript, point: QPoint) -> None:
    qtbot.mouseMove(view.viewport(), point)
    qtbot.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=point)


def drag(qtbot: QtBot, view: Transcript, start: QPoint, end: QPoint) -> None:
    port = view.viewport()
    qtbot.mousePress(port, Qt.MouseButton.LeftButton, pos=start)
    view.pointer.drag(QPointF(end))
    qtbot.mouseRelease(port, Qt.MouseButton.LeftButton, pos=end)


def clipboard() -> str:
    return QGuiApplication.clipboard().text()


def wheel(view: Transcript, pixels: int) -> None:
    middle = QPointF(view.viewport().rect().center())
    buttons, keys = Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier
    phase = Qt.ScrollPhase.NoScrollPhase
    event = QWheelEvent(
        middle, middle, QPoint(0, pixels), QPoint(0, pixels), buttons, keys, phase, False
    )
    view.wheelEvent(event)


@contextmanager
def open_transcript(qtbot: QtBot) -> Iterator[Transcript]:
    """A transcript as a top-level window."""
    load_fonts()
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.resize(700, 500)
    transcript.show()
    yield transcript
    transcript.close()
