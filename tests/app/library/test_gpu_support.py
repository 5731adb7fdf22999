"""GPU support as the settings page offers, fetches and removes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from app.chat.servers.connections import purpose_words
from app.library.gpu_support import NOTICE, GPUSupportController
from app.net.ledger import Purpose
from app.net.offline import gate
from app.settings.contacts import contacts
from app.settings.table import Settings
from app.state.chat import State
from app.state.gpu import GPUPhase, GPUState, GPUView
from downloading import QUICK
from engine import (
    DeviceFault,
    DeviceInfo,
    DeviceRefusal,
    GPUSupport,
    GPUSupportUse,
    WheelList,
    gpu_support,
    read_gpu_wheels,
)
from gpu_packages import GPU, wheels, write_list
from hostile_hub import Fault, Hub
from stage import until, wait_for_workers

REFUSED = DeviceInfo("cuda", "", refusal=DeviceRefusal(DeviceFault.NO_SUPPORT, "no CUDA"))
USABLE = DeviceInfo("cuda", "NVIDIA H100", 80 << 30, 70 << 30)


class Computer:
    """A computer with a GPU, and the controller that looks at it."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.chat, self.state = State(), GPUState()
        self.folder, self.gpus = folder / "gpu", (GPU,)
        for name, content in wheels().items():
            hub.put(f"pkgs/gpu/{name}", content)
        self.list = write_list(folder / "list.json", wheels(), f"{hub.endpoint}/cdn/pkgs/gpu")
        self.wanted: WheelList | None = read_gpu_wheels(self.list)
        self.used = GPUSupport()
        self.trial = ""
        self.made: list[GPUSupportController] = []

    def start(self, *devices: DeviceInfo) -> GPUView:
        """Start the app and let the engine find devices; what is shown then."""
        controller = GPUSupportController(
            self.chat,
            self.state,
            Settings,
            folder=lambda: self.folder,
            gpus=lambda: self.gpus,
            wanted=lambda: self.wanted,
            used=lambda: self.used,
            trial=lambda path: self.trial,
            limits=QUICK,
        )
        self.made.append(controller)
        self.chat.set_devices(devices or (REFUSED,))
        self.look()
        return self.view

    @property
    def controller(self) -> GPUSupportController:
        return self.made[-1]

    @property
    def view(self) -> GPUView:
        return self.state.view

    def look(self) -> None:
        self.controller.look()
        wait_for_workers(self.controller)

    def get(self) -> GPUView:
        """Get GPU support, and wait for the end."""
        self.controller.get()
        until(lambda: self.view.phase is not GPUPhase.INSTALLING)
        wait_for_workers(self.controller)
        return self.view

    def restart(self, use: GPUSupportUse, detail: str = "") -> GPUView:
        """Start again, with what the engine makes of what is installed."""
        self.controller.close()
        name = gpu_support.active_name(self.folder)
        self.used = GPUSupport(use, detail, self.folder / name if name else None)
        return self.start(USABLE if use is GPUSupportUse.IN_USE else REFUSED)


@pytest.fixture
def computer(qtbot: QtBot, tmp_path: Path, hub: Hub) -> Iterator[Computer]:
    made = Computer(tmp_path, hub)
    yield made
    for each in made.made:
        each.close()


def test_it_is_offered_with_its_size_and_nothing_is_asked_for(computer: Computer, hub: Hub) -> None:
    view = computer.start()
    wanted = computer.wanted
    assert wanted is not None
    assert (view.phase, view.gpu, view.can_get) == (GPUPhase.OFFERED, "NVIDIA H100", True)
    assert (view.size_bytes, view.unpacked_bytes) == (wanted.size_bytes, wanted.unpacked_bytes)
    assert not view.can_remove
    assert not hub.requests
    assert not computer.folder.exists()


