"""Scenes of folders, pins and the archive, for tests/pictures/shots.py."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel, QPoint, Qt
from PySide6.QtGui import QDragMoveEvent

from fakes import MODEL
from scenes_chat import NAME, Scene
from stage import Stage, flush


def folders(stage: Stage) -> None:
    """Pinned chats, an open folder with another in it, a closed one, and the rest by day."""
    stage.start(MODEL)
    stage.engine.finish_load(NAME)
    stage.wait_until_idle()
    chats = [chat.id for chat in stage.state.conversations]
    ours = stage.controller.folders
    ours.pin([chats[0], chats[8]], pinned=True)
    lessons = ours.create("تجارب", ours.create("Physik 9b", None, chats[1:2]), chats[2:4])
    ours.create("Zwei & drei <b>weitere</b> Ordner mit langen Namen", lessons, chats[4:5])
    closed = ours.create("2026 – 旅行", None, chats[5:7])
    stage.window.sidebar.toggle_folder(closed)
    stage.controller.open_conversation(chats[2])
    stage.wait_until_idle()
    stage.state.set_deletions([], offered=0)
    flush()


def folders_dragged(stage: Stage) -> None:
    """A chat is dragged onto the closed folder."""
    _drag(stage, 0.5)


def folders_between(stage: Stage) -> None:
    """A folder is dragged between two others."""
    _drag(stage, 0.0, folder=True)


def folders_out(stage: Stage) -> None:
    """A chat is dragged out of its folder."""
    folders(stage)
    view, model = stage.window.sidebar.list, stage.window.sidebar.model
    view.setCurrentIndex(model.find(stage.state.current))
    _move(stage, view.visualRect(model.index(model.loose + 1)).center())


def _drag(stage: Stage, share: float, *, folder: bool = False) -> None:
    folders(stage)
    view, model = stage.window.sidebar.list, stage.window.sidebar.model
    tops = [each for each in stage.state.folders if each.parent is None]
    chosen = model.find(stage.state.current)
    if folder:
        nested = next(each for each in stage.state.folders if each.parent == tops[0].id)
        chosen = model.find_folder(nested.id)
    view.setCurrentIndex(chosen)
    rect = view.visualRect(model.find_folder(tops[-1].id))
    _move(stage, QPoint(rect.center().x(), round(rect.top() + share * rect.height())))


def _move(stage: Stage, place: QPoint) -> None:
    view = stage.window.sidebar.list
    data = view.model().mimeData(view.selectedIndexes())
    keys, buttons = Qt.KeyboardModifier.NoModifier, Qt.MouseButton.LeftButton
    view.dragMoveEvent(QDragMoveEvent(place, Qt.DropAction.MoveAction, data, buttons, keys))
    flush()


def folders_found(stage: Stage) -> None:
    """Search results with their folders, one of them archived."""
    folders(stage)
    ours = stage.controller.folders
    ours.archive([stage.state.conversations[2].id, stage.state.conversations[8].id], archived=True)
    stage.window.sidebar.search.setText("sky")
    stage.wait_until_idle()


def folders_keys(stage: Stage) -> None:
    """The focus ring on a folder, with several rows selected."""
    folders(stage)
    view, model = stage.window.sidebar.list, stage.window.sidebar.model
    view.setFocus(Qt.FocusReason.TabFocusReason)
    view.setCurrentIndex(model.find_folder(stage.state.folders[0].id))
    select = QItemSelectionModel.SelectionFlag.Select
    view.selectionModel().select(model.index(model.loose + 1), select)
    flush()


def folder_card(stage: Stage) -> None:
    folders(stage)
    stage.window.folder.open(stage.state.folders[0].id)
    flush()


def folder_new_chat(stage: Stage) -> None:
    folders(stage)
    stage.controller.new_conversation(stage.state.folders[0].id)
    stage.wait_until_idle()


def archive(stage: Stage) -> None:
    folders(stage)
    chats = [chat.id for chat in stage.state.conversations]
    stage.controller.folders.archive(chats[2:7], archived=True)
    stage.window.archive.toggle()
    stage.wait_until_idle()


SCENES: dict[str, Scene] = {
    scene.__name__: scene
    for scene in (
        folders,
        folders_dragged,
        folders_between,
        folders_out,
        folders_found,
        folders_keys,
        folder_card,
        folder_new_chat,
        archive,
    )
}
