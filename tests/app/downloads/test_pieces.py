"""Split models: one download of several files, the first piece last."""

from __future__ import annotations

from pathlib import Path

from app.downloads.queue import Phase, Source
from app.net.hub import Piece
from hostile_hub import Fault, Hub, model_bytes
from queue_recorder import TIMEOUT_SECONDS, model_files


def split(hub: Hub) -> list[bytes]:
    """A model in three pieces on the hub."""
    pieces = [model_bytes(200_000 + number, number) for number in (1, 2, 3)]
    for number, piece in enumerate(pieces, 1):
        hub.put(f"maker/split/big-0000{number}-of-00003.gguf", piece)
    return pieces


def test_split_model_is_one_download_and_its_first_piece_comes_last(
    hub: Hub, folder: Path, watch
) -> None:
    pieces = split(hub)
    watched = watch()
    id = watched.queue.add(Source("maker/split", file="big-00002-of-00003.gguf"))
    done = watched.wait_for_phase(id, Phase.DONE)
    assert done.file == "big-00001-of-00003.gguf"
    assert done.done_bytes == done.size_bytes == sum(map(len, pieces))
    there = [folder / f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert [path.read_bytes() for path in there] == pieces
    running = [one for one in watched.reports if one.phase is Phase.RUNNING]
    assert {one.size_bytes for one in running} == {sum(map(len, pieces))}, "known from the start"
    assert [one.path.split("big-")[1][:5] for one in hub.store_requests()] == [
        "00002",
        "00003",
        "00001",
    ]


def test_split_model_resumes_with_its_finished_pieces(hub: Hub, folder: Path, watch) -> None:
    pieces = split(hub)
    hub.api["/api/models/maker/split/tree/main"] = Fault(
        status=500
    )  # then each response has a size
    hub.faults += [Fault(), Fault(stall_after=100_000)]
    first = watch()
    id = first.queue.add(Source("maker/split", file="big-00001-of-00003.gguf"))
    first.wait_for(lambda one: one.id == id and one.done_bytes == len(pieces[1]) + 100_000)
    first.queue.close()
    hub.released.set()
    second = watch(resume=True)
    (kept,) = second.queue.all()
    second.wait_for_phase(kept.id, Phase.DONE)
    assert hub.sent_bytes == sum(map(len, pieces))
    assert (folder / "big-00003-of-00003.gguf").read_bytes() == pieces[2]


def test_cancelling_a_split_model_deletes_its_finished_pieces(
    hub: Hub, folder: Path, watch
) -> None:
    split(hub)
    hub.faults += [Fault(), Fault(stall_after=100_000)]
    watched = watch()
    id = watched.queue.add(Source("maker/split", file="big-00001-of-00003.gguf"))
    assert hub.stalled.wait(TIMEOUT_SECONDS)
    watched.queue.cancel(id)
    watched.wait_for_phase(id, Phase.CANCELLED)
    watched.queue.close()
    assert model_files(folder) == []


def test_invalid_piece_fails_the_whole_download(hub: Hub, folder: Path, watch) -> None:
    split(hub)
    wrong = (Piece("big-00001-of-00003.gguf"), Piece("big-00002-of-00003.gguf", 0, "0" * 64))
    watched = watch()
    id = watched.queue.add(Source("maker/split", file=wrong[0].file, pieces=wrong))
    assert "SHA-256 differs" in watched.wait_for_phase(id, Phase.FAILED).error
    assert not (folder / "big-00001-of-00003.gguf").exists()
