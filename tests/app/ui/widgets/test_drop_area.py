"""Drop overlay: the file name is elided, the sentence is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtGui import QFont, QFontMetrics

from app.ui.theme.theme import READING, font
from stage import Stage


@pytest.mark.parametrize(
    "name", ["very-long-model-name-" * 12 + "Q4_0.gguf", "模型" * 90 + ".gguf"]
)
@pytest.mark.parametrize("width", [420, 1080])
def test_long_name_is_elided_and_the_sentence_is_not(stage: Stage, name: str, width: int) -> None:
    stage.start()
    stage.window.resize(width, 700)
    stage.wait_until_idle()
    area = stage.window.drop_area
    area.show_for([Path(name)])
    metrics = QFontMetrics(font(READING, QFont.Weight.Medium))
    assert metrics.horizontalAdvance(area.sentence()) <= width - 48
    assert area.sentence().startswith("Drop to open ")
    assert area.sentence().endswith(".gguf")


def test_short_name_is_not_elided(stage: Stage) -> None:
    stage.start()
    stage.window.drop_area.show_for([Path("/somewhere/Bonsai-1.7B.gguf")])
    assert stage.window.drop_area.sentence() == "Drop to open Bonsai-1.7B.gguf"
