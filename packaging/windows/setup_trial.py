"""Tries the installer for Windows under Wine: install, start, ask, upgrade, uninstall.

The prefix is an empty one, without Python. Connections that leave this machine, and files that are
written outside the user's profile, fail the trial.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import smoke_frozen
from environment import Trouble, say
from linux import clean_root, tree
from release_notes import version
from windows import setup
from windows.wine import Prefix, make_bare

_NEXT = "99.0.0"  # the version to upgrade to
_KEYS = (
    r"HKCU\Software\Microsoft\Windows\CurrentVersion\Uninstall\Tokonoma",
    r"HKCU\Software\Classes\Tokonoma.gguf\shell\open\command",
    r"HKCU\Software\Classes\Applications\Tokonoma.exe\SupportedTypes",
    r"HKCU\Software\Tokonoma\Capabilities",
)
_KEPT = "conversations.sqlite"
# As on a Windows that has no C++ runtime: the bundle's own, or none, in place of Wine's.
_RUNTIME = ("concrt140", "msvcp140", "msvcp140_1", "msvcp140_2", "msvcp140_atomic_wait")
_CLEAN = {"WINEDLLOVERRIDES": f"{','.join((*_RUNTIME, 'vcruntime140', 'vcruntime140_1'))}=n"}
_LIMIT = 900  # seconds for one run: of libraries that Wine reads for the first time
_WINE_FILES = ("windows/temp/", "ProgramData/")  # which Wine itself writes


def main(files: list[Path], cache: Path, pictures: Path | None = None) -> list[str]:
    """Try an installer among the packages; returns what was done. Raises Trouble.

    `cache` keeps the prefix; `pictures` gets a picture of the window.
    """
    done: list[str] = []
    for file in files:
        if file.suffix == ".exe":
            prefix = Prefix(cache / "windows-trial")
            make_bare(prefix)
            try:
                with smoke_frozen.xvfb() as display:
                    _Trial(prefix, display, done).run(file, pictures)
            finally:
                prefix.stop()
    return done


def smoke(program: Path) -> str:
    """Ask a bundle one question in an empty prefix, thrown away later; returns the answer.

    Raises Trouble.
    """
    with tempfile.TemporaryDirectory(prefix="tokonoma-", ignore_cleanup_errors=True) as folder:
        prefix = Prefix(Path(folder) / "prefix", _CLEAN)
        make_bare(prefix)
        try:
            return _ask(prefix, program)
        finally:
            prefix.stop()


def _ask(prefix: Prefix, program: Path) -> str:
    """Ask the included model one question under strace; returns the answer. Raises Trouble."""
    with tempfile.TemporaryDirectory() as work:
        trace = Path(work) / "trace.txt"
        traced = clean_root.traced(trace)
        prefix.stop()  # the server, which makes connections, is to be traced too
        parts: list[str] = []
        started = time.monotonic()
        status = prefix.run(str(program), "--smoke", before=traced, limit=_LIMIT, sink=parts.append)
        took = time.monotonic() - started
        if status != 0:
            raise Trouble(f"The smoke test ended with status {status}:\n{''.join(parts)}")
        reached = clean_root.remote(trace.read_text(encoding="utf-8", errors="replace"))
    if reached:
        raise Trouble(f"It reached beyond this machine: {'; '.join(reached[:9])}.")
    return f"asked, traced, in {took:.0f} s: {''.join(parts).strip()}"


class _Trial:
    """The steps, in one prefix and on one display."""

    def __init__(self, prefix: Prefix, display: str, done: list[str]) -> None:
        settings = {**_CLEAN, "DISPLAY": display, "QT_QPA_PLATFORM": "windows"}
        self.prefix, self._done = Prefix(prefix.folder, settings), done
        users = prefix.drive / "users"
        (home,) = (path for path in users.iterdir() if path.name != "Public")
        self._local = home / "AppData" / "Local"

    @property
    def folder(self) -> Path:
        """The folder of the installation."""
        return self._local / "Programs" / "Tokonoma"

    def run(self, file: Path, pictures: Path | None) -> None:
        """Install, start, ask, upgrade, uninstall twice."""
        before = self._outside()
        took = self._install(file, version())
        shown = "with shortcut, file type and entry in Settings"
        self._say(f"{file.name}: installed in {took:.0f} s, {shown}.")
        self._say(f"{file.name}: {_ask(self.prefix, self.folder / 'Tokonoma.exe')}")
        took = self._session(pictures and pictures / "windows.png", refuse=file)
        done = "refused an upgrade while open, and closed"
        self._say(f"{file.name}: opened, with the model after {took:.0f} s, {done}.")
        with tempfile.TemporaryDirectory(dir=file.parent) as work:
            newer = setup.make_exe(self.folder, Path(work), _NEXT, "SetCompress off")
            self._install(newer, _NEXT)
            if not (self.folder / "former" / "Tokonoma.exe").is_file():
                raise Trouble("The upgrade did not keep the version before.")
            self._session(pictures and pictures / "windows-upgraded.png")
            self._say(f"{file.name}: upgraded to {_NEXT}, and opened with the same data.")
            self._uninstall()
            if not self._data():
                raise Trouble("Uninstalling took the user's data with it.")
            self._say(f"{file.name}: uninstalled; the data stays.")
            self._install(newer, _NEXT)
            self._uninstall("/REMOVEDATA")
        if self._data():
            raise Trouble("Uninstalling with /REMOVEDATA left the user's data.")
        self._say(f"{file.name}: uninstalled with the data.")
        if written := self._outside() - before:
            raise Trouble(f"Files outside the profile were written: {sorted(written)[:9]}.")

    def _say(self, line: str) -> None:
        say(line)
        self._done.append(line)

    def _install(self, file: Path, number: str) -> float:
        """Install silently and look at what Windows shows of it; returns the installer's seconds."""
        started = time.monotonic()
        if status := self._status(str(file), "/S"):
            raise Trouble(f"{file.name} ended with status {status}.")
        took = time.monotonic() - started
        for key in _KEYS:
            if self._status("reg", "query", key):
                raise Trouble(f"After the installation the registry lacks {key}.")
        shown: list[str] = []
        self.prefix.run("reg", "query", _KEYS[0], limit=_LIMIT, sink=shown.append)
        if f"REG_SZ    {number}\n" not in "".join(shown):
            raise Trouble(f"Settings does not show the version {number}.")
        if not self._shortcuts():
            raise Trouble("The Start menu has no shortcut.")
        return took

    def _uninstall(self, *options: str) -> None:
        # With _? it does not copy itself to the temporary folder, so that it can be waited for.
        place = "C:" + str(self.folder).removeprefix(str(self.prefix.drive)).replace("/", "\\")
        program = rf"{place}\uninstall.exe"
        if status := self._status(program, "/S", *options, f"_?={place}"):
            raise Trouble(f"The uninstaller ended with status {status}.")
        left = [path.name for path in self.folder.glob("*") if path.name != "uninstall.exe"]
        if left or self._shortcuts() or not self._status("reg", "query", _KEYS[0]):
            raise Trouble(f"The uninstaller left {left or 'a shortcut or its entry'}.")

    def _session(self, picture: Path | None, refuse: Path | None = None) -> float:
        """Open the window, wait for the model, and close it as Windows does.

        Returns the seconds until the model was loaded.
        """
        settings = self._local / "Tokonoma" / "settings.json"
        settings.unlink(missing_ok=True)
        started = time.monotonic()
        program = self.prefix.start(str(self.folder / "Tokonoma.exe"))
        try:
            smoke_frozen.wait_for(
                lambda: bool(smoke_frozen.last_model(self._local / "Tokonoma")),
                program,
                "the model",
                _LIMIT,
            )
            took = time.monotonic() - started
            if picture is not None:
                shown = self.prefix.settings["DISPLAY"]
                tree.run("import", "-window", "root", "-display", shown, picture)
            if refuse is not None and self._status(str(refuse), "/S") != 5:
                raise Trouble("The installer replaced a version that was open.")
            self._status("taskkill", "/IM", "Tokonoma.exe")
            status = program.wait(120)
        finally:
            if program.poll() is None:
                self.prefix.stop()
                program.kill()
        if status != 0:
            raise Trouble(f"After its window was closed the app exited with status {status}.")
        return took

    def _status(self, *command: str) -> int:
        return self.prefix.run(*command, limit=_LIMIT, sink=lambda _: None)

    def _shortcuts(self) -> list[Path]:
        return list((self.prefix.drive / "users").rglob("Programs/Tokonoma.lnk"))

    def _data(self) -> bool:
        return any((self._local / "Tokonoma").rglob(_KEPT))

    def _outside(self) -> set[tuple[str, int, int]]:
        """The files of the drive outside the users' profiles: path, size and time."""
        found: set[tuple[str, int, int]] = set()
        for path in self.prefix.drive.rglob("*"):
            name = path.relative_to(self.prefix.drive).as_posix()
            if not name.startswith(("users/", *_WINE_FILES)) and path.is_file():
                facts = path.stat()
                found.add((name, facts.st_size, facts.st_mtime_ns))
        return found
