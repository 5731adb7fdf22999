"""Adapter icon of an answer: names and strengths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPointF
from PySide6.QtGui import QAccessible
from pytestqt.qtbot import QtBot

from app.domain.message import AdapterMark
from app.ui.transcript.message.message_tools import adapters_in_words, tools_for
from stage import flush
from transcript_driver import click, message, open_transcript, tool_point

MARKS = (AdapterMark("pirate-speech", 0.8, "5f3a"), AdapterMark("formal-german", 1.0, "77aa"))


def test_adapter_icon_marks_an_answer_and_names_its_adapters(qtbot: QtBot) -> None:
    plain = message(1, "Plain.")
    marked = replace(message(2, "Arr."), adapters=MARKS)
    assert [tool.name for tool in tools_for(plain, busy=False)] == [
        "copy",
        "regenerate",
        "variants",
        "continue",
        "edit",
        "compare",
        "fork",
        "delete",
    ]
    badge = tools_for(marked, busy=True)[0]
    assert (badge.name, badge.lasting) == ("adapter_badge", True)
    assert badge.text == "Written with pirate-speech at 0.80 and formal-german at 1.00"
    with open_transcript(qtbot) as view:
        view.set_messages([plain, marked])
        flush()
        point = tool_point(view, 1, "adapter_badge")
        assert view.pointer.tip(QPointF(point)) == badge.text
        with qtbot.waitSignal(view.adapters_requested):
            click(qtbot, view, point)
        reader = QAccessible.queryAccessibleInterface(view)
        described = reader.child(1).text(QAccessible.Text.Description)
        assert described == badge.text
        assert reader.child(0).text(QAccessible.Text.Description) == ""


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ((), ""),
        (MARKS[:1], "Written with pirate-speech at 0.80"),
        (
            (*MARKS, AdapterMark("猫", -1.5, "")),
            "Written with pirate-speech at 0.80, formal-german at 1.00 and 猫 at -1.50",
        ),
    ],
)
def test_adapters_in_words(marks: tuple[AdapterMark, ...], words: str) -> None:
    assert adapters_in_words(marks) == words
