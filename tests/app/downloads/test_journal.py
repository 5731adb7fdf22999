"""Download journal: the queue after a restart, with lost and invalid files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.downloads.queue import Phase
from hostile_hub import Fault, Hub
from queue_recorder import HALF, SIZE, model_files, source, stalled_half_way


def test_quit_keeps_the_part_and_the_next_start_lists_it_paused(
    hub: Hub, folder: Path, watch
) -> None:
    first = watch()
    stalled_half_way(hub, first)
    first.queue.add(source(2))
    first.queue.close()
    told = len(first.reports)
    assert model_files(folder) == ["model1-Q4_0.gguf.part"] or len(model_files(folder)) == 2
    hub.released.set()

    second = watch()
    kept = second.queue.all()
    assert {one.phase for one in kept} <= {Phase.PAUSED}
    assert kept[0].done_bytes == HALF
    assert kept[0].size_bytes == SIZE + 1
    for one in kept:
        second.queue.resume(one.id)
        second.wait_for_phase(one.id, Phase.DONE)
    assert model_files(folder) == ["model1-Q4_0.gguf", "model2-Q4_0.gguf"]
    assert len(first.reports) == told, "a closed queue tells nothing"


def test_start_with_resume_restarts_running_downloads(hub: Hub, folder: Path, watch) -> None:
    first = watch()
    stalled_half_way(hub, first)
    first.queue.close()
    hub.released.set()
    second = watch(resume=True)
    second.wait_for_phase(second.queue.all()[0].id, Phase.DONE)
    assert hub.sent_bytes == SIZE + 1
    assert model_files(folder) == ["model1-Q4_0.gguf"]


def test_paused_and_failed_stay_as_they_were(hub: Hub, watch) -> None:
    first = watch()
    hub.hub_faults.append(Fault(status=404))
    failed = first.queue.add(source(2))
    first.wait_for_phase(failed, Phase.FAILED)
    paused = stalled_half_way(hub, first)
    first.queue.pause(paused)
    first.wait_for_phase(paused, Phase.PAUSED)
    first.queue.close()
    second = watch(resume=True)
    states = {one.file: (one.phase, one.error) for one in second.queue.all()}
    assert states == {
        "model2-Q4_0.gguf": (Phase.FAILED, "There is no such file on 127.0.0.1."),
        "model1-Q4_0.gguf": (Phase.PAUSED, ""),
    }


def test_finished_downloads_are_not_listed_after_a_restart(hub: Hub, watch) -> None:
    first = watch()
    first.wait_for_phase(first.queue.add(source(1)), Phase.DONE)
    first.queue.close()
    assert watch().queue.all() == ()


def test_progress_after_a_crash_comes_from_the_part_file(hub: Hub, folder: Path, watch) -> None:
    first = watch()
    stalled_half_way(hub, first)
    first.queue.close()
    hub.released.set()
    stored = json.loads((folder / "downloads.json").read_text(encoding="utf-8"))
    stored["downloads"][0]["done"] = {"model1-Q4_0.gguf": 0}  # as stored when the transfer started
    (folder / "downloads.json").write_text(json.dumps(stored), encoding="utf-8")
    (kept,) = watch().queue.all()
    assert kept.done_bytes == HALF


def test_deleted_part_file_has_no_progress(hub: Hub, folder: Path, watch) -> None:
    first = watch()
    stalled_half_way(hub, first)
    first.queue.close()
    hub.released.set()
    (folder / "model1-Q4_0.gguf.part").unlink()
    (kept,) = watch().queue.all()
    assert kept.done_bytes == 0


def test_lost_journal_is_rebuilt_from_sidecars(hub: Hub, folder: Path, watch) -> None:
    first = watch()
    stalled_half_way(hub, first)
    first.queue.close()
    hub.released.set()
    (folder / "downloads.json").unlink()
    second = watch()
    (found,) = second.queue.all()
    assert (found.phase, found.repository) == (Phase.PAUSED, "maker/model1")
    second.queue.resume(found.id)
    second.wait_for_phase(found.id, Phase.DONE)
    assert hub.sent_bytes == SIZE + 1


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "\x00\xff",
        "[]",
        '{"downloads": 5}',
        '{"downloads": [5, {}, {"source": {}}]}',
        '{"downloads": [{"source": {"file": "a.gguf", "repository": "a/b"}, "path": "../a.gguf"}]}',
        '{"downloads": [{"source": {"file": "a.gguf", "repository": "a/b"}, "path": "/etc/a.gguf"}]}',
        '{"downloads": [{"source": {"file": "a.gguf", "repository": "a/b"}, "path": "a.exe"}]}',
        '{"downloads": [{"source": {"file": "a.gguf"}, "path": "a.gguf"}]}',
        '{"downloads": [{"source": {"file": "a-00005-of-00002.gguf", "repository": "a/b"}, '
        '"path": "a.gguf"}]}',
        "[" * 100_000,
    ],
)
def test_invalid_journal_is_ignored(folder: Path, watch, stored: str) -> None:
    folder.mkdir()
    (folder / "downloads.json").write_text(stored, encoding="latin-1")
    assert watch().queue.all() == ()


def test_journal_is_plain_json(hub: Hub, folder: Path, watch) -> None:
    watched = watch()
    stalled_half_way(hub, watched)
    watched.queue.close()
    (row,) = json.loads((folder / "downloads.json").read_text(encoding="utf-8"))["downloads"]
    assert (row["path"], row["phase"]) == ("model1-Q4_0.gguf", "queued")
