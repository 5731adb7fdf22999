"""Builds the bundle: the application as one folder that needs no Python.

It is for this system or, on Linux, for Windows: PyInstaller then runs under Wine. PyInstaller
collects the files (bundle.spec, contents.py). Icons are drawn before it runs; after it, libraries
are stripped and desktop files added. The new bundle replaces the last one only when every step has
succeeded.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import contents
import fetch
import native
from environment import ROOT, Trouble, child_environment, last_lines, locked, say, venv_python
from linux import icu_data, metainfo
from release_notes import version
from windows import files as windows_files
from windows import imports, runtime, wine

FOLDER = ROOT / "build" / "bundle"
WORK = ROOT / "build" / "bundle-work"
NAME = "Tokonoma"
SYSTEMS = [sys.platform, *(["win32"] if sys.platform == "linux" else [])]  # that can be built here
_HERE = ROOT / "packaging"
_SPEC = _HERE / "bundle.spec"
_NEEDED_BYTES = 3_000_000_000
_WINE_SECONDS = 60 * 60
_EXECUTABLE = ("tokonoma", "install.sh", "torch_shm_manager")
_ICON_SIZES = (16, 24, 32, 48, 64, 128, 256, 512)


def build(folder: Path | None = None, system: str = sys.platform) -> Path:
    """Build the bundle of a system as `folder`/Tokonoma; returns the program in it. Raises Trouble.

    `system` is this one as in sys.platform, or win32 on Linux.
    """
    folder = folder or folder_of(system)
    check_platform(system)
    _check_tools()
    starter = fetch.ensure(fetch.starter())
    kernels = native.ensure() if system == sys.platform else wine.add_kernels()
    if kernels is None:
        raise Trouble("A bundle without native kernels would be slow; mend the above first.")
    with locked(ROOT / "build" / "bundle.lock"):
        shutil.rmtree(WORK, ignore_errors=True)
        inner = WORK / _SPEC.stem  # PyInstaller's work folder for this spec
        inner.mkdir(parents=True)
        _check_space(folder)
        say("Drawing the icons…")
        draw_icons(inner)
        say("Collecting the app (about a minute)…")
        files = {"TOKONOMA_STARTER": starter, "TOKONOMA_KERNELS": kernels}
        if system == sys.platform:
            _python("collect the app", *_pyinstaller(str), **_texts(files, str))
        else:
            files["TOKONOMA_RUNTIME"] = runtime.unpack(inner)
            _collect_under_wine(files)
        made = WORK / "dist" / _folder_name(system)
        if system == "linux":
            say("Stripping the largest libraries…")
            _strip(made)
            for library in made.rglob("libicudata.so.*"):
                icu_data.shrink(library)
            clear_run_paths(made)
            add_linux_files(made, inner)
            _set_modes(made)
        elif system == "win32":
            windows_files.add_files(made)
            for file, dll in imports.check(made):
                say(f"{file} imports {dll}, which is lacking, when it first calls it.")
        final = folder / made.name
        _replace(made, final)
        shutil.rmtree(WORK, ignore_errors=True)
    return program(final, system)


def draw_icons(folder: Path) -> None:
    """Write the icon files of all systems into a folder. Raises Trouble."""
    drawing = {"PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "offscreen"}
    _python("draw the icons", str(_HERE / "icon_files.py"), str(folder), **drawing)


def folder_of(system: str) -> Path:
    """The folder where a system's bundle is built by default."""
    return FOLDER if system == sys.platform else FOLDER.with_name(f"bundle-{system}")


def program(bundle: Path, system: str = sys.platform) -> Path:
    """The executable of a bundle."""
    if system == "darwin":
        return bundle / "Contents" / "MacOS" / NAME
    return bundle / (f"{NAME}.exe" if system == "win32" else "tokonoma")


def root(program: Path) -> Path:
    """The bundle that contains an executable."""
    return program.parents[2] if program.parent.name == "MacOS" else program.parent


