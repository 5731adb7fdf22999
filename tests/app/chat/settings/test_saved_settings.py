"""The file of the settings is written again until it is saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.settings.saved_settings import NOTICE
from app.settings.table import load
from stage import Stage, until


def test_the_notice_goes_once_the_settings_are_saved(
    qtbot: QtBot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(tmp_path)
    try:
        stage.start()
        file = tmp_path / "settings.json"
        file.unlink(missing_ok=True)
        file.mkdir()  # no file can replace it
        stage.controller.change_settings(top_k=7)
        until(lambda: NOTICE in stage.state.notices)
        assert "could not be saved" in stage.state.notices[NOTICE].sentence
        stage.controller.change_settings(top_k=8)  # the newest is what is saved
        file.rmdir()
        until(lambda: NOTICE not in stage.state.notices)
        until(lambda: file.is_file() and load(file).top_k == 8)
    finally:
        stage.close()
