"""Devices of this computer: found, or refused with a reason, without raising."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fake_driver import FakeDriver
from kernels import devices
from kernels.backend.refusal import Reason

TRITON = pytest.mark.skipif(sys.platform != "linux", reason="Triton is installed on Linux alone")


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A computer without any GPU."""
    monkeypatch.setattr("torch.version.cuda", None)
    monkeypatch.setattr("torch.backends.mps.is_built", lambda: False)
    monkeypatch.setattr("kernels.devices._DRIVER", str(tmp_path / "none"))
    monkeypatch.setattr("shutil.which", lambda name: None)


def test_a_computer_without_a_gpu_has_only_the_processor() -> None:
    assert devices.found() == []


def test_a_gpu_that_this_build_cannot_use_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The driver is there, but torch was built without CUDA: as a plain install is."""
    driver = tmp_path / "version"
    driver.write_text("NVRM version", encoding="utf-8")
    monkeypatch.setattr("kernels.devices._DRIVER", str(driver))
    (one,) = devices.found()
    assert one.refusal is not None
    assert one.refusal.reason is Reason.NO_SUPPORT
    assert "no CUDA" in one.refusal.text


@TRITON
def test_gpus_have_names_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver(monkeypatch)
    driver.count = 2
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/gcc")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda number: (5 + number, 9))
    first, second = devices.found()
    assert (first.name, first.label, first.free_bytes) == ("cuda", "NVIDIA H200", 5)
    assert (second.name, second.free_bytes, second.total_bytes) == ("cuda:1", 6, 9)
    assert first.refusal is second.refusal is None


def test_a_refused_gpu_is_named_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver(monkeypatch)
    driver.capability = (6, 1)
    (one,) = devices.found()
    assert one.label == "NVIDIA H200"
    assert one.refusal is not None
    assert one.refusal.reason is Reason.TOO_OLD
    driver.available = False
    (one,) = devices.found()
    assert one.label == ""
    assert one.refusal is not None
    assert one.refusal.reason is Reason.NO_DEVICE
    driver.available, driver.fails = True, "CUDA error: unknown error"
    (one,) = devices.found()
    assert one.refusal is not None
    assert one.refusal.reason is Reason.DRIVER_FAILS


@TRITON
def test_a_driver_that_fails_late_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDriver(monkeypatch)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/gcc")

    def fail(number: int) -> tuple[int, int]:
        raise RuntimeError("CUDA error: device not ready")

    monkeypatch.setattr("torch.cuda.mem_get_info", fail)
    (one,) = devices.found()
    assert one.refusal is not None
    assert one.refusal.reason is Reason.DRIVER_FAILS


def test_a_mac_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.backends.mps.is_built", lambda: True)
    for available in (False, True):
        monkeypatch.setattr(
            "torch.backends.mps.is_available", lambda available=available: available
        )
        (one,) = devices.found()
        assert one.name == "metal"
        assert (one.refusal is None) is available


def test_the_plain_install_has_no_package_of_a_gpu() -> None:
    """Requirements of the app, by name; torch is the build that the index serves without CUDA."""
    folder = Path(__file__).parents[2] / "packaging"
    names = {
        line.split("==")[0].strip().lower()
        for line in (folder / "requirements.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    assert "torch" in names
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton", "cupy"))]