def test_it_is_fetched_used_after_a_restart_and_removed(computer: Computer) -> None:
    computer.start()
    view = computer.get()
    assert (view.phase, view.can_remove) == (GPUPhase.READY, True)
    view = computer.restart(GPUSupportUse.IN_USE)
    assert (view.phase, view.can_get, view.can_remove) == (GPUPhase.IN_USE, False, True)
    active = gpu_support.active_name(computer.folder)
    computer.controller.remove()
    wait_for_workers(computer.controller)
    assert computer.view.phase is GPUPhase.REMOVED
    assert gpu_support.active_name(computer.folder) == ""
    assert (computer.folder / active).is_dir(), "this process uses it"
    view = computer.restart(GPUSupportUse.NONE)
    assert view.phase is GPUPhase.OFFERED


def test_what_is_removed_before_it_is_used_is_gone_at_once(computer: Computer) -> None:
    computer.start()
    computer.get()
    computer.controller.remove()
    wait_for_workers(computer.controller)
    until(lambda: computer.view.phase is GPUPhase.OFFERED)
    assert not list(computer.folder.iterdir())


def test_a_gpu_that_the_engine_refuses_is_not_said_to_be_usable(computer: Computer) -> None:
    computer.start()
    computer.get()
    assert computer.restart(GPUSupportUse.IN_USE).problem == ""
    fault = DeviceRefusal(DeviceFault.NO_COMPILER, "no compiler")
    computer.chat.set_devices((replace(USABLE, refusal=fault),))
    computer.look()
    assert computer.view.phase is GPUPhase.IN_USE
    assert "C compiler" in computer.view.problem


@pytest.mark.parametrize("devices", [(USABLE,), (DeviceInfo("mps", "Apple"),)])
def test_a_gpu_that_is_used_already_needs_nothing(
    computer: Computer, devices: tuple[DeviceInfo, ...]
) -> None:
    assert computer.start(*devices).phase is GPUPhase.HIDDEN


def test_a_computer_without_an_nvidia_gpu_shows_nothing(computer: Computer) -> None:
    computer.gpus = ()
    assert computer.start().phase is GPUPhase.HIDDEN


def test_without_a_list_nothing_is_offered_and_the_reason_is_said(computer: Computer) -> None:
    computer.wanted = None
    view = computer.start()
    assert (view.phase, view.can_get) == (GPUPhase.UNAVAILABLE, False)
    assert "no GPU support to download" in view.problem


def test_an_old_driver_or_gpu_is_named_before_anything_is_fetched(computer: Computer) -> None:
    computer.gpus = (replace(GPU, driver="575.57.08"),)
    view = computer.start()
    assert view.phase is GPUPhase.UNAVAILABLE
    assert "575.57.08" in view.problem
    assert "580.65.06" in view.remedy
    computer.gpus = (replace(GPU, name="NVIDIA GeForce GTX 1080", capability=(6, 1)),)
    computer.look()
    assert "GTX 1080 is too old" in computer.view.problem
    assert not computer.view.can_get


def test_an_old_gpu_beside_a_better_one_is_no_obstacle(computer: Computer) -> None:
    old = replace(GPU, name="NVIDIA GeForce GT 710", total_bytes=1 << 30, capability=(3, 5))
    computer.gpus = (old, GPU)
    view = computer.start()
    assert (view.phase, view.gpu) == (GPUPhase.OFFERED, GPU.name)


def test_a_failed_download_says_why_and_goes_on_later(computer: Computer, hub: Hub) -> None:
    computer.start()
    hub.faults.append(Fault(status=404))
    view = computer.get()
    assert (view.phase, view.can_get) == (GPUPhase.FAILED, True)
    assert "There is no such file" in view.problem
    assert computer.get().phase is GPUPhase.READY


def test_a_failed_trial_shows_its_details(computer: Computer) -> None:
    computer.start()
    computer.trial = "RuntimeError: no kernel image"
    view = computer.get()
    assert view.phase is GPUPhase.FAILED
    assert view.detail == "RuntimeError: no kernel image"
    computer.trial = ""
    assert computer.get().phase is GPUPhase.READY


