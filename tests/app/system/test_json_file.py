"""JSON files of the user: nothing is lost while another program has one open."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app.system import json_file
from app.system.json_file import JsonFileError
from busy_files import BusyFiles, refusal
from engine import disk_files


def test_a_file_that_is_open_for_a_moment_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    json_file.write(path := tmp_path / "deep" / "settings.json", {"theme": "dark"})
    busy = BusyFiles(monkeypatch)
    busy.hold(path)
    json_file.write(path, {"scale": 125})
    assert json_file.read(path) == {"theme": "dark", "scale": 125}
    assert busy.refusals == 3
    assert [each.name for each in path.parent.iterdir()] == ["settings.json"]


def test_a_file_that_stays_open_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    json_file.write(path := tmp_path / "settings.json", {"theme": "dark"})
    monkeypatch.setattr(disk_files.replace, "__kwdefaults__", {"seconds": 0.0, "pause": None})
    BusyFiles(monkeypatch).hold(path, 1000)
    with pytest.raises(JsonFileError, match="in use") as caught:
        json_file.write(path, {"theme": "light"})
    assert caught.value.remedy.startswith("Another program may have the file open.")
    assert json.loads(path.read_bytes()) == {"theme": "dark"}


def test_a_file_that_cannot_be_read_is_not_replaced_without_its_other_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    json_file.write(path := tmp_path / "settings.json", {"theme": "dark"})

    def refuse(path: Path) -> bytes:
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as patch:
        patch.setattr(disk_files, "read_bytes", refuse)
        assert json_file.read(path) == {}
        with pytest.raises(JsonFileError):
            json_file.write(path, {"scale": 125})
    assert json_file.read(path) == {"theme": "dark"}
    assert "cannot be read" in caplog.text


def test_reading_is_tried_again(tmp_path: Path) -> None:
    left = [refusal(5), refusal(32)]

    def read() -> bytes:
        if left:
            raise left.pop()
        return b"{}"

    assert disk_files.retried(read) == b"{}"
