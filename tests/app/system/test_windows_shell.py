"""The app's ID on Windows, and progress in its taskbar button."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.system.windows_shell import APP_ID, TaskbarButton, name_program, taskbar_button

ROOT = Path(__file__).parents[3]


class Shell:
    """shell32, which records the ID that it is given."""

    def __init__(self) -> None:
        self.given = ""

    def SetCurrentProcessExplicitAppUserModelID(self, name: ctypes.c_wchar_p) -> int:  # noqa: N802
        self.given = name.value or ""
        return 0


def test_the_process_and_the_installed_shortcut_have_one_id() -> None:
    shell = Shell()
    name_program(shell)
    assert shell.given == APP_ID
    script = (ROOT / "packaging" / "windows" / "installer.iss").read_text(encoding="utf-8-sig")
    assert set(re.findall(r'AppUserModelID: "([^"]*)"', script)) == {APP_ID}


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
