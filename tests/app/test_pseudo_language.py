"""Every screen in the pseudo-language: nothing English, nothing cut, everything mirrored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QApplication

import pseudo
import scenes_connections
import shots
from scenes_chat import fill
from stage import Stage, flush

SAMPLE = ("empty", "library_full", "settings_look", "panel_set", "folders", "connections_busy")
SAID_BY_SCENES = {  # as a store, the engine or the name of a folder does
    "database_banner": {"Move it aside"},
    "picker_failed": {"Choose a GGUF file"},
    "library_end": {"Models"},
    "library_embedders": {"Models"},
    "import_preview": {"The file is damaged or not complete"},
    "long_document_saved": {"Show in folder", "Rewrite this document in plain language"},
}
LOGGED_BY_SCENES = ("newer_chats",)  # a change of a chat that can only be read
PLACED_BY_SCENES = ("reduced_speed",)  # a tooltip
BREAKS = re.compile(r" · |\n|: |, |\. ")
WORD = re.compile(r"[^\W\d_]{2}")
EDGES = " .…:;()•"


def staged(scene: str, folder: Path) -> Iterator[Stage]:
    """The window showing a scene."""
    fill(folder)
    stage = Stage(folder, outside=scenes_connections.outside(folder))
    try:
        shots.SCENES[scene](stage)
        stage.wait_for_animations()
        flush()
        yield stage
    finally:
        stage.close()


def check(scene: str, application: QApplication, folder: Path) -> None:
    """Assert that nothing is English, cut, or not mirrored."""
    (folder / "right").mkdir()
    (folder / "left").mkdir()
    known = {text.strip(EDGES) for text in pseudo.catalog().forms if WORD.search(text)}
    known -= SAID_BY_SCENES.get(scene, set())
    with pseudo.language(application):
        for stage in staged(scene, folder / "right"):
            window = stage.window
            english = {
                f"{place}: {text}"
                for place, text in pseudo.texts(window)
                if any(
                    piece.strip(EDGES) in known
                    for piece in BREAKS.split(pseudo.outside_brackets(text))
                )
            }
            cut = list(pseudo.cut(window))
            mirrored, width = pseudo.places(window), window.width()
    with pseudo.language(application, mirrored=False):
        for stage in staged(scene, folder / "left"):
            plain = pseudo.places(stage.window)
    assert english == set()
    assert cut == []
    assert [name for name, _ in plain] == [name for name, _ in mirrored]
    wrong = [
        f"{name} at {place.getRect()}, from right to left at {other.getRect()}"
        for (name, place), (_, other) in zip(plain, mirrored, strict=True)
        if not _is_mirrored(place, other, width) and scene not in PLACED_BY_SCENES
    ]
    assert wrong == []


def _is_mirrored(place: QRect, other: QRect, width: int) -> bool:
    """Whether two places are mirror images, but for a pixel where halves are rounded."""
    expected = width - place.right() - 1
    same = (place.y(), place.size()) == (other.y(), other.size())
    return same and abs(expected - other.x()) <= 1


@pytest.mark.parametrize("scene", SAMPLE)
def test_a_screen_in_the_pseudo_language(scene: str, qapp: QApplication, tmp_path: Path) -> None:
    check(scene, qapp, tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "scene", [each for each in shots.SCENES if each not in SAMPLE + LOGGED_BY_SCENES]
)
def test_every_screen_in_the_pseudo_language(
    scene: str, qapp: QApplication, tmp_path: Path
) -> None:
    check(scene, qapp, tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize("scene", LOGGED_BY_SCENES)
def test_a_screen_that_logs_faults_in_the_pseudo_language(
    scene: str, qapp: QApplication, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(scene, qapp, tmp_path)
    assert caplog.records
