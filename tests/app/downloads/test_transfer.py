"""Transfer of one file from a server with faults: verified, or an error with a reason."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from app.downloads.partial import part_path
from app.downloads.policy import DownloadError, Limits, Phase, Stopped
from app.downloads.transfer import FileDownload, probe
from busy_files import BusyFiles
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
from hostile_hub import Fault, Hub, model_bytes


def test_file_is_downloaded_and_verified(hub: Hub, place: Path) -> None:
    told = ProgressRecorder()
    job = fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert job.sha256 == hub.files[MODEL].sha256
    assert (job.done_bytes, job.size_bytes, job.note) == (SIZE, SIZE, "")
    assert told.phases == [Phase.CONNECTING, Phase.RUNNING, Phase.VERIFYING]


def test_final_name_appears_only_after_verification(hub: Hub, place: Path) -> None:
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
def test_transient_fault_is_retried(hub: Hub, place: Path, fault: Fault) -> None:
    hub.faults.append(fault)
    told = ProgressRecorder()
    fetch(hub, place, report=told)
    assert is_complete(hub, place)
    assert Phase.WAITING in told.phases
    waiting = told.notes[told.phases.index(Phase.WAITING)]
    assert waiting.endswith("Trying again.")


def test_response_without_a_length_is_accepted(hub: Hub, place: Path) -> None:
    hub.faults.append(Fault(no_length=True))
    assert fetch(hub, place).size_bytes == SIZE
    assert is_complete(hub, place)


def test_response_without_length_and_hash_is_accepted(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    hub.faults.append(Fault(no_length=True))
    assert fetch(hub, place).size_bytes == SIZE
    assert is_complete(hub, place)


def test_long_retry_delay_is_reported_in_seconds(hub: Hub, place: Path) -> None:
    hub.faults.append(Fault(status=429, headers={"Retry-After": "120"}))
    told = ProgressRecorder()
    job = download(hub, place, report=lambda phase, note: (told(phase, note), stop_when(phase)))

    def stop_when(phase: Phase) -> None:
        if phase is Phase.WAITING:
            job.stop()

    with pytest.raises(Stopped):
        job.run()
    assert told.notes[-1] == "127.0.0.1 limits the number of requests (429). Trying again in 120 s."


def test_retry_resumes_after_the_received_bytes(hub: Hub, place: Path) -> None:
    hub.faults += [Fault(close_after=at) for at in (100_000, 100_000, 100_000)]
    job = fetch(hub, place)
    assert is_complete(hub, place)
    assert job.received_bytes == SIZE
    ranges = [one.headers.get("Range") for one in hub.store_requests()]
    assert ranges == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"]


def test_retries_continue_while_there_is_progress(hub: Hub, place: Path) -> None:
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
def test_download_fails_after_repeated_server_faults(
    hub: Hub, place: Path, fault: Fault, says: str
) -> None:
    hub.faults += [fault] * 4
    assert says in str(expect_error(hub, place))
    assert len(hub.store_requests()) == QUICK.attempts


def test_repeated_restarts_count_as_no_progress(hub: Hub, place: Path) -> None:
    stored = hub.files[MODEL]
    stored.resumable = False
    # A clean close: after a reset, a retry may receive more bytes, which counts as progress.
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
def test_wrong_length_is_retried_then_refused(hub: Hub, place: Path, fault: Fault) -> None:
    hub.faults += [fault] * 9
    says = str(expect_error(hub, place))
    assert f"{SIZE:,}" in says
    assert len(hub.store_requests()) == QUICK.wrong_attempts


def test_length_other_than_expected_is_refused(hub: Hub, place: Path) -> None:
    says = str(expect_error(hub, place, size_bytes=SIZE + 7))
    assert says == f"The file on 127.0.0.1 has {SIZE:,} bytes where {SIZE + 7:,} were expected."


def test_hash_mismatch_deletes_the_file(hub: Hub, place: Path) -> None:
    wrong = model_bytes(SIZE, seed=2)
    hub.faults.append(Fault(content=wrong))
    assert "SHA-256 differs" in str(expect_error(hub, place))
    assert list(place.parent.iterdir()) == []


def test_hash_other_than_expected_deletes_the_file(hub: Hub, place: Path) -> None:
    assert "SHA-256 differs" in str(expect_error(hub, place, sha256="0" * 64))
    assert list(place.parent.iterdir()) == []


def test_one_changed_bit_is_detected(hub: Hub, place: Path) -> None:
    content = bytearray(hub.files[MODEL].content)
    content[HALF] ^= 1
    hub.faults.append(Fault(content=bytes(content)))
    assert "SHA-256 differs" in str(expect_error(hub, place))


def test_missing_hash_is_noted(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    job = fetch(hub, place)
    assert is_complete(hub, place)
    assert job.note == "Not verified: the server gives no checksum."


def test_etag_of_the_storage_server_is_not_a_hash(hub: Hub, place: Path) -> None:
    hub.files[MODEL].hashed = False
    hub.files[MODEL].etag = f'"{"a" * 64}"'
    fetch(hub, place)
    assert is_complete(hub, place)


def test_web_page_is_not_saved_as_a_model(hub: Hub, place: Path) -> None:
    page = Fault(content=b"<!doctype html>" * 999, headers={"Content-Type": "text/html"})
    hub.files[MODEL].hashed = False
    hub.faults.append(page)
    says = str(expect_error(hub, place))
    assert says == "127.0.0.1 sent a web page instead of a model file."
    assert list(place.parent.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"GG", b"gguf" + b"x" * 99, b"GGUX" + b"x" * 99])
def test_file_without_magic_is_not_saved_as_a_model(hub: Hub, place: Path, content: bytes) -> None:
    hub.put(MODEL, content)
    expect_error(hub, place)
    assert not part_path(place).exists()


def test_redirect_loop_fails(hub: Hub, place: Path) -> None:
    hub.redirect = "/loop"
    assert "in a loop" in str(expect_error(hub, place))
    assert len(hub.requests) == 11


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (401, {"X-Error-Code": "GatedRepo"}, "requires you to sign in and accept the licence"),
        (403, {"X-Error-Code": "GatedRepo"}, "requires you to sign in and accept the licence"),
        (401, {"X-Error-Code": "RepoNotFound"}, "There is no such file"),
        (404, {"X-Error-Code": "EntryNotFound"}, "There is no such file"),
        (410, {}, "There is no such file"),
        (400, {}, "refused the request (400)"),
    ],
)
def test_refused_request_is_not_retried(
    hub: Hub, place: Path, status: int, headers: dict[str, str], says: str
) -> None:
    hub.hub_faults.append(Fault(status=status, headers=headers))
    assert says in str(expect_error(hub, place))
    assert len(hub.requests) == 1


def test_missing_file_fails(hub: Hub, place: Path) -> None:
    hub.files.clear()
    assert str(expect_error(hub, place)) == "There is no such file on 127.0.0.1."


def test_unreachable_server_fails(hub: Hub, place: Path) -> None:
    job = FileDownload("http://127.0.0.1:9/o/n/resolve/main/m.gguf", place, limits=QUICK)
    with pytest.raises(DownloadError, match=r"^The connection to 127.0.0.1 failed: .*\.$"):
        job.run()


def test_low_disk_space_fails_before_the_transfer(hub: Hub, place: Path) -> None:
    limits = Limits(margin_bytes=1 << 20)
    job = download(hub, place, limits=limits, free=lambda folder: SIZE)
    with pytest.raises(DownloadError) as caught:
        job.run()
    assert str(caught.value) == "Not enough disk space: 600 kB free, 2 MB needed."
    assert job.received_bytes == 0


def test_unwritable_folder_fails(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file, not a folder", encoding="utf-8")
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
def test_stop_interrupts_every_wait(hub: Hub, place: Path, fault: Fault) -> None:
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


def test_stop_before_start_sends_no_request(hub: Hub, place: Path) -> None:
    job = download(hub, place)
    job.stop()
    with pytest.raises(Stopped):
        job.run()
    assert hub.store_requests() == []


def test_probe_returns_size_and_hash_without_downloading(hub: Hub) -> None:
    told = probe(hub.url(MODEL))
    assert (told.size_bytes, told.sha256) == (SIZE, hub.files[MODEL].sha256)
    assert hub.sent_bytes == 0


def test_probe_without_linked_headers_returns_the_length(hub: Hub) -> None:
    hub.files[MODEL].hashed = False
    told = probe(hub.url(MODEL))
    assert (told.size_bytes, told.sha256) == (SIZE, "")


def test_a_finished_file_that_a_scanner_reads_gets_its_name_later(
    hub: Hub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BusyFiles(monkeypatch)
    busy.hold(part_path(place), 4)
    fetch(hub, place)
    assert is_complete(hub, place)
    assert busy.refusals == 4


def test_waiting_for_a_scanner_can_be_stopped(
    hub: Hub, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BusyFiles(monkeypatch).hold(part_path(place), 1_000_000)
    job = download(hub, place)
    stop = threading.Timer(1.0, job.stop)
    stop.start()
    with pytest.raises(Stopped):
        job.run()
    stop.join()
    assert part_path(place).is_file()
    assert not place.exists()
