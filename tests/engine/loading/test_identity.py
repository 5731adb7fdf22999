"""File hashes: correct, and cached only while the files are unchanged."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

import tiny
from engine import Cancelled, snapshots_folder
from engine.loading.identity import sha256, stamps
from engine_bench import Bench

OLD = 1_600_000_000_000_000_000  # nanoseconds: old enough to be cached
STEP = 2_000_000_000  # of the time of files on some memory sticks


@pytest.fixture
def hash_cache(tmp_path: Path) -> Path:
    return tmp_path / "data" / "hashes.json"


def written(path: Path, contents: bytes, modified_ns: int = OLD) -> Path:
    path.write_bytes(contents)
    os.utime(path, ns=(modified_ns, modified_ns))
    return path


def hashed(hash_cache: Path) -> dict[str, object]:
    """The files whose hash is kept: also the first one, if it was old enough by then."""
    return json.loads(hash_cache.read_bytes()) if hash_cache.exists() else {}


def test_several_files_have_one_hash_of_their_hashes(tmp_path: Path, hash_cache: Path) -> None:
    one, two = written(tmp_path / "1", b"one" * 500_000), written(tmp_path / "2", b"two")
    hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (one, two)]
    assert sha256([one], hash_cache) == hashes[0]
    both = sha256([one, two], hash_cache)
    assert both == hashlib.sha256("".join(hashes).encode()).hexdigest()
    assert sha256([two, one], hash_cache) != both


def test_an_unchanged_file_is_hashed_once(tmp_path: Path, hash_cache: Path) -> None:
    path = written(tmp_path / "model", b"weights")
    first = sha256([path], hash_cache)

    def refuse() -> None:
        raise Cancelled

    assert sha256([path], hash_cache, refuse) == first


@pytest.mark.parametrize("change", ["contents", "size", "time", "another file", "contents alone"])
def test_a_changed_file_is_hashed_again(change: str, tmp_path: Path, hash_cache: Path) -> None:
    path = written(tmp_path / "model", b"weights")
    before, first = stamps([path]), sha256([path], hash_cache)
    match change:
        case "contents":
            written(path, b"Weights", OLD + STEP)
        case "size":
            written(path, b"weights and more")
        case "time":
            os.utime(path, ns=(OLD + STEP, OLD + STEP))
        case "contents alone":  # as a program leaves them that copies times too
            written(path, b"Weights")
        case _:  # another file of the same size and time replaces it
            os.replace(written(tmp_path / "other", b"WEIGHTS"), path)
    assert (stamps([path]) == before) == (change == "contents alone")
    assert sha256([path], hash_cache) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (sha256([path], hash_cache) == first) == (change == "time")


def test_the_hash_of_a_recently_written_file_is_not_cached(
    tmp_path: Path, hash_cache: Path
) -> None:
    (path := tmp_path / "model").write_bytes(b"weights")
    sha256([path], hash_cache)
    assert not hash_cache.exists()


@pytest.mark.parametrize(
    "contents",
    ["", "[]", "{", "[" * 100_000, '{"PATH": 3}', '{"PATH": [1, 2, 3, "x"]}', "\ud800", "1" * 5000],
)
def test_a_damaged_hash_cache_is_ignored(contents: str, tmp_path: Path, hash_cache: Path) -> None:
    path = written(tmp_path / "model", b"weights")
    hash_cache.parent.mkdir()
    hash_cache.write_text(
        contents.replace("PATH", str(path)), encoding="utf-8", errors="surrogatepass"
    )
    wanted = hashlib.sha256(b"weights").hexdigest()
    assert sha256([path], hash_cache) == wanted
    assert json.loads(hash_cache.read_text(encoding="utf-8"))[str(path)][3] == wanted


def test_an_unwritable_hash_cache_is_no_error(tmp_path: Path) -> None:
    path = written(tmp_path / "model", b"weights")
    assert sha256([path], path / "hashes.json")
    assert sha256([path], tmp_path)


def test_the_hash_cache_is_bounded(tmp_path: Path, hash_cache: Path) -> None:
    for number in range(300):
        sha256([written(tmp_path / str(number), bytes([number % 256]))], hash_cache)
    entries = json.loads(hash_cache.read_text(encoding="utf-8"))
    assert len(entries) == 256
    assert str(tmp_path / "299") in entries
    assert not list(hash_cache.parent.glob(".*"))


def test_hashing_can_be_cancelled(tmp_path: Path, hash_cache: Path) -> None:
    def cancel() -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        sha256([written(tmp_path / "model", b"weights")], hash_cache, cancel)
    with pytest.raises(FileNotFoundError):
        sha256([tmp_path / "nowhere"], hash_cache)


def test_a_model_is_hashed_only_for_a_matching_snapshot(tmp_path: Path) -> None:
    bench = Bench()
    bench.load(tiny.write(tmp_path / "first.gguf", context=1024))
    bench.generate(1, "something worth keeping", max_tokens=3)
    bench.save(2)
    other = tiny.write(tmp_path / "other.gguf", seed=5, context=1024)
    os.utime(other, ns=(OLD, OLD))
    hash_cache = snapshots_folder().parent / "hashes.json"
    bench.load(other, request=3)
    bench.generate(4, "never said before, and of some length all the same", max_tokens=3)
    assert str(other) not in hashed(hash_cache)
    bench.load_snapshot(5, "something worth keeping, and more")
    assert str(other) in hashed(hash_cache)
    bench.engine.stop()
