"""Page store beside other processes: concurrent saves, cleanups and reads, and kill -9."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import crash_snapshot
from engine import snapshots_folder, snapshots_size
from engine.state.disk.atomic import folder_lock
from engine.state.disk.store import PageStore
from saved_pages import KEY, MemoryPage, Saves, find, memory_pages, restored

TIMEOUT_SECONDS = 60


def test_saves_survive_3_kills() -> None:
    kills = crash_snapshot.measure(3, seed=1)
    assert all(map(crash_snapshot.is_sound, kills)), kills
    assert sum(kill.restored_tokens for kill in kills)
    assert sum(kill.evictions for kill in kills)


@pytest.mark.slow
def test_saves_survive_30_kills() -> None:
    kills = crash_snapshot.measure(30, seed=2)
    assert all(map(crash_snapshot.is_sound, kills)), kills
    assert sum(kill.leftovers for kill in kills), "no kill interrupted a save"


def test_nothing_is_deleted_that_a_save_in_progress_has_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("engine.state.disk.store._CLEANUP_SECONDS", 0.1)
    monkeypatch.setattr("engine.state.disk.store._SAVE_SECONDS", 0.1)  # on Windows saves exclude
    tokens = list(range(1000))
    written, go = threading.Event(), threading.Event()

    class LastPage(MemoryPage):
        def parts(self) -> list[memoryview | None]:
            written.set()
            assert go.wait(TIMEOUT_SECONDS)
            return super().parts()

    pages = memory_pages(tokens)
    pages[-1] = LastPage(KEY, tokens, 3, (True,))
    store = PageStore(snapshots_folder())
    saver = threading.Thread(
        target=store.save,
        args=("one", KEY, {}, tokens, pages, {}),
        kwargs={"budget_bytes": 1 << 40},
    )
    saver.start()
    assert written.wait(TIMEOUT_SECONDS)
    other = PageStore(snapshots_folder())
    before = snapshots_size()
    assert before > 3000
    assert other.collect(0.1) == 0
    result = Saves(other).save([9] * 300, "two", budget=1)
    assert result.total_bytes == snapshots_size() == before + result.bytes_written
    go.set()
    saver.join()
    (one,) = [saved for saved in other.sequences() if saved.belongs_to("one")]
    assert restored(other, one) == 1000
    assert restored(other, find(other, result)) == 300
    again = Saves(other).save([9] * 300, "two", budget=1)
    assert again.evicted == 1
    assert again.total_bytes == snapshots_size() < before


def test_shared_and_exclusive_locks(tmp_path: Path) -> None:
    def lock(*, exclusive: bool) -> bool:
        with folder_lock(tmp_path, exclusive=exclusive, seconds=0) as locked:
            return locked

    assert lock(exclusive=True)
    with folder_lock(tmp_path, exclusive=True, seconds=0):
        assert not lock(exclusive=True)
        assert not lock(exclusive=False)
    with folder_lock(tmp_path, exclusive=False, seconds=0):
        assert not lock(exclusive=True)
        assert lock(exclusive=False)
    assert lock(exclusive=True)


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    code = (
        "from engine.state.disk.atomic import folder_lock; from pathlib import Path; import time\n"
        f"with folder_lock(Path({str(tmp_path)!r}), exclusive=True, seconds=0) as locked:\n"
        "    print(locked, flush=True); time.sleep(600)"
    )
    root = Path(__file__).parents[4]
    child = subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "True\n"
    with folder_lock(tmp_path, exclusive=False, seconds=0) as locked:
        assert not locked
    child.kill()
    child.wait()
    child.stdout.close()
    with folder_lock(tmp_path, exclusive=True, seconds=5) as locked:
        assert locked


def test_processes_and_threads_save_evict_and_read_side_by_side() -> None:
    """Two children and two threads work on one folder; whatever is restored is right."""
    folder = snapshots_folder()
    children = [
        subprocess.Popen(
            [sys.executable, crash_snapshot.__file__, "--child", str(folder), str(seed)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    failures: list[BaseException] = []
    tokens = [0]

    def work(seed: int) -> None:
        chance, store = random.Random(seed), PageStore(folder)
        try:
            for _ in range(12):
                ids = crash_snapshot.tokens_of(chance.randrange(4), chance.randint(1, 1500))
                saves = Saves(store, crash_snapshot.KEY, crash_snapshot.WINDOWS)
                saves.save(ids, str(seed), budget=crash_snapshot.BUDGET_BYTES)
                for saved in chance.sample(found := store.sequences(), min(3, len(found))):
                    tokens[0] += restored(store, saved, crash_snapshot.WINDOWS)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for child in children:
        assert child.stdout is not None
        with child.stdout:
            done = [child.stdout.readline() for _ in range(4)]  # "ready", and saves as they end
            assert all(done), "a child has failed"
            child.kill()
            child.wait()
    assert not failures
    assert tokens[0] > 10_000
    store = PageStore(folder)
    assert not crash_snapshot.unreferenced(folder)
    for saved in store.sequences():
        got = restored(store, saved, crash_snapshot.WINDOWS)
        is_evicted = bool(saved.metadata)  # memory may have had the beginning
        assert got == len(saved.tokens) or is_evicted
