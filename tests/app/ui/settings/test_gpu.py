"""Section of GPU support: which words and buttons each state has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.downloads.policy import InstallProgress, InstallStep
from app.state.gpu import GPUPhase, GPUState, GPUView
from app.ui.settings.gpu import GPUSection
from app.ui.widgets.controls import TextButton

VIEW = GPUView(GPUPhase.OFFERED, "NVIDIA H100", 80 << 30, 2_610_000_000, 5_440_000_000)


@pytest.fixture
def section(qtbot: QtBot) -> GPUSection:
    made = GPUSection(GPUState())
    qtbot.addWidget(made)
    return made


def show(section: GPUSection, phase: GPUPhase, **changed: object) -> list[str]:
    """The visible buttons of a state."""
    section._state.set_view(replace(VIEW, phase=phase, **changed))  # type: ignore[arg-type]
    return [each.text() for each in section.findChildren(TextButton) if each.isVisibleTo(section)]


def test_it_is_hidden_where_there_is_nothing_to_say(section: GPUSection) -> None:
    assert section.isHidden()
    show(section, GPUPhase.OFFERED, can_get=True)
    assert not section.isHidden()


def test_the_offer_names_gpu_size_and_space(section: GPUSection) -> None:
    assert show(section, GPUPhase.OFFERED, can_get=True) == ["Get GPU support (2.6 GB)"]
    words = section.words.text()
    assert "NVIDIA H100" in words
    assert "5.4 GB of disk space" in words
    assert "Nothing is sent before you click." in words


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (InstallStep.DOWNLOADING, "Getting GPU support: 1.2 GB of 2.6 GB, 5 min left"),
        (InstallStep.WAITING, "1.2 GB of 2.6 GB are on this computer. Why."),
        (InstallStep.UNPACKING, "Unpacking…"),
        (InstallStep.CHECKING, "Checking that the GPU works…"),
    ],
)
def test_progress_is_in_words(section: GPUSection, step: InstallStep, words: str) -> None:
    progress = InstallProgress(step, 1_200_000_000, VIEW.size_bytes, 300.0, "Why.")
    assert show(section, GPUPhase.INSTALLING, progress=progress) == ["Stop"]
    assert section.words.text() == words
    assert section.bar.isVisibleTo(section)


def test_each_state_has_its_buttons(section: GPUSection) -> None:
    assert show(section, GPUPhase.UNAVAILABLE, problem="Old.") == []
    begun = show(section, GPUPhase.BEGUN, can_get=True, can_remove=True)
    assert begun == ["Go on", "Remove"]
    assert show(section, GPUPhase.READY, can_remove=True) == ["Restart now", "Remove"]
    assert show(section, GPUPhase.IN_USE, can_remove=True) == ["Remove"]
    assert section.words.text() == "Tokonoma can use NVIDIA H100 (85.9 GB)."
    show(section, GPUPhase.IN_USE, problem="It is too old.", can_remove=True)
    assert section.problem.text() == "It is too old."
    assert section.words.text() == "GPU support is installed."
    assert show(section, GPUPhase.REMOVED) == ["Restart now"]
    retry = show(section, GPUPhase.NOT_USED, problem="It.", can_retry=True, can_remove=True)
    assert retry == ["Try again", "Remove"]
    again = show(section, GPUPhase.NOT_USED, problem="It.", can_get=True, can_remove=True)
    assert again == ["Get it again (2.6 GB)", "Remove"]


def test_details_are_shown_on_request(section: GPUSection) -> None:
    shown = show(section, GPUPhase.FAILED, problem="It.", detail="exact words", can_get=True)
    assert shown == ["Try again", "Details"]
    assert not section.detail.isVisibleTo(section)
    section.more.click()
    assert section.detail.isVisibleTo(section)
    assert "exact words" in section.detail.text()


def test_the_focus_stays_in_the_section(section: GPUSection, qtbot: QtBot) -> None:
    show(section, GPUPhase.OFFERED, can_get=True)
    section.show()
    section.activateWindow()
    section.get.setFocus(Qt.FocusReason.TabFocusReason)
    qtbot.waitUntil(section.get.hasFocus)
    progress = InstallProgress(InstallStep.DOWNLOADING, 0, VIEW.size_bytes)
    show(section, GPUPhase.INSTALLING, progress=progress)
    assert section.stop.hasFocus()


def test_buttons_say_what_is_wanted(section: GPUSection, qtbot: QtBot) -> None:
    for button, wanted in (
        (section.get, section.get_requested),
        (section.stop, section.stop_requested),
        (section.retry, section.retry_requested),
        (section.remove, section.remove_requested),
        (section.restart, section.restart_requested),
    ):
        with qtbot.waitSignal(wanted, timeout=1000):
            button.click()
