"""The memory of a model that is loaded beside another: what the first may yet take is not free."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tiny
from engine import DeviceFault, Load, ModelLoaded, ModelUnloaded, Unload
from engine.core.residents import Resident
from engine.loading import placement
from engine.loading.memory import DeviceMemory
from engine_bench import Bench
from fake_gpu import FakeGpu

LAYERS = 6
CONTEXT = 512


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    one, other = (
        tiny.write(tmp_path / f"{name}.gguf", layers=LAYERS, context=2_048) for name in "ab"
    )
    return one, other


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.engine.stop()


def resident(bench: Bench, path: Path) -> Resident:
    return bench.engine._loop._residents.get(path)


def on_gpu(one: Resident) -> DeviceMemory:
    """The part of a model's plan on its GPU."""
    (found,) = one.session.model.plan.devices[1:]
    return found


def load(bench: Bench, path: Path, *, beside: bool, device: str = "gpu") -> ModelLoaded:
    return bench.expect(1, Load(path, CONTEXT, device=device, beside=beside), ModelLoaded)


def test_a_second_model_leaves_the_first_its_part_of_the_memory(
    bench: Bench, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placement, "available_memory", lambda: 1 << 30)
    load(bench, models[0], beside=False, device="cpu")
    first = resident(bench, models[0]).session
    yet = first.planned_bytes - first.memory_bytes
    assert yet > 0
    load(bench, models[1], beside=True, device="cpu")
    second = resident(bench, models[1]).session
    assert second.model.plan.available_bytes == (1 << 30) - yet


def test_a_second_model_leaves_the_first_its_part_of_a_gpu(
    bench: Bench, gpu: FakeGpu, models: tuple[Path, Path]
) -> None:
    load(bench, models[1], beside=False)
    enough = int(on_gpu(resident(bench, models[1])).total_bytes / 0.9) + 1
    load(bench, models[0], beside=False)
    first = on_gpu(resident(bench, models[0]))
    gpu.reserved_bytes = first.weights_bytes  # its KV pages are not allocated yet
    gpu.free_bytes = enough + first.total_bytes - first.weights_bytes
    second = load(bench, models[1], beside=True)
    assert [(one.name, one.layers) for one in second.runs_on] == [("cuda", LAYERS)]
    assert on_gpu(resident(bench, models[1])).available_bytes == enough
    bench.expect(2, Unload(models[1]), ModelUnloaded)
    gpu.free_bytes -= enough // 4
    second = load(bench, models[1], beside=True)
    assert second.moved is not None
    assert second.moved.fault is DeviceFault.TOO_LARGE
    assert sum(one.layers for one in second.runs_on if one.name == "cuda") < LAYERS
    assert [one.path for one in bench.engine.resident] == list(models)
