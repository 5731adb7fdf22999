"""Makes a release: every package of this system with checksums, bill of materials, licences, a page.

The source must be committed, with a section of the changelog for its version and every text of the
window translated. All goes into one new folder, which is complete or not there.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import bill_of_materials
import bundle
import contents
import packages
import release_notes
import smoke_frozen
import update_description
import wheels
from environment import ROOT, Trouble, child_environment, venv_python
from linux import trial

FOLDER = ROOT / "build" / "release"
SUMS = "SHA256SUMS"
PAGE = "release.md"
_LICENCES = Path("resources", "licences")  # in a bundle's folder of resources
_CHUNK = 1 << 20  # bytes


@dataclass(frozen=True)
class File:
    """A file of the release."""

    name: str
    text: str  # what it is, or for whom
    size: int  # bytes
    sha256: str  # hexadecimal


def make(out: Path, roots: Path | None = None) -> Path:
    """Make the release of this version in a folder in `out`; returns it. Raises Trouble.

    With `roots`, the packages are also installed and tried in clean Debian roots kept there.
    """
    check_sources()
    version = release_notes.version()
    final = out / version
    if final.exists():
        raise Trouble(f"{final} is there already: move it away and run the command again.")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=out) as folder:
        made = Path(folder) / version
        made.mkdir()
        texts, ran = _fill(made, version, roots)
        files = [_file(path, texts[path.name]) for path in sorted(made.iterdir())]
        (made / SUMS).write_text(sums(files), encoding="utf-8", newline="\n")
        if place := update_description.address():
            inside = bundle.root(bundle.built())
            glibc = contents.oldest_glibc(map(str, inside.rglob("*.so*")))
            notes = release_notes.releases()[0].changes
            told = update_description.text(version, notes, files, place, glibc)
            (made / update_description.NAME).write_text(told, encoding="utf-8", newline="\n")
        page = release_page(version, release_notes.releases(), files, ran)
        (made / PAGE).write_text(page, encoding="utf-8", newline="\n")
        made.rename(final)
    return final


def check_sources() -> None:
    """Check that all is committed, described and translated. Raises Trouble."""
    changed = _run("git", "status", "--porcelain").strip()
    if changed:
        raise Trouble(
            f"These changes are not committed, so nobody could build the same:\n{changed}"
        )
    release_notes.releases()
    words = subprocess.run(
        [venv_python(), ROOT / "packaging" / "catalogs.py", "--complete"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=child_environment(),
        check=False,
    )
    if words.returncode != 0:
        raise Trouble((words.stdout + words.stderr).strip())


def _fill(made: Path, version: str, roots: Path | None) -> tuple[dict[str, str], list[str]]:
    """Make all files; returns what each is, by name, and what was run where."""
    program = bundle.build()
    inside = bundle.root(program)
    ran = [f"The folder, here: {smoke_frozen.smoke(program)}"]
    smoke_frozen.forwards(program)
    ran.append("The folder, here: a second start passed its file to the first one.")
    files = packages.make((), program, made)
    if roots is not None:
        ran += trial.main(files, roots)
    texts = {file.name: packages.of_file(file).text for file in files}
    wheel = wheels.build(made)
    texts[wheel.name] = "pip, pipx, uv"
    system = f"{sys.platform}-{version}"
    listed = made / f"tokonoma-{system}.files.txt"
    listed.write_text("\n".join(file_list(inside)) + "\n", encoding="utf-8", newline="\n")
    texts[listed.name] = "every file of the program's folder, with size and SHA-256"
    licences = next(inside.rglob(str(_LICENCES / "index.txt"))).parent
    bill = made / f"tokonoma-{system}.cdx.json"
    shutil.copyfile(licences / bill_of_materials.FILE, bill)
    texts[bill.name] = f"bill of materials, CycloneDX {bill_of_materials.SPECIFICATION}"
    archive = made / f"tokonoma-{system}-licences.zip"
    pack(licences, archive)
    texts[archive.name] = "licences of everything inside"
    return texts, ran


def file_list(folder: Path) -> list[str]:
    """Each file of a folder, by path: SHA-256, size in bytes, path; links with their target."""
    lines: list[str] = []
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            lines.append(f"{'link':<64} {0:>11} {name} -> {path.readlink().as_posix()}")
        elif path.is_file():
            lines.append(f"{_sha256(path)} {path.stat().st_size:>11} {name}")
    return lines


def pack(folder: Path, archive: Path) -> None:
    """Pack a folder into a zip whose bytes depend on names and contents only."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            name = path.relative_to(folder).as_posix()
            entry = zipfile.ZipInfo(f"licences/{name}")
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            packed.writestr(entry, path.read_bytes())


def sums(files: Iterable[File]) -> str:
    """The file of checksums, as `sha256sum --check` reads it."""
    return "".join(f"{file.sha256}  {file.name}\n" for file in files)


def release_page(
    version: str,
    releases: Sequence[release_notes.Release],
    files: Sequence[File],
    ran: Sequence[str],
) -> str:
    """The page of a release in Markdown: notes, files with sizes, and what was run where."""
    notes = next(each.changes for each in releases if each.version == version)
    rows = [f"| {file.name} | {file.text} | {file.size / 1e6:.1f} MB |" for file in files]
    lines = [
        f"# Tokonoma {version}",
        "",
        *(f"- {note}" for note in notes),
        "",
        "## Files",
        "",
        "| File | For | Size |",
        "|---|---|---:|",
        *rows,
        "",
        f"`sha256sum --check {SUMS}` checks them.",
        "",
        "## What was run",
        "",
        *(f"- {' '.join(line.split())}" for line in ran),
        "",
    ]
    return "\n".join(lines)


def _file(path: Path, text: str) -> File:
    return File(path.name, text, path.stat().st_size, _sha256(path))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise Trouble(f"A release is made of a git checkout, and git failed: {error}.") from error
