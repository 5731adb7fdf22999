"""Versions that ran here: a former one stays until this one has answered, whatever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.domain.release import InstallKind, Package
from app.updates.history import Former, History, is_folder_of_app, remove
from app.updates.install import Installed, installed

ROOT = Path(__file__).parents[3]


def installation(folder: Path, program: str = "tokonoma") -> Path:
    """A folder that looks like the app's; returns its program."""
    (folder / "_internal").mkdir(parents=True)
    (folder / "_internal" / "libqt.so").write_bytes(b"x" * 1000)
    (folder / program).write_text("#!/bin/sh\n", encoding="utf-8")
    (folder / "README.txt").write_text("Tokonoma\n", encoding="utf-8")
    return folder / program


def history(path: Path, version: str, program: Path, kind: InstallKind) -> History:
    return History(path, version, Installed(kind, "x86_64", program))


ARCHIVE = InstallKind.ARCHIVE


def test_the_former_version_is_needed_until_this_one_has_answered(tmp_path: Path) -> None:
    record = tmp_path / "updates.json"
    old = installation(tmp_path / "Tokonoma-0.1.0")
    first = history(record, "0.1.0", old, ARCHIVE)
    assert not first.note_start()  # nothing ran before
    assert not first.note_start()
    first.note_answer()
    new = history(record, "0.2.0", installation(tmp_path / "Tokonoma-0.2.0"), ARCHIVE)
    assert new.note_start()
    assert not new.note_start()  # said once
    assert new.former() == []
    assert not new.has_answered
    new.note_answer()
    assert new.former() == [Former("0.1.0", old.parent)]
    remove(old.parent)
    assert not old.parent.exists()
    assert new.former() == []


def test_the_newest_versions_are_remembered(tmp_path: Path) -> None:
    record = tmp_path / "updates.json"
    for number in range(1, 31):
        history(record, f"0.{number}.0", tmp_path / f"v{number}" / "tokonoma", ARCHIVE).note_start()
    versions = json.loads(record.read_text(encoding="utf-8"))["versions"]
    assert set(versions) == {f"0.{number}.0" for number in range(11, 31)}
    history(record, "0.1.0", tmp_path / "v1" / "tokonoma", ARCHIVE).note_start()  # a downgrade
    versions = json.loads(record.read_text(encoding="utf-8"))["versions"]
    assert "0.1.0" in versions
    assert len(versions) == 20


def test_a_downgrade_offers_to_delete_nothing(tmp_path: Path) -> None:
    record = tmp_path / "updates.json"
    old, new = (installation(tmp_path / name) for name in ("old", "new"))
    for version, program in (("0.1.0", old), ("0.2.0", new), ("0.1.0", old)):
        made = history(record, version, program, ARCHIVE)
        made.note_start()
        made.note_answer()
    assert made.former() == []


def test_a_version_that_was_moved_has_to_answer_again(tmp_path: Path) -> None:
    record = tmp_path / "updates.json"
    for number in (1, 2):
        made = history(record, "0.2.0", installation(tmp_path / str(number)), ARCHIVE)
        made.note_start()
        assert not made.has_answered
        made.note_answer()
        assert made.has_answered


@pytest.mark.parametrize("kind", [InstallKind.DEB, InstallKind.RPM, InstallKind.SOURCE])
def test_folders_of_package_managers_are_not_offered(tmp_path: Path, kind: InstallKind) -> None:
    record = tmp_path / "updates.json"
    history(record, "0.1.0", installation(tmp_path / "old"), kind).note_start()
    made = history(record, "0.2.0", installation(tmp_path / "new"), kind)
    made.note_start()
    made.note_answer()
    assert made.former() == []


def test_only_folders_of_the_app_are_offered(tmp_path: Path) -> None:
    new = installation(tmp_path / "app" / "new")
    installation(tmp_path / "real")
    if sys.platform != "win32":  # links need a permission there
        (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "home").mkdir()
    inside, above = installation(new.parent / "inside").parent, installation(tmp_path / "app")
    folders = {
        "0.0.1": tmp_path / "home",
        "0.0.2": tmp_path / "link",
        "0.0.3": new.parent,
        "0.0.4": inside,
        "0.0.5": above.parent,
        "0.0.6": "relative",
        "0.0.7": tmp_path / "gone",
        "0.9.0": tmp_path / "real",
        "no version": tmp_path / "real",
    }
    versions = {name: {"folder": str(folder)} for name, folder in folders.items()}
    record = tmp_path / "updates.json"
    record.write_text(
        json.dumps({"versions": {**versions, "0.0.8": 5}, "last": "0.0.1"}), encoding="utf-8"
    )
    made = history(record, "0.2.0", new, ARCHIVE)
    made.note_start()
    made.note_answer()
    assert made.former() == []


