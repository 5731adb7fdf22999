"""Resuming partial files: kept when they match the file, deleted when not."""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path

import pytest

from app.downloads.partial import part_path, sidecar_path
from app.downloads.policy import DownloadError, Limits, Phase
from downloading import (
    HALF,
    MODEL,
    SIZE,
    ProgressRecorder,
    download,
    fetch,
    interrupted,
    is_complete,
)
from hostile_hub import Fault, Hub, model_bytes


def test_stopped_download_resumes_at_its_offset(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    here = part_path(place).stat().st_size
    assert 0 < here < SIZE
    told = ProgressRecorder()
    job = fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE - here
    assert told.phases[0] is Phase.VERIFYING, "what was here is hashed first"
    assert hub.store_requests()[-1].headers["If-Range"] == hub.files[MODEL].etag


def test_known_hash_allows_resuming_from_another_address(hub: Hub, place: Path) -> None:
    sha256 = hub.files[MODEL].sha256
    interrupted(hub, place)
    note = json.loads(sidecar_path(place).read_bytes())
    sidecar_path(place).write_text(
        json.dumps(note | {"url": "https://mirror.example/x.gguf"}), encoding="utf-8"
    )
    job = fetch(hub, place, sha256=sha256)
    assert is_complete(hub, place)
    assert job.received_bytes < SIZE
    assert "If-Range" not in hub.store_requests()[-1].headers


@pytest.mark.parametrize(
    "note", ["", "{}", "[]", "null", '{"url": 5}', '{"url": "x", "done_bytes": -1}', "\x00"]
)
def test_part_of_unknown_origin_is_downloaded_again(hub: Hub, place: Path, note: str) -> None:
    interrupted(hub, place)
    sidecar_path(place).write_text(note, encoding="utf-8")
    assert fetch(hub, place).received_bytes == SIZE
    assert is_complete(hub, place)


def test_changed_file_is_downloaded_again_with_a_note(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(SIZE + 5, seed=3), etag='"v2"')
    told = ProgressRecorder()
    job = fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE + 5
    assert "The file on the server has changed; starting again." in told.notes


def test_changed_file_with_an_unchanged_etag_is_detected(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(SIZE, seed=3))
    fetch(hub, place)
    assert is_complete(hub, place)


def test_new_etag_of_the_storage_server_alone_keeps_the_part(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.files[MODEL].etag = '"another store"'
    fetch(hub, place)
    assert is_complete(hub, place)


def test_weak_etag_is_not_sent_in_if_range(hub: Hub, place: Path) -> None:
    hub.files[MODEL].etag = 'W/"v1"'
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    fetch(hub, place)
    assert is_complete(hub, place)
    assert "If-Range" not in hub.store_requests()[-1].headers


def test_server_without_range_support_restarts_the_file(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.files[MODEL].resumable = False
    told = ProgressRecorder()
    fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert "The server cannot resume this file; starting again." in told.notes


def test_416_for_a_complete_part_finishes_the_download(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    job = download(hub, place)
    place.parent.mkdir()
    part_path(place).write_bytes(hub.files[MODEL].content)
    sidecar_path(place).write_text(
        json.dumps({"url": job.url, "etag": '"v1"', "done_bytes": SIZE}), encoding="utf-8"
    )
    job.run()
    assert is_complete(hub, place)
    assert job.received_bytes == 0


def test_416_for_a_part_of_another_file_restarts(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(1_000), hashed=False)
    fetch(hub, place)
    assert is_complete(hub, place)


def test_partial_response_of_another_range_is_rejected(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.faults.append(Fault(shift=5))
    fetch(hub, place)
    assert is_complete(hub, place)


def test_complete_part_needs_no_request(hub: Hub, place: Path) -> None:
    whole = hub.files[MODEL]
    job = download(hub, place, sha256=whole.sha256, size_bytes=SIZE)
    place.parent.mkdir()
    part_path(place).write_bytes(whole.content)
    sidecar_path(place).write_text(
        json.dumps({"url": job.url, "size_bytes": SIZE}), encoding="utf-8"
    )
    job.run()
    assert is_complete(hub, place)
    assert hub.requests == []


def test_damaged_part_is_downloaded_again(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    part = part_path(place)
    content = bytearray(part.read_bytes())
    content[-1000:] = bytes(1000)  # as after a power cut
    part.write_bytes(bytes(content))
    fetch(hub, place)
    assert is_complete(hub, place)


def test_without_a_hash_only_synced_bytes_are_kept(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    note = json.loads(sidecar_path(place).read_bytes())
    sidecar_path(place).write_text(json.dumps(note | {"done_bytes": 1_000}), encoding="utf-8")
    assert fetch(hub, place).received_bytes == SIZE - 1_000
    assert is_complete(hub, place)


def test_disk_filled_during_the_transfer_fails_and_keeps_the_part(hub: Hub, place: Path) -> None:
    limits = Limits(margin_bytes=400_000, checkpoint_bytes=100_000)
    room = iter([1 << 30] * 2)
    job = download(hub, place, limits=limits, free=lambda folder: next(room, 1_000))
    with pytest.raises(DownloadError, match=r"^Not enough disk space: 1 kB free"):
        job.run()
    here = part_path(place).stat().st_size
    assert 0 < here < SIZE
    assert fetch(hub, place).received_bytes == SIZE - here


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_full_disk_keeps_the_part(
    hub: Hub, place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    job = download(hub, place)
    write = os.write

    def limited(file: int, data: bytes | memoryview) -> int:
        room = HALF - job.done_bytes
        if room <= 0:
            raise OSError(number, os.strerror(number))
        return write(file, data[:room])  # a full disk writes only what fits

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", limited)
        with pytest.raises(DownloadError, match=r"^The disk is full: model-Q4_0.gguf could"):
            job.run()
    assert part_path(place).stat().st_size == HALF
    assert not place.exists()
    assert fetch(hub, place).received_bytes == SIZE - HALF
    assert is_complete(hub, place)


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_file_size_limit_of_the_system_keeps_the_part(hub: Hub, place: Path) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HALF, before[1]))
    try:
        with pytest.raises(DownloadError, match=r"^The disk is full: "):
            fetch(hub, place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert part_path(place).stat().st_size == HALF
    assert fetch(hub, place).received_bytes == SIZE - HALF
    assert is_complete(hub, place)
