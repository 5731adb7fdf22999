"""Collects the licence texts of everything a bundle contains; fails when one is missing.

Every file in the bundle belongs to a Python package, Python itself, a system package, or this
project. bundle.spec calls this in .venv; owners are found in the metadata of installed Python
packages and in dpkg's database.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

import compiled_in

ROOT = Path(__file__).resolve().parent.parent
TEXTS = ROOT / "packaging" / "texts"
APACHE = ROOT / "LICENSE"
_QT = (TEXTS / "Qt.txt", TEXTS / "LGPL-3.0.txt", TEXTS / "GPL-3.0.txt")
# Packages that do not include their licence text: name to licence and texts.
WITHOUT_TEXT: dict[str, tuple[str, tuple[Path, ...]]] = {
    "pyside6-essentials": ("LGPL-3.0-only", _QT),
    "shiboken6": ("LGPL-3.0-only", _QT),
    "latex2mathml": ("MIT", (TEXTS / "latex2mathml.txt",)),
    "tokenizers": ("Apache-2.0", (APACHE,)),
}
# Licences that a package's metadata states less exactly than its text.
_EXACT = {
    "msvc-runtime": "Microsoft Visual Studio Distributable Code",
    "pyinstaller": "GPL-2.0-or-later WITH Bootloader-exception",
}
_TEXT = re.compile(r"licen[cs]e|copying|notice|copyright|authors", re.IGNORECASE)
_COMMON = Path("/usr/share/common-licenses")
_DRIVER = "cuda_utils-"  # Triton's module for the driver, which gpu_wheels.py compiles


class Missing(Exception):
    """A file of the bundle has no known owner or no licence text; the message says what to do."""


@dataclass(frozen=True)
class Component:
    """A part of the bundle and its licence texts: files, with their path in the part's folder."""

    name: str
    version: str
    licence: str
    texts: tuple[tuple[Path, str], ...]
    kind: str = "library"  # as CycloneDX names it
    origin: str = ""  # its address in a package index, as a package URL
    sha256: str = ""  # of a part that is one file
    inside: tuple[compiled_in.Inner, ...] = ()  # what is compiled into it


def components(sources: Iterable[Path]) -> list[Component]:
    """The parts that these files come from, sorted by name. Raises Missing."""
    owners = _files_of_distributions()
    distributions: dict[str, metadata.Distribution] = {"pyinstaller": _pyinstaller()}
    files: dict[str, list[Path]] = {}
    others: list[Path] = []
    modules: list[Path] = []
    model: Path | None = None
    for source in sources:
        if source.suffix == ".gguf":
            model = source
            continue
        owner = owners.get(_real(source))
        if owner is not None:
            distributions[_normal(owner.name)] = owner
            files.setdefault(_normal(owner.name), []).append(source)
        elif source.name.startswith(_DRIVER):
            modules.append(source)
        elif not (_is_python(source) or source.is_relative_to(ROOT)):
            others.append(source)
    system, rest = of_system(others)
    unowned = [path for path in rest if not path.is_relative_to(sys.base_prefix)]
    if unowned:
        raise Missing(
            f"No package owns {unowned[0]}, so its licence is not known. "
            "Leave it out in packaging/contents.py, or build on a system where a package owns it."
        )
    parts = [of_distribution(each, files.get(name, ())) for name, each in distributions.items()]
    parts += [_of_python(), _own(), _starter(model), *_fonts(), *map(_of_driver, modules), *system]
    return sorted(parts, key=lambda part: part.name.lower())


