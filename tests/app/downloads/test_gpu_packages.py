"""Installation of GPU support from a server on this machine, with stand-ins of the packages."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from app.downloads.gpu_packages import (
    GPUInstall,
    TrialError,
    begun_bytes,
    is_begun,
    remove_others,
)
from app.downloads.policy import DownloadError, InstallProgress, InstallStep, Stopped
from app.net.ledger import Purpose
from app.net.offline import gate
from busy_files import BusyFiles
from downloading import QUICK
from engine import WheelList, disk_files, gpu_support, read_gpu_wheels
from gpu_packages import CUDA, wheels, write_list
from hostile_hub import Fault, Hub

MAKER = "pkgs/gpu"
ROOT = Path(__file__).parents[3]
# An installation in a process of its own, with a server in another.
SCRIPT = """
import sys
from pathlib import Path
from app.downloads.gpu_packages import GPUInstall
from app.downloads.policy import Limits
from engine import read_gpu_wheels
GPUInstall(
    Path(sys.argv[1]), read_gpu_wheels(), limits=Limits(margin_bytes=0), trial=lambda path: ""
).run()
"""


@pytest.fixture
def wanted(hub: Hub, tmp_path: Path) -> WheelList:
    return served(hub, tmp_path)


def served(hub: Hub, folder: Path, made: dict[str, bytes] | None = None) -> WheelList:
    """The list of wheels that the server has."""
    made = made or wheels()
    for name, content in made.items():
        hub.put(f"{MAKER}/{name}", content)
    found = read_gpu_wheels(write_list(folder / "wheels.json", made, f"{hub.endpoint}/cdn/{MAKER}"))
    assert found is not None
    return found


def install(folder: Path, wanted: WheelList, **settings: object) -> GPUInstall:
    settings = {"limits": QUICK, "trial": lambda path: "", **settings}
    return GPUInstall(folder, wanted, **settings)  # type: ignore[arg-type]


def is_installed(folder: Path, wanted: WheelList) -> bool:
    """Whether the packages are complete and active, with nothing left of their installation."""
    names = {path.name for path in folder.iterdir()}
    parts = list((folder / "downloads").iterdir())
    whole = (folder / wanted.name / "torch/lib/libtorch_cuda.so").is_file()
    return (
        names == {"active.json", "downloads", wanted.name}
        and gpu_support.active_name(folder) == wanted.name
        and whole
        and not parts
    )


def test_all_is_downloaded_unpacked_tried_and_active(
    folder: Path, wanted: WheelList, hub: Hub
) -> None:
    seen: list[InstallProgress] = []
    tried: list[Path] = []

    def trial(path: Path) -> str:
        tried.append(path)
        assert (path / "torch/__init__.py").is_file()
        assert not gpu_support.active_name(folder), "not before the trial"
        return ""

    install(folder, wanted, report=seen.append, trial=trial).run()
    assert is_installed(folder, wanted)
    assert tried == [folder / wanted.name]
    assert {each.step for each in seen} == {
        InstallStep.DOWNLOADING,
        InstallStep.UNPACKING,
        InstallStep.CHECKING,
    }
    done = [each.done_bytes for each in seen]
    assert done == sorted(done)
    assert done[-1] == wanted.size_bytes == seen[-1].size_bytes
    contacts = [each for each in gate.ledger.all() if each.port == hub.port]
    assert {each.purpose for each in contacts} == {Purpose.GPU_SUPPORT}


def test_the_real_trial_runs_the_packages_in_a_process(folder: Path, wanted: WheelList) -> None:
    GPUInstall(folder, wanted, limits=QUICK).run()
    assert is_installed(folder, wanted)


def test_packages_whose_trial_fails_are_not_used_and_can_be_tried_again(
    folder: Path, wanted: WheelList, hub: Hub
) -> None:
    with pytest.raises(TrialError) as failed:
        install(folder, wanted, trial=lambda path: "no kernel image").run()
    assert failed.value.detail == "no kernel image"
    assert gpu_support.active_name(folder) == ""
    assert is_begun(folder, wanted)
    assert begun_bytes(folder, wanted) == wanted.size_bytes
    asked = len(hub.store_requests())
    install(folder, wanted).run()
    assert len(hub.store_requests()) == asked, "nothing is downloaded again"
    assert is_installed(folder, wanted)


def test_a_wrong_hash_is_refused_and_nothing_is_unpacked(
    folder: Path, wanted: WheelList, hub: Hub
) -> None:
    name = wanted.wheels[0].name
    content = bytearray(hub.files[f"{MAKER}/{name}"].content)
    content[len(content) // 2] ^= 1
    hub.put(f"{MAKER}/{name}", bytes(content))
    with pytest.raises(DownloadError, match="SHA-256") as refused:
        install(folder, wanted).run()
    assert refused.value.remedy == "It was deleted. Try again later."
    assert not list(folder.rglob("*.py"))


def test_a_page_instead_of_a_package_is_refused(folder: Path, wanted: WheelList, hub: Hub) -> None:
    size = wanted.wheels[0].size_bytes
    hub.faults.append(Fault(content=b"<html>" + b" " * (size - 6)))
    with pytest.raises(DownloadError, match="something else"):
        install(folder, wanted).run()


def test_offline_is_said_and_what_is_there_is_used_later(folder: Path, wanted: WheelList) -> None:
    gate.set_offline(True)
    try:
        with pytest.raises(DownloadError, match="offline"):
            install(folder, wanted).run()
    finally:
        gate.set_offline(False)
    install(folder, wanted).run()
    assert is_installed(folder, wanted)


def test_a_server_that_is_gone_is_named(folder: Path, tmp_path: Path) -> None:
    wanted = read_gpu_wheels(write_list(tmp_path / "wheels.json", wheels()))
    assert wanted is not None
    with pytest.raises(DownloadError, match=r"127\.0\.0\.1"):
        install(folder, wanted).run()


def test_too_little_space_is_said_before_anything_is_asked_for(
    folder: Path, wanted: WheelList, hub: Hub
) -> None:
    free = wanted.unpacked_bytes  # but not for a wheel beside it
    with pytest.raises(DownloadError, match="Not enough disk space"):
        install(folder, wanted, free=lambda path: free).run()
    assert not hub.store_requests()


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full")
def test_a_full_disk_while_unpacking_keeps_the_download(
    folder: Path, wanted: WheelList, hub: Hub
) -> None:
    target = folder / f"{wanted.name}.unpacking/torch/lib/libtorch_cuda.so"
    target.parent.mkdir(parents=True)
    target.symlink_to("/dev/full")
    with pytest.raises(DownloadError, match="disk is full"):
        install(folder, wanted).run()
    target.unlink()
    asked = len(hub.store_requests())
    install(folder, wanted).run()
    assert is_installed(folder, wanted)
    again = hub.store_requests()[asked:]
    assert not any(wanted.wheels[0].name in each.path for each in again)


def test_a_stopped_one_goes_on_where_it_was(folder: Path, wanted: WheelList, hub: Hub) -> None:
    half = wanted.wheels[0].size_bytes // 2
    hub.faults.append(Fault(stall_after=half))
    first = install(folder, wanted, limits=replace(QUICK, stall_seconds=20))
    outcome: list[BaseException] = []

    def run() -> None:
        try:
            first.run()
        except Stopped as stopped:
            outcome.append(stopped)

    thread = threading.Thread(target=run)
    thread.start()
    while not any(folder.glob("downloads/*.part")):
        time.sleep(0.01)
    until = time.monotonic() + 10
    while begun_bytes(folder, wanted) < half and time.monotonic() < until:
        time.sleep(0.01)
    first.stop()
    hub.released.set()
    thread.join(10)
    assert len(outcome) == 1
    assert is_begun(folder, wanted)
    install(folder, wanted).run()
    assert is_installed(folder, wanted)
    assert hub.store_requests()[1].headers["Range"] == f"bytes={half}-"


def test_a_part_damaged_by_a_power_cut_is_found(folder: Path, wanted: WheelList, hub: Hub) -> None:
    hub.faults.extend([Fault(), Fault(status=404)])
    with pytest.raises(DownloadError):
        install(folder, wanted).run()  # torch is unpacked, triton is not
    place = folder / f"{wanted.name}.unpacking/torch/cuda.py"
    place.write_bytes(bytes(len(CUDA)))
    with pytest.raises(DownloadError, match="damaged"):
        install(folder, wanted).run()
    install(folder, wanted).run()
    assert is_installed(folder, wanted)
    assert (folder / wanted.name / "torch/cuda.py").read_text(encoding="utf-8") == CUDA


def test_the_packages_of_another_release_take_the_place_of_the_old_ones(
    folder: Path, wanted: WheelList, hub: Hub, tmp_path: Path
) -> None:
    install(folder, wanted).run()
    newer = served(hub, tmp_path, wheels({"torch/cuda.py": CUDA + "\n"}))
    assert newer.name != wanted.name
    assert not is_begun(folder, newer)
    install(folder, newer).run()
    assert gpu_support.active_name(folder) == newer.name
    assert (folder / wanted.name).is_dir(), "a process may use it"
    remove_others(folder, newer.name)
    assert {path.name for path in folder.iterdir()} == {"active.json", newer.name}


def test_removal_leaves_nothing_but_what_is_unfinished(
    folder: Path, wanted: WheelList, hub: Hub
) -> None:
    hub.faults.append(Fault(status=404))
    with pytest.raises(DownloadError):
        install(folder, wanted).run()
    (folder / "old" / "torch").mkdir(parents=True)
    remove_others(folder, wanted=wanted)
    assert {path.name for path in folder.iterdir()} == {"downloads"}
    remove_others(folder)
    assert not list(folder.iterdir())
    remove_others(folder / "nothing")


def test_packages_whose_folder_stays_open_are_not_downloaded_again(
    folder: Path, wanted: WheelList, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BusyFiles(monkeypatch)
    busy.hold(folder / f"{wanted.name}.unpacking", 1000)  # a virus scanner reads it for long
    with pytest.raises(DownloadError, match="could not be written"):
        install(folder, wanted).run()
    asked = len(hub.store_requests())
    busy.hold(folder / f"{wanted.name}.unpacking", 3)
    install(folder, wanted).run()
    assert is_installed(folder, wanted)
    assert len(hub.store_requests()) == asked


def test_what_cannot_be_deleted_keeps_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = BusyFiles(monkeypatch)
    for number in range(8):  # half of them are busy, in whatever order the folder lists them
        (folder / f"{number}.json").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.json").write_bytes(b"")
        busy.hold(folder / f"{number}.json", 1000 * (number % 2))
    monkeypatch.setattr(disk_files.retried, "__defaults__", (0.0, time.sleep))
    remove_others(folder)
    assert {path.name for path in folder.iterdir()} == {f"{odd}.json" for odd in (1, 3, 5, 7)}


def kills(folder: Path, wanted: WheelList, list: Path, count: int, seed: int) -> int:
    """Kill installations at random times until one is done; how many were killed."""
    moments, killed = random.Random(seed), 0
    for _ in range(count):
        child = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, folder],
            cwd=ROOT,
            env={**os.environ, "TOKONOMA_GPU_WHEELS": str(list)},
            stderr=subprocess.DEVNULL,
        )
        until = time.monotonic() + 20
        while not (folder / "downloads").exists() and time.monotonic() < until:
            time.sleep(0.002)  # its imports are of no interest
        try:
            child.wait(moments.uniform(0, 0.6))
            break
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.wait()
            killed += 1
            name = gpu_support.active_name(folder)
            if name:
                assert (folder / name / "torch/lib/libtorch_cuda.so").is_file()
    return killed


@pytest.mark.sweep
@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
@pytest.mark.parametrize("seed", range(4))
def test_kills_at_any_moment_lose_nothing(hub: Hub, tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed).randbytes(3_000_000).hex()  # does not compress well
    wanted = served(hub, tmp_path, wheels({"torch/lib/libtorch_cuda.so": noise}))
    hub.gate = lambda sent: time.sleep(0.01)  # so that the first kill finds it downloading
    folder = tmp_path / "gpu"
    killed = kills(folder, wanted, tmp_path / "wheels.json", 12, seed)
    install(folder, wanted).run()
    assert killed
    assert is_installed(folder, wanted)
    assert (folder / wanted.name / "torch/lib/libtorch_cuda.so").read_text(
        encoding="utf-8"
    ) == noise
