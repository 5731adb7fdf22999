"""Shows a file in the system's file manager, selected where that is possible.

Windows: Explorer. macOS: Finder. Elsewhere the interface FileManager1 of D-Bus, which `dbus-send`
calls; where nobody answers, the folder is opened.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from PySide6.QtCore import QProcess, QUrl
from PySide6.QtGui import QDesktopServices

from app.system.paths import windows_program

_INTERFACE = "org.freedesktop.FileManager1"
_asked: set[QProcess] = set()  # calls that have not been answered


def show_in_folder(path: Path) -> None:
    """Show a file selected in its folder, or open the nearest folder that exists."""
    if not path.exists():
        _open(path)
    elif sys.platform == "win32":
        try:  # no list of arguments: Explorer wants quotes around the path alone, not the option
            subprocess.Popen(f'"{windows_program("explorer.exe")}" /select,"{path}"')
        except OSError:
            _open(path)
    elif sys.platform == "darwin":
        if not QProcess.startDetached("open", ["-R", str(path)])[0]:
            _open(path)
    else:
        _ask_file_manager(path)


def nearest_folder(path: Path) -> Path:
    """The folder itself, or else its nearest existing parent."""
    return next((each for each in (path, *path.parents) if each.is_dir()), Path.home())


def _open(path: Path) -> None:
    QDesktopServices.openUrl(QUrl.fromLocalFile(str(nearest_folder(path))))


def _ask_file_manager(path: Path) -> None:
    program = shutil.which("dbus-send")
    if program is None:
        _open(path)
        return
    call = QProcess()
    _asked.add(call)

    def answered(is_shown: bool) -> None:
        if call in _asked:
            _asked.discard(call)
            call.deleteLater()
            if not is_shown:
                _open(path)

    def on_finished(code: int, _: QProcess.ExitStatus) -> None:
        answered(code == 0)

    def on_error(_: QProcess.ProcessError) -> None:
        answered(False)

    address = bytes(QUrl.fromLocalFile(str(path)).toEncoded().data()).decode("ascii")
    address = address.replace(",", "%2C")  # a comma separates the strings of an array
    call.finished.connect(on_finished)
    call.errorOccurred.connect(on_error)
    arguments = ["--session", "--print-reply", f"--dest={_INTERFACE}"]
    arguments += [f"/{_INTERFACE.replace('.', '/')}", f"{_INTERFACE}.ShowItems"]
    call.start(program, [*arguments, f"array:string:{address}", "string:"])
