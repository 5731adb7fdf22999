"""Scenes of the instructions of a chat, for tests/pictures/shots.py."""

from __future__ import annotations

from app.domain.chat_settings import ChatSettings
from scenes_chat import Scene, answer, ask, ready
from stage import Stage

TEXT = """You are a patient teacher for children of about nine years.

- Answer in short sentences with everyday words.
- Give one example from daily life, and today is {{date}}."""


def folded(stage: Stage) -> None:
    ready(stage)
    stage.controller.chat_settings.change_shown(ChatSettings(instructions=TEXT))
    ask(stage)
    answer(stage, "Blue light bounces around in the air more than red light does.")


def unfolded(stage: Stage) -> None:
    folded(stage)
    view = stage.window.transcript
    view.message_layout.toggle_row(0, 0)
    view.message_layout.hovered = 0
    view.viewport().update()


SCENES: dict[str, Scene] = {
    "instructions_folded": folded,
    "instructions_unfolded": unfolded,
}
