"""Tries the packages in clean roots: install, start, ask, upgrade, remove, on X11 and Wayland.

Whatever a program does to the network or to files outside the user's folders fails the trial.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import smoke_frozen
from environment import Trouble, say
from linux import clean_root, deb, tree
from linux.clean_root import HOME, USER, Root
from release_notes import version

Tell = Callable[[str], None]  # takes a sentence about what was tried
_NEXT = "99.0"  # the version to upgrade to
_KEPT = "conversations.sqlite"  # what must stay in the home
_FIND = (
    r"find {place} -type f \( -name '*.so*' -o -name tokonoma \) | LD_LIBRARY_PATH={place}/_internal"
    r" xargs ldd 2>/dev/null | grep 'not found' | sort -u || true"
)
_WESTON = {"bookworm": "headless-backend.so", "trixie": "headless"}


def main(
    files: list[Path], cache: Path, pictures: Path | None = None, mirror: str = ""
) -> list[str]:
    """Try packages in clean roots: .deb and .tar.xz in every Debian, .rpm in one. Raises Trouble.

    `cache` keeps the roots (200 MB each); `pictures` gets a picture of each window. Returns a
    sentence for each thing that was tried.
    """
    told: list[str] = []

    def tell(line: str) -> None:
        say(line)
        told.append(line)

    by_suffix = {file.suffix: file for file in files}
    if ".deb" in by_suffix:
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            newer = _newer(by_suffix[".deb"], Path(folder))
            for suite in clean_root.SUITES:
                with clean_root.fresh(cache, suite, mirror) as root:
                    try_deb(root, suite, by_suffix[".deb"], newer, tell, pictures)
    if ".rpm" in by_suffix:
        with clean_root.fresh(cache, "bookworm", mirror) as root:
            try_rpm(root, "bookworm", by_suffix[".rpm"], tell)
    if ".xz" in by_suffix:
        for suite in clean_root.SUITES:
            with clean_root.fresh(cache, suite, mirror) as root:
                try_archive(root, suite, by_suffix[".xz"], tell, pictures)
    return told


def try_deb(
    root: Root, suite: str, file: Path, newer: Path, tell: Tell, pictures: Path | None
) -> None:
    """Install a .deb with apt, run it, upgrade it, remove and purge it. Raises Trouble."""
    name = f"{clean_root.SUITES[suite]}, {file.name}"
    with _lent(root, file) as inside:
        root.install(inside)
    place = f"/{tree.PLACE}"
    root.check_bare()
    _check_libraries(root, place)
    tell(f"{name}: installed with apt; no library is missing.")
    with _display(root) as display:
        answer = _smoke(root, [tree.NAME], DISPLAY=display)
        tell(f"{name}: X11, traced: {answer}")
        _session(root, [tree.NAME], display, pictures and pictures / f"deb-{suite}.png")
        tell(f"{name}: opened and closed; data is in the home only.")
        before = _data(root)
        with _lent(root, newer) as inside:
            root.install(inside)
        _check_version(root, _NEXT)
        _session(root, [tree.NAME], display)
        tell(f"{name}: upgraded in place to {_NEXT}, and opened with the same data.")
    tell(f"{name}: Wayland: {_wayland(root, suite, [tree.NAME])}")
    root.run("apt-get", "remove", "-y", "-qq", tree.NAME)
    root.run("dpkg", "--purge", tree.NAME)
    rest = _installed(root)
    if rest:
        raise Trouble(f"{name}: these files stay after purging: {', '.join(rest[:9])}.")
    if not before <= _data(root):
        raise Trouble(f"{name}: removing it took files of the user with it.")
    tell(f"{name}: removed and purged; nothing is left but the user's data.")


def try_archive(root: Root, suite: str, file: Path, tell: Tell, pictures: Path | None) -> None:
    """Unpack a .tar.xz in the user's home, add it to the menu, run it, remove it. Raises Trouble."""
    name = f"{clean_root.SUITES[suite]}, {file.name}"
    root.install(*clean_root.DESKTOP, *clean_root.WAYLAND)
    root.check_bare()
    folder = f"{HOME}/{file.name.removesuffix('.tar.xz')}"
    subprocess.run(
        ["tar", "--extract", "--file", file, "--directory", root.home(), "--no-same-owner"],
        check=True,
    )
    root.run("chown", "-R", f"{USER}:{USER}", folder)
    _check_libraries(root, folder)
    before = set(root.home().rglob("*"))
    root.run(f"{folder}/install.sh", user=USER)
    with _display(root) as display:
        tell(
            f"{name}: X11, traced: {_smoke(root, [f'{HOME}/.local/bin/tokonoma'], DISPLAY=display)}"
        )
        _session(root, [f"{folder}/tokonoma"], display, pictures and pictures / f"tar-{suite}.png")
    root.run(f"{folder}/install.sh", "uninstall", user=USER)
    left = {path for path in root.home().rglob("*okonoma*") if path not in before}
    kept = {path.name for path in left}
    if any(path.suffix in (".desktop", ".png", ".svg", ".xml") for path in left):
        raise Trouble(f"{name}: install.sh uninstall left {', '.join(sorted(kept))}.")
    if not _data(root):
        raise Trouble(f"{name}: the user's data is gone.")
    tell(f"{name}: added to the menu, opened, closed and taken out again; the data stays.")


