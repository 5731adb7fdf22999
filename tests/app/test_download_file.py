"""One file against a hub that stalls, resets, lies and changes its mind: whole and verified, or a sentence."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.download_file import DownloadError, FileDownload, Limits, Phase, Stopped, probe
from app.download_part import part_of, sidecar_of
from hostile_hub import Fault, Hub, model_bytes, running

SIZE = 600_000
HALF = SIZE // 2
MODEL = "maker/model/model-Q4_0.gguf"
QUICK = Limits(
    stall_seconds=0.25,
    retry_seconds=0.005,
    longest_retry_seconds=0.02,
    attempts=4,
    margin_bytes=0,
    checkpoint_bytes=50_000,
)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as made:
        made.put(MODEL, model_bytes(SIZE))
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "models" / "model-Q4_0.gguf"


class Told:
    """What a download reported."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.notes: list[str] = []

    def __call__(self, phase: Phase, note: str) -> None:
        self.phases.append(phase)
        self.notes.append(note)


def download(hub: Hub, place: Path, **settings: object) -> FileDownload:
    settings = {"limits": QUICK, **settings}
    return FileDownload(hub.url(MODEL), place, **settings)  # type: ignore[arg-type]


def fetch(hub: Hub, place: Path, **settings: object) -> FileDownload:
    job = download(hub, place, **settings)
    job.run()
    return job


def is_whole(hub: Hub, place: Path) -> bool:
    """The file has its name and its content, and nothing lies beside it."""
    beside = sorted(path.name for path in place.parent.iterdir())
    return beside == [place.name] and place.read_bytes() == hub.files[MODEL].content


def interrupted(hub: Hub, place: Path, at: int = HALF) -> FileDownload:
    """A download that was stopped when `at` bytes had arrived."""
    hub.faults.append(Fault(stall_after=at))
    job = download(hub, place, limits=replace(QUICK, stall_seconds=20))

    def stop() -> None:
        hub.stalled.wait(10)
        while job.done_bytes < at:
            hub.released.wait(0.005)
        job.stop()

    stopper = threading.Thread(target=stop)
    stopper.start()
    with pytest.raises(Stopped):
        job.run()
    stopper.join()
    hub.released.set()
    return job


def refused(hub: Hub, place: Path, **settings: object) -> DownloadError:
    with pytest.raises(DownloadError) as caught:
        fetch(hub, place, **settings)
    assert str(caught.value).endswith(".")
    assert str(caught.value).count(". ") == 0, "one sentence"
    assert caught.value.remedy.endswith(".")
    assert not place.exists()
    return caught.value


def test_a_file_arrives_whole_and_verified(hub: Hub, place: Path) -> None:
    told = Told()
    job = fetch(hub, place, report=told)
    assert is_whole(hub, place)
    assert job.sha256 == hub.files[MODEL].sha256
    assert (job.done_bytes, job.size_bytes, job.note) == (SIZE, SIZE, "")
    assert told.phases == [Phase.CONNECTING, Phase.RUNNING, Phase.VERIFYING]


def test_the_name_is_given_only_when_all_is_verified(hub: Hub, place: Path) -> None:
    seen: list[bool] = []
    fetch(hub, place, report=lambda phase, note: seen.append(place.exists()))
    assert seen == [False, False, False]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(reset_after=HALF), id="reset"),
        pytest.param(Fault(reset_after=0), id="reset at once"),
        pytest.param(Fault(stall_after=HALF), id="stall"),
        pytest.param(Fault(stall_after=0), id="stall at once"),
        pytest.param(Fault(close_after=HALF), id="too short"),
        pytest.param(Fault(close_after=HALF, no_length=True), id="too short without a length"),
        pytest.param(Fault(extra=b"more", no_length=True), id="too long"),
        pytest.param(Fault(status=503), id="fault of the server"),
        pytest.param(Fault(status=429, headers={"Retry-After": "0"}), id="too many requests"),
        pytest.param(Fault(status=403), id="the store's link ran out"),
        pytest.param(Fault(content=b"GGUF short"), id="another file for once"),
        pytest.param(Fault(headers={"Content-Encoding": "gzip"}), id="encoded"),
        pytest.param(Fault(status=416, headers={"Content-Range": "bytes */9"}), id="416"),
    ],
)
def test_a_passing_fault_costs_only_time(hub: Hub, place: Path, fault: Fault) -> None:
    hub.faults.append(fault)
    told = Told()
    fetch(hub, place, report=told)
    assert is_whole(hub, place)
    assert Phase.WAITING in told.phases
    waiting = told.notes[told.phases.index(Phase.WAITING)]
    assert waiting.endswith("Trying again.")