def built(folder: Path | None = None, system: str = sys.platform) -> Path:
    """The executable of the bundle in `folder`. Raises Trouble when there is none."""
    folder = folder or folder_of(system)
    found = program(folder / _folder_name(system), system)
    if not found.is_file():
        which = "" if system == sys.platform else f" --system {system}"
        raise Trouble(
            f"There is no bundle in {folder}. Run `python3 packaging/dev.py bundle{which}` first."
        )
    return found


def size(bundle: Path) -> tuple[int, int]:
    """Total bytes and number of files of a bundle; a symbolic link counts as an empty file."""
    files = [path for path in bundle.rglob("*") if path.is_symlink() or path.is_file()]
    return sum(path.stat().st_size for path in files if not path.is_symlink()), len(files)


def check_platform(system: str = sys.platform, machine: str = platform.machine()) -> None:
    """Check that there is a torch to bundle for this platform. Raises Trouble."""
    machine = machine.lower()
    if system == "linux" and machine in ("aarch64", "arm64"):
        raise Trouble(
            "There is no bundle for Linux on ARM: since 2.11 torch's wheels for it need the CUDA "
            "libraries, several GB that no processor uses. `packaging/dev.py run` installs them "
            "and starts the app from source."
        )
    if system == "darwin" and machine == "x86_64":
        raise Trouble(
            "There is no bundle for Macs with processors of Intel: torch has no wheels for them "
            "since 2.3. Make it on a Mac with a processor of Apple."
        )


def _check_tools() -> None:
    """Check for binutils, which PyInstaller and the strip step use on Linux. Raises Trouble."""
    if sys.platform == "linux":
        missing = [name for name in ("objdump", "objcopy", "strip") if shutil.which(name) is None]
        if missing:
            raise Trouble(
                f"Making a bundle needs {' and '.join(missing)}: install the package binutils and "
                "run the command again."
            )


