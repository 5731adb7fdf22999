"""The line with Undo tells a screen reader what was deleted, each time that something is."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.ui.widgets import accessibility
from app.ui.widgets.undo_line import UndoLine


def test_what_was_deleted_is_announced(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(accessibility, "announce", lambda _, words: heard.append(words))
    line = UndoLine()
    qtbot.addWidget(line)
    for words in ("Chat deleted", "Chat deleted", "", "Chat deleted", "2 chats deleted"):
        line.show_words(words)
    assert heard == ["Chat deleted", "Chat deleted", "2 chats deleted"]