def test_an_answer_without_a_length_is_enough(hub: Hub, place: Path) -> None:
    hub.faults.append(Fault(no_length=True))
    assert fetch(hub, place).size_bytes == SIZE
    assert is_whole(hub, place)


def test_an_answer_of_unknown_length_without_a_hash_is_taken_as_it_is(
    hub: Hub, place: Path
) -> None:
    hub.files[MODEL].hashed = False
    hub.faults.append(Fault(no_length=True))
    assert fetch(hub, place).size_bytes == SIZE
    assert is_whole(hub, place)


def test_the_wait_is_said_in_seconds_when_it_is_long(hub: Hub, place: Path) -> None:
    hub.faults.append(Fault(status=429, headers={"Retry-After": "120"}))
    told = Told()
    job = download(hub, place, report=lambda phase, note: (told(phase, note), stop_when(phase)))

    def stop_when(phase: Phase) -> None:
        if phase is Phase.WAITING:
            job.stop()

    with pytest.raises(Stopped):
        job.run()
    assert told.notes[-1] == "127.0.0.1 asks for fewer requests. Trying again in 120 s."


def test_what_arrived_before_a_fault_is_not_fetched_again(hub: Hub, place: Path) -> None:
    hub.faults += [Fault(close_after=at) for at in (100_000, 100_000, 100_000)]
    job = fetch(hub, place)
    assert is_whole(hub, place)
    assert job.received_bytes == SIZE
    ranges = [one.headers.get("Range") for one in hub.asked_of_store()]
    assert ranges == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"]


def test_faults_without_end_are_borne_while_something_arrives(hub: Hub, place: Path) -> None:
    hub.faults += [Fault(close_after=30_000) for _ in range(19)]
    fetch(hub, place)
    assert is_whole(hub, place)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(reset_after=0), "broke the connection off"),
        (Fault(stall_after=0), "does not answer"),
        (Fault(status=500), "has a fault of its own (500)"),
        (Fault(close_after=0), "broke off before the end"),
    ],
)
def test_a_server_that_never_delivers_ends_in_one_sentence(
    hub: Hub, place: Path, fault: Fault, says: str
) -> None:
    hub.faults += [fault] * 4
    assert says in str(refused(hub, place))
    assert len(hub.asked_of_store()) == QUICK.attempts


def test_starting_over_and_over_is_not_progress(hub: Hub, place: Path) -> None:
    stored = hub.files[MODEL]
    stored.resumable = False
    hub.faults += [Fault(reset_after=HALF) for _ in range(50)]
    assert "broke the connection off" in str(refused(hub, place))
    assert len(hub.asked_of_store()) == QUICK.attempts + 1


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(content=b"GGUF" + b"x" * 99), id="short"),
        pytest.param(Fault(content=model_bytes(SIZE + 1)), id="long"),
        pytest.param(Fault(extra=b"x", no_length=True), id="without a length"),
    ],
)
def test_a_wrong_length_is_tried_again_then_refused(hub: Hub, place: Path, fault: Fault) -> None:
    hub.faults += [fault] * 9
    says = str(refused(hub, place))
    assert f"{SIZE:,}" in says
    assert len(hub.asked_of_store()) == QUICK.wrong_attempts


