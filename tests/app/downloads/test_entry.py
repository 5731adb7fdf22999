"""Progress, speed and remaining time of a download, with a fake clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.downloads.entry import Download, Entry, Run
from app.downloads.policy import Phase
from app.downloads.transfer import FileDownload
from app.net.hub import HUB, HubError, Piece, Source

MB = 1_000_000


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    """A running download of 100 MB."""
    source = Source("maker/model", "main", "model.gguf", 100 * MB)
    made = Entry(1, source, tmp_path / "model.gguf", Phase.RUNNING)
    job = FileDownload("https://hub.invalid/x", made.path, size_bytes=100 * MB)
    made.run = Run(job=job)
    return made


def at(entry: Entry, now: float, done: int) -> Download:
    """The download as shown when `done` bytes were received at `now`."""
    assert entry.run is not None
    assert entry.run.job is not None
    entry.run.job.done_bytes = done
    entry.sample(now)
    return entry.snapshot(HUB)


def test_speed_is_a_moving_average(entry: Entry) -> None:
    assert at(entry, 0.0, 0).bytes_per_second == 0
    assert at(entry, 1.0, 2 * MB).bytes_per_second == pytest.approx(2 * MB)
    assert at(entry, 2.0, 6 * MB).bytes_per_second == pytest.approx(3 * MB)
    for second in range(3, 10):
        shown = at(entry, second, (6 + 10 * (second - 2)) * MB)
    assert shown.bytes_per_second == pytest.approx(10 * MB), "what was long ago counts no more"
    assert shown.seconds_left == pytest.approx((100 - 76) / 10)


def test_resumed_bytes_do_not_count_as_speed(entry: Entry) -> None:
    assert at(entry, 0.0, 50 * MB).bytes_per_second == 0
    shown = at(entry, 1.0, 51 * MB)
    assert (shown.bytes_per_second, shown.seconds_left) == (pytest.approx(MB), pytest.approx(49))


def test_speed_is_zero_while_stalled(entry: Entry) -> None:
    at(entry, 0.0, 0)
    at(entry, 1.0, 10 * MB)
    assert at(entry, 2.5, 10 * MB).bytes_per_second > 0
    stalled = at(entry, 3.0, 10 * MB)
    assert (stalled.bytes_per_second, stalled.seconds_left) == (0, None)
    assert not entry.sample(3.5), "nothing new to tell"
    assert at(entry, 4.0, 11 * MB).bytes_per_second > 0


def test_restart_does_not_give_negative_speed(entry: Entry) -> None:
    at(entry, 0.0, 50 * MB)
    at(entry, 1.0, 60 * MB)
    assert at(entry, 2.0, 1 * MB).bytes_per_second == 0
    assert at(entry, 3.0, 3 * MB).bytes_per_second == pytest.approx(2 * MB)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.RUNNING])
def test_only_a_running_download_has_speed(entry: Entry, phase: Phase) -> None:
    at(entry, 0.0, 0)
    at(entry, 1.0, 10 * MB)
    entry.phase = phase
    shown = entry.snapshot(HUB)
    assert (shown.bytes_per_second, shown.seconds_left) == (0, None)


def test_unknown_size_has_no_remaining_time(tmp_path: Path) -> None:
    entry = Entry(1, Source("m/n", file="a.gguf"), tmp_path / "a.gguf", Phase.RUNNING)
    entry.run = Run(job=FileDownload("https://hub.invalid/x", entry.path))
    at(entry, 0.0, 0)
    shown = at(entry, 1.0, MB)
    assert (shown.size_bytes, shown.bytes_per_second, shown.seconds_left) == (0, MB, None)


def test_any_piece_name_gives_all_pieces_of_a_split_model(tmp_path: Path) -> None:
    source = Source("m/n", file="x/big-00002-of-00003.gguf")
    entry = Entry(1, source, tmp_path / "big-00001-of-00003.gguf")
    assert [piece.file[-19:-14] for piece in entry.pieces] == ["00001", "00002", "00003"]
    assert entry.key == ("m/n", "main", "x/big-00001-of-00003.gguf")
    assert entry.place(2) == tmp_path / "big-00003-of-00003.gguf"
    assert entry.address(1, HUB) == f"{HUB}/m/n/resolve/main/x/big-00002-of-00003.gguf"


def test_sizes_of_pieces_add_up_once_all_are_known(tmp_path: Path) -> None:
    pieces = [Piece("a-00001-of-00002.gguf", 5), Piece("a-00002-of-00002.gguf")]
    entry = Entry(1, Source("m/n", file=pieces[0].file), tmp_path / "a", pieces=pieces)
    assert entry.size_bytes == 0
    entry.pieces[1] = Piece(pieces[1].file, 6)
    assert entry.size_bytes == 11


@pytest.mark.parametrize(
    "name", ["a-00000-of-00002.gguf", "a-00003-of-00002.gguf", "a-00001-of-99999.gguf"]
)
def test_invalid_piece_numbers_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(HubError):
        Entry(1, Source("m/n", file=name), tmp_path / "a")


def test_a_download_is_of_its_file_and_not_of_one_of_the_same_name(tmp_path: Path) -> None:
    sources = [Source("o/n", "main", f"{folder}/a model.gguf") for folder in ("BF16", "Q4_K_M")]
    shown = Entry(1, sources[0], tmp_path).snapshot("https://hub.invalid")
    assert [shown.is_of(source) for source in sources] == [True, False]
    assert shown.is_of(replace(sources[0], revision="f" * 40))
    assert not shown.is_of(replace(sources[0], repository="o/other"))
    link = Source("", "", "m.gguf", url="https://example.org/m.gguf?key=1")
    assert Entry(2, link, tmp_path).snapshot("https://hub.invalid").is_of(link)