def test_it_can_be_stopped_and_gone_on_with(computer: Computer, hub: Hub) -> None:
    computer.start()
    hub.faults.append(Fault(stall_after=2000))
    computer.controller.get()
    until(lambda: computer.view.progress is not None and computer.view.progress.done_bytes >= 2000)
    computer.controller.stop()
    hub.released.set()
    until(lambda: computer.view.phase is GPUPhase.BEGUN)
    assert computer.view.done_bytes == 2000
    assert computer.view.can_get
    assert computer.view.can_remove
    assert computer.restart(GPUSupportUse.NONE).phase is GPUPhase.BEGUN, "also after a restart"
    assert computer.get().phase is GPUPhase.READY


def test_the_offline_switch_pauses_it(computer: Computer, hub: Hub) -> None:
    computer.start()
    hub.faults.append(Fault(stall_after=2000))
    computer.controller.get()
    until(lambda: computer.view.progress is not None and computer.view.progress.done_bytes >= 2000)
    gate.set_offline(True)
    try:
        until(
            lambda: computer.view.progress is not None and "Offline" in computer.view.progress.note
        )
        wait_for_workers(computer.controller)
        assert computer.view.phase is GPUPhase.INSTALLING
    finally:
        gate.set_offline(False)
        hub.released.set()
    until(lambda: computer.view.phase is GPUPhase.READY)


@pytest.mark.parametrize(
    ("use", "can_get", "can_retry", "told"),
    [
        (GPUSupportUse.OTHER_VERSION, True, False, False),
        (GPUSupportUse.NO_GPU, False, False, False),
        (GPUSupportUse.OLD_DRIVER, False, False, False),
        (GPUSupportUse.INCOMPLETE, True, False, True),
        (GPUSupportUse.CRASHED, False, True, True),
        (GPUSupportUse.FAILED, False, True, True),
    ],
)
def test_what_is_installed_but_not_used_says_why(
    computer: Computer, use: GPUSupportUse, can_get: bool, can_retry: bool, told: bool
) -> None:
    computer.start()
    computer.get()
    view = computer.restart(use, "detail")
    assert view.phase is GPUPhase.NOT_USED
    assert view.problem
    assert (view.can_get, view.can_retry, view.can_remove) == (can_get, can_retry, True)
    assert (NOTICE in computer.chat.notices) is told
    if can_retry:
        computer.controller.retry()
        assert computer.view.phase is GPUPhase.READY
        assert NOTICE not in computer.chat.notices
    if can_get:
        computer.used = replace(computer.used, folder=computer.folder / "another")
        assert computer.get().phase is GPUPhase.READY


def test_the_packages_of_an_older_version_go_once_the_new_ones_are_in_use(
    computer: Computer, tmp_path: Path, hub: Hub
) -> None:
    computer.start()
    computer.get()
    old = gpu_support.active_name(computer.folder)
    made = wheels({"torch/more.py": ""})
    for name, content in made.items():
        hub.put(f"pkgs/gpu/{name}", content)
    computer.wanted = read_gpu_wheels(
        write_list(tmp_path / "list.json", made, f"{hub.endpoint}/cdn/pkgs/gpu")
    )
    view = computer.restart(GPUSupportUse.OTHER_VERSION, old)
    assert view.can_get
    assert computer.get().phase is GPUPhase.READY
    computer.restart(GPUSupportUse.IN_USE)
    wait_for_workers(computer.controller)
    assert not (computer.folder / old).exists()
    assert (computer.folder / gpu_support.active_name(computer.folder)).is_dir()


def test_its_server_is_among_those_that_may_be_contacted(
    computer: Computer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(contacts(Settings())) == 2
    monkeypatch.setenv("TOKONOMA_GPU_WHEELS", str(computer.list))
    assert contacts(Settings())[-1] == ("127.0.0.1", "when you get GPU support")
    assert purpose_words(Purpose.GPU_SUPPORT) == "to download GPU support"
