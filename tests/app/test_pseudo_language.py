"""Every screen in the pseudo-language: nothing English, nothing cut, everything mirrored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtWidgets import QApplication

import pseudo
import scenes_connections
import shots
from scenes_chat import fill
from stage import Stage, flush
from tool_rows import BUILT_IN, ISSUES

SAMPLE = ("empty", "library_full", "settings_look", "panel_set", "folders", "connections_busy")
TOOLS = {tool.title for tool in (*BUILT_IN, ISSUES)}  # as their sources say it
SAID_BY_SCENES = {  # as a store, the engine or the name of a folder does
    "database_banner": {"Move it aside"},
    "picker_failed": {"Choose a GGUF file"},
    "library_end": {"Models"},
    "library_embedders": {"Models"},
    "import_preview": {"The file is damaged or not complete"},
    **dict.fromkeys(
        ("tools_panel", "tools_panel_files", "tools_panel_many", "tools_panel_reason"), TOOLS
    ),
    **dict.fromkeys(("activity_allowed", "activity_open", "activity_narrow"), TOOLS),
    "long_document_saved": {"Show in folder", "Rewrite this document in plain language"},
}
LOGGED_BY_SCENES = ("newer_chats",)  # a change of a chat that can only be read
PLACED_BY_SCENES = (
    "reduced_speed",  # a tooltip
    *("tools_asking_long", "tools_asking_top"),  # a scroll bar of code, which runs left to right
)
BREAKS = re.compile(r" · |\n|: |, |\. ")
Places = list[tuple[str, QRect]]
WORD = re.compile(r"[^\W\d_]{2}")
EDGES = " .…:;()•"


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of conversations."""
    folder = tmp_path_factory.mktemp("chats")
    fill(folder)
    return folder


@contextmanager
def staged(scene: str, chats: Path, folder: Path) -> Iterator[Stage]:
    """The window showing a scene, over a copy of the store."""
    stage = Stage(Path(copytree(chats, folder)), outside=scenes_connections.outside(folder))
    try:
        shots.SCENES[scene](stage)
        stage.wait_for_animations()
        flush()
        yield stage
    finally:
        stage.close()


def check(scene: str, application: QApplication, chats: Path, folder: Path) -> None:
    """Assert that nothing is English, cut, or not mirrored."""
    known = {text.strip(EDGES) for text in pseudo.catalog().forms if WORD.search(text)}
    known -= SAID_BY_SCENES.get(scene, set())
    with pseudo.language(application), staged(scene, chats, folder / "right") as stage:
        window = stage.window
        english = {
            f"{place}: {text}"
            for place, text in pseudo.texts(window)
            if any(
                piece.strip(EDGES) in known for piece in BREAKS.split(pseudo.outside_brackets(text))
            )
        }
        cut = list(pseudo.cut(window))
        mirrored, width = pseudo.places(window), window.width()
        application.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        stage.wait_for_animations()
        plain = pseudo.places(window)
    assert english == set()
    assert cut == []
    if _not_mirrored(plain, mirrored, width):  # what is placed once, when it is made or resized
        with (
            pseudo.language(application, mirrored=False),
            staged(scene, chats, folder / "left") as stage,
        ):
            plain = pseudo.places(stage.window)
    assert [name for name, _ in plain] == [name for name, _ in mirrored]
    assert scene in PLACED_BY_SCENES or _not_mirrored(plain, mirrored, width) == []


def _not_mirrored(plain: Places, mirrored: Places, width: int) -> list[str]:
    """The widgets of two windows whose places are no mirror images."""
    return [
        f"{name} at {place.getRect()}, from right to left at {other.getRect()}"
        for (name, place), (_, other) in zip(plain, mirrored, strict=False)
        if not _is_mirrored(place, other, width)
    ]


def _is_mirrored(place: QRect, other: QRect, width: int) -> bool:
    """Whether two places are mirror images, but for a pixel where halves are rounded."""
    expected = width - place.right() - 1
    same = (place.y(), place.size()) == (other.y(), other.size())
    return same and abs(expected - other.x()) <= 1


@pytest.mark.parametrize("scene", SAMPLE)
def test_a_screen_in_the_pseudo_language(
    scene: str, qapp: QApplication, chats: Path, tmp_path: Path
) -> None:
    check(scene, qapp, chats, tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "scene", [each for each in shots.SCENES if each not in SAMPLE + LOGGED_BY_SCENES]
)
def test_every_screen_in_the_pseudo_language(
    scene: str, qapp: QApplication, chats: Path, tmp_path: Path
) -> None:
    check(scene, qapp, chats, tmp_path)


@pytest.mark.sweep
@pytest.mark.parametrize("scene", LOGGED_BY_SCENES)
def test_a_screen_that_logs_faults_in_the_pseudo_language(
    scene: str, qapp: QApplication, chats: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(scene, qapp, chats, tmp_path)
    assert caplog.records
