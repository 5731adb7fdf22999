"""Releases: what is checked before, checksums, bill of materials, and the page."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import bill_of_materials
import bundle
import catalogs
import release
import release_notes
import smoke_frozen
import update_description
import wheels
from app.updates import feed
from compiled_in import Inner
from environment import Trouble
from licences import Component
from windows import files as windows_files

PARTS = [
    Component("Tokonoma", "1.2", "Apache-2.0", ()),
    Component("Jinja2", "3.1.6", "BSD License", (), origin="pkg:pypi/jinja2@3.1.6"),
    Component(
        *("numpy", "2.4.6", "BSD-3-Clause AND MIT", ()),
        origin="pkg:pypi/numpy@2.4.6",
        inside=(
            Inner("OpenBLAS", "0.3.31", "BSD-3-Clause"),
            Inner("ahash", "0.8.12", "", "pkg:cargo/ahash@0.8.12"),
            Inner("libquadmath"),
        ),
    ),
    Component("A model", "Q4_1", "Apache-2.0", (), "machine-learning-model", sha256="ab" * 32),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "made"
    (place / "deep").mkdir(parents=True)
    (place / "b.txt").write_bytes(b"b")
    (place / "deep" / "a.txt").write_bytes(b"aa")
    (place / "link").symlink_to("deep/a.txt")
    return place


def test_the_list_of_files_states_sizes_and_checksums_by_path(folder: Path) -> None:
    first, second, third = release.file_list(folder)
    assert first.split() == [hashlib.sha256(b"b").hexdigest(), "1", "b.txt"]
    assert second.split() == [hashlib.sha256(b"aa").hexdigest(), "2", "deep/a.txt"]
    assert third.split() == ["link", "0", "link", "->", "deep/a.txt"]


def test_files_that_differ_between_two_builds_are_named(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(folder, again, symlinks=True)
    listed = tmp_path / "made.files.txt"
    listed.write_text("\n".join(release.file_list(folder)) + "\n", encoding="utf-8")
    assert release.differences(listed, again) == []
    (again / "b.txt").write_bytes(b"c")
    (again / "deep" / "a.txt").rename(again / "deep" / "new name.txt")
    assert release.differences(listed, again) == [
        f"only in {listed}: deep/a.txt",
        f"only in {again}: deep/new name.txt",
        "different: b.txt",
    ]


def test_what_describes_a_bundle_is_beside_its_packages(tmp_path: Path) -> None:
    licences = tmp_path / "Tokonoma" / "_internal" / "resources" / "licences"
    licences.mkdir(parents=True)
    (licences / "index.txt").write_text("Qt", encoding="utf-8")
    (licences / bill_of_materials.FILE).write_text("{}", encoding="utf-8")
    made = tmp_path / "made"
    made.mkdir()
    texts = release.describe(tmp_path / "Tokonoma", made, "win32-1.2")
    assert texts.keys() == {path.name for path in made.iterdir()}
    assert texts.keys() == {
        "tokonoma-win32-1.2.files.txt",
        "tokonoma-win32-1.2.cdx.json",
        "tokonoma-win32-1.2-licences.zip",
    }


def test_a_release_on_linux_is_for_windows_too() -> None:
    assert release.systems(here="linux") == ["linux", "win32"]
    assert release.systems("linux", here="linux") == ["linux"]
    assert release.systems(here="darwin") == ["darwin"]


def test_a_release_has_the_wheels_of_all_platforms() -> None:
    assert wheels.platforms() == [
        *("manylinux_2_28_x86_64", "manylinux_2_28_aarch64", "macosx_13_0_arm64", "win_amd64")
    ]
    assert wheels.platforms("win32") == ["win_amd64"]
    assert len(wheels.platforms("linux")) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="packages for Windows are made on Linux")
def test_missing_programs_are_named_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Trouble) as raised:
        release.check_tools(["linux", "win32"])
    assert str(raised.value) == (
        "A release needs dpkg-deb, gzip, rpmbuild, tar, xz, makensis, wine, osslsigncode: install "
        "the packages dpkg gzip rpm tar xz-utils nsis wine wine64 osslsigncode and run the command "
        "again, or leave Windows out with --only linux."
    )
    with pytest.raises(Trouble, match=r"rpm tar xz-utils and run the command again\.$"):
        release.check_tools(["linux"])


def test_the_same_licences_give_the_same_archive(folder: Path, tmp_path: Path) -> None:
    release.pack(folder, tmp_path / "1.zip")
    for path in folder.rglob("*.txt"):
        path.touch()
    release.pack(folder, tmp_path / "2.zip")
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "1.zip") as archive:
        assert "licences/deep/a.txt" in archive.namelist()


def test_the_sums_are_as_sha256sum_reads_them(folder: Path) -> None:
    files = [
        release.File(path.name, "", 1, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in (folder / "b.txt", folder / "deep" / "a.txt")
    ]
    (folder / "deep" / "b.txt").write_bytes(b"b")
    done = subprocess.run(
        ["sha256sum", "--check", "--strict"],
        cwd=folder / "deep",
        input=release.sums(files),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_lists_notes_files_and_what_was_run() -> None:
    notes = [
        release_notes.Release("1.2", ("It is faster.",)),
        release_notes.Release("1.1", ("Old",)),
    ]
    files = [release.File("a.deb", "Debian", 1_500_000, "ab")]
    page = release.release_page("1.2", notes, files, ["Debian 12: answered\nin time"])
    assert page.startswith("# Tokonoma 1.2\n\n- It is faster.\n")
    assert "| a.deb | Debian | 1.5 MB |" in page
    assert "- Debian 12: answered in time\n" in page
    assert "Old" not in page


def test_a_release_of_changed_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "new.py").touch()
    with pytest.raises(Trouble, match=r"not committed(.|\n)*new\.py"):
        release.check_sources()


def test_a_release_without_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    with pytest.raises(Trouble, match="git failed"):
        release.check_sources()


def test_a_release_that_is_there_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "check_sources", lambda: None)
    monkeypatch.setattr(release, "check_tools", lambda chosen: None)
    (tmp_path / release_notes.version()).mkdir()
    with pytest.raises(Trouble, match="is there already"):
        release.make(tmp_path)


def test_missing_translations_fail_a_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogs, "is_current", lambda: True)
    monkeypatch.setattr(catalogs, "LANGUAGES", (*catalogs.languages(), "tlh"))
    assert catalogs.main(["--complete"]) == 1
    assert "There is no catalog of tlh." in capsys.readouterr().out


def test_gaps_of_a_catalog_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    message = catalogs.Message("Cancel")
    monkeypatch.setattr(catalogs, "lacking", lambda name, _: [message] if name == "de" else [])
    monkeypatch.setattr(catalogs, "LANGUAGES", ("ar", "de"))
    assert catalogs.incomplete() == ["de lacks 1 strings, the first 'Cancel'."]


def test_the_bill_of_materials_states_parts_licences_and_origins() -> None:
    made = bill_of_materials.bill(PARTS, "1.2")
    assert made["metadata"]["component"]["version"] == "1.2"
    jinja, numpy, model = made["components"]
    assert jinja["purl"] == "pkg:pypi/jinja2@3.1.6"
    assert jinja["licenses"] == [{"license": {"name": "BSD License"}}]
    assert numpy["licenses"] == [{"expression": "BSD-3-Clause AND MIT"}]
    assert model["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert made["dependencies"][0]["dependsOn"] == [each["bom-ref"] for each in made["components"]]


def test_the_bill_of_materials_states_what_is_compiled_in() -> None:
    openblas, crate, library = bill_of_materials.bill(PARTS, "1.2")["components"][1]["components"]
    assert openblas["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert (crate["version"], crate["purl"]) == ("0.8.12", "pkg:cargo/ahash@0.8.12")
    assert library.keys() == {"type", "bom-ref", "name"}, "nothing is guessed"


def test_the_same_parts_give_the_same_bill_of_materials(tmp_path: Path) -> None:
    first = bill_of_materials.write(PARTS, "1.2", tmp_path).read_bytes()
    assert bill_of_materials.write(PARTS, "1.2", tmp_path).read_bytes() == first
    assert bill_of_materials.write(PARTS, "1.3", tmp_path).read_bytes() != first


@pytest.mark.slow
def test_the_bill_of_materials_is_valid_cyclonedx(tmp_path: Path) -> None:
    json_validators = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    text = bill_of_materials.write(PARTS, "1.2", tmp_path).read_text(encoding="utf-8")
    validator = json_validators.JsonStrictValidator(schema.SchemaVersion.V1_6)
    assert validator.validate_str(text) is None


@pytest.fixture
def bundles(tmp_path: Path) -> dict[str, Path]:
    """Programs of small bundles for Linux and Windows, with all that a release reads of them."""
    made: dict[str, Path] = {}
    for system in ("linux", "win32"):
        folder = tmp_path / system / "Tokonoma"
        licences = folder / "_internal" / "resources" / "licences"
        licences.mkdir(parents=True)
        (licences / "index.txt").write_text("Qt  6.11  LGPL-3.0-only  Qt/\n", encoding="utf-8")
        bill_of_materials.write(PARTS, "1.2", licences)
        made[system] = bundle.program(folder, system)
        made[system].write_text("#!/bin/sh\necho The capital is Paris.\n", encoding="utf-8")
        made[system].chmod(0o755)
    icons = tmp_path / "icons"
    icons.mkdir()
    for side in bundle._ICON_SIZES:
        (icons / f"tokonoma-{side}.png").write_bytes(b"picture")
    bundle.add_linux_files(made["linux"].parent, icons)
    readme = made["linux"].parent / "README.txt"
    text = re.sub(r"glibc \S+ or", "glibc 2.35 or", readme.read_text(encoding="utf-8"))
    readme.write_text(text, encoding="utf-8")
    windows_files.add_files(made["win32"].parent)
    return made


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or not all(map(shutil.which, ("makensis", "rpmbuild", "openssl"))),
    reason="needs Linux with NSIS, rpmbuild and openssl",
)
def test_a_whole_release_of_small_bundles(
    tmp_path: Path, bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes an hour is stood in for: bundles, wheels, and the answer of a model."""
    key = tmp_path / "key.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    shown = ["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"]
    public = subprocess.run(shown, capture_output=True, check=True).stdout[-32:].hex()
    stated = {"UPDATE_ADDRESS": "https://a.example/newest.json", "UPDATE_KEY": public}
    monkeypatch.setattr(update_description, "_stated", stated.__getitem__)
    monkeypatch.setattr(release, "check_sources", lambda: None)
    monkeypatch.setattr(release, "check_tools", lambda chosen: None)
    monkeypatch.setattr(bundle, "build", lambda system: bundles[system])
    monkeypatch.setattr(bundle, "built", lambda: bundles["linux"])
    monkeypatch.setattr(smoke_frozen, "forwards", lambda program: None)

    def wheel(folder: Path, platform: str) -> Path:
        file = folder / f"tokonoma-1.2-py3-none-{platform}.whl"
        file.write_bytes(b"wheel")
        return file

    monkeypatch.setattr(wheels, "build", wheel)
    made = release.make(tmp_path / "out", key=key)
    version = release_notes.version()
    kinds = (".deb", ".rpm", ".tar.xz", "setup.exe", "portable.zip", ".whl", ".cdx.json")
    ends = (*kinds, ".files.txt", "licences.zip", "SHA256SUMS", "release.md", "newest.json")
    counts = {end: len([1 for path in made.iterdir() if path.name.endswith(end)]) for end in ends}
    twice = dict.fromkeys((".cdx.json", ".files.txt", "licences.zip"), 2)
    assert counts == dict.fromkeys(ends, 1) | twice | {".whl": 4}
    check = ["sha256sum", "--check", "--strict", "--quiet", release.SUMS]
    assert subprocess.run(check, cwd=made, check=False).returncode == 0
    page = (made / release.PAGE).read_text(encoding="utf-8")
    assert "files), here: The capital is Paris." in page
    assert re.search(r"- Windows, the folder \(.*\): not run\.", page)
    told = (made / update_description.NAME).read_bytes()
    found = feed.parse(told, "a.example", public)
    assert str(found.version) == version
    kinds_told = {each.kind.value for each in found.packages}
    assert kinds_told == {"deb", "rpm", "tar.xz", "setup.exe", "zip"}
    assert [path.name for path in (tmp_path / "out").iterdir()] == [version]
