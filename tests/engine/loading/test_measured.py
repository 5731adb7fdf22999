"""The file of measured figures: read back, replaced, bounded, and ignored when damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.loading.identity import stamps
from engine.loading.measured import MeasuredFigures, key, read_weights, write_weights


def test_figures_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "measured.json"
    MeasuredFigures(path).write("prefill", "a", [[1.0, 2.5], [3, 4]])
    MeasuredFigures(path).write("memory", "a", [[7.0]])
    assert MeasuredFigures(path).read("prefill", "a", 2) == [[1.0, 2.5], [3, 4]]
    assert MeasuredFigures(path).read("memory", "a", 1) == [[7.0]]
    assert MeasuredFigures(path).read("prefill", "b", 2) == []
    assert [file.name for file in path.parent.iterdir()] == ["measured.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"prefill a": 3}',
        b'{"prefill a": [3]}',
        b'{"prefill a": [[1]]}',
        b'{"prefill a": [[1, "2"]]}',
        b'{"prefill a": [[1, true]]}',
        b'{"prefill a": [[1, -2]]}',
        b'{"prefill a": [[1, NaN]]}',
        b'{"prefill a": [[1, Infinity]]}',
        b"[" * 100_000,
    ],
)
def test_damaged_figures_are_ignored_and_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "measured.json"
    path.write_bytes(content)
    figures = MeasuredFigures(path)
    assert figures.read("prefill", "a", 2) == []
    figures.write("prefill", "a", [[1.0, 2.0]])
    assert figures.read("prefill", "a", 2) == [[1.0, 2.0]]


def test_oldest_entries_are_dropped(tmp_path: Path) -> None:
    figures = MeasuredFigures(tmp_path / "measured.json")
    for index in range(70):
        figures.write("prefill", str(index), [[float(index)]])
    figures.write("prefill", "10", [[0.5]])
    figures.write("prefill", "new", [[1.0]])
    kept = json.loads((tmp_path / "measured.json").read_bytes())
    assert len(kept) == 64
    assert figures.read("prefill", "0", 1) == []
    assert figures.read("prefill", "10", 1) == [[0.5]]


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    MeasuredFigures(tmp_path / "file" / "measured.json").write("prefill", "a", [[1.0]])
    (tmp_path / "measured.json").mkdir()
    MeasuredFigures(tmp_path / "measured.json").write("prefill", "a", [[1.0]])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "measured.json"]


def test_key_depends_on_files_and_conditions() -> None:
    assert key((), 2, "q8_0") == key((), 2, "q8_0")
    assert key((), 2, "q8_0") != key((), 4, "q8_0")


def test_weights_are_remembered_for_one_version_of_the_files(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"one")
    assert read_weights(stamps([path])) == 0
    write_weights(stamps([path]), 98_000_000)
    assert read_weights(stamps([path])) == 98_000_000
    path.write_bytes(b"another")
    assert read_weights(stamps([path])) == 0
    write_weights((), 1)
    assert read_weights(()) == 0