def _check_space(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place in (WORK, folder):
        free = shutil.disk_usage(place).free
        if free < _NEEDED_BYTES:
            raise Trouble(
                f"Making a bundle needs {_NEEDED_BYTES / 1e9:.0f} GB on the disk of {place}, and "
                f"{free / 1e9:.1f} GB is free. Free some space and run the command again."
            )


def _folder_name(system: str) -> str:
    return f"{NAME}.app" if system == "darwin" else NAME


def _pyinstaller(name: Callable[[Path], str]) -> tuple[str, ...]:
    """PyInstaller's command line; `name` writes a path as its system does."""
    places = ("--distpath", name(WORK / "dist"), "--workpath", name(WORK))
    return ("-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", *places, name(_SPEC))


def _texts(files: Mapping[str, Path], name: Callable[[Path], str]) -> dict[str, str]:
    """Settings of the spec, with the same hash seed and dates for the same archives."""
    fixed = {"PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "1", "TOKONOMA_VERSION": version()}
    return fixed | {key: name(path) for key, path in files.items()}


def _collect_under_wine(files: Mapping[str, Path]) -> None:
    """Run PyInstaller with Windows' Python. Raises Trouble."""
    made = wine.Prefix(wine.prefix().folder, _texts(files, wine.seen))
    try:
        status = made.run(wine.PYTHON, *_pyinstaller(wine.seen), limit=_WINE_SECONDS)
    finally:
        made.stop()
    if status != 0:
        raise Trouble("Could not collect the app for Windows, as above.")


def _python(doing: str, *command: str, **settings: str) -> None:
    """Run .venv's interpreter without output; raises Trouble with its last lines when it fails."""
    ran = subprocess.run(
        [venv_python(), *command],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=child_environment(**settings),
        check=False,
    )
    if ran.returncode != 0:
        log = WORK / "failed.log"
        log.write_text(ran.stdout, encoding="utf-8")
        raise Trouble(
            f"{last_lines(ran.stdout)}\nCould not {doing}, as above; the whole output is in {log}."
        )


def _strip(bundle: Path) -> None:
    """Strip the symbols of the libraries that are much larger with them. Raises Trouble."""
    found = [path for path in bundle.rglob("*.so*") if contents.STRIPPED.search(path.as_posix())]
    files = [path for path in found if not path.is_symlink()]
    ran = subprocess.run(
        ["strip", "--strip-unneeded", *files], capture_output=True, text=True, check=False
    )
    if ran.returncode != 0:
        raise Trouble(f"{last_lines(ran.stderr)}\nstrip failed on the libraries, as above.")


def clear_run_paths(bundle: Path) -> None:
    """Remove folders of the building machine from the search paths of libraries.

    A Python of pyenv has them; the program sets the bundle's own folder as the search path.
    """
    for path in bundle.rglob("*.so*"):
        if path.is_symlink() or not (folders := contents.run_path(str(path))):
            continue
        data, text = path.read_bytes(), b"\0%b\0" % folders.encode()
        if data.count(text) == 1:  # the entry in the table of strings
            path.write_bytes(data.replace(text, b"\0" * len(text)))


def _set_modes(bundle: Path) -> None:
    """Make everything readable for all users, and only programs and the script executable."""
    bundle.chmod(0o755)
    for path in bundle.rglob("*"):
        if not path.is_symlink():
            is_run = path.is_dir() or path.name in _EXECUTABLE
            path.chmod(0o755 if is_run else 0o644)


def add_linux_files(bundle: Path, icons: Path) -> None:
    """Add the Linux files: menu entry, MIME type, icons, manual, description, script, README."""
    libraries = [str(path) for path in bundle.rglob("*.so*") if not path.is_symlink()]
    text = (_HERE / "linux" / "README.txt").read_text(encoding="utf-8")
    glibc = contents.oldest_glibc(libraries)
    if _numbers(glibc) > _numbers(contents.NEWEST_GLIBC):
        raise Trouble(
            f"This bundle would need glibc {glibc}, and Debian 12 has {contents.NEWEST_GLIBC}: "
            "build it there, or with a Python that was built there."
        )
    text = text.replace("@GLIBC@", glibc)
    (bundle / "README.txt").write_text(text, encoding="utf-8")
    shutil.copy(_HERE / "linux" / "install.sh", bundle)
    share = bundle / "share"
    for place, file, name in (
        ("applications", "tokonoma.desktop", "tokonoma.desktop"),
        ("mime/packages", "tokonoma.mime.xml", "tokonoma.xml"),
    ):
        (share / place).mkdir(parents=True)
        shutil.copy(_HERE / "linux" / file, share / place / name)
    for place, name, text in (
        ("metainfo", f"{metainfo.ID}.metainfo.xml", metainfo.text()),
        ("man/man1", "tokonoma.1", metainfo.manual()),
    ):
        (share / place).mkdir(parents=True)
        (share / place / name).write_text(text, encoding="utf-8")
    theme = share / "icons" / "hicolor"
    for side in _ICON_SIZES:
        apps = theme / f"{side}x{side}" / "apps"
        apps.mkdir(parents=True)
        shutil.copy(icons / f"tokonoma-{side}.png", apps / "tokonoma.png")
    scalable = theme / "scalable" / "apps"
    scalable.mkdir(parents=True)
    shutil.copy(ROOT / "resources" / "icons" / "app.svg", scalable / "tokonoma.svg")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _replace(made: Path, final: Path) -> None:
    """Move the new bundle to its final path; on failure the last bundle is kept."""
    final.parent.mkdir(parents=True, exist_ok=True)
    old = final.with_name(f"{final.name}.old-{int(time.time())}")
    if final.exists():
        final.rename(old)
    shutil.move(made, final)
    shutil.rmtree(old, ignore_errors=True)