def of_distribution(distribution: metadata.Distribution, files: Iterable[Path] = ()) -> Component:
    """A Python package by its metadata and its files in the bundle.

    Raises Missing when it includes no licence text.
    """
    name, inside = distribution.name, ()
    info = next((f for f in distribution.files or () if f.name == "METADATA"), None)
    texts: list[tuple[Path, str]] = []
    has_licence = False
    if info is not None:
        place = Path(str(distribution.locate_file(info))).parent
        inside = compiled_in.parts(place, files)
        for path in sorted(each for each in place.rglob("*") if each.is_file()):
            inner = path.relative_to(place).as_posix()
            is_licence = bool(_TEXT.search(path.name)) or inner.startswith("licenses/")
            has_licence |= is_licence
            if is_licence or inner.startswith("sboms/"):
                texts.append((path, inner.removeprefix("licenses/")))
    licence = _EXACT.get(_normal(name)) or _licence(distribution.metadata)
    if not has_licence:
        known = WITHOUT_TEXT.get(_normal(name))
        if known is None:
            raise Missing(
                f"The package {name} {distribution.version} includes no licence text. Find the "
                "text and name it in packaging/licences.py, or leave the package out of the bundle."
            )
        licence = known[0]
        texts += [(path, path.name) for path in known[1]]
    origin = f"pkg:pypi/{_normal(name)}@{quote(distribution.version)}"
    return Component(
        name, distribution.version, licence, tuple(texts), origin=origin, inside=inside
    )


def of_system(paths: Iterable[Path]) -> tuple[list[Component], list[Path]]:
    """The system packages that own these files, and the files that no package owns."""
    packages: set[str] = set()
    rest: list[Path] = []
    for path in paths:
        package = _dpkg_owner(path)
        if package is None:
            rest.append(path)
        else:
            packages.add(package)
    return [_of_debian(package) for package in sorted(packages)], rest


