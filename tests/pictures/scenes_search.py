"""Scenes of the search in the sidebar and of Find in conversation, for tests/pictures/shots.py."""

from __future__ import annotations

from scenes_chat import Scene, long_answer, narrow, ready
from stage import Stage, until


def searching(stage: Stage) -> None:
    ready(stage)
    stage.window.search()
    stage.window.sidebar.search.setText("the")
    stage.wait_until_idle()


def nothing_found(stage: Stage) -> None:
    ready(stage)
    stage.window.search()
    stage.window.sidebar.search.setText("zebra crossing")
    stage.wait_until_idle()


def find(stage: Stage) -> None:
    long_answer(stage)
    stage.window.open_find()
    stage.window.chat.find_bar.field.setText("light")
    until(lambda: not stage.window.transcript.finder.searching)


def find_in_code(stage: Stage) -> None:
    long_answer(stage)
    stage.window.open_find()
    stage.window.chat.find_bar.field.setText("scatter")
    until(lambda: not stage.window.transcript.finder.searching)
    for _ in range(5):
        stage.window.chat.find_bar.step(forward=True)


def find_nothing(stage: Stage) -> None:
    narrow(stage)
    stage.window.open_find()
    stage.window.chat.find_bar.field.setText("zebra")
    until(lambda: not stage.window.transcript.finder.searching)


SCENES: dict[str, Scene] = {
    scene.__name__: scene for scene in (searching, nothing_found, find, find_in_code, find_nothing)
}
