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


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a.pdf"], "Drop to attach a.pdf"),
        (["a.pdf", "b.md", "c"], "Drop to attach 3 files"),
        (["m.GGUF", "a.pdf"], "Drop to open m.GGUF and attach 1 file"),
        (["m.gguf", "a.pdf", "b.md"], "Drop to open m.gguf and attach 2 files"),
        (["notes"], "Drop to attach the files in notes"),
    ],
)
def test_what_a_drop_does(stage: Stage, tmp_path: Path, names: list[str], sentence: str) -> None:
    stage.start()
    (tmp_path / "notes").mkdir()
    area = stage.window.drop_area
    area.show_for([tmp_path / name for name in names])
    assert area.sentence() == sentence


def test_the_models_page_opens_what_is_dropped(stage: Stage, tmp_path: Path) -> None:
    stage.start()
    stage.window.library.open()
    area = stage.window.library.page.drop_area
    area.show_models([tmp_path])
    assert area.sentence() == f"Drop to open {tmp_path.name}"


def test_short_name_is_not_elided(stage: Stage) -> None:
    stage.start()
    stage.window.drop_area.show_for([Path("/somewhere/Bonsai-1.7B.gguf")])
    assert stage.window.drop_area.sentence() == "Drop to open Bonsai-1.7B.gguf"
