"""Notification of a long answer: only when it took long and the window is not in front."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.domain.chat import Conversation
from app.domain.message import Message, MessageState, StopReason
from app.domain.parts import TextPart
from app.state.chat import Generation, State
from app.ui.transcript.message.endings import ending
from app.ui.widgets.notification import LONG_SECONDS, AnswerNotifier
from engine import Role


@dataclass
class Scene:
    on: bool = True
    in_front: bool = False
    now: float = 100.0
    shown: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def state(qtbot: QtBot, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> State:
    class Notifier(AnswerNotifier):
        def show(self, title: str, text: str) -> None:
            super().show(title, text)  # must not fail where there is no tray
            scene.shown.append((title, text))

    state, window = State(), QWidget()
    monkeypatch.setattr(window, "isActiveWindow", lambda: scene.in_front)
    qtbot.addWidget(window)
    state.set_conversations([Conversation(1, "The sky", 0.0, 0.0, None)])
    Notifier(state, window, lambda: scene.on, window.show, ending, clock=lambda: scene.now)
    state.setParent(window)
    return state


def answer(state: State, scene: Scene, seconds: float, *, stopped: bool = False) -> None:
    state.set_generation(Generation(1, 1, 2))
    scene.now += seconds
    state.set_generation(Generation(1, 1, 2, generated=9, stopping=stopped))
    state.end_generation(1)


def test_long_answer_is_announced(state: State, scene: Scene) -> None:
    answer(state, scene, LONG_SECONDS + 1)
    assert scene.shown == [("Your answer is ready", "The sky")]
    state.end_generation(1)
    assert len(scene.shown) == 1


def test_answer_that_did_not_reach_its_end_is_not_ready(state: State, scene: Scene) -> None:
    parts, stopped = (TextPart("Yay!"),), MessageState.STOPPED
    stop = StopReason.REPETITION
    one = Message(2, 1, 1, Role.ASSISTANT, parts, stopped, 0.0, "m", stop, 0, 0, 0.0, 1, 1)
    state.show(1, [one])
    answer(state, scene, LONG_SECONDS + 1)
    assert scene.shown == [("Stopped: the model was repeating itself", "The sky")]


@pytest.mark.parametrize("why", ["short", "in front", "off", "stopped"])
def test_no_announcement(state: State, scene: Scene, why: str) -> None:
    scene.in_front, scene.on = why == "in front", why != "off"
    answer(state, scene, 1 if why == "short" else 60, stopped=why == "stopped")
    assert scene.shown == []
