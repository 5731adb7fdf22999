"""Notice banners: the exact text of an error is shown on request."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.state.chat import Notice, State
from app.ui.widgets.banner import Banners


def test_details_are_shown_on_request_and_hidden_again(qtbot: QtBot) -> None:
    state = State()
    banners = Banners(state)
    qtbot.addWidget(banners)
    banners.show()
    detail = "The file ends at byte 49."
    state.set_notice("model", Notice("m.gguf is incomplete.", "Download it again.", "", detail))
    banner = banners.shown["model"]
    QApplication.processEvents()  # lays it out
    assert banner.words.text() == "m.gguf is incomplete. Download it again."
    assert not banner.detail.isVisible()
    qtbot.mouseClick(banner.details_button, Qt.MouseButton.LeftButton)
    assert banner.detail.isVisible()
    assert banner.detail.text() == detail
    assert banner.details_button.text() == "Hide details"
    qtbot.mouseClick(banner.details_button, Qt.MouseButton.LeftButton)
    assert not banner.detail.isVisible()


def test_notice_without_detail_has_no_details(qtbot: QtBot) -> None:
    state = State()
    banners = Banners(state)
    qtbot.addWidget(banners)
    banners.show()
    state.set_notice("model", Notice("It broke."))
    assert not banners.shown["model"].details_button.isVisible()
