"""The app's ID on Windows, and progress in its taskbar button."""

from __future__ import annotations

import ctypes
import sys

import pytest
from pytestqt.qtbot import QtBot

from app.system.windows_shell import APP_ID, TaskbarButton, name_program, taskbar_button


class Shell:
    """shell32, which records the ID that it is given."""

    def __init__(self) -> None:
        self.given = ""

    def SetCurrentProcessExplicitAppUserModelID(self, name: ctypes.c_wchar_p) -> int:  # noqa: N802
        self.given = name.value or ""
        return 0


def test_an_app_that_python_runs_has_an_id_of_its_own() -> None:
    shell = Shell()
    name_program(shell)
    assert shell.given == APP_ID


def test_a_bundle_keeps_the_id_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shortcuts have that one too: with another, a pinned icon would stay beside the window's."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    shell = Shell()
    name_program(shell)
    assert shell.given == ""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has one")
def test_other_systems_have_no_such_taskbar() -> None:
    assert taskbar_button() is None


@pytest.mark.skipif(sys.platform != "win32", reason="asks Windows")
def test_the_taskbar_takes_each_kind_of_progress(qtbot: QtBot) -> None:
    """Wine's taskbar shows none; a wrong place in the table would end the process."""
    name_program()
    button = taskbar_button()
    assert isinstance(button, TaskbarButton)
    for progress in (0.0, 0.5, 1.0, -1.0, None):
        button.show(0, progress)
