"""Safe file and folder names from untrusted ones."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.downloads.names import safe_folder, safe_name


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
