"""The files of a Linux package, laid out as they are installed: program, menu entry, manual, texts.

Packages of both kinds contain the same tree.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import contents
import qt_libraries
from environment import ROOT, Trouble, last_lines
from release_notes import build_time, releases

NAME = "tokonoma"
SITE = "https://tokonoma.app"  # of the identifier app.tokonoma.Tokonoma, as in macos/Info.plist
MAINTAINER = "Tokonoma <packages@tokonoma.app>"
SUMMARY = "Chat with language models that run on this computer"
DESCRIPTION = (
    "Tokonoma is a desktop chat application for language models in GGUF files. It contains its own "
    "engine and a small model, so it answers at once and without a network.",
    "Conversations, documents and models stay on this computer. Files can be attached and searched, "
    "models downloaded, and the model offered to other programs.",
)
PLACE = Path("usr", "lib", NAME)
HERE = ROOT / "packaging" / "linux"
_NOT_INSTALLED = ("share", "install.sh", "README.txt")  # of the bundle: what only an archive needs
_GLIBC = re.compile(r"(ld-linux-|lib(c|m|dl|rt|util|pthread|resolv)\.so)")
_APACHE = "/usr/share/common-licenses/Apache-2.0"


def lay_out(bundle: Path, root: Path) -> None:
    """Create the installed tree of a bundle in the empty folder `root`."""
    place = root / PLACE
    shutil.copytree(
        bundle,
        place,
        symlinks=True,
        ignore=lambda folder, _: _NOT_INSTALLED if Path(folder) == bundle else (),
    )
    shutil.copytree(bundle / "share", root / "usr" / "share")
    (root / "usr" / "bin").mkdir()
    (root / "usr" / "bin" / NAME).symlink_to(Path("..", "lib", NAME, NAME))
    share = root / "usr" / "share"
    manual = share / "man" / "man1" / f"{NAME}.1"
    write(manual.with_suffix(".1.gz"), manual.read_text(encoding="utf-8"))
    manual.unlink()
    documents = share / "doc" / NAME
    write(documents / "copyright", _copyright(bundle))
    for folder, folders, _ in os.walk(root):
        for each in (folder, *(os.path.join(folder, name) for name in folders)):
            if not os.path.islink(each):
                os.chmod(each, 0o755)


def size_bytes(root: Path) -> int:
    """The bytes of all files of a tree."""
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file())


def libraries(bundle: Path) -> list[str]:
    """The libraries that the bundle's binaries need from the system, by file name (soname)."""
    binaries = [
        path
        for path in bundle.rglob("*")
        if path.is_file() and not path.is_symlink() and _is_elf(path)
    ]
    names = {path.name for path in bundle.rglob("*")}
    needed = {name for path in binaries for name in contents.linked(str(path))}
    return sorted(needed - names)


def debian_packages(sonames: Sequence[str]) -> list[str]:
    """The Debian packages with these libraries, but the C library's. Raises Trouble."""
    found: set[str] = set()
    for name in sonames:
        if _GLIBC.match(name):
            continue
        packages = qt_libraries.PACKAGES.get(name)
        if packages is None:
            raise Trouble(
                f"The bundle needs {name} of the system, and no package is known that has it: name "
                "it in packaging/qt_libraries.py, or include it by packaging/contents.py."
            )
        found.add(packages[0])
    return sorted(found)


def oldest_glibc(bundle: Path) -> str:
    """The version of glibc that the bundle's README states; the newest that any binary asks for."""
    found = re.search(
        r"glibc (\d+\.\d+) or newer", (bundle / "README.txt").read_text(encoding="utf-8")
    )
    if found is None:
        raise Trouble(f"{bundle}/README.txt states no version of glibc; build the bundle again.")
    return found[1]


def debian_changelog() -> str:
    """The changelog in Debian's format."""
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(build_time()))
    sections: list[str] = []
    for release in releases():
        entries = ["\n    ".join(wrapped(change, 74)) for change in release.changes]
        sections += [f"{NAME} ({release.version}) unstable; urgency=medium", ""]
        sections += [*(f"  * {entry}" for entry in entries), "", f" -- {MAINTAINER}  {date}", ""]
    return "\n".join(sections)


def run(*command: str | Path, cwd: Path | None = None, **settings: str) -> None:
    """Run a packaging tool without output. Raises Trouble with its last lines when it fails."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": str(build_time()), **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise Trouble(f"{last_lines(done.stdout)}\n{Path(command[0]).name} failed, as above.")


def wrapped(text: str, width: int) -> list[str]:
    """A text on lines of at most `width` characters, without the marks of Markdown."""
    return textwrap.wrap(re.sub(r"[`*]", "", text), width, break_on_hyphens=False)


def _copyright(bundle: Path) -> str:
    """The copyright file, with the index of everything inside."""
    index = next(bundle.rglob("licences/index.txt")).read_text(encoding="utf-8")
    return (
        f"Tokonoma, from {SITE}\n\nCopyright: 2026 the authors of Tokonoma\n"
        f"License: Apache-2.0; on Debian systems the text is in {_APACHE}.\n\n"
        f"The texts named below lie in /{PLACE}/_internal/resources/licences.\n\n{index}"
    )


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def write(path: Path, text: str) -> None:
    """Write a text, compressed if the name ends in .gz (without a time, so that it is the same)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0) if path.suffix == ".gz" else data)
    path.chmod(0o644)
