"""Parts that are compiled into the libraries of a Python package, by what its wheel itself says.

Facts are read where they are: bills of materials inside the wheel (PEP 770), licence texts that name
libraries, and the binaries: Rust leaves the names of its packages in them, C libraries their
versions. What no wheel says is not guessed, so a licence or a version may be missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

_LARGEST = 50_000_000  # bytes of a binary that is read
_BINARIES = (".so", ".pyd", ".dll", ".dylib")
_CRATE = re.compile(
    rb"index\.crates\.io-[0-9a-f]+[\\/]+([A-Za-z0-9_-]+?)-(\d+\.\d+\.\d+[A-Za-z0-9.+-]*)[\\/]"
)
# C libraries: what their code contains, with the version; the name of a file has it in one.
_MARKS = (
    ("PCRE2", "BSD-3-Clause", re.compile(rb"\0(10\.\d+) 20\d\d-\d\d-\d\d\0")),
    ("libpng", "libpng-2.0", re.compile(rb"libpng version (\d[\d.]*)")),
    ("libjpeg-turbo", "IJG AND BSD-3-Clause", re.compile(rb"libjpeg-turbo version (\d[\d.]*)")),
    ("zlib", "Zlib", re.compile(rb" deflate (\d[\d.]*) Copyright")),
    ("OpenBLAS", "BSD-3-Clause", re.compile(rb"\0OpenBLAS (\d[\d.]*) ")),
)
_ICU = re.compile(r"(?:lib)?icu(?:data|uc|i18n|in|dt)\w*?\.so\.(\d+)$")
# Of numpy's licence: its blocks name each library that lies beside it.
_NAMED = re.compile(r"^Name: (.+)\nFiles: (.+)\n(?:.*\n){1,4}?License: (.+)$", re.MULTILINE)
# Folders of dist-info with a text, or a folder, for each library that is compiled in.
_TEXTS = ("licenses/third_party", "licenses/BUILD_LICENSES")
_NO_NAMES = ("SHARED", "all_except_musl", "android", "cibw_musl", "pbin_and_sbuild", "pbin_musl")


@dataclass(frozen=True, order=True)
class Inner:
    """A part inside a package; "" is what is not known."""

    name: str
    version: str = ""
    licence: str = ""
    origin: str = ""  # its package URL


def parts(information: Path, binaries: Iterable[Path] = ()) -> tuple[Inner, ...]:
    """The parts of a package by its folder of metadata and its binaries, sorted and once each."""
    read = [path for path in binaries if _is_binary(path)]
    found = [*_of_bills(information), *_of_licence(information, read), *_of_texts(information)]
    for path in read:
        found += _of_binary(path)
    best: dict[tuple[str, str], Inner] = {}
    for inner in sorted(found, key=lambda each: (each.licence == "", each.origin == "", each)):
        best.setdefault((inner.name.lower(), inner.version), inner)
    versioned = {name for name, version in best if version}
    return tuple(
        sorted(inner for (name, version), inner in best.items() if version or name not in versioned)
    )


def _of_bills(information: Path) -> list[Inner]:
    """The components of CycloneDX files in the wheel."""
    found: list[Inner] = []
    for path in sorted(information.glob("sboms/*.json")):
        for each in json.loads(path.read_text(encoding="utf-8")).get("components", ()):
            origin = str(each.get("purl", "")).split("?")[0].split("#")[0]
            name, version = str(each.get("name", "")), str(each.get("version", ""))
            found.append(Inner(name, version, _licence(each.get("licenses", ())), origin))
    return found


def _licence(choices: Iterable[dict[str, Any]]) -> str:
    texts: list[str] = []
    for choice in choices:
        one = choice.get("license", {})
        text = choice.get("expression") or one.get("id") or one.get("name")
        texts += [str(text)] if text else []
    return " AND ".join(
        f"({text})" if " OR " in text and len(texts) > 1 else text for text in texts
    )


def _of_licence(information: Path, binaries: list[Path]) -> list[Inner]:
    """The libraries that a licence text lists with their files, where such a file is there."""
    found: list[Inner] = []
    for path in sorted(information.glob("licenses/LICENSE*")):
        if path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            for name, files, licence in _NAMED.findall(text):
                pattern = f"{files.strip().rpartition('/')[2]}*"
                if any(fnmatch(each.name, pattern) for each in binaries):
                    found.append(Inner(name.strip(), "", licence.strip()))
    return found


def _of_texts(information: Path) -> list[Inner]:
    """The libraries whose licence texts the wheel contains, one by one."""
    return [
        Inner(path.stem if path.is_file() else path.name)
        for folder in _TEXTS
        for path in sorted((information / folder).glob("*"))
        if path.name not in _NO_NAMES
    ]


def _of_binary(path: Path) -> list[Inner]:
    """Versions and names that a binary states in its strings."""
    if icu := _ICU.match(path.name):
        return [Inner("ICU", icu[1], "Unicode-3.0")]
    content = path.read_bytes()
    found = [
        Inner(name, match[1].decode().rstrip("."), licence)
        for name, licence, mark in _MARKS
        if (match := mark.search(content)) is not None
    ]
    for name, version in sorted(set(_CRATE.findall(content))):
        crate, number = name.decode(), version.decode()
        found.append(Inner(crate, number, "", f"pkg:cargo/{crate}@{number}"))
    return found


def _is_binary(path: Path) -> bool:
    ends = path.name.endswith(_BINARIES) or ".so." in path.name
    return ends and path.is_file() and path.stat().st_size <= _LARGEST
