"""Scenes of import and export, for tests/pictures/shots.py."""

from __future__ import annotations

from pathlib import Path

from app.domain.transfer import Dropped, ImportPreview, Program, Progress, Work
from fakes import MODEL
from scenes_chat import Scene
from stage import Stage, flush

_PREVIEW = ImportPreview(
    (Path("/x.zip"),),
    (Program.CHATGPT,),
    chats=412,
    messages=10_234,
    known=18,
    changed=2,
    dropped={Dropped.IMAGES: 31, Dropped.FILES: 4, Dropped.CHATS: 1},
    problem="The file is damaged or not complete.",
)


def import_preview(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.states.transfer.show(_PREVIEW, None)
    stage.wait_for_animations()


def import_progress(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.states.transfer.show(None, Progress(Work.IMPORTING, 0.4, 1204))
    flush()


def settings_storage(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.toggle_settings()
    flush()
    page = stage.window.preferences
    assert page is not None
    page.view.ensureWidgetVisible(page.storage.chats.export_button, 0, 200)
    flush()


SCENES: dict[str, Scene] = {
    scene.__name__: scene for scene in (import_preview, import_progress, settings_storage)
}
