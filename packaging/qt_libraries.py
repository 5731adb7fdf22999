"""System libraries that a window needs: which are missing, and the packages that have them.

Qt aborts the process when it cannot load its platform plugin, so this is asked before it starts.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from environment import VENV, child_environment

_MISSING = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)
_TIMEOUT_SECONDS = 20
# Package managers, and how each installs packages.
_COMMANDS = {
    "apt-get": "sudo apt install",
    "dnf": "sudo dnf install",
    "zypper": "sudo zypper install",
    "pacman": "sudo pacman -S",
}
# Library to its packages, in the order of `_COMMANDS`.
PACKAGES = {
    "libxcb-cursor.so.0": (
        "libxcb-cursor0",
        "xcb-util-cursor",
        "libxcb-cursor0",
        "xcb-util-cursor",
    ),
    "libxcb-icccm.so.4": ("libxcb-icccm4", "xcb-util-wm", "libxcb-icccm4", "xcb-util-wm"),
    "libxcb-keysyms.so.1": (
        *("libxcb-keysyms1", "xcb-util-keysyms", "libxcb-keysyms1", "xcb-util-keysyms"),
    ),
    "libxcb-image.so.0": ("libxcb-image0", "xcb-util-image", "libxcb-image0", "xcb-util-image"),
    "libxcb-render-util.so.0": (
        *("libxcb-render-util0", "xcb-util-renderutil", "libxcb-render-util0"),
        "xcb-util-renderutil",
    ),
    "libxcb-util.so.1": ("libxcb-util1", "xcb-util", "libxcb-util1", "xcb-util"),
    "libxcb-render.so.0": ("libxcb-render0", "libxcb", "libxcb-render0", "libxcb"),
    "libxcb-randr.so.0": ("libxcb-randr0", "libxcb", "libxcb-randr0", "libxcb"),
    "libxcb-shape.so.0": ("libxcb-shape0", "libxcb", "libxcb-shape0", "libxcb"),
    "libxcb-shm.so.0": ("libxcb-shm0", "libxcb", "libxcb-shm0", "libxcb"),
    "libxcb-sync.so.1": ("libxcb-sync1", "libxcb", "libxcb-sync1", "libxcb"),
    "libxcb-xfixes.so.0": ("libxcb-xfixes0", "libxcb", "libxcb-xfixes0", "libxcb"),
    "libxcb-xkb.so.1": ("libxcb-xkb1", "libxcb", "libxcb-xkb1", "libxcb"),
    "libxcb.so.1": ("libxcb1", "libxcb", "libxcb1", "libxcb"),
    "libX11.so.6": ("libx11-6", "libX11", "libX11-6", "libx11"),
    "libX11-xcb.so.1": ("libx11-xcb1", "libX11-xcb", "libX11-xcb1", "libx11"),
    "libxkbcommon.so.0": ("libxkbcommon0", "libxkbcommon", "libxkbcommon0", "libxkbcommon"),
    "libxkbcommon-x11.so.0": (
        *("libxkbcommon-x11-0", "libxkbcommon-x11", "libxkbcommon-x11-0", "libxkbcommon-x11"),
    ),
    "libGL.so.1": ("libgl1", "libglvnd-glx", "Mesa-libGL1", "libglvnd"),
    "libEGL.so.1": ("libegl1", "libglvnd-egl", "Mesa-libEGL1", "libglvnd"),
    "libfontconfig.so.1": ("libfontconfig1", "fontconfig", "libfontconfig1", "fontconfig"),
    "libfreetype.so.6": ("libfreetype6", "freetype", "libfreetype6", "freetype2"),
    "libdbus-1.so.3": ("libdbus-1-3", "dbus-libs", "libdbus-1-3", "dbus"),
    "libglib-2.0.so.0": ("libglib2.0-0", "glib2", "libglib-2_0-0", "glib2"),
    "libgthread-2.0.so.0": ("libglib2.0-0", "glib2", "libgthread-2_0-0", "glib2"),
    "libwayland-client.so.0": (
        *("libwayland-client0", "libwayland-client", "libwayland-client0", "wayland"),
    ),
    "libwayland-cursor.so.0": (
        *("libwayland-cursor0", "libwayland-cursor", "libwayland-cursor0", "wayland"),
    ),
    "libwayland-egl.so.1": ("libwayland-egl1", "libwayland-egl", "libwayland-egl1", "wayland"),
    "libz.so.1": ("zlib1g", "zlib", "libz1", "zlib"),
    "libgcc_s.so.1": ("libgcc-s1", "libgcc", "libgcc_s1", "gcc-libs"),
    "libstdc++.so.6": ("libstdc++6", "libstdc++", "libstdc++6", "gcc-libs"),
}


def missing(environment: Mapping[str, str] = os.environ, qt: Path | None = None) -> list[str]:
    """Libraries without which no window opens in this session; empty if one can, or is not known.

    `qt` is the folder of PySide6; by default that of .venv.
    """
    qt = qt or next(VENV.glob("lib/python*/site-packages/PySide6"), None)
    if not sys.platform.startswith("linux") or qt is None or not shutil.which("ldd"):
        return []
    always = [*qt.glob("QtWidgets*.so"), *qt.glob("QtSvg*.so")]
    wanted = [_lacks([*always, *_plugins(qt, name)]) for name in _platforms(environment)]
    return min(wanted or [_lacks(always)], key=len)


def advice(libraries: Sequence[str]) -> str:
    """What is missing, and the command that installs it on this system."""
    named = ", ".join(libraries)
    count = f"{len(libraries)} system {'library is' if len(libraries) == 1 else 'libraries are'}"
    manager = next((name for name in _COMMANDS if shutil.which(name)), "")
    place = list(_COMMANDS).index(manager) if manager else 0
    packages = [PACKAGES[name][place] for name in libraries if name in PACKAGES]
    if not manager or len(packages) < len(libraries):
        return (
            f"No window can be opened: {count} missing ({named}). Install the packages of your "
            "system that have them, and run the command again."
        )
    command = f"{_COMMANDS[manager]} {' '.join(dict.fromkeys(packages))}"
    return (
        f"No window can be opened: {count} missing ({named}). Install them and run the command "
        f"again:\n    {command}"
    )


def _platforms(environment: Mapping[str, str]) -> list[str]:
    """The platform plugins that Qt may load in this session."""
    chosen = environment.get("QT_QPA_PLATFORM", "")
    if chosen:
        return [name.partition(":")[0] for name in chosen.split(";")]
    names = {"WAYLAND_DISPLAY": "wayland", "DISPLAY": "xcb"}
    return [name for variable, name in names.items() if environment.get(variable)]


def _plugins(qt: Path, platform: str) -> list[Path]:
    folder = qt / "Qt" / "plugins" / "platforms"
    return [path for path in (folder / f"libq{platform}.so",) if path.is_file()]


def _lacks(files: Sequence[Path]) -> list[str]:
    """Libraries that the dynamic linker does not find for these files."""
    try:
        found = subprocess.run(
            ["ldd", *map(str, files)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            env=child_environment(LC_ALL="C"),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return list(dict.fromkeys(_MISSING.findall(found.stdout)))
