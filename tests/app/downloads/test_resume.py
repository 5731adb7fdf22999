"""What a stopped or failed download left behind: built upon when it can be trusted, dropped when not."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Iterator
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
from hostile_hub import Fault, Hub, model_bytes, running


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as made:
        made.put(MODEL, model_bytes(SIZE))
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "models" / "model-Q4_0.gguf"


def test_a_stopped_download_goes_on_where_it_was(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    here = part_path(place).stat().st_size
    assert 0 < here < SIZE
    told = ProgressRecorder()
    job = fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE - here
    assert told.phases[0] is Phase.VERIFYING, "what was here is hashed first"
    assert hub.store_requests()[-1].headers["If-Range"] == hub.files[MODEL].etag


def test_another_address_goes_on_when_the_hash_is_known(hub: Hub, place: Path) -> None:
    sha256 = hub.files[MODEL].sha256
    interrupted(hub, place)
    note = json.loads(sidecar_path(place).read_bytes())
    sidecar_path(place).write_text(json.dumps(note | {"url": "https://mirror.example/x.gguf"}))
    job = fetch(hub, place, sha256=sha256)
    assert is_complete(hub, place)
    assert job.received_bytes < SIZE
    assert "If-Range" not in hub.store_requests()[-1].headers


@pytest.mark.parametrize(
    "note", ["", "{}", "[]", "null", '{"url": 5}', '{"url": "x", "done_bytes": -1}', "\x00"]
)
def test_a_part_nobody_vouches_for_is_fetched_anew(hub: Hub, place: Path, note: str) -> None:
    interrupted(hub, place)
    sidecar_path(place).write_text(note)
    assert fetch(hub, place).received_bytes == SIZE
    assert is_complete(hub, place)


def test_a_changed_file_is_fetched_anew_with_a_note(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(SIZE + 5, seed=3), etag='"v2"')
    told = ProgressRecorder()
    job = fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE + 5
    assert "The file on the server has changed; starting again." in told.notes


def test_a_changed_file_behind_an_unchanged_etag_is_noticed(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(SIZE, seed=3))
    fetch(hub, place)
    assert is_complete(hub, place)


def test_a_new_etag_of_the_store_alone_costs_no_trust(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.files[MODEL].etag = '"another store"'
    fetch(hub, place)
    assert is_complete(hub, place)


def test_a_weak_etag_is_no_condition(hub: Hub, place: Path) -> None:
    hub.files[MODEL].etag = 'W/"v1"'
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    fetch(hub, place)
    assert is_complete(hub, place)
    assert "If-Range" not in hub.store_requests()[-1].headers


def test_a_server_that_cannot_continue_starts_again(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.files[MODEL].resumable = False
    told = ProgressRecorder()
    fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert "The file on the server cannot be continued; starting again." in told.notes


def test_416_for_a_whole_part_is_the_end(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    job = download(hub, place)
    place.parent.mkdir()
    part_path(place).write_bytes(hub.files[MODEL].content)
    sidecar_path(place).write_text(json.dumps({"url": job.url, "etag": '"v1"', "done_bytes": SIZE}))
    job.run()
    assert is_complete(hub, place)
    assert job.received_bytes == 0


def test_416_for_a_part_of_something_else_starts_again(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(1_000), hashed=False)
    fetch(hub, place)
    assert is_complete(hub, place)


def test_a_partial_answer_from_elsewhere_is_not_taken_in(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.faults.append(Fault(shift=5))
    fetch(hub, place)
    assert is_complete(hub, place)


def test_a_whole_part_needs_no_network(hub: Hub, place: Path) -> None:
    whole = hub.files[MODEL]
    job = download(hub, place, sha256=whole.sha256, size_bytes=SIZE)
    place.parent.mkdir()
    part_path(place).write_bytes(whole.content)
    sidecar_path(place).write_text(json.dumps({"url": job.url, "size_bytes": SIZE}))
    job.run()
    assert is_complete(hub, place)
    assert hub.requests == []


def test_a_part_spoilt_on_the_disk_is_fetched_anew(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    part = part_path(place)
    content = bytearray(part.read_bytes())
    content[-1000:] = bytes(1000)  # as a power cut leaves it
    part.write_bytes(bytes(content))
    fetch(hub, place)
    assert is_complete(hub, place)


def test_without_a_hash_only_what_is_surely_on_the_disk_is_kept(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    note = json.loads(sidecar_path(place).read_bytes())
    sidecar_path(place).write_text(json.dumps(note | {"done_bytes": 1_000}))
    assert fetch(hub, place).received_bytes == SIZE - 1_000
    assert is_complete(hub, place)


def test_a_disk_others_fill_stops_the_download_and_keeps_what_arrived(
    hub: Hub, place: Path
) -> None:
    limits = Limits(margin_bytes=400_000, checkpoint_bytes=100_000)
    room = iter([1 << 30] * 2)
    job = download(hub, place, limits=limits, free=lambda folder: next(room, 1_000))
    with pytest.raises(DownloadError, match=r"^The disk has 1 kB free"):
        job.run()
    here = part_path(place).stat().st_size
    assert 0 < here < SIZE
    assert fetch(hub, place).received_bytes == SIZE - here


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_keeps_what_arrived(
    hub: Hub, place: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    job = download(hub, place)
    write = os.write

    def limited(file: int, data: bytes | memoryview) -> int:
        room = HALF - job.done_bytes
        if room <= 0:
            raise OSError(number, os.strerror(number))
        return write(file, data[:room])  # a disk takes what still fits

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", limited)
        with pytest.raises(DownloadError, match=r"^The disk is full: model-Q4_0.gguf could"):
            job.run()
    assert part_path(place).stat().st_size == HALF
    assert not place.exists()
    assert fetch(hub, place).received_bytes == SIZE - HALF
    assert is_complete(hub, place)


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_a_limit_of_the_system_keeps_what_arrived(hub: Hub, place: Path) -> None:
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
