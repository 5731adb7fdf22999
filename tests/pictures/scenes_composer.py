"""Scenes of the composer, for tests/pictures/shots.py."""

from __future__ import annotations

from PySide6.QtCore import QMimeData

from scenes_chat import Scene, ready
from stage import Stage, flush


def drafting(stage: Stage) -> None:
    ready(stage)
    stage.window.composer.set_text("A first line.\nA second line that says more.\n\nAnd a third.")
    flush()


def full_composer(stage: Stage) -> None:
    ready(stage)
    stage.window.composer.insert("\n".join(f"Line {n} of a long message" for n in range(1, 41)))
    flush()


def pasted(stage: Stage) -> None:
    ready(stage)
    data = QMimeData()
    data.setText("Dear landlord,\n" + "\n".join(f"Line {n} of a letter" for n in range(300)))
    stage.window.composer.editor.insertFromMimeData(data)
    stage.window.composer.insert("Please summarise this in three points.")
    flush()


SCENES: dict[str, Scene] = {scene.__name__: scene for scene in (drafting, full_composer, pasted)}
