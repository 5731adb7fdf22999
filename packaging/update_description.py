"""The file that tells installed apps of a release: version, notes, and each package with its hash.

Its form is that of `app/updates/feed.py`. It lies at `UPDATE_ADDRESS` of app/__init__.py, with the
packages in a folder beside it that is named by their version. The command `openssl` signs it, and the
app's own code verifies that. Standard library only.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from environment import ROOT, Trouble, last_lines

NAME = "newest.json"
_FORMAT = "tokonoma release"
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
    return _stated("UPDATE_ADDRESS")


def check_key(file: Path | None) -> None:
    """Check that a file has the private key of what installed apps verify with. Raises Trouble."""
    wanted = _stated("UPDATE_KEY")
    if wanted and file is None:
        raise Trouble(
            "Installed apps take signed descriptions only (UPDATE_KEY in app/__init__.py): name "
            "the file with the private key by --key."
        )
    if file is None:
        return
    found = _openssl("pkey", "-in", str(file), "-pubout", "-outform", "DER")[-32:].hex()
    if found != wanted:
        raise Trouble(
            f"UPDATE_KEY in app/__init__.py is {wanted!r}, and the public key of {file} is "
            f"{found!r}: installed apps would not take what it signs."
        )


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
        "format": _FORMAT,
        "version": version,
        "notes": f"## {version}\n{listed}",
        "packages": packages,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def signed(text: str, key: Path) -> str:
    """A description with its signature by the private key (PEM, Ed25519) in a file. Raises Trouble.

    `openssl genpkey -algorithm ed25519 -out FILE` makes one.
    """
    with tempfile.TemporaryDirectory() as folder:
        message = Path(folder, "message")
        message.write_bytes(text.encode())
        signature = _openssl("pkeyutl", "-sign", "-rawin", "-inkey", str(key), "-in", str(message))
    content = {"format": _FORMAT, "signed": text, "signature": signature.hex()}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _openssl(*arguments: str) -> bytes:
    if shutil.which("openssl") is None:
        raise Trouble("Signing needs openssl 3: install the package openssl and run it again.")
    done = subprocess.run(["openssl", *arguments], capture_output=True, check=False)
    if done.returncode != 0:
        lines = last_lines(done.stderr.decode(errors="replace"))
        raise Trouble(f"{lines}\nopenssl could not sign, as above.")
    return done.stdout


def _stated(name: str) -> str:
    """A text that app/__init__.py states."""
    source = (ROOT / "app" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(rf'^{name} = "([^"]*)"$', source, re.MULTILINE)
    if found is None:
        raise Trouble(f"app/__init__.py does not state {name}.")
    return found[1]


def _kind(name: str) -> str:
    """The kind of a package; "" for another file."""
    found = next((kind for kind in _KINDS if name.lower().endswith(kind)), "")
    return "" if name.endswith("-licences.zip") else found
