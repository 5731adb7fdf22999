"""Scenes of import and export, for tests/pictures/shots.py."""

from __future__ import annotations

from pathlib import Path

from app.domain.transfer import Dropped, ImportPreview, Program, Progress, Work
from fakes import MODEL
from scenes_chat import Scene, show_menu
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


def import_preview_own(stage: Stage) -> None:
    """A file that Tokonoma wrote: all of it is taken over."""
    stage.ready(MODEL)
    own = ImportPreview((Path("/x.json"),), (Program.TOKONOMA,), chats=24, messages=310, known=1)
    stage.states.transfer.show(own, None)
    stage.wait_for_animations()


def import_progress(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.states.transfer.show(None, Progress(Work.IMPORTING, 0.4, 1204))
    flush()


def settings_storage(stage: Stage) -> None:
    stage.ready(MODEL)
    stage.window.preferences.toggle()
    flush()
    page = stage.window.preferences.page
    assert page is not None
    page.view.ensureWidgetVisible(page.storage.chats.export_button, 0, 200)
    flush()


def export_menu(stage: Stage) -> None:
    """The formats of "Export all chats"."""
    settings_storage(stage)
    page = stage.window.preferences.page
    assert page is not None
    show_menu(stage, page.storage.chats.formats, page.storage.chats.export_button)


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        *(import_preview, import_preview_own, import_progress),
        *(settings_storage, export_menu),
    )
}
