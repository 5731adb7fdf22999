"""Choice of the device at load: by free memory, by what was asked for, and when a device fails."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import tiny
from engine.errors import ModelFileError, RequestError
from engine.loading import device_choice
from engine.loading.inspect import inspect_model
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, DeviceFault, DevicePart
from fake_gpu import LABEL, FakeGpu
from kernels import devices
from kernels.backend.refusal import Reason

LAYERS = 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "m.gguf", layers=LAYERS, format="Q8_0", hidden=256, ffn=4096)


def opened(path: Path, device: str = "") -> LoadedModel:
    return load(path, device=device, cache=CacheType.F16)


def layers(model: LoadedModel) -> list[tuple[str, int]]:
    return [(one.name, one.layers) for one in model.runs_on]


def logits(model: LoadedModel) -> torch.Tensor:
    session = model.new_session()
    return torch.cat([session.logits(hidden) for hidden in session.prefill([5, 6, 7, 8])])


def test_a_model_that_fits_runs_on_the_gpu(path: Path, gpu: FakeGpu) -> None:
    model = opened(path)
    assert layers(model) == [("cuda", LAYERS)]
    assert model.runs_on[0].label == LABEL
    assert model.runs_on[0].memory_bytes == model.plan.devices[1].total_bytes > 0
    assert model.moved is None
    assert model.backends.startswith("cuda")
    assert gpu.held > 0


def test_the_processor_can_be_chosen(path: Path, gpu: FakeGpu) -> None:
    model = opened(path, "cpu")
    assert layers(model) == [("cpu", LAYERS)]
    assert (model.moved, gpu.held) == (None, 0)


def test_a_model_larger_than_the_gpu_is_split(path: Path, gpu: FakeGpu) -> None:
    whole = opened(path)
    wanted = logits(whole)
    gpu.free_bytes = int(whole.plan.devices[1].total_bytes * 0.8)
    for device in ("", "gpu", "split", "cuda"):
        model = opened(path, device)
        (first, count), (second, rest) = layers(model)
        assert (first, second, count + rest) == ("cpu", "cuda", LAYERS)
        assert count > 0
        assert rest > 0
        assert model.moved is not None
        assert model.moved.fault is DeviceFault.TOO_LARGE
        assert f"{rest} of {LAYERS} layers" in model.moved.text
        assert torch.equal(logits(model), wanted)
        assert 1 < device_choice.speedup(model.decoder.placement, model.plan) < 1e6


@pytest.mark.usefixtures("gpu")
def test_inspecting_a_file_says_where_it_would_run(path: Path, gpu: FakeGpu) -> None:
    whole = inspect_model(path, device="gpu")
    assert [(one.name, one.layers) for one in whole.runs_on] == [("cuda", LAYERS)]
    assert whole.speedup > 1
    gpu.free_bytes = int(whole.runs_on[0].memory_bytes * 0.8)
    split = inspect_model(path)
    assert [one.name for one in split.runs_on] == ["cpu", "cuda"]
    assert 1 < split.speedup < whole.speedup
    assert split.moved is not None
    alone = inspect_model(path, device="cpu")
    assert [(one.name, one.layers) for one in alone.runs_on] == [("cpu", LAYERS)]
    assert (alone.speedup, alone.moved) == (0.0, None)


def test_a_gpu_without_room_leaves_the_model_to_the_processor(path: Path, gpu: FakeGpu) -> None:
    gpu.free_bytes = 1000
    model = opened(path)
    assert layers(model) == [("cpu", LAYERS)]
    assert model.moved is not None
    assert model.moved.fault is DeviceFault.TOO_LARGE


def test_memory_of_a_model_that_is_replaced_is_free(path: Path, gpu: FakeGpu) -> None:
    """On the GPU too, but not for a model that is loaded beside it."""
    gpu.free_bytes, gpu.reserved_bytes = 1000, 1 << 30
    assert layers(opened(path)) == [("cpu", LAYERS)]
    replacing = load(path, reclaimable=1000, cache=CacheType.F16)
    assert layers(replacing) == [("cuda", LAYERS)]
    assert replacing.moved is None


def test_a_gpu_slower_than_the_processor_is_not_chosen_by_itself(
    path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(device_choice._bandwidths, "cuda", 1e6)
    assert layers(opened(path)) == [("cpu", LAYERS)]
    assert layers(opened(path, "gpu")) == [("cuda", LAYERS)]
    assert gpu.products > 0


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["", "gpu", "split", "cuda"])
@pytest.mark.parametrize("reason", list(Reason))
def test_a_refused_gpu_ends_in_a_session_on_the_processor(
    device: str, reason: Reason, path: Path, gpu: FakeGpu
) -> None:
    gpu.refuse(reason, "The GPU is green.")
    model = opened(path, device)
    assert layers(model) == [("cpu", LAYERS)]
    assert model.moved is not None
    assert (model.moved.fault.value, model.moved.text) == (reason.value, "The GPU is green.")
    assert logits(model).isfinite().all()


@pytest.mark.usefixtures("gpu")
def test_an_unknown_device_ends_in_a_session_on_the_processor(path: Path) -> None:
    model = opened(path, "cuda:7")
    assert layers(model) == [("cpu", LAYERS)]
    assert model.moved is not None
    assert model.moved.text == "This computer has no device 'cuda:7'."


def test_without_a_gpu_nothing_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.devices.found", list)
    assert opened(path).moved is None
    moved = opened(path, "gpu").moved
    assert moved is not None
    assert moved.text == "This computer has no GPU that can be used."


FAULTS = [
    (RuntimeError("CUDA error: an illegal memory access.\nMore"), DeviceFault.DRIVER_FAILS),
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), DeviceFault.OUT_OF_MEMORY),
    (OSError("ptxas was killed"), DeviceFault.DRIVER_FAILS),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("fault", "kind"), FAULTS)
@pytest.mark.parametrize("after", [-1, 3])  # while weights are prepared, while they are checked
def test_a_gpu_that_fails_during_the_load_is_freed_and_replaced(
    fault: BaseException,
    kind: DeviceFault,
    after: int,
    path: Path,
    gpu: FakeGpu,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu.fail(fault, after)
    held: list[int] = []
    with caplog.at_level(logging.ERROR):
        model = load(path, before_weights=lambda: held.append(gpu.held))
    assert held == [0, 0]  # before the processor has the model, nothing of it is on the GPU
    assert layers(model) == [("cpu", LAYERS)]
    assert model.moved is not None
    assert model.moved.fault is kind
    assert model.moved.text.count(".") == 1
    assert logits(model).isfinite().all()


OURS = [KeyError("blk.0"), RuntimeError("The size of tensor a must match"), OSError("disk")]


@pytest.mark.parametrize("fault", OURS)
def test_a_fault_of_the_program_is_not_the_gpus(
    fault: Exception, path: Path, gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is raised while the model is loaded or while a device is chosen."""
    gpu.fail(fault)
    with pytest.raises(type(fault), match=fault.args[0]):
        load(path)
    gpu.fault = None

    def fail(*operands: object, **options: object) -> object:
        raise fault

    monkeypatch.setattr("engine.loading.device_choice.predict", fail)
    with pytest.raises(type(fault), match=fault.args[0]):
        load(path)


