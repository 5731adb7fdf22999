"""Bytes of files that are no files, are exchanged, or grow while they are read."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

import pytest

from app.documents.source import MOST_BYTES, ExtractionError, ExtractionFault, pieces, sha256_of

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")


def fault_of(path: Path) -> ExtractionFault:
    with pytest.raises(ExtractionError) as caught:
        list(pieces(path))
    return caught.value.fault


def test_the_pieces_of_a_file_are_its_bytes(tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(content)
    assert b"".join(pieces(tmp_path / "file")) == content
    assert sha256_of(tmp_path / "file") == hashlib.sha256(content).hexdigest()


@posix
def test_a_pipe_or_device_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    assert fault_of(tmp_path / "pipe") is ExtractionFault.NOT_A_FILE
    assert fault_of(tmp_path / "link") is ExtractionFault.NOT_A_FILE
    assert fault_of(tmp_path / "none") is ExtractionFault.MISSING


def test_a_file_that_is_too_large_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, MOST_BYTES + 1)  # without blocks on the disk
    assert fault_of(path) is ExtractionFault.TOO_LARGE


@pytest.mark.sweep
def test_a_file_that_grows_without_end_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 3_000_000)
    found = pieces(path)
    next(found)
    os.truncate(path, 2 * MOST_BYTES)
    with pytest.raises(ExtractionError) as caught:
        sum(map(len, found))
    assert caught.value.fault is ExtractionFault.TOO_LARGE


def test_reading_is_cancelled_between_two_pieces(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 3_000_000)
    answers = iter((False, True))
    with pytest.raises(ExtractionError) as caught:
        sha256_of(path, lambda: next(answers))
    assert caught.value.fault is ExtractionFault.CANCELLED
