"""Snapshot folder functions of the window: size and deletion."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import delete_snapshots, snapshots_folder, snapshots_size
from engine.snapshot.folder import SUFFIX, conversation_prefix


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path))
    made = snapshots_folder()
    made.mkdir(parents=True)
    for conversation, size in (("1", 100), ("2", 20), ("11", 3)):
        (made / f"{conversation_prefix(conversation)}-{'0' * 32}{SUFFIX}").write_bytes(bytes(size))
    return made


def test_all_snapshots_are_counted_and_deleted(folder: Path) -> None:
    assert snapshots_size() == 123
    assert delete_snapshots() == 123
    assert snapshots_size() == 0


def test_only_snapshots_of_the_given_conversations_are_deleted(folder: Path) -> None:
    assert delete_snapshots(["1"]) == 100
    assert snapshots_size() == 23
    assert delete_snapshots(["2", "unknown"]) == 20
    assert delete_snapshots([]) == 0
    assert snapshots_size() == 3


def test_missing_folder_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKONOMA_HOME", str(tmp_path / "none"))
    assert (snapshots_size(), delete_snapshots()) == (0, 0)