@pytest.mark.parametrize(
    ("fault", "is_device"),
    [
        *[(fault, True) for fault, _ in FAULTS],
        (RuntimeError("Triton Error [CUDA]: device kernel image is invalid"), True),
        (RuntimeError("cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED"), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)"), True),
        (torch.AcceleratorError("an illegal memory access"), True),
        (type("OutOfResources", (Exception,), {"__module__": "triton.runtime.errors"})(), True),
        (RuntimeError("found at least two devices, cuda:0 and cpu!"), False),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), False),
        (KeyError("CUDA"), False),
        (ValueError("CUDA"), False),
        (MemoryError(), False),
        (ModelFileError("A layer cannot be read from CUDA.gguf.", "Check the disk."), False),
        *[(fault, False) for fault in OURS],
    ],
    ids=str,
)
def test_the_errors_of_devices(fault: Exception, is_device: bool) -> None:
    assert devices.is_device_error(fault) is is_device


def test_a_gpu_that_computes_wrongly_is_replaced(
    path: Path, gpu: FakeGpu, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.is_wrong = True
    with caplog.at_level(logging.CRITICAL):
        model = opened(path)
    assert layers(model) == [("cpu", LAYERS)]
    assert model.moved is not None
    assert model.moved.fault is DeviceFault.COMPUTES_WRONGLY
    assert gpu.held == 0


def test_a_backend_that_was_named_is_not_replaced(
    path: Path, gpu: FakeGpu, caplog: pytest.LogCaptureFixture
) -> None:
    gpu.fail(RuntimeError("CUDA error: unknown"))
    with (
        caplog.at_level(logging.CRITICAL),
        pytest.raises(RequestError, match=r"The GPU failed: CUDA error: unknown\."),
    ):
        load(path, backend="cuda")


def test_the_parts_of_a_placement(path: Path, gpu: FakeGpu) -> None:
    model = load(path, parts=[("cuda", 1), ("reference", 2), ("cuda", 0)])
    sizes = {one.device: one.total_bytes for one in model.plan.devices}
    assert model.runs_on == (
        DevicePart("cuda", LABEL, 1, sizes["cpu:0"]),
        DevicePart("cpu", "", 2, sizes["cpu"]),
        DevicePart("cuda", LABEL, 1, sizes["cpu:0"]),
    )
    assert gpu.held > 0
