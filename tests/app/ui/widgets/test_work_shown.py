"""Work in progress as the system is told of it: taskbar, and no sleep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.domain.release import InstallKind, Package
from app.downloads.entry import Download
from app.downloads.policy import InstallProgress, InstallStep, Phase
from app.state.chat import Generation
from app.state.chat import State as ChatState
from app.state.gpu import GPUPhase, GPUState, GPUView
from app.state.library import LibraryState
from app.state.updates import GetPhase, UpdateState, UpdateStatus
from app.system.awake import Awake
from app.ui.widgets.work_shown import WorkShown, progress_of

ROW = Download(
    1, "", "m.gguf", Path("/m.gguf"), "", 200, 50, 0.0, None, Phase.RUNNING, "", "", "", ""
)


class Sleep(Awake):
    """The request, without a system."""

    is_held_off = False

    def ask(self, wanted: bool) -> None:
        self.is_held_off = wanted


class Button:
    """A taskbar button that keeps what it was given."""

    def __init__(self) -> None:
        self.shown: list[float | None] = []

    def show(self, window: int, progress: float | None) -> None:
        assert window
        self.shown.append(progress)


@pytest.fixture
def chat(qtbot: QtBot) -> ChatState:
    return ChatState()


@pytest.fixture
def library(qtbot: QtBot) -> LibraryState:
    return LibraryState()


def watched(qtbot: QtBot, chat: ChatState, library: LibraryState) -> tuple[Sleep, Button]:
    window, sleep, button = QWidget(), Sleep(), Button()
    qtbot.addWidget(window)
    WorkShown(chat, library, GPUState(window), UpdateState(window), window, sleep, button)
    chat.setParent(window)
    return sleep, button


def test_gpu_support_and_a_newer_version_are_downloads_too(
    qtbot: QtBot, chat: ChatState, library: LibraryState
) -> None:
    window, sleep, button = QWidget(), Sleep(), Button()
    qtbot.addWidget(window)
    gpu, updates = GPUState(window), UpdateState(window)
    WorkShown(chat, library, gpu, updates, window, sleep, button)
    progress = InstallProgress(InstallStep.DOWNLOADING, 50, 200)
    gpu.set_view(GPUView(GPUPhase.INSTALLING, progress=progress))
    assert sleep.is_held_off
    gpu.set_view(GPUView(progress=replace(progress, step=InstallStep.WAITING)))
    assert not sleep.is_held_off
    package = Package(InstallKind.DEB, "x86_64", "https://example.org/t.deb", 400, "")
    updates.set_status(UpdateStatus(phase=GetPhase.GETTING, percent=50, package=package))
    assert sleep.is_held_off
    updates.set_status(UpdateStatus(phase=GetPhase.READY, package=package))
    assert not sleep.is_held_off
    assert button.shown == [0.25, None, 0.5, None]


def test_the_taskbar_shows_all_downloads_as_one(
    qtbot: QtBot, chat: ChatState, library: LibraryState
) -> None:
    sleep, button = watched(qtbot, chat, library)
    library.set_downloads([ROW])
    assert sleep.is_held_off
    library.set_downloads([ROW, replace(ROW, id=2, done_bytes=0, size_bytes=800)])
    library.set_downloads([replace(ROW, done_bytes=51)])
    library.set_downloads([replace(ROW, phase=Phase.PAUSED)])
    assert button.shown == [0.25, 0.05, 0.25, None]
    assert not sleep.is_held_off


def test_a_step_too_small_to_see_is_not_shown(
    qtbot: QtBot, chat: ChatState, library: LibraryState
) -> None:
    _, button = watched(qtbot, chat, library)
    for done in range(20_000, 20_100):
        library.set_downloads([replace(ROW, done_bytes=done, size_bytes=80_000)])
    assert button.shown == [0.25]


def test_an_answer_keeps_the_computer_awake(
    qtbot: QtBot, chat: ChatState, library: LibraryState
) -> None:
    sleep, button = watched(qtbot, chat, library)
    chat.set_generation(Generation(1, 1, 2))
    assert sleep.is_held_off
    library.set_downloads([ROW])
    chat.end_generation(1)
    assert sleep.is_held_off  # the download goes on
    library.set_downloads([replace(ROW, phase=Phase.DONE)])
    assert not sleep.is_held_off
    assert button.shown == [0.25, None]


def test_progress_is_unknown_where_a_size_is() -> None:
    assert progress_of([]) is None
    assert progress_of([(50, 200), (50, 0)]) == -1.0
    assert progress_of([(300, 200)]) == 1.0
