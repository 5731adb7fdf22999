"""Safe file and folder names from untrusted ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.downloads import names
from app.downloads.names import LONGEST_ENDING, safe_folder, safe_name
from app.system.file_names import name_room


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("model-Q4_0.gguf", "model-Q4_0.gguf"),
        ("Q4/model.GGUF", "model.GGUF"),
        ("../../etc/passwd.gguf", "passwd.gguf"),
        ("..\\..\\evil.gguf", "evil.gguf"),
        ("C:\\evil.gguf", "evil.gguf"),
        ("/abs.gguf", "abs.gguf"),
        ("nul\x00byte.gguf", "nulbyte.gguf"),
        ("line\nbreak.gguf", "linebreak.gguf"),
        ("right\u202eto left.gguf", "rightto left.gguf"),
        ('a<b>:"|?*.gguf', "ab.gguf"),
        ("CON.gguf", "_CON.gguf"),
        ("nul .gguf", "_nul.gguf"),
        ("LPT\u00b3.Q4_0.gguf", "_LPT\u00b3.Q4_0.gguf"),
        ("CONIN$.gguf", "_CONIN$.gguf"),
        ("com1.tar.gguf", "_com1.tar.gguf"),
        (".hidden.gguf", "hidden.gguf"),
        (".gguf", "gguf.gguf"),
        ("", "model.gguf"),
        ("..", "model.gguf"),
        ("model", "model.gguf"),
        ("model.gguf.", "model.gguf"),
        ("model .gguf", "model.gguf"),
        ("模型-Q4_0.gguf", "模型-Q4_0.gguf"),
        ("big-00001-of-00002.gguf", "big-00001-of-00002.gguf"),
    ],
)
def test_unsafe_names_become_safe(file: str, name: str) -> None:
    assert safe_name(file) == name


def test_a_name_is_short_enough_for_its_folder_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "name_room", partial(name_room, platform="win32"))
    folder, file = Path("/" + "d" * 120).absolute(), "m" * 300 + "-00001-of-00002.gguf"
    name = safe_name(file, folder)
    assert len(f"{folder / name}{LONGEST_ENDING}") == 259
    assert name.endswith("-00001-of-00002.gguf")
    assert safe_name(name, folder) == name
    assert len(safe_name(file, Path("/d"))) == 180
    assert 20 < len(safe_name(file, folder / folder.name / folder.name)) < 60


def test_long_name_keeps_its_extension_and_piece_number() -> None:
    name = safe_name("語" * 500 + "-00002-of-00003.gguf")
    assert name.endswith("-00002-of-00003.gguf")
    assert len(name.encode()) <= 180


@given(st.text())
def test_safe_name_never_leaves_its_folder(file: str) -> None:
    name = safe_name(file)
    assert name.lower().endswith(".gguf")
    assert len(name.encode()) <= 200
    assert PurePosixPath(name).name == name
    assert PureWindowsPath(name).name == name
    assert not name.startswith(".")
    assert safe_name(name) == name, "the same name for good"


@given(st.text())
def test_safe_folder_is_never_above_its_base(path: str) -> None:
    folder = safe_folder(path)
    parts = PurePosixPath(folder).parts
    assert ".." not in parts
    assert not PurePosixPath(folder).is_absolute()
    assert not PureWindowsPath(folder).is_absolute()
    assert "\x00" not in folder
