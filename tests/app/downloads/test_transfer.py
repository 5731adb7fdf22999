"""One file against a hub that stalls, resets, lies and changes its mind: whole and verified, or a sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.downloads.partial import part_path
from app.downloads.policy import DownloadError, Limits, Phase, Stopped
from app.downloads.transfer import FileDownload, probe
from downloading import (
    HALF,
    MODEL,
    QUICK,
    SIZE,
    ProgressRecorder,
    download,
    expect_error,
    fetch,
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


def test_a_file_arrives_whole_and_verified(hub: Hub, place: Path) -> None:
    told = ProgressRecorder()
    job = fetch(hub, place, report=told)
    assert is_complete(hub, place)
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
    told = ProgressRecorder()
    fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert Phase.WAITING in told.phases
    waiting = told.notes[told.phases.index(Phase.WAITING)]
    assert waiting.endswith("Trying again.")


def test_an_answer_without_a_length_is_enough(hub: Hub, place: Path) -> None:
    hub.faults.append(Fault(no_length=True))
    assert fetch(hub, place).size_bytes == SIZE
    assert is_complete(hub, place)


def test_an_answer_of_unknown_length_without_a_hash_is_taken_as_it_is(
    hub: Hub, place: Path
) -> None:
    hub.files[MODEL].hashed = False
    hub.faults.append(Fault(no_length=True))
    assert fetch(hub, place).size_bytes == SIZE
    assert is_complete(hub, place)


def test_the_wait_is_said_in_seconds_when_it_is_long(hub: Hub, place: Path) -> None:
    hub.faults.append(Fault(status=429, headers={"Retry-After": "120"}))
    told = ProgressRecorder()
    job = download(hub, place, report=lambda phase, note: (told(phase, note), stop_when(phase)))

    def stop_when(phase: Phase) -> None:
        if phase is Phase.WAITING:
            job.stop()

    with pytest.raises(Stopped):
        job.run()
    assert told.notes[-1] == "127.0.0.1 limits the number of requests (429). Trying again in 120 s."


def test_what_arrived_before_a_fault_is_not_fetched_again(hub: Hub, place: Path) -> None:
    hub.faults += [Fault(close_after=at) for at in (100_000, 100_000, 100_000)]
    job = fetch(hub, place)
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE
    ranges = [one.headers.get("Range") for one in hub.store_requests()]
    assert ranges == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"]


def test_faults_without_end_are_borne_while_something_arrives(hub: Hub, place: Path) -> None:
    hub.faults += [Fault(close_after=30_000) for _ in range(19)]
    fetch(hub, place)
    assert is_complete(hub, place)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(reset_after=0), "closed the connection"),
        (Fault(stall_after=0), "does not answer"),
        (Fault(status=500), "reports a server error (500)"),
        (Fault(close_after=0), "closed the connection before the end"),
    ],
)
def test_a_server_that_never_delivers_ends_in_one_sentence(
    hub: Hub, place: Path, fault: Fault, says: str
) -> None:
    hub.faults += [fault] * 4
    assert says in str(expect_error(hub, place))
    assert len(hub.store_requests()) == QUICK.attempts


def test_starting_over_and_over_is_not_progress(hub: Hub, place: Path) -> None:
    stored = hub.files[MODEL]
    stored.resumable = False
    # A clean end: of what stood before a reset, more may arrive the next time, which is progress.
    hub.faults += [Fault(close_after=HALF) for _ in range(50)]
    assert "closed the connection before the end" in str(expect_error(hub, place))
    assert len(hub.store_requests()) == QUICK.attempts + 1


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
    says = str(expect_error(hub, place))
    assert f"{SIZE:,}" in says
    assert len(hub.store_requests()) == QUICK.wrong_attempts


def test_a_length_other_than_the_catalogs_is_refused(hub: Hub, place: Path) -> None:
    says = str(expect_error(hub, place, size_bytes=SIZE + 7))
    assert says == f"The file on 127.0.0.1 has {SIZE:,} bytes where {SIZE + 7:,} were expected."


def test_a_wrong_hash_leaves_nothing(hub: Hub, place: Path) -> None:
    wrong = model_bytes(SIZE, seed=2)
    hub.faults.append(Fault(content=wrong))
    assert "SHA-256 differs" in str(expect_error(hub, place))
    assert list(place.parent.iterdir()) == []


def test_a_hash_other_than_the_catalogs_leaves_nothing(hub: Hub, place: Path) -> None:
    assert "SHA-256 differs" in str(expect_error(hub, place, sha256="0" * 64))
    assert list(place.parent.iterdir()) == []


def test_one_changed_bit_is_noticed(hub: Hub, place: Path) -> None:
    content = bytearray(hub.files[MODEL].content)
    content[HALF] ^= 1
    hub.faults.append(Fault(content=bytes(content)))
    assert "SHA-256 differs" in str(expect_error(hub, place))


def test_without_a_hash_it_is_said_so(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    job = fetch(hub, place)
    assert is_complete(hub, place)
    assert job.note == "Not verified by hash: the server names none."


def test_an_etag_of_the_store_is_no_hash(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    hub.files[MODEL].etag = f'"{"a" * 64}"'
    fetch(hub, place)
    assert is_complete(hub, place)


def test_a_web_page_never_becomes_a_model(hub: Hub, place: Path) -> None:
    page = Fault(content=b"<!doctype html>" * 999, headers={"Content-Type": "text/html"})
    hub.files[MODEL].hashed = False
    hub.faults.append(page)
    says = str(expect_error(hub, place))
    assert says == "127.0.0.1 sent a web page instead of a model file."
    assert list(place.parent.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"GG", b"gguf" + b"x" * 99, b"GGUX" + b"x" * 99])
def test_a_file_without_the_magic_never_becomes_a_model(
    hub: Hub, place: Path, content: bytes
) -> None:
    hub.put(MODEL, content)
    expect_error(hub, place)
    assert not part_path(place).exists()


def test_a_redirect_loop_is_one_sentence(hub: Hub, place: Path) -> None:
    hub.redirect = "/loop"
    assert "in a loop" in str(expect_error(hub, place))
    assert len(hub.requests) == 11


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
    assert says in str(expect_error(hub, place))
    assert len(hub.requests) == 1


def test_a_missing_file_is_one_sentence(hub: Hub, place: Path) -> None:
    hub.files.clear()
    assert str(expect_error(hub, place)) == "There is no such file on 127.0.0.1."


def test_a_server_that_is_not_there_is_one_sentence(hub: Hub, place: Path) -> None:
    job = FileDownload("http://127.0.0.1:9/o/n/resolve/main/m.gguf", place, limits=QUICK)
    with pytest.raises(DownloadError, match=r"^The connection to 127.0.0.1 failed: .*\.$"):
        job.run()


def test_too_little_room_is_said_before_anything_arrives(hub: Hub, place: Path) -> None:
    limits = Limits(margin_bytes=1 << 20)
    job = download(hub, place, limits=limits, free=lambda folder: SIZE)
    with pytest.raises(DownloadError) as caught:
        job.run()
    assert str(caught.value) == "The disk has 600 kB free where 2 MB are needed."
    assert job.received_bytes == 0


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
    assert hub.store_requests() == []


def test_probing_tells_size_and_hash_without_fetching(hub: Hub) -> None:
    told = probe(hub.url(MODEL))
    assert (told.size_bytes, told.sha256) == (SIZE, hub.files[MODEL].sha256)
    assert hub.sent_bytes == 0


def test_an_unhashed_file_is_probed_by_its_length(hub: Hub) -> None:
    hub.files[MODEL].hashed = False
    told = probe(hub.url(MODEL))
    assert (told.size_bytes, told.sha256) == (SIZE, "")
