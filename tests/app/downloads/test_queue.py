"""Download queue: order, pause, cancel, retry, disk space and equal names."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.downloads.queue import Phase, Source
from app.net.http import WebError
from app.net.hub import HubError
from hostile_hub import Fault, Hub
from queue_recorder import (
    HALF,
    QUICK,
    SIZE,
    TIMEOUT_SECONDS,
    content,
    model_files,
    source,
    stalled_half_way,
)


def test_download_reports_every_phase_from_queued_to_done(hub: Hub, folder: Path, watch) -> None:
    watched = watch()
    id = watched.queue.add(source(1))
    done = watched.wait_for_phase(id, Phase.DONE)
    assert done.path == folder / "model1-Q4_0.gguf"
    assert done.path.read_bytes() == content(1)
    assert (done.file, done.repository) == ("model1-Q4_0.gguf", "maker/model1")
    assert done.url == hub.url("maker/model1/model1-Q4_0.gguf")
    assert done.done_bytes == done.size_bytes == SIZE + 1
    assert done.sha256 == hub.files["maker/model1/model1-Q4_0.gguf"].sha256
    assert watched.phases(id) == [
        Phase.QUEUED,
        Phase.CONNECTING,
        Phase.RUNNING,
        Phase.VERIFYING,
        Phase.DONE,
    ]
    assert watched.queue.all() == (done,)


def test_reports_come_from_one_thread(hub: Hub, watch) -> None:
    watched = watch()
    ids = [watched.queue.add(source(number)) for number in (1, 2, 3)]
    for id in ids:
        watched.wait_for_phase(id, Phase.DONE)
    assert {thread.name for thread in watched.threads} == {"downloads"}


def test_parallel_downloads_are_limited(hub: Hub, watch) -> None:
    watched = watch(parallel=2)
    hub.faults += [Fault(stall_after=HALF), Fault(stall_after=HALF)]
    first, second, third = (watched.queue.add(source(number)) for number in (1, 2, 3))
    watched.wait_for_phase(first, Phase.RUNNING)
    watched.wait_for_phase(second, Phase.RUNNING)
    assert [one.phase for one in watched.queue.all()][2] is Phase.QUEUED
    watched.queue.pause(first)
    watched.wait_for_phase(third, Phase.DONE)
    hub.released.set()
    watched.wait_for_phase(second, Phase.DONE)


def test_the_same_file_twice_is_one_download(hub: Hub, watch) -> None:
    watched = watch()
    id = stalled_half_way(hub, watched)
    assert watched.queue.add(source(1)) == id
    assert len(watched.queue.all()) == 1
    watched.queue.pause(id)
    hub.released.set()
    assert watched.queue.add(source(1)) == id, "it goes on instead"
    watched.wait_for_phase(id, Phase.DONE)
    assert watched.queue.add(source(1)) == id, "it is there"
    assert len(hub.store_requests()) == 2


def test_deleted_file_is_downloaded_again(hub: Hub, watch) -> None:
    watched = watch()
    first = watched.queue.add(source(1))
    watched.wait_for_phase(first, Phase.DONE).path.unlink()
    second = watched.queue.add(source(1))
    assert second != first
    assert watched.wait_for_phase(second, Phase.DONE).path.is_file()
    assert [one.id for one in watched.queue.all()] == [second]


def test_pause_keeps_the_part_and_resume_continues(hub: Hub, folder: Path, watch) -> None:
    watched = watch()
    id = stalled_half_way(hub, watched)
    watched.queue.pause(id)
    paused = watched.wait_for_phase(id, Phase.PAUSED)
    assert (paused.done_bytes, paused.bytes_per_second) == (HALF, 0)
    assert model_files(folder) == ["model1-Q4_0.gguf.part"]
    watched.queue.resume(id)
    watched.wait_for_phase(id, Phase.DONE)
    assert hub.sent_bytes == SIZE + 1
    assert model_files(folder) == ["model1-Q4_0.gguf"]


def test_download_paused_while_queued_does_not_start(hub: Hub, watch) -> None:
    watched = watch(parallel=1)
    first = stalled_half_way(hub, watched)
    second = watched.queue.add(source(2))
    watched.queue.pause(second)
    hub.released.set()
    watched.wait_for_phase(first, Phase.DONE)
    third = watched.queue.add(source(3))
    watched.wait_for_phase(third, Phase.DONE)
    assert watched.phases(second) == [Phase.QUEUED, Phase.PAUSED]


def test_raising_the_parallel_limit_starts_queued_downloads(hub: Hub, watch) -> None:
    watched = watch(parallel=1)
    first = stalled_half_way(hub, watched)
    second = watched.queue.add(source(2))
    watched.queue.set_parallel(2)
    watched.wait_for_phase(second, Phase.RUNNING)
    hub.released.set()
    watched.wait_for_phase(first, Phase.DONE)
    watched.wait_for_phase(second, Phase.DONE)


def test_cancel_deletes_the_part(hub: Hub, folder: Path, watch) -> None:
    watched = watch()
    id = stalled_half_way(hub, watched)
    watched.queue.cancel(id)
    watched.wait_for_phase(id, Phase.CANCELLED)
    assert watched.queue.all() == ()
    watched.queue.close()
    assert model_files(folder) == []


def test_cancelling_a_paused_download_deletes_the_part(hub: Hub, folder: Path, watch) -> None:
    watched = watch()
    id = stalled_half_way(hub, watched)
    watched.queue.pause(id)
    watched.wait_for_phase(id, Phase.PAUSED)
    watched.queue.cancel(id)
    watched.wait_for_phase(id, Phase.CANCELLED)
    watched.queue.close()
    assert model_files(folder) == []


def test_a_cancelled_file_can_be_added_again_at_once(hub: Hub, folder: Path, watch) -> None:
    watched = watch()
    first = stalled_half_way(hub, watched)
    watched.queue.cancel(first)
    second = watched.queue.add(source(1))
    assert watched.wait_for_phase(second, Phase.DONE).path.read_bytes() == content(1)
    assert model_files(folder) == ["model1-Q4_0.gguf"]


def test_cancelling_a_finished_download_keeps_the_file(hub: Hub, folder: Path, watch) -> None:
    watched = watch()
    id = watched.queue.add(source(1))
    watched.wait_for_phase(id, Phase.DONE)
    watched.queue.cancel(id)
    watched.wait_for_phase(id, Phase.CANCELLED)
    watched.queue.close()
    assert model_files(folder) == ["model1-Q4_0.gguf"]


def test_failure_has_a_reason_and_can_be_retried(hub: Hub, watch) -> None:
    watched = watch()
    hub.hub_faults.append(Fault(status=404))
    id = watched.queue.add(source(1))
    failed = watched.wait_for_phase(id, Phase.FAILED)
    assert failed.error == "There is no such file on 127.0.0.1."
    assert failed.remedy
    watched.queue.retry(id)
    done = watched.wait_for_phase(id, Phase.DONE)
    assert (done.error, done.remedy) == ("", "")


def test_retry_resumes_the_part(hub: Hub, watch) -> None:
    watched = watch()
    hub.faults += [Fault(close_after=HALF), *[Fault(status=500)] * 4]
    id = watched.queue.add(source(1))
    assert watched.wait_for_phase(id, Phase.FAILED).done_bytes == HALF
    watched.queue.retry(id)
    watched.wait_for_phase(id, Phase.DONE)
    assert hub.sent_bytes == SIZE + 1


def test_waiting_has_a_reason_and_delay(hub: Hub, watch) -> None:
    watched = watch(limits=replace(QUICK, retry_seconds=8, longest_retry_seconds=8))
    hub.faults.append(Fault(status=502))
    id = watched.queue.add(source(1))
    note = watched.wait_for_phase(id, Phase.WAITING).note
    assert note.startswith("127.0.0.1 reports a server error (502). Trying again in ")


def test_speed_is_measured_and_zero_while_stalled(hub: Hub, watch) -> None:
    watched = watch(tick_seconds=0.05)
    id = stalled_half_way(hub, watched)
    stalled = watched.wait_for(
        lambda one: one.id == id and one.done_bytes == HALF and one.bytes_per_second == 0
    )
    assert stalled.phase is Phase.RUNNING
    assert stalled.seconds_left is None


def test_progress_signals_are_rate_limited(hub: Hub, watch) -> None:
    watched = watch(tick_seconds=0.1)
    began, paced = time.monotonic(), threading.Event()
    hub.gate = lambda sent: paced.wait(max(began + sent / 1_200_000 - time.monotonic(), 0)) or None
    id = watched.queue.add(source(1))
    watched.wait_for_phase(id, Phase.DONE)
    seconds = time.monotonic() - began
    assert len(watched.reports) <= 6 + 10 * seconds


def test_another_file_of_the_same_name_goes_to_a_subfolder(hub: Hub, folder: Path, watch) -> None:
    hub.put("other/maker/model1-Q4_0.gguf", content(9))
    watched = watch()
    watched.wait_for_phase(watched.queue.add(source(1)), Phase.DONE)
    other = Source("other/maker", file="model1-Q4_0.gguf")
    done = watched.wait_for_phase(watched.queue.add(other), Phase.DONE)
    assert done.path == folder / "other_maker" / "model1-Q4_0.gguf"
    assert done.path.read_bytes() == content(9)
    assert (folder / "model1-Q4_0.gguf").read_bytes() == content(1)


def test_simultaneous_downloads_of_one_name_get_different_paths(
    hub: Hub, folder: Path, watch
) -> None:
    hub.put("other/maker/model1-Q4_0.gguf", content(9))
    watched = watch()
    ids = [
        watched.queue.add(source(1)),
        watched.queue.add(replace(source(1), repository="other/maker")),
    ]
    paths = {watched.wait_for_phase(id, Phase.DONE).path for id in ids}
    assert {path.read_bytes() for path in paths} == {content(1), content(9)}


@pytest.mark.parametrize("known", [True, False], ids=["hash known", "hash asked for"])
def test_existing_identical_file_is_not_downloaded(
    hub: Hub, folder: Path, watch, known: bool
) -> None:
    folder.mkdir()
    (folder / "model1-Q4_0.gguf").write_bytes(content(1))
    stored = hub.files["maker/model1/model1-Q4_0.gguf"]
    wanted = replace(source(1), size_bytes=SIZE + 1, sha256=stored.sha256) if known else source(1)
    watched = watch()
    done = watched.wait_for_phase(watched.queue.add(wanted), Phase.DONE)
    assert done.note == "Already downloaded."
    assert done.path == folder / "model1-Q4_0.gguf"
    assert hub.sent_bytes == 0


def test_damaged_file_of_the_same_name_is_kept(hub: Hub, folder: Path, watch) -> None:
    folder.mkdir()
    damaged = bytearray(content(1))
    damaged[HALF] ^= 1
    (folder / "model1-Q4_0.gguf").write_bytes(bytes(damaged))
    watched = watch()
    done = watched.wait_for_phase(watched.queue.add(source(1)), Phase.DONE)
    assert done.path == folder / "maker_model1" / "model1-Q4_0.gguf"
    assert done.path.read_bytes() == content(1)
    assert (folder / "model1-Q4_0.gguf").read_bytes() == bytes(damaged)


def test_a_direct_link_needs_no_repository(hub: Hub, folder: Path, watch) -> None:
    hub.put("files/plain.gguf", content(7), hashed=False)
    link = Source("", "", "plain.gguf", url=f"{hub.endpoint}/files/plain.gguf")
    watched = watch()
    done = watched.wait_for_phase(watched.queue.add(link), Phase.DONE)
    assert (folder / "plain.gguf").read_bytes() == content(7)
    assert (done.repository, done.url) == ("", link.url)
    assert done.note == "Not verified: the server gives no checksum."


@pytest.mark.parametrize(
    "file",
    ["../../evil.gguf", "/etc/evil.gguf", "a/../../evil.gguf", "..\\evil.gguf", "C:\\evil.gguf"],
)
def test_file_names_cannot_leave_the_folder(hub: Hub, folder: Path, watch, file: str) -> None:
    hub.hub_faults.append(Fault(status=404))
    watched = watch()
    id = watched.queue.add(Source("maker/evil", file=file, folder="../outside"))
    failed = watched.wait_for_phase(id, Phase.FAILED)
    assert failed.path == folder / "outside" / "evil.gguf"


@pytest.mark.parametrize("file", ["", "model.bin", "model.gguf.exe", "x-00003-of-00002.gguf"])
def test_other_file_types_are_refused(hub: Hub, watch, file: str) -> None:
    watched = watch()
    with pytest.raises(HubError):
        watched.queue.add(Source("maker/model", file=file))
    assert watched.queue.all() == ()


def test_running_downloads_reserve_disk_space(hub: Hub, watch) -> None:
    watched = watch(free=lambda folder: SIZE + HALF + 1_000)
    stalled_half_way(hub, watched)
    second = watched.queue.add(source(2))
    watched.wait_for_phase(second, Phase.DONE)  # half a file is reserved, a whole one is free
    watched.wait_for_phase(watched.queue.add(source(3)), Phase.DONE)


def test_reserved_disk_space_is_not_used_twice(hub: Hub, watch) -> None:
    watched = watch(free=lambda folder: SIZE + 100_000)
    stalled_half_way(hub, watched)
    second = watched.queue.add(source(2))
    failed = watched.wait_for_phase(second, Phase.FAILED)
    assert failed.error.startswith("Not enough disk space: ")


def test_changed_endpoint_applies_to_the_next_start(hub: Hub, folder: Path, watch) -> None:
    watched = watch(endpoint="https://hub.invalid")
    watched.queue.set_endpoint(hub.endpoint)
    watched.wait_for_phase(watched.queue.add(source(1)), Phase.DONE)


def test_unsafe_endpoint_fails_the_download(watch) -> None:
    watched = watch()
    watched.queue.set_endpoint("http://hub.invalid")
    failed = watched.wait_for_phase(watched.queue.add(source(1)), Phase.FAILED)
    assert failed.error == "The address is not secure."


def test_invalid_proxy_is_refused(watch) -> None:
    watched = watch()
    with pytest.raises(WebError):
        watched.queue.set_proxy("socks5://127.0.0.1:1")


def test_unknown_ids_are_ignored(watch) -> None:
    watched = watch()
    for call in (
        watched.queue.pause,
        watched.queue.resume,
        watched.queue.retry,
        watched.queue.cancel,
    ):
        call(99)
    assert watched.queue.all() == ()


def test_close_does_not_wait_for_a_hanging_server(hub: Hub, watch) -> None:
    watched = watch(limits=replace(QUICK, stall_seconds=3600, retry_seconds=3600))
    hub.faults += [Fault(stall_after=0), Fault(status=500)]
    first, second = watched.queue.add(source(1)), watched.queue.add(source(2))
    assert hub.stalled.wait(TIMEOUT_SECONDS)
    watched.wait_for(lambda one: one.phase is Phase.WAITING)
    watched.queue.close()
    assert [t.name for t in threading.enumerate() if t.name.startswith("download")] == []
    assert {first, second} == {one.id for one in watched.queue.all()}


def test_unwritable_folder_fails_the_download(
    hub: Hub, folder: Path, watch, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("not a folder", encoding="utf-8")
    watched = watch()
    failed = watched.wait_for_phase(watched.queue.add(source(1)), Phase.FAILED)
    assert failed.error.startswith("model1-Q4_0.gguf could not be written: ")
    watched.queue.close()
    assert "the list of downloads could not be saved" in caplog.text


def test_a_journal_that_cannot_be_written_yet_blocks_nobody(
    watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def wait(folder: Path, rows: object) -> None:
        entered.set()
        assert go_on.wait(TIMEOUT_SECONDS)

    monkeypatch.setattr("app.downloads.queue.write_rows", wait)
    watched = watch()
    id = watched.queue.add(source(1))
    assert entered.wait(TIMEOUT_SECONDS)
    asked = threading.Thread(target=lambda: (watched.queue.pause(id), watched.queue.all()))
    asked.start()
    asked.join(TIMEOUT_SECONDS / 2)
    assert not asked.is_alive()
    go_on.set()
