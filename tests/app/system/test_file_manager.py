"""Showing a file in the file manager: what it is asked, and the folder where nobody answers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from pytestqt.qtbot import QtBot

from app.system.file_manager import show_in_folder

PROGRAM = """#!{python}
import sys
from pathlib import Path
Path({file!r}).write_text("\\n".join(sys.argv[1:]))
sys.exit({code})
"""

pytestmark = pytest.mark.skipif(
    sys.platform in ("win32", "darwin"), reason="Explorer and Finder are asked there"
)


class Opened(QObject):
    """Receives what the desktop is asked to open."""

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[Path] = []

    @Slot(QUrl)
    def open(self, address: QUrl) -> None:
        self.paths.append(Path(address.toLocalFile()))


@pytest.fixture
def opened() -> Iterator[Opened]:
    receiver = Opened()
    QDesktopServices.setUrlHandler("file", receiver, "open")
    yield receiver
    QDesktopServices.unsetUrlHandler("file")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> Path:
    """Make a folder the PATH, with a `dbus-send` that writes down what it is given."""
    program, said = folder / "dbus-send", folder / "said"
    program.write_text(
        PROGRAM.format(python=sys.executable, file=str(said), code=code), encoding="utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return said


def test_the_file_manager_is_asked_to_select_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, qtbot: QtBot, opened: Opened
) -> None:
    said = install(tmp_path, monkeypatch, 0)
    file = tmp_path / "my models, für 雪.gguf"
    file.touch()
    show_in_folder(file)
    qtbot.waitUntil(
        lambda: said.exists() and "string:" in said.read_text(encoding="utf-8"), timeout=10_000
    )
    *_, method, address, _ = said.read_text(encoding="utf-8").split("\n")
    assert method == "org.freedesktop.FileManager1.ShowItems"
    assert address.startswith("array:string:file:///")
    assert "," not in address
    assert Path(QUrl(address.removeprefix("array:string:")).toLocalFile()) == file
    qtbot.wait(50)
    assert opened.paths == []


@pytest.mark.parametrize("has_program", [True, False])
def test_where_nobody_answers_the_folder_is_opened(
    has_program: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    qtbot: QtBot,
    opened: Opened,
) -> None:
    if has_program:
        install(tmp_path, monkeypatch, 1)
    else:
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    file = tmp_path / "model.gguf"
    file.touch()
    show_in_folder(file)
    qtbot.waitUntil(lambda: opened.paths == [tmp_path], timeout=10_000)


def test_a_file_that_is_gone_opens_the_nearest_folder(tmp_path: Path, opened: Opened) -> None:
    show_in_folder(tmp_path / "gone" / "model.gguf")
    assert opened.paths == [tmp_path]
