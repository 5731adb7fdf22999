"""Scenes of the trash page, for tests/pictures/shots.py."""

from __future__ import annotations

import time
from pathlib import Path

from app.state.library import TrashedModel
from fakes import MODEL
from scenes_chat import Scene
from stage import Stage, flush

_MODEL = TrashedModel(
    Path("/models/Qwen3-4B-Q4_K_M.gguf"), "Qwen3 4B · Q4_K_M", 2_500_000_000, False, time.time(), ()
)


def trash(stage: Stage) -> None:
    stage.ready(MODEL)
    listed = [conversation.id for conversation in stage.state.conversations]
    stage.controller.deletions.delete(listed[:3])
    stage.wait_until_idle()
    stage.states.library.set_trash([_MODEL])
    stage.window.trash.toggle()
    flush()


def trash_emptying(stage: Stage) -> None:
    trash(stage)
    assert stage.window.trash.page is not None
    stage.window.trash.page.empty_button.click()
    flush()


SCENES: dict[str, Scene] = {scene.__name__: scene for scene in (trash, trash_emptying)}