def try_rpm(root: Root, suite: str, file: Path, tell: Tell) -> None:
    """Install an .rpm with rpm, run it and remove it; Debian's libraries serve it. Raises Trouble."""
    name = f"{clean_root.SUITES[suite]}, {file.name}"
    root.install("rpm", *clean_root.DESKTOP, *clean_root.WAYLAND)
    with _lent(root, file) as inside:
        root.run("rpm", "--force-debian", "--install", "--nodeps", inside)
    _check_libraries(root, f"/{tree.PLACE}")
    with _display(root) as display:
        tell(f"{name}: installed; X11, traced: {_smoke(root, [tree.NAME], DISPLAY=display)}")
    root.run("rpm", "--force-debian", "--erase", tree.NAME)
    rest = _installed(root)
    if rest:
        raise Trouble(f"{name}: these files stay after erasing: {', '.join(rest[:9])}.")
    tell(f"{name}: erased; nothing is left.")


def _installed(root: Root) -> list[str]:
    """The files outside the user's home that have the program's name."""
    found = root.run("sh", "-c", f"find / -xdev -name '*{tree.NAME}*' -not -path '{HOME}/*'")
    return [
        path
        for path in found.split()
        if not path.startswith(("/proc", "/sys", "/dev", "/tmp", "/var/cache"))
    ]


def _newer(file: Path, folder: Path) -> Path:
    """The same package with a higher version, uncompressed."""
    root = folder / "root"
    tree.run("dpkg-deb", "--raw-extract", file, root)
    control = root / "DEBIAN" / "control"
    text = control.read_text(encoding="utf-8")
    control.write_text(
        text.replace(f"Version: {version()}\n", f"Version: {_NEXT}\n"), encoding="utf-8"
    )
    made = folder / f"{tree.NAME}_{_NEXT}_{deb.architecture()}.deb"
    tree.run("dpkg-deb", "-Znone", "--root-owner-group", "--build", root, made)
    shutil.rmtree(root)
    return made


def _check_version(root: Root, wanted: str) -> None:
    found = root.run("dpkg-query", "--show", "--showformat=${Version}", tree.NAME)
    if found != wanted:
        raise Trouble(f"After the upgrade the installed version is {found}, not {wanted}.")


def _check_libraries(root: Root, place: str) -> None:
    """Check that every library that a binary needs is there. Raises Trouble."""
    lacks = root.run("sh", "-c", _FIND.format(place=place))
    # Under Wayland and X11 alone different ones are needed; a package depends on those of both.
    if lacks.strip():
        raise Trouble(f"These libraries are missing after the installation:\n{lacks}")


