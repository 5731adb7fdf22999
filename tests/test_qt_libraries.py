"""Missing system libraries: what is found, which packages are named, and the way without a window."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

import dev
import qt_libraries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks the linker of Linux")
LINKER = """#!/bin/sh
for file in "$@"; do
    echo "$file:"
    echo "	libc.so.6 => /lib/libc.so.6 (0x0)"
    [ -s "$file" ] && sed 's/.*/\t& => not found/' "$file"
done
exit 0
"""


def program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(stat.S_IRWXU)


@pytest.fixture
def qt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of PySide6 whose files list what they lack, and a linker that reads them."""
    program(tmp_path / "bin", "ldd", LINKER)
    path = os.pathsep.join([str(tmp_path / "bin"), "/usr/bin", "/bin"])
    monkeypatch.setenv("PATH", path)
    folder = tmp_path / "PySide6"
    plugins = folder / "Qt" / "plugins" / "platforms"
    plugins.mkdir(parents=True)
    (folder / "QtWidgets.abi3.so").touch()
    (plugins / "libqxcb.so").write_text("libxcb-cursor.so.0\nlibxcb-icccm.so.4\n", encoding="utf-8")
    (plugins / "libqwayland.so").touch()
    (plugins / "libqoffscreen.so").touch()
    return folder


def test_the_plugin_of_the_session_decides(qt: Path) -> None:
    lacks = ["libxcb-cursor.so.0", "libxcb-icccm.so.4"]
    assert qt_libraries.missing({"DISPLAY": ":0"}, qt) == lacks
    assert qt_libraries.missing({"QT_QPA_PLATFORM": "xcb"}, qt) == lacks
    assert qt_libraries.missing({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, qt) == []
    assert qt_libraries.missing({"DISPLAY": ":0", "QT_QPA_PLATFORM": "offscreen"}, qt) == []


def test_a_library_that_every_window_needs_is_found(qt: Path) -> None:
    (qt / "QtWidgets.abi3.so").write_text("libEGL.so.1\n", encoding="utf-8")
    assert qt_libraries.missing({"WAYLAND_DISPLAY": "wayland-0"}, qt) == ["libEGL.so.1"]


def test_nothing_is_missing_where_the_linker_cannot_be_asked(
    qt: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "ldd", "#!/nowhere/sh\n")
    assert qt_libraries.missing({"DISPLAY": ":0"}, qt) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert qt_libraries.missing({"DISPLAY": ":0"}, qt) == []


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "sudo apt install libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1"),
        ("dnf", "sudo dnf install xcb-util-cursor xcb-util-wm xcb-util-keysyms"),
        ("zypper", "sudo zypper install libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1"),
        ("pacman", "sudo pacman -S xcb-util-cursor xcb-util-wm xcb-util-keysyms"),
    ],
)
def test_the_packages_of_the_system_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str, command: str
) -> None:
    program(tmp_path / "bin", manager)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    libraries = ["libxcb-cursor.so.0", "libxcb-icccm.so.4", "libxcb-keysyms.so.1"]
    said = qt_libraries.advice(libraries)
    assert said.splitlines()[-1].strip() == command
    assert all(name in said for name in libraries)


def test_unknown_libraries_and_systems_get_the_names_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "libxcb-cursor.so.0" in qt_libraries.advice(["libxcb-cursor.so.0"])
    program(tmp_path, "apt-get")
    said = qt_libraries.advice(["libunheard-of.so.9"])
    assert "libunheard-of.so.9" in said
    assert "apt" not in said


def test_every_library_has_a_package_for_every_manager() -> None:
    for packages in qt_libraries.PACKAGES.values():
        assert len(packages) == len(qt_libraries._COMMANDS)


@pytest.mark.parametrize(
    ("display", "lacks", "module", "said"),
    [
        ("", [], "engine", "There is no display."),
        (":0", ["libxcb-cursor.so.0"], "engine", "libxcb-cursor.so.0"),
        (":0", [], "app", ""),
    ],
)
def test_run_asks_in_the_terminal_where_no_window_can_be_opened(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    display: str,
    lacks: list[str],
    module: str,
    said: str,
) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setenv("DISPLAY", display)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(dev, "_set_up", dict)
    monkeypatch.setattr(dev.fetch, "starter", lambda: None)
    monkeypatch.setattr(dev.fetch, "ensure", lambda model: None)
    monkeypatch.setattr(dev.qt_libraries, "missing", lambda: lacks)
    monkeypatch.setattr(dev, "_python", lambda *words: started.append(words) or 0)
    assert dev.main(["run"]) == 0
    assert [words[1] for words in started] == [module]
    assert said in capsys.readouterr().out
