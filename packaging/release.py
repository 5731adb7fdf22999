"""Makes a release: every package with checksums, bills of materials, licences, wheels, a page.

On Linux that of Windows is made too, under Wine. The source must be committed, with a section of the
changelog for its version and every text of the window translated. All goes into one new folder, which
is complete or not there. Two builds of one commit have the same files: `differences` compares them.
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
import packages
import release_notes
import smoke_frozen
import update_description
import wheels
from environment import ROOT, Trouble, child_environment, venv_python
from linux import tree, trial
from windows import setup_trial

FOLDER = ROOT / "build" / "release"
SUMS = "SHA256SUMS"
PAGE = "release.md"
_LICENCES = Path("resources", "licences")  # in a bundle's folder of resources
_SYSTEMS = {"linux": "Linux", "win32": "Windows", "darwin": "macOS"}
# Programs that make a bundle for Windows on Linux, and their packages of Debian.
_WINE = (("wine", "wine wine64"), ("osslsigncode", "osslsigncode"))


@dataclass(frozen=True)
class File:
    """A file of the release."""

    name: str
    text: str  # what it is, or for whom
    size: int  # bytes
    sha256: str  # hexadecimal


def systems(only: str = "", here: str = sys.platform) -> list[str]:
    """The systems of a release that is made here; `only` one of them where it is named."""
    made = ["linux", "win32"] if here == "linux" else [here]
    return [system for system in made if only in ("", system)]


def make(out: Path, roots: Path | None = None, key: Path | None = None, only: str = "") -> Path:
    """Make the release of this version in a folder in `out`; returns it. Raises Trouble.

    With `roots`, the packages are also installed and tried, in clean Debian roots and a prefix of Wine
    that are kept there. `key` has the private key that signs the description for installed apps.
    """
    chosen = systems(only)
    check_tools(chosen)
    update_description.check_key(key)
    check_sources()
    version = release_notes.version()
    final = out / version
    if final.exists():
        raise Trouble(f"{final} is there already: move it away and run the command again.")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".release-", dir=out) as folder:
        made = Path(folder) / version
        made.mkdir()
        texts, ran = dict[str, str](), list[str]()
        for system in chosen:
            texts |= _fill(made, version, system, roots, ran)
        for platform in wheels.platforms(only):
            texts[wheels.build(made, platform).name] = "pip, pipx, uv"
        files = [_file(path, texts[path.name]) for path in sorted(made.iterdir())]
        (made / SUMS).write_text(sums(files), encoding="utf-8", newline="\n")
        if place := update_description.address():
            glibc = tree.oldest_glibc(bundle.root(bundle.built())) if "linux" in chosen else ""
            notes = release_notes.releases()[0].changes
            told = update_description.text(version, notes, files, place, glibc)
            told = update_description.signed(told, key) if key is not None else told
            (made / update_description.NAME).write_text(told, encoding="utf-8", newline="\n")
        page = release_page(version, release_notes.releases(), files, ran)
        (made / PAGE).write_text(page, encoding="utf-8", newline="\n")
        made.rename(final)
    return final


def check_tools(chosen: Sequence[str]) -> None:
    """Check that every program that makes packages is there. Raises Trouble."""
    tools = [tool for system in chosen for name in packages.offered(system)
             for tool in packages.FORMATS[name].tools]  # fmt: skip
    if sys.platform == "linux" and "win32" in chosen:
        tools += _WINE
    lacking = {tool: package for tool, package in tools if shutil.which(tool) is None}
    if lacking:
        other = ", or leave Windows out with --only linux" if len(chosen) > 1 else ""
        raise Trouble(
            f"A release needs {', '.join(lacking)}: install the packages "
            f"{' '.join(lacking.values())} and run the command again{other}."
        )


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


def _fill(
    made: Path, version: str, system: str, roots: Path | None, ran: list[str]
) -> dict[str, str]:
    """Make the files of a system; returns what each is, by name. `ran` gets what was run where."""
    program = bundle.build(system=system)
    inside = bundle.root(program)
    size, count = bundle.size(inside)
    folder = f"{_SYSTEMS[system]}, the folder ({size / 1e6:.0f} MB in {count} files)"
    if system == sys.platform:
        ran.append(f"{folder}, here: {smoke_frozen.smoke(program)}")
        smoke_frozen.forwards(program)
        ran.append(f"{folder}, here: a second start passed its file to the first one.")
    files = packages.make(packages.offered(system), program, made)
    if roots is not None and system != "darwin":
        ran += (setup_trial.main if system == "win32" else trial.main)(files, roots)
    elif system != sys.platform:
        ran.append(f"{folder}: not run.")
    texts = {file.name: packages.of_file(file).text for file in files}
    return texts | describe(inside, made, f"{system}-{version}")


def describe(inside: Path, made: Path, name: str) -> dict[str, str]:
    """Write a bundle's list of files, bill and licences; returns what each is, by its name."""
    texts: dict[str, str] = {}
    listed = made / f"tokonoma-{name}.files.txt"
    listed.write_text("\n".join(file_list(inside)) + "\n", encoding="utf-8", newline="\n")
    texts[listed.name] = "every file of the program's folder, with size and SHA-256"
    licences = next(inside.rglob(str(_LICENCES / "index.txt"))).parent
    bill = made / f"tokonoma-{name}.cdx.json"
    shutil.copyfile(licences / bill_of_materials.FILE, bill)
    texts[bill.name] = f"bill of materials, CycloneDX {bill_of_materials.SPECIFICATION}"
    archive = made / f"tokonoma-{name}-licences.zip"
    pack(licences, archive)
    texts[archive.name] = "licences of everything inside"
    return texts


def differences(first: Path, second: Path) -> list[str]:
    """What differs between two bundles: folders, or the lists of files that a release has."""
    before, after = (_by_name(path) for path in (first, second))
    lines = [f"only in {first}: {name}" for name in before if name not in after]
    lines += [f"only in {second}: {name}" for name in after if name not in before]
    both = [name for name in before if name in after]
    return lines + [f"different: {name}" for name in both if before[name] != after[name]]


def _by_name(place: Path) -> dict[str, str]:
    """Size and checksum of each file, by its name."""
    lines = file_list(place) if place.is_dir() else place.read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=2) for line in lines if line]
    return {name: f"{checksum} {size}" for checksum, size, name in rows}


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