def test_a_length_other_than_the_catalogs_is_refused(hub: Hub, place: Path) -> None:
    says = str(refused(hub, place, size_bytes=SIZE + 7))
    assert says == f"The file on 127.0.0.1 has {SIZE:,} bytes where {SIZE + 7:,} were expected."


def test_a_wrong_hash_leaves_nothing(hub: Hub, place: Path) -> None:
    wrong = model_bytes(SIZE, seed=2)
    hub.faults.append(Fault(content=wrong))
    assert "SHA-256 differs" in str(refused(hub, place))
    assert list(place.parent.iterdir()) == []


def test_a_hash_other_than_the_catalogs_leaves_nothing(hub: Hub, place: Path) -> None:
    assert "SHA-256 differs" in str(refused(hub, place, sha256="0" * 64))
    assert list(place.parent.iterdir()) == []


def test_one_changed_bit_is_noticed(hub: Hub, place: Path) -> None:
    content = bytearray(hub.files[MODEL].content)
    content[HALF] ^= 1
    hub.faults.append(Fault(content=bytes(content)))
    assert "SHA-256 differs" in str(refused(hub, place))


def test_without_a_hash_it_is_said_so(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    job = fetch(hub, place)
    assert is_whole(hub, place)
    assert job.note == "Not verified by hash: the server names none."


def test_an_etag_of_the_store_is_no_hash(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    hub.files[MODEL].etag = f'"{"a" * 64}"'
    fetch(hub, place)
    assert is_whole(hub, place)


def test_a_web_page_never_becomes_a_model(hub: Hub, place: Path) -> None:
    page = Fault(content=b"<!doctype html>" * 999, headers={"Content-Type": "text/html"})
    hub.files[MODEL].hashed = False
    hub.faults.append(page)
    says = str(refused(hub, place))
    assert says == "127.0.0.1 sent a web page instead of a model file."
    assert list(place.parent.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"GG", b"gguf" + b"x" * 99, b"GGUX" + b"x" * 99])
def test_a_file_without_the_magic_never_becomes_a_model(
    hub: Hub, place: Path, content: bytes
) -> None:
    hub.put(MODEL, content)
    refused(hub, place)
    assert not part_of(place).exists()


def test_a_stopped_download_goes_on_where_it_was(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    here = part_of(place).stat().st_size
    assert 0 < here < SIZE
    told = Told()
    job = fetch(hub, place, report=told)
    assert is_whole(hub, place)
    assert job.received_bytes == SIZE - here
    assert told.phases[0] is Phase.VERIFYING, "what was here is hashed first"
    assert hub.asked_of_store()[-1].headers["If-Range"] == hub.files[MODEL].etag


def test_another_address_goes_on_when_the_hash_is_known(hub: Hub, place: Path) -> None:
    sha256 = hub.files[MODEL].sha256
    interrupted(hub, place)
    note = json.loads(sidecar_of(place).read_bytes())
    sidecar_of(place).write_text(json.dumps(note | {"url": "https://mirror.example/x.gguf"}))
    job = fetch(hub, place, sha256=sha256)
    assert is_whole(hub, place)
    assert job.received_bytes < SIZE
    assert "If-Range" not in hub.asked_of_store()[-1].headers


@pytest.mark.parametrize(
    "note", ["", "{}", "[]", "null", '{"url": 5}', '{"url": "x", "done_bytes": -1}', "\x00"]
)
def test_a_part_nobody_vouches_for_is_fetched_anew(hub: Hub, place: Path, note: str) -> None:
    interrupted(hub, place)
    sidecar_of(place).write_text(note)
    assert fetch(hub, place).received_bytes == SIZE
    assert is_whole(hub, place)


def test_a_changed_file_is_fetched_anew_with_a_note(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(SIZE + 5, seed=3), etag='"v2"')
    told = Told()
    job = fetch(hub, place, report=told)
    assert is_whole(hub, place)
    assert job.received_bytes == SIZE + 5
    assert "The file on the server has changed; starting again." in told.notes


def test_a_changed_file_behind_an_unchanged_etag_is_noticed(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(SIZE, seed=3))
    fetch(hub, place)
    assert is_whole(hub, place)


def test_a_new_etag_of_the_store_alone_costs_no_trust(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.files[MODEL].etag = '"another store"'
    fetch(hub, place)
    assert is_whole(hub, place)


def test_a_weak_etag_is_no_condition(hub: Hub, place: Path) -> None:
    hub.files[MODEL].etag = 'W/"v1"'
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    fetch(hub, place)
    assert is_whole(hub, place)
    assert "If-Range" not in hub.asked_of_store()[-1].headers


def test_a_server_that_cannot_continue_starts_again(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.files[MODEL].resumable = False
    told = Told()
    fetch(hub, place, report=told)
    assert is_whole(hub, place)
    assert "The file on the server cannot be continued; starting again." in told.notes


def test_416_for_a_whole_part_is_the_end(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    job = download(hub, place)
    place.parent.mkdir()
    part_of(place).write_bytes(hub.files[MODEL].content)
    sidecar_of(place).write_text(json.dumps({"url": job.url, "etag": '"v1"', "done_bytes": SIZE}))
    job.run()
    assert is_whole(hub, place)
    assert job.received_bytes == 0


def test_416_for_a_part_of_something_else_starts_again(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    hub.put(MODEL, model_bytes(1_000), hashed=False)
    fetch(hub, place)
    assert is_whole(hub, place)


def test_a_partial_answer_from_elsewhere_is_not_taken_in(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    hub.faults.append(Fault(shift=5))
    fetch(hub, place)
    assert is_whole(hub, place)


def test_a_whole_part_needs_no_network(hub: Hub, place: Path) -> None:
    whole = hub.files[MODEL]
    job = download(hub, place, sha256=whole.sha256, size_bytes=SIZE)
    place.parent.mkdir()
    part_of(place).write_bytes(whole.content)
    sidecar_of(place).write_text(json.dumps({"url": job.url, "size_bytes": SIZE}))
    job.run()
    assert is_whole(hub, place)
    assert hub.asked == []


def test_a_part_spoilt_on_the_disk_is_fetched_anew(hub: Hub, place: Path) -> None:
    interrupted(hub, place)
    part = part_of(place)
    content = bytearray(part.read_bytes())
    content[-1000:] = bytes(1000)  # as a power cut leaves it
    part.write_bytes(bytes(content))
    fetch(hub, place)
    assert is_whole(hub, place)


def test_without_a_hash_only_what_is_surely_on_the_disk_is_kept(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    interrupted(hub, place)
    note = json.loads(sidecar_of(place).read_bytes())
    sidecar_of(place).write_text(json.dumps(note | {"done_bytes": 1_000}))
    assert fetch(hub, place).received_bytes == SIZE - 1_000
    assert is_whole(hub, place)


def test_a_redirect_loop_is_one_sentence(hub: Hub, place: Path) -> None:
    hub.redirect = "/loop"
    assert "in a circle" in str(refused(hub, place))
    assert len(hub.asked) == 11


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (401, {"X-Error-Code": "GatedRepo"}, "only to people who have accepted its licence"),
        (403, {"X-Error-Code": "GatedRepo"}, "only to people who have accepted its licence"),
        (401, {"X-Error-Code": "RepoNotFound"}, "There is no such file"),
        (404, {"X-Error-Code": "EntryNotFound"}, "There is no such file"),
        (410, {}, "There is no such file"),
        (400, {}, "refused the request (400)"),
    ],
)
def test_a_refusal_of_the_hub_is_final(
    hub: Hub, place: Path, status: int, headers: dict[str, str], says: str
) -> None:
    hub.hub_faults.append(Fault(status=status, headers=headers))
    assert says in str(refused(hub, place))
    assert len(hub.asked) == 1


def test_a_missing_file_is_one_sentence(hub: Hub, place: Path) -> None:
    hub.files.clear()
    assert str(refused(hub, place)) == "There is no such file on 127.0.0.1."


def test_a_server_that_is_not_there_is_one_sentence(hub: Hub, place: Path) -> None:
    job = FileDownload("http://127.0.0.1:9/o/n/resolve/main/m.gguf", place, limits=QUICK)
    with pytest.raises(DownloadError, match=r"^The connection to 127.0.0.1 failed: .*\.$"):
        job.run()


def test_too_little_room_is_said_before_anything_arrives(hub: Hub, place: Path) -> None:
    limits = Limits(margin_bytes=1 << 20)
    job = download(hub, place, limits=limits, free=lambda folder: SIZE)
    with pytest.raises(DownloadError) as caught:
        job.run()
    assert str(caught.value) == "The disk has 1 MB free where 2 MB are needed."
    assert job.received_bytes == 0


def test_a_disk_others_fill_stops_the_download_and_keeps_what_arrived(
    hub: Hub, place: Path
) -> None:
    limits = Limits(margin_bytes=400_000, checkpoint_bytes=100_000)
    room = iter([1 << 30] * 2)
    job = download(hub, place, limits=limits, free=lambda folder: next(room, 1_000))
    with pytest.raises(DownloadError, match=r"^The disk has 0 MB free"):
        job.run()
    here = part_of(place).stat().st_size
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
    assert part_of(place).stat().st_size == HALF
    assert not place.exists()
    assert fetch(hub, place).received_bytes == SIZE - HALF
    assert is_whole(hub, place)


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
    assert part_of(place).stat().st_size == HALF
    assert fetch(hub, place).received_bytes == SIZE - HALF
    assert is_whole(hub, place)


def test_a_folder_that_cannot_be_written_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file, not a folder")
    with pytest.raises(DownloadError, match=r"^model-Q4_0.gguf could not be written: .*\.$"):
        fetch(hub, tmp_path / "models" / "model-Q4_0.gguf")


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Fault(stall_after=HALF), id="transfer"),
        pytest.param(Fault(stall_after=0), id="silence"),
        pytest.param(Fault(status=503, headers={"Retry-After": "60"}), id="wait"),
    ],
)
def test_stopping_wakes_whatever_waits(hub: Hub, place: Path, fault: Fault) -> None:
    hub.faults.append(fault)
    waiting = threading.Event()
    job = download(
        hub,
        place,
        limits=Limits(stall_seconds=60, retry_seconds=60, margin_bytes=0),
        report=lambda phase, note: waiting.set() if phase is Phase.WAITING else None,
    )
    ended: list[type[BaseException]] = []

    def run() -> None:
        with pytest.raises(Stopped) as caught:
            job.run()
        ended.append(caught.type)

    thread = threading.Thread(target=run)
    thread.start()
    assert (waiting if fault.status else hub.stalled).wait(10)
    job.stop()
    thread.join(10)
    assert ended == [Stopped]


def test_stopping_before_the_start_fetches_nothing(hub: Hub, place: Path) -> None:
    job = download(hub, place)
    job.stop()
    with pytest.raises(Stopped):
        job.run()
    assert hub.asked_of_store() == []


def test_probing_tells_size_and_hash_without_fetching(hub: Hub) -> None:
    told = probe(hub.url(MODEL))
    assert (told.size_bytes, told.sha256) == (SIZE, hub.files[MODEL].sha256)
    assert hub.sent_bytes == 0


def test_an_unhashed_file_is_probed_by_its_length(hub: Hub) -> None:
    hub.files[MODEL].hashed = False
    told = probe(hub.url(MODEL))
    assert (told.size_bytes, told.sha256) == (SIZE, "")
