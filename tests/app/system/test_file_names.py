"""Names of files from titles and links: no folder, no device, nothing that cannot be shown."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.system.file_names import name_room, not_reserved, safe_name


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("../../etc/passwd", "etc passwd"),
        ("con", "_con"),
        ("COM1.txt", "_COM1.txt"),
        ("com\u00b9", "_com\u00b9"),
        ("nul .tar.gz", "_nul .tar.gz"),
        ("CONOUT$", "_CONOUT$"),
        ("console", "console"),
        ("Aux: notes", "Aux notes"),
        ("notes.txt:hidden", "notes.txt hidden"),
        ("a\0\u202eb:c?", "a b c"),
        ("trailing. . ", "trailing"),
        ("Grüße aus Kraków 日本 🎉", "Grüße aus Kraków 日本 🎉"),
        (" ... ", "Chat"),
        ("\ud800", "Chat"),
    ],
)
def test_a_title_becomes_a_name_for_every_system(title: str, name: str) -> None:
    assert safe_name(title, "Chat") == name


@given(st.text())
def test_no_title_leaves_its_folder_or_names_a_device(title: str) -> None:
    name = safe_name(title, "Chat")
    assert PurePosixPath(name).name == PureWindowsPath(name).name == name
    assert len(name.encode()) <= 161
    assert name == name.strip(" .")
    assert not_reserved(f"{name}.md") == f"{name}.md"
    assert safe_name(name, "Chat") == name


def test_windows_has_less_room_in_a_deep_folder() -> None:
    folder = Path("/" + "d" * 199).absolute()
    assert name_room(folder, ".part", "linux") == 250
    assert name_room(folder, ".part", "win32") == 259 - len(str(folder)) - 1 - 5
    assert name_room(folder / folder.name, ".part", "win32") == 40