def test_files_of_the_user_in_the_folder_stay(tmp_path: Path) -> None:
    program = installation(tmp_path / "old")
    (tmp_path / "old" / "data").mkdir()
    (tmp_path / "old" / "data" / "conversations.sqlite").write_bytes(b"mine")
    remove(tmp_path / "old")
    assert [each.name for each in (tmp_path / "old").iterdir()] == ["data"]
    assert not program.exists()
    with pytest.raises(FileNotFoundError):
        remove(tmp_path / "old")


def test_the_share_folder_is_deleted_only_if_all_in_it_is_of_the_app(tmp_path: Path) -> None:
    for name, files in {
        "apart": ("applications/tokonoma.desktop", "icons/hicolor/48x48/apps/tokonoma.png"),
        "local": ("applications/tokonoma.desktop", "keyrings/login.keyring"),
    }.items():
        installation(tmp_path / name)
        for file in files:
            (path := tmp_path / name / "share" / file).parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"content")
        remove(tmp_path / name)
    assert not (tmp_path / "apart").exists()
    assert (tmp_path / "local/share/keyrings/login.keyring").read_bytes() == b"content"


@pytest.mark.skipif(sys.platform == "win32", reason="makes a symbolic link")
def test_this_version_is_not_offered_by_another_path_of_its_folder(tmp_path: Path) -> None:
    record = tmp_path / "updates.json"
    installation(tmp_path / "real" / "Tokonoma")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for version, place in (("0.1.0", "real"), ("0.2.0", "link")):  # updated in place
        made = history(record, version, tmp_path / place / "Tokonoma" / "tokonoma", ARCHIVE)
        made.note_start()
        made.note_answer()
    assert made.former() == []


def test_a_folder_that_a_newer_version_was_put_into_is_not_offered(tmp_path: Path) -> None:
    record = tmp_path / "updates.json"
    one, other = (installation(tmp_path / name) for name in ("one", "other"))
    for version, program in (("0.1.0", one), ("0.3.0", one), ("0.2.0", other)):
        made = history(record, version, program, ARCHIVE)
        made.note_start()
        made.note_answer()
    assert made.former() == []


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"checked": "x", "last": 5, "versions": [1]}', b'{"checked": -1}',
                b'{"checked": true, "versions": {"0.1.0": "x"}, "offered": null}']
)  # fmt: skip
@pytest.mark.usefixtures("caplog")
def test_a_damaged_record_costs_only_what_it_held(tmp_path: Path, content: bytes) -> None:
    record = tmp_path / "updates.json"
    record.write_bytes(content)
    made = history(record, "0.2.0", installation(tmp_path / "new"), ARCHIVE)
    assert made.checked == 0
    made.note_start()
    made.note_answer()
    assert made.has_answered


def test_the_record_keeps_keys_of_other_versions(tmp_path: Path) -> None:
    record = tmp_path / "updates.json"
    record.write_text(json.dumps({"channel": "beta"}), encoding="utf-8")
    made = history(record, "0.2.0", installation(tmp_path / "new"), ARCHIVE)
    made.note_start()
    made.note_check("0.3.0")
    made.note_offer("0.3.0")
    assert json.loads(record.read_text(encoding="utf-8"))["channel"] == "beta"
    assert (made.offered, made.newest, made.checked > 0) == ("0.3.0", "0.3.0", True)


def test_what_the_windows_installer_kept_is_removed_after_the_first_answer(tmp_path: Path) -> None:
    program = installation(tmp_path / "app", "Tokonoma.exe")
    installation(tmp_path / "app" / "former", "Tokonoma.exe")
    made = history(tmp_path / "updates.json", "0.2.0", program, InstallKind.SETUP)
    made.note_start()
    made.clean()
    assert is_folder_of_app(tmp_path / "app" / "former")
    made.note_answer()
    made.clean()
    assert not (tmp_path / "app" / "former").exists()
    assert is_folder_of_app(tmp_path / "app")


