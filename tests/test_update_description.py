"""The file that a release tells installed apps with is what they read."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

import release
import release_notes
import update_description
from app import UPDATE_ADDRESS, UPDATE_KEY, __version__
from app.domain.release import InstallKind
from app.updates.feed import parse
from environment import Trouble

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


@pytest.fixture
def key(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    file = tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", file], check=True)
    return file


def public(key: Path) -> str:
    command = ["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"]
    return subprocess.run(command, capture_output=True, check=True).stdout[-32:].hex()


def test_installed_apps_take_what_a_release_signs(key: Path) -> None:
    told = update_description.text("9.1.0", ["Für alle."], [], "https://a.example/newest.json")
    found = parse(update_description.signed(told, key).encode(), "a.example", public(key))
    assert (str(found.version), found.notes) == ("9.1.0", "## 9.1.0\n- Für alle.")


def test_a_key_that_installed_apps_do_not_know_is_refused(
    key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = {"UPDATE_KEY": public(key)}
    monkeypatch.setattr(update_description, "_stated", stated.__getitem__)
    update_description.check_key(key)
    with pytest.raises(Trouble, match="take signed descriptions only"):
        update_description.check_key(None)
    stated["UPDATE_KEY"] = ""
    update_description.check_key(None)
    with pytest.raises(Trouble, match="would not take what it signs"):
        update_description.check_key(key)


def test_a_file_that_is_no_key_is_refused_in_a_sentence(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    (tmp_path / "key.pem").write_text("no key", encoding="utf-8")
    with pytest.raises(Trouble, match="openssl could not sign, as above"):
        update_description.signed("{}", tmp_path / "key.pem")


def test_the_address_and_the_key_are_those_of_the_app() -> None:
    assert update_description.address() == UPDATE_ADDRESS
    assert update_description._stated("UPDATE_KEY") == UPDATE_KEY
