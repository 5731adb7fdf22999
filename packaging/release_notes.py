"""Release notes of each version, read from changelog.md, for the metadata of packages.

Standard library only.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from environment import ROOT, Trouble

CHANGELOG = ROOT / "packaging" / "changelog.md"


@dataclass(frozen=True)
class Release:
    """One version and what changed in it, newest first; texts are Markdown on one line each."""

    version: str
    changes: tuple[str, ...]


def version() -> str:
    """The version of the app, as app/__init__.py states it."""
    source = (ROOT / "app" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'__version__ = "([^"]+)"', source)
    assert found is not None, "app/__init__.py states the version"
    return found[1]


def releases(path: Path = CHANGELOG) -> list[Release]:
    """All versions in the changelog, newest first. Raises Trouble when it lacks this version."""
    parts = re.split(r"^## ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found: list[Release] = []
    for part in parts:
        title, _, body = part.partition("\n")
        entries = re.split(r"^- ", body, flags=re.MULTILINE)[1:]
        found.append(Release(title.strip(), tuple(" ".join(entry.split()) for entry in entries)))
    if version() not in [release.version for release in found]:
        raise Trouble(f"{path} has no section for version {version()}: add one, then build again.")
    return found


def build_time(folder: Path = ROOT) -> int:
    """Seconds since 1970 that packages state as their date: of the last commit.

    Outside a repository, of the changelog's last change.
    """
    try:
        done = subprocess.run(
            ["git", "log", "-1", "--format=%ct"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        return int(done.stdout)
    except (OSError, ValueError):
        return int(CHANGELOG.stat().st_mtime)