@contextlib.contextmanager
def _lent(root: Root, file: Path) -> Iterator[str]:
    """Show a file in the root for a while; yields its path there."""
    target = root.folder / "tmp" / file.name
    shutil.copyfile(file, target)
    try:
        yield f"/tmp/{file.name}"
    finally:
        target.unlink()


@contextlib.contextmanager
def _display(root: Root) -> Iterator[str]:
    """An X server of this machine, usable in the root; yields its name."""
    with smoke_frozen.xvfb() as display, clean_root.shared_display(root):
        yield display


def _smoke(root: Root, command: list[str], **settings: str) -> str:
    """Ask the included model one question under strace; returns the answer. Raises Trouble."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.txt"
        done = subprocess.run(
            [*clean_root.traced(trace), *root.entry(), *command, "--smoke"],
            env=root.environment(USER, **settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=900,
            check=False,
        )
        smoke_frozen.check_errors(done.stderr)
        if done.returncode != 0:
            raise Trouble(f"The smoke test ended with status {done.returncode}:\n{done.stdout}")
        _check_trace(trace, root)
    return done.stdout.strip()


def _check_trace(trace: Path, root: Root) -> None:
    """Check that nothing was sent elsewhere or written outside the home. Raises Trouble."""
    text = trace.read_text(encoding="utf-8", errors="replace")
    if reached := clean_root.remote(text):
        raise Trouble(f"It reached beyond this machine: {'; '.join(reached[:9])}.")
    outside = clean_root.writes(text, root.folder)
    if outside:
        raise Trouble(f"It changed files outside the user's folders: {', '.join(outside[:9])}.")


def _session(root: Root, command: list[str], display: str, picture: Path | None = None) -> None:
    """Open the window under strace, wait for the model, close it by SIGTERM. Raises Trouble."""
    settings = root.home() / ".config" / "Tokonoma" / "settings.json"
    settings.unlink(missing_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        (Path(folder) / "errors.txt").open("w+") as errors,
    ):
        trace = Path(folder) / "trace.txt"
        with subprocess.Popen(
            [*clean_root.traced(trace), *root.entry(), *command],
            env=root.environment(USER, DISPLAY=display),
            stdin=subprocess.DEVNULL,
            stderr=errors,
        ) as strace:
            try:
                smoke_frozen.wait_for(
                    lambda: bool(smoke_frozen.last_model(settings.parent)), strace, "the model"
                )
                if picture is not None:
                    tree.run("import", "-window", "root", "-display", display, picture)
                os.kill(_child(strace.pid), signal.SIGTERM)
                status = strace.wait(120)
            finally:
                strace.kill()
        errors.seek(0)
        smoke_frozen.check_errors(errors.read())
        if status != 0:
            raise Trouble(f"After SIGTERM the app exited with status {status}, not 0.")
        _check_trace(trace, root)


def _child(process: int) -> int:
    """The first child of a process."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
    if not listed:
        raise Trouble("The app ended before it was told to.")
    return int(listed[0])


def _data(root: Root) -> set[str]:
    """The files of the user's data, by name."""
    folder = root.home() / ".local" / "share" / "Tokonoma"
    return {path.name for path in folder.rglob("*") if path.is_file()} & {_KEPT}


def _wayland(root: Root, suite: str, command: list[str]) -> str:
    """Ask one question with the window on a headless Wayland compositor; returns the answer."""
    root.install("weston")
    socket = root.home() / "run" / "wayland-test"
    options = [f"--backend={_WESTON[suite]}", f"--socket={socket.name}", "--idle-time=0"]
    with subprocess.Popen(
        [*root.entry(), "weston", *options],
        env=root.environment(USER),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as weston:
        try:
            smoke_frozen.wait_for(socket.exists, weston, "the compositor")
            return _smoke(root, command, WAYLAND_DISPLAY=socket.name, QT_QPA_PLATFORM="wayland")
        finally:
            weston.terminate()
