"""The line about files that have changed since they were sent: screen readers hear it once."""

from __future__ import annotations

import pytest
from pytestqt.qtbot import QtBot

from app.state.attachments import AttachmentsState, KnownFile
from app.ui.documents.changed_line import ChangedLine
from app.ui.widgets import accessibility


def test_a_changed_file_is_announced_and_can_be_left_as_it_was_sent(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(accessibility, "announce", lambda _, words: heard.append(words))
    state = AttachmentsState()
    line = ChangedLine(state)
    qtbot.addWidget(line)
    one, other = KnownFile("a.txt", path="/a.txt"), KnownFile("b.txt", path="/b.txt")
    state.set_outdated([one])
    assert heard == ["a.txt has changed since it was sent."]
    line.close_button.click()
    line.refresh()
    assert line.isHidden()
    state.set_outdated([one, other])
    assert heard[1:] == ["a.txt, b.txt have changed since they were sent."]
