"""Models with a picture encoder: one download of both files, under a name that tells the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.downloads.queue import Download, Phase, Source
from app.net.hub import Piece
from hostile_hub import Fault, Hub, model_bytes
from queue_recorder import QUICK, QueueRecorder, model_files

MODEL, ENCODER = model_bytes(90_000, 11), model_bytes(60_000, 12)
REPOSITORY, LIST = "maker/sees", "/api/models/maker/sees/tree/main"


def listed(hub: Hub, *names: str) -> None:
    """Answer the request for the files of the repository."""
    rows = []
    for name in names:
        stored = hub.files[f"{REPOSITORY}/{name}"]
        large = {"oid": stored.sha256, "size": len(stored.content)}
        rows.append({"type": "file", "path": name, "size": large["size"], "lfs": large})
    hub.api[LIST] = Fault(status=200, body=json.dumps(rows).encode())


@pytest.fixture
def seeing(hub: Hub) -> Hub:
    """A repository with two formats of a model and encoders of three formats."""
    names = {"Sees-4B-Q4_K_M.gguf": MODEL, "Sees-4B-Q8_0.gguf": model_bytes(95_000, 13)}
    encoders = {f"mmproj-{one}.gguf": ENCODER + one.encode() for one in ("F16", "BF16", "F32")}
    for name, content in (names | encoders).items():
        hub.put(f"{REPOSITORY}/{name}", content)
    listed(hub, *names, *encoders)
    return hub


def pair(file: str = "Sees-4B-Q4_K_M.gguf", encoder: str = "mmproj-F16.gguf") -> Source:
    return Source(REPOSITORY, file=file, encoder=Piece(encoder))


def finished(watched: QueueRecorder, source: Source) -> Download:
    return watched.wait_for_phase(watched.queue.add(source), Phase.DONE)


def test_a_model_and_its_encoder_are_one_download(seeing: Hub, folder: Path, watch) -> None:
    watched = watch()
    done = finished(watched, pair())
    assert (done.file, done.lacking) == ("Sees-4B-Q4_K_M.gguf", "")
    assert done.done_bytes == done.size_bytes == len(MODEL) + len(ENCODER) + len("F16")
    assert done.sha256 == seeing.files[f"{REPOSITORY}/{done.file}"].sha256
    assert {one.size_bytes for one in watched.reports if one.done_bytes} == {done.size_bytes}
    assert (folder / "Sees-4B-Q4_K_M.gguf").read_bytes() == MODEL
    assert (folder / "Sees-4B.mmproj-F16.gguf").read_bytes() == ENCODER + b"F16"
    fetched = [request.path.rpartition("/")[2] for request in seeing.store_requests()]
    assert fetched == ["Sees-4B-Q4_K_M.gguf", "mmproj-F16.gguf"], "the model is of use sooner"


def test_another_format_of_the_model_shares_its_encoder(seeing: Hub, folder: Path, watch) -> None:
    watched = watch()
    finished(watched, pair())
    finished(watched, pair("Sees-4B-Q8_0.gguf"))
    assert model_files(folder) == [
        "Sees-4B-Q4_K_M.gguf",
        "Sees-4B-Q8_0.gguf",
        "Sees-4B.mmproj-F16.gguf",
    ]
    assert len(seeing.store_requests()) == 3


def test_encoders_of_other_repositories_with_the_same_name_live_side_by_side(
    seeing: Hub, folder: Path, watch
) -> None:
    """Every repository calls it mmproj-F16.gguf; some publish one model by the same name."""
    other = model_bytes(61_000, 21)
    seeing.put("else/copy/Sees-4B-Q5_K_M.gguf", model_bytes(91_000, 20))
    seeing.put("else/copy/mmproj-F16.gguf", other)
    seeing.put("else/tuned/Tuned-4B-Q4_K_M.gguf", model_bytes(92_000, 22))
    seeing.put("else/tuned/mmproj-F16.gguf", other + b"tuned")
    watched = watch()
    finished(watched, pair())
    encoder = Piece("mmproj-F16.gguf")
    finished(watched, Source("else/copy", file="Sees-4B-Q5_K_M.gguf", encoder=encoder))
    finished(watched, Source("else/tuned", file="Tuned-4B-Q4_K_M.gguf", encoder=encoder))
    assert (folder / "Sees-4B.mmproj-F16.gguf").read_bytes() == ENCODER + b"F16"
    assert (folder / "Sees-4B-Q5_K_M.mmproj-F16.gguf").read_bytes() == other
    assert (folder / "Tuned-4B.mmproj-F16.gguf").read_bytes() == other + b"tuned"


def test_two_downloads_at_once_never_write_one_encoder(seeing: Hub, folder: Path, watch) -> None:
    seeing.faults += [Fault(), Fault(stall_after=30_000)]
    watched = watch()
    first = watched.queue.add(pair())
    watched.wait_for(lambda one: one.id == first and one.done_bytes == len(MODEL) + 30_000)
    finished(watched, pair("Sees-4B-Q8_0.gguf"))
    assert (folder / "Sees-4B-Q8_0.mmproj-F16.gguf").read_bytes() == ENCODER + b"F16"
    watched.queue.cancel(first)
    watched.wait_for_phase(first, Phase.CANCELLED)
    seeing.released.set()
    watched.queue.close()
    assert model_files(folder) == [
        "Sees-4B-Q4_K_M.gguf",
        "Sees-4B-Q8_0.gguf",
        "Sees-4B-Q8_0.mmproj-F16.gguf",
    ], "a model that has arrived stays: it may be in use"


def test_a_split_model_in_a_folder_has_its_encoder_beside_the_first_part(
    hub: Hub, folder: Path, watch
) -> None:
    for number in (1, 2):
        hub.put(f"{REPOSITORY}/Q4_K_M/Big-0000{number}-of-00002.gguf", model_bytes(70_000, number))
    hub.put(f"{REPOSITORY}/mmproj/mmproj-Big-BF16.gguf", ENCODER)
    watched = watch()
    done = finished(
        watched, pair("Q4_K_M/Big-00001-of-00002.gguf", encoder="mmproj/mmproj-Big-BF16.gguf")
    )
    assert done.done_bytes == done.size_bytes == 140_000 + len(ENCODER)
    assert model_files(folder) == [
        "Big-00001-of-00002.gguf",
        "Big-00002-of-00002.gguf",
        "Big.mmproj-BF16.gguf",
    ]


def test_an_interrupted_download_still_knows_its_encoder(seeing: Hub, folder: Path, watch) -> None:
    seeing.faults += [Fault(), Fault(stall_after=30_000)]
    first = watch()
    id = first.queue.add(pair())
    first.wait_for(lambda one: one.id == id and one.done_bytes == len(MODEL) + 30_000)
    assert (folder / "Sees-4B-Q4_K_M.gguf").read_bytes() == MODEL, "of use already"
    first.queue.close()
    seeing.released.set()
    second = watch()
    (kept,) = second.queue.all()
    assert (kept.phase, kept.done_bytes) == (Phase.PAUSED, len(MODEL) + 30_000)
    second.queue.resume(kept.id)
    second.wait_for_phase(kept.id, Phase.DONE)
    assert (folder / "Sees-4B.mmproj-F16.gguf").read_bytes() == ENCODER + b"F16"
    assert seeing.sent_bytes == len(MODEL) + len(ENCODER) + len("F16"), "nothing comes twice"


def test_a_repository_without_the_encoder_gives_the_model_and_says_so(
    seeing: Hub, folder: Path, watch
) -> None:
    done = finished(watch(), pair(encoder="mmproj-gone.gguf"))
    assert done.lacking == "Its repository has no mmproj-gone.gguf: it cannot see pictures."
    assert done.done_bytes == done.size_bytes == len(MODEL)
    assert model_files(folder) == ["Sees-4B-Q4_K_M.gguf"]


def test_an_encoder_with_a_wrong_hash_is_refused_and_the_model_stays(
    seeing: Hub, folder: Path, watch
) -> None:
    """The list names the hash, the store sends something else of the same size."""
    size = len(ENCODER) + 3
    seeing.faults += [Fault(), *[Fault(content=model_bytes(size, 99)) for _ in range(3)]]
    watched = watch()
    id = watched.queue.add(pair())
    assert "SHA-256 differs" in watched.wait_for_phase(id, Phase.FAILED).error
    assert (folder / "Sees-4B-Q4_K_M.gguf").read_bytes() == MODEL
    assert not (folder / "Sees-4B.mmproj-F16.gguf").exists()
    seeing.faults.clear()
    watched.queue.retry(id)
    watched.wait_for_phase(id, Phase.DONE)
    assert (folder / "Sees-4B.mmproj-F16.gguf").read_bytes() == ENCODER + b"F16"


def test_the_disk_must_have_room_for_both_files(seeing: Hub, watch) -> None:
    room = len(MODEL) + len(ENCODER) - 1
    watched = watch(free=lambda path: room, limits=QUICK)
    id = watched.queue.add(pair())
    failed = watched.wait_for_phase(id, Phase.FAILED)
    assert failed.error.startswith("Not enough disk space")
    assert failed.done_bytes == 0, "not only when the encoder's turn comes"


def test_pictures_are_added_to_an_installed_model_under_its_name(
    seeing: Hub, folder: Path, watch
) -> None:
    watched = watch()
    finished(watched, Source(REPOSITORY, file="Sees-4B-Q4_K_M.gguf", folder="mine"))
    added = Source(
        REPOSITORY, file="mmproj-F16.gguf", folder="mine", name="Sees-4B.mmproj-F16.gguf"
    )
    assert finished(watched, added).path == folder / "mine" / "Sees-4B.mmproj-F16.gguf"
    assert finished(watched, added).path.read_bytes() == ENCODER + b"F16"
    assert len(seeing.store_requests()) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"encoder_name": "../../outside.gguf"},
        {"pieces": [{"file": "Sees-4B-Q4_K_M.gguf"}]},
        {"encoder_name": 5},
    ],
)
def test_a_damaged_journal_never_writes_an_encoder_elsewhere(
    seeing: Hub, folder: Path, watch, change: dict[str, object]
) -> None:
    first = watch()
    seeing.faults.append(Fault(stall_after=30_000))
    first.queue.add(pair())
    first.wait_for(lambda one: one.done_bytes == 30_000)
    first.queue.close()
    seeing.released.set()
    stored = json.loads((folder / "downloads.json").read_bytes())
    stored["downloads"][0] |= change
    (folder / "downloads.json").write_text(json.dumps(stored), encoding="utf-8")
    second = watch(resume=True)
    for one in second.queue.all():
        second.queue.resume(one.id)
        second.wait_for_phase(one.id, Phase.DONE)
    second.queue.close()
    assert not list(folder.parent.parent.glob("outside*"))
    assert (folder / "Sees-4B-Q4_K_M.gguf").read_bytes() == MODEL


def test_a_cancelled_download_deletes_nothing_that_was_there_before(
    seeing: Hub, folder: Path, watch
) -> None:
    first = watch()
    finished(first, pair())
    first.queue.close()
    (folder / "downloads.json").unlink()
    second = watch()
    again = finished(second, pair())
    second.queue._delete_files(second.queue._entries[again.id])
    assert model_files(folder) == ["Sees-4B-Q4_K_M.gguf", "Sees-4B.mmproj-F16.gguf"]
