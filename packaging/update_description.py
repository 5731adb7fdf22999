"""The file that tells installed apps of a release: version, notes, and each package with its hash.

Its form is that of `app/updates/feed.py`. It lies at `UPDATE_ADDRESS` of app/__init__.py, with the
packages in a folder beside it that is named by their version. Standard library only.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable
from typing import Protocol

from environment import ROOT, Trouble

NAME = "newest.json"
_KINDS = ("deb", "rpm", "tar.xz", "setup.exe", "zip", "dmg")  # endings of packages
_MACHINES = {"amd64": "x86_64", "aarch64": "arm64"}


class File(Protocol):
    """A file of a release."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def sha256(self) -> str: ...


def address() -> str:
    """Where installed apps look for the file, as app/__init__.py states it; "": nowhere."""
    source = (ROOT / "app" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^UPDATE_ADDRESS = "([^"]*)"$', source, re.MULTILINE)
    if found is None:
        raise Trouble("app/__init__.py does not state UPDATE_ADDRESS.")
    return found[1]


def text(
    version: str, notes: Iterable[str], files: Iterable[File], place: str, oldest_glibc: str = ""
) -> str:
    """The JSON for `place`, the address that it will lie at; other files than packages are left out.

    `oldest_glibc` is what an archive needs; other packages have dependencies.
    """
    folder = f"{place.rpartition('/')[0]}/{version}"
    machine = platform.machine().lower()
    packages = [
        {
            "kind": kind,
            "machine": _MACHINES.get(machine, machine),
            "url": f"{folder}/{file.name}",
            "size_bytes": file.size,
            "sha256": file.sha256,
            **({"minimum": oldest_glibc} if kind == "tar.xz" and oldest_glibc else {}),
        }
        for file in files
        if (kind := _kind(file.name))
    ]
    listed = "\n".join(f"- {note}" for note in notes)
    content = {
        "format": "tokonoma release",
        "version": version,
        "notes": f"## {version}\n{listed}",
        "packages": packages,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _kind(name: str) -> str:
    """The kind of a package; "" for another file."""
    found = next((kind for kind in _KINDS if name.lower().endswith(kind)), "")
    return "" if name.endswith("-licences.zip") else found
