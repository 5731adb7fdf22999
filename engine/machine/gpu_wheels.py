"""List of the packages that GPU support consists of, pinned by size and SHA-256.

`resources/gpu_wheels.json` is written by `packaging/dev.py gpu-wheels` when a release is made: for
each platform the CUDA build of the very torch that the release has, and what that build requires
beyond the one for processors. Without an entry for this platform nothing is offered.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

_NAME = re.compile(r"[A-Za-z0-9][\w.+!-]*\.whl", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, slots=True)
class Wheel:
    """One package file."""

    name: str  # of the file
    url: str
    size_bytes: int
    sha256: str
    unpacked_bytes: int


@dataclass(frozen=True, slots=True)
class WheelList:
    """The packages for one platform."""

    torch: str  # version
    driver: str  # oldest version of NVIDIA's driver that they run with
    capability: tuple[int, int]  # least compute capability of a GPU
    wheels: tuple[Wheel, ...]
    name: str  # of the folder that they are unpacked to; another list has another name

    @property
    def size_bytes(self) -> int:
        """Size of the download."""
        return sum(wheel.size_bytes for wheel in self.wheels)

    @property
    def unpacked_bytes(self) -> int:
        """Space of the unpacked files."""
        return sum(wheel.unpacked_bytes for wheel in self.wheels)


def platform_key() -> str:
    """What wheels depend on, as the list names it: "cp311-linux-x86_64"."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{version}-{sys.platform}-{platform.machine().lower()}"


def list_file() -> Path:
    """Path of the list: in the bundle, or beside the packages.

    The environment variable TOKONOMA_GPU_WHEELS names another one, to try it before a release.
    """
    if other := os.environ.get("TOKONOMA_GPU_WHEELS"):
        return Path(other)
    return Path(getattr(sys, "_MEIPASS", Path(__file__).parents[2]), "resources/gpu_wheels.json")


def read_list(path: Path | None = None) -> WheelList | None:
    """The packages for this platform; None when the list has none, or is invalid."""
    try:
        stored: Any = json.loads((path or list_file()).read_bytes())
        entry = stored["platforms"][platform_key()]
        wheels = tuple(Wheel(**cast("dict[str, Any]", row)) for row in entry["wheels"])
        torch, driver = entry["torch"], entry["driver"]
        major, minor = entry["capability"]
    except (OSError, ValueError, RecursionError, TypeError, LookupError):
        return None
    texts = all(type(text) is str and _VERSION.fullmatch(text) for text in (torch, driver))
    texts = texts and all(type(number) is int for number in (major, minor))
    if not texts or not wheels or not all(map(_is_valid, wheels)):
        return None
    if len({wheel.name for wheel in wheels}) < len(wheels):
        return None
    digest = hashlib.sha256("".join(sorted(wheel.sha256 for wheel in wheels)).encode())
    name = f"{torch}-{platform_key()}-{digest.hexdigest()[:12]}"
    return WheelList(torch, driver, (major, minor), wheels, name)


def _is_valid(wheel: Wheel) -> bool:
    texts = all(type(text) is str for text in (wheel.name, wheel.url, wheel.sha256))
    counts = all(type(count) is int for count in (wheel.size_bytes, wheel.unpacked_bytes))
    return (
        texts
        and counts
        and _NAME.fullmatch(wheel.name) is not None
        and _SHA256.fullmatch(wheel.sha256) is not None
        and bool(wheel.url)
        and wheel.size_bytes > 0
        and wheel.unpacked_bytes > 0
    )