def write(found: Iterable[Component], folder: Path) -> None:
    """Write the texts of each part to a folder named after it, and an index of all parts."""
    rows = [("Component", "Version", "Licence", "Texts")]
    for part in found:
        place = folder / re.sub(r"[^\w.+-]+", "_", part.name)
        for path, inner in part.texts:
            target = place / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        rows.append((part.name, part.version, part.licence, f"{place.name}/"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        "  ".join([*(text.ljust(width) for text, width in zip(row, widths, strict=False)), row[3]])
        for row in rows
    ]
    lead = (
        "What this application is made of, and under which terms. Texts are in the folders named."
    )
    (folder / "index.txt").write_text("\n".join([lead, "", *lines, ""]), encoding="utf-8")


def _files_of_distributions() -> dict[str, metadata.Distribution]:
    """Every installed file, by path, with its Python package."""
    return {
        os.path.normcase(os.path.normpath(os.path.join(folder, file))): distribution
        for distribution in metadata.distributions()
        for folder in (os.path.realpath(str(distribution.locate_file(""))),)
        for file in distribution.files or ()
    }


def _real(path: Path) -> str:
    """A file's path without the symbolic links of its folder, such as of a shared .venv.

    On Windows, where DLLs are imported in other letters than their names have, in lower case.
    """
    return os.path.normcase(os.path.join(os.path.realpath(path.parent), path.name))


def _licence(facts: metadata.PackageMetadata) -> str:
    """The short name of a licence, from the metadata field that the package uses."""
    fields = facts.get_all("License-Expression") or facts.get_all("License") or []
    stated = str(fields[0]) if fields else ""
    if stated and "\n" not in stated and len(stated) <= 60:
        return stated
    classifiers = facts.get_all("Classifier") or []
    names = [each.split(" :: ")[-1] for each in classifiers if each.startswith("License ::")]
    return ", ".join(names) or "see its text"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pyinstaller() -> metadata.Distribution:
    """PyInstaller: its bootloader is the bundle's executable, though no file of it is listed."""
    return metadata.distribution("pyinstaller")


def _is_python(path: Path) -> bool:
    """Whether a file is in the standard library, of which PyInstaller packs a part into a zip."""
    inside = path.is_relative_to(sysconfig.get_path("stdlib"))
    return (inside and "site-packages" not in path.parts) or path.name == "base_library.zip"


def _of_python() -> Component:
    base = Path(sys.base_prefix)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = (
        Path(sysconfig.get_path("stdlib")) / "LICENSE.txt",
        base / "LICENSE.txt",
        base / "share" / "doc" / version / "copyright",
    )
    text = next((path for path in places if path.is_file()), None)
    if text is None:
        raise Missing(
            f"This Python has no licence text: none of {', '.join(map(str, places))} exists. "
            "Build with a Python that includes it."
        )
    number = platform.python_version()
    texts = ((text, "LICENSE.txt"),)
    return Component("Python", number, "PSF-2.0", texts, "platform", f"pkg:generic/python@{number}")


def _own() -> Component:
    source = (ROOT / "app" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'__version__ = "([^"]+)"', source)
    assert version is not None, "app/__init__.py states the version"
    return Component("Tokonoma", version[1], "Apache-2.0", ((APACHE, "LICENSE"),))


def _starter(model: Path | None) -> Component:
    name = "SmolLM2-135M-Instruct (model, by Hugging Face)"
    texts = ((APACHE, "LICENSE"),)
    kind = "machine-learning-model"
    return Component(name, "Q4_1", "Apache-2.0", texts, kind, sha256=_sha256(model))


def _fonts() -> list[Component]:
    """The fonts, one per licence text in resources/licences, which is named after its font.

    DejaVu comes with ziafont; its text is the one inside the font file.
    """
    texts = sorted((ROOT / "resources" / "licences").glob("*-OFL.txt"))
    dejavu = TEXTS / "DejaVu.txt"
    return [
        Component("DejaVu (font)", "", "Bitstream-Vera", ((dejavu, dejavu.name),), "data"),
        *(
            Component(
                f"{path.stem.removesuffix('-OFL')} (font)",
                "",
                "OFL-1.1",
                ((path, path.name),),
                "data",
            )
            for path in texts
        ),
    ]


def _of_driver(module: Path) -> Component:
    """Triton's compiled module for the NVIDIA driver; its version is that of the list beside it."""
    listed = (module.parent / "gpu_wheels.json").read_text(encoding="utf-8")
    version = re.search(r'"triton-(\d[\w.]*)-', listed)
    number = version[1] if version else ""
    text = module.parent / "triton.txt"
    return Component(
        "Triton (module for the driver)",
        number,
        "MIT",
        ((text, text.name),),
        origin=f"pkg:pypi/triton@{number}#{module.name}",
        sha256=_sha256(module),
    )


def _sha256(path: Path | None) -> str:
    """Hexadecimal SHA-256 of a file; empty without one."""
    if path is None:
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _dpkg_owner(path: Path) -> str | None:
    """The Debian package that owns a file; None without one, or on systems without dpkg."""
    if shutil.which("dpkg-query") is None:
        return None
    real = path.resolve()
    # With a merged /usr a file has two paths, of which the database has one.
    paths = {str(path), str(real), str(real).removeprefix("/usr"), f"/usr{real}"}
    found = subprocess.run(
        ["dpkg-query", "--search", *sorted(paths)], capture_output=True, text=True, check=False
    ).stdout
    owner = re.match(r"([^:,\s]+)(?::\w+)?(?:, [^:]+)*: /", found)
    return owner[1] if owner else None


def _of_debian(package: str) -> Component:
    text = Path("/usr/share/doc") / package / "copyright"
    if not text.is_file():
        raise Missing(
            f"The system package {package} has no {text}. Install its documentation, or leave its "
            "library out of the bundle in packaging/contents.py."
        )
    content = text.read_text(encoding="utf-8", errors="replace")
    names = sorted(set(re.findall(r"^License: (\S.*)$", content, re.MULTILINE)))
    common = sorted(set(re.findall(rf"{_COMMON}/([\w.+-]*[\w+])", content)))
    texts = [(text, "copyright"), *((_COMMON / each, each) for each in common)]
    licence = ", ".join(names) if len(", ".join(names)) <= 60 else "see its text"
    number = _debian_version(package)
    return Component(
        package,
        number,
        licence or "see its text",
        tuple((path, inner) for path, inner in texts if path.is_file()),
        origin=f"pkg:deb/debian/{package}@{quote(number)}",
    )


def _debian_version(package: str) -> str:
    query = ["dpkg-query", "--show", "--showformat=${Version}\n", package]
    lines = subprocess.run(query, capture_output=True, text=True, check=False).stdout.splitlines()
    return lines[0] if lines else ""
