"""Text size of chats and composer: keys, wheel, settings, and the scroll position."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.settings.table import Settings, load
from fakes import MODEL
from stage import Stage, flush, until

TEXT = "A paragraph.\n\n```python\nx = 1\ny = 2\n```\n\n## Heading\n\n" + "Words. " * 400


def answered(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.controller.send("Why?")
    stage.engine.write(TEXT)
    stage.engine.finish()
    stage.wait_until_idle()


def press(stage: Stage, action: str, times: int = 1) -> int:
    for _ in range(times):
        stage.window.actions_by_id[action].trigger()
    flush()
    return stage.controller.settings.zoom


def test_keys_go_through_the_steps_and_stop_at_the_ends(stage: Stage) -> None:
    stage.start()
    assert press(stage, "zoom_in") == 110
    assert press(stage, "zoom_in") == 125
    assert press(stage, "zoom_in", 9) == 200
    assert press(stage, "zoom_out") == 175
    assert press(stage, "zoom_out", 12) == 80
    assert press(stage, "zoom_reset") == 100


def test_text_code_and_composer_grow_and_shrink_back(stage: Stage) -> None:
    answered(stage)
    view = stage.window.transcript
    before = view.stack.height
    size = stage.window.composer.editor.font().pixelSize()
    press(stage, "zoom_in", 5)
    until(lambda: not view.working)
    assert view.message_layout.style.body.pixelSize() == 30
    assert view.message_layout.style.code_line == 40
    assert view.stack.height > 2 * before
    assert stage.window.composer.editor.font().pixelSize() == 2 * size
    press(stage, "zoom_reset")
    until(lambda: not view.working)
    assert view.stack.height == before


def test_zoom_keeps_the_theme_and_the_theme_keeps_the_zoom(stage: Stage) -> None:
    answered(stage)
    press(stage, "zoom_in")
    stage.theme.choose("dark")
    style = stage.window.transcript.message_layout.style
    assert (style.zoom, style.palette.dark) == (1.1, True)
    press(stage, "zoom_in")
    assert stage.window.transcript.message_layout.style.palette.dark


def test_ctrl_and_the_wheel_zoom_instead_of_scrolling(qtbot: QtBot, stage: Stage) -> None:
    answered(stage)
    view = stage.window.transcript
    offset = view.message_layout.offset()
    for turned in (120, 120, -120):
        event = QWheelEvent(
            QPointF(60, 60), QPointF(60, 60), QPoint(), QPoint(0, turned),
            Qt.MouseButton.NoButton, Qt.KeyboardModifier.ControlModifier,
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(view.viewport(), event)
    assert stage.controller.settings.zoom == 110
    assert view.at_end
    assert view.message_layout.offset() >= offset


def test_zoom_is_kept_for_the_next_start(qtbot: QtBot, tmp_path: Path) -> None:
    first = Stage(tmp_path)
    first.start()
    press(first, "zoom_in", 3)
    until(lambda: load(tmp_path / "settings.json").zoom == 150)
    first.close()
    again = Stage(tmp_path, settings=load(tmp_path / "settings.json"))
    try:
        assert again.window.transcript.message_layout.style.zoom == 1.5
        again.controller.change_settings(zoom=Settings().zoom)  # by the settings page
        assert again.window.transcript.message_layout.style.zoom == 1.0
    finally:
        again.close()
