"""The file that a release tells installed apps with is what they read."""

from __future__ import annotations

import hashlib
from pathlib import Path

import release
import release_notes
import update_description
from app import UPDATE_ADDRESS, __version__
from app.domain.release import InstallKind
from app.updates.feed import parse

NAMES = {
    f"tokonoma_{__version__}_amd64.deb": InstallKind.DEB,
    f"tokonoma-{__version__}-1.x86_64.rpm": InstallKind.RPM,
    f"Tokonoma-{__version__}-linux-x86_64.tar.xz": InstallKind.ARCHIVE,
    f"Tokonoma-{__version__}-setup.exe": InstallKind.SETUP,
    f"Tokonoma-{__version__}-windows-x86_64.zip": InstallKind.PORTABLE,
    f"Tokonoma-{__version__}.dmg": InstallKind.MAC,
}
OTHERS = ("SHA256SUMS", "tokonoma-linux-0.1.0-licences.zip", "tokonoma-0.1.0-py3-none-any.whl")


def test_installed_apps_read_what_a_release_says(tmp_path: Path) -> None:
    for name in (*NAMES, *OTHERS):
        (tmp_path / name).write_bytes(name.encode())
    files = [release._file(path, "") for path in sorted(tmp_path.iterdir())]
    notes = release_notes.releases()[0].changes
    told = update_description.text(
        __version__, notes, files, "https://a.example/tokonoma/newest.json", "2.34"
    )
    found = parse(told.encode(), "a.example")
    assert str(found.version) == __version__
    assert found.notes.startswith(f"## {__version__}\n- ")
    assert {each.file: each.kind for each in found.packages} == NAMES
    for package in found.packages:
        assert package.url == f"https://a.example/tokonoma/{__version__}/{package.file}"
        assert package.sha256 == hashlib.sha256(package.file.encode()).hexdigest()
        assert package.minimum == ("2.34" if package.kind is InstallKind.ARCHIVE else "")


def test_the_address_is_that_of_the_app() -> None:
    assert update_description.address() == UPDATE_ADDRESS
