"""Files that a bundle for Windows has beside its program, and the documents it is offered for."""

from __future__ import annotations

from pathlib import Path

from environment import ROOT

_HERE = Path(__file__).resolve().parent
_README = "README.txt"


def documents() -> list[str]:
    """The endings of documents that "Open with" offers the app for, such as .pdf."""
    return (_HERE / "opened.txt").read_text(encoding="utf-8").split()


def add_files(folder: Path) -> None:
    """Add the files of Windows to a bundle: README and licence."""
    for source, name in ((_HERE / _README, _README), (ROOT / "LICENSE", "LICENSE.txt")):
        text = source.read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8", newline="\r\n")