_SWITCH = """
import sys
from pathlib import Path
from app.domain.release import InstallKind
from app.updates.history import History, remove
from app.updates.install import Installed
base = Path(sys.argv[1])
print("ready", flush=True)
for number in range(2, 4000):
    folder = base / f"v{number}"
    (folder / "_internal").mkdir(parents=True)
    for name in range(3):
        (folder / "_internal" / f"{name}").write_bytes(b"x")
    (folder / "tokonoma").write_text("x")
    here = Installed(InstallKind.ARCHIVE, "x86_64", folder / "tokonoma")
    made = History(base / "updates.json", f"0.{number}.0", here)
    made.note_start()
    made.clean()
    (base / "runs").write_text(str(number))
    made.note_answer()
    for each in made.former():
        remove(each.folder)
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_kill_while_versions_are_switched_leaves_one_that_works(tmp_path: Path) -> None:
    random.seed(7)
    for number in range(6):
        base = tmp_path / str(number)
        base.mkdir()
        child = subprocess.Popen(
            [sys.executable, "-c", _SWITCH, str(base)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        assert child.stdout.readline().strip() == b"ready"
        time.sleep(random.uniform(0.02, 0.15))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        if not (base / "updates.json").exists():
            continue
        stored = json.loads((base / "updates.json").read_text(encoding="utf-8"))
        whole = [each for each in base.iterdir() if is_folder_of_app(each)]
        rows = stored["versions"].values()
        answered = [Path(row["folder"]) for row in rows if row["answered"]]
        assert whole
        if answered:  # the newest that answered is never one that was removed
            assert is_folder_of_app(max(answered, key=lambda each: int(each.name[1:])))
        # The next start finishes what was interrupted.
        last = max(whole, key=lambda each: int(each.name[1:]))
        version = f"0.{last.name[1:]}.0"
        made = history(base / "updates.json", version, last / "tokonoma", ARCHIVE)
        made.note_start()
        made.note_answer()
        made.clean()
        for former in made.former():
            remove(former.folder)
        left = [each.name for each in base.iterdir() if each.is_dir() and each != last]
        assert [name for name in left if is_folder_of_app(base / name)] == []
        assert list(base.rglob("_internal.deleted")) == []


# --- how it was installed ------------------------------------------------------------------------


def test_the_kind_of_installation_is_found(tmp_path: Path) -> None:
    def kind(system: str, program: str, *files: str, frozen: bool = True) -> InstallKind:
        root = tmp_path / f"root{len(list(tmp_path.iterdir()))}"
        for file in (program, *files):
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).touch()
        return installed(system, root / program, frozen=frozen, root=root).kind

    listed = "var/lib/dpkg/info/tokonoma.list"
    assert kind("linux", "usr/lib/tokonoma/tokonoma", listed) is InstallKind.DEB
    assert kind("linux", "usr/lib/tokonoma/tokonoma") is InstallKind.RPM
    assert kind("linux", "usr/local/tokonoma/tokonoma", listed) is InstallKind.ARCHIVE
    assert kind("linux", "home/me/Tokonoma/tokonoma", listed) is InstallKind.ARCHIVE
    assert kind("linux", "app/lib/tokonoma", ".flatpak-info") is InstallKind.FLATPAK
    assert kind("linux", "usr/bin/python3", listed, frozen=False) is InstallKind.SOURCE
    assert kind("win32", "T/Tokonoma.exe", "T/uninstall.exe") is InstallKind.SETUP
    assert kind("win32", "T/Tokonoma.exe") is InstallKind.PORTABLE
    assert kind("darwin", "A/Tokonoma.app/Contents/MacOS/Tokonoma") is InstallKind.MAC


def test_this_process_is_started_from_the_source() -> None:
    here = installed()
    assert here.kind is InstallKind.SOURCE
    assert here.machine in ("x86_64", "arm64")


@pytest.mark.parametrize(
    ("system", "minimum", "too_old"),
    [("2.36", "2.28", False), ("2.28", "2.28", False), ("2.27", "2.28", True), ("2.9", "2.28", True),
     ("10.0.19045", "10.0.17763", False), ("13.5", "14", True), ("14", "13.0", False),
     ("14", "14.0", False), ("", "2.28", False), ("2.36", "", False)],
)  # fmt: skip
def test_a_system_that_is_too_old_is_seen(system: str, minimum: str, too_old: bool) -> None:
    here = Installed(ARCHIVE, "x86_64", Path("/a/tokonoma"), system)
    package = Package(ARCHIVE, "x86_64", "https://a.example/t.tar.xz", 1, "a" * 64, minimum)
    assert here.is_too_old(package) is too_old
