"""Placement of a loaded model: parts, bytes per device, storage without kernels, what is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny
from engine.errors import OutOfMemory, RequestError
from engine.gguf.reader import GGUFFile
from engine.loading.inspect import inspect_model
from engine.loading.loader import LoadedModel, load
from engine.loading.memory import DeviceNeeds, MemoryPlan, Needs, plan_memory
from engine.loading.placement import place, predict
from engine.loading.preflight import identify
from engine.messages import CacheType, SlowPart, SlowReason
from kernels import cpu
from kernels.backend.backend import Backend
from kernels.backend.placement import Placement
from kernels.backend.torch_backend import torch_backend
from kernels.backends import BACKENDS
from kernels.states.kv_pages import PAGE_TOKENS
from kernels.weights.weight import Storage
from other_device import DEVICE, Elsewhere, OtherDevice

pytestmark = pytest.mark.sweep

NATIVE = pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels here")
TORCH = torch_backend("cpu")
MB = 1_000_000


def logits(model: LoadedModel) -> torch.Tensor:
    session = model.new_session()
    (hidden,) = session.prefill([5, 6, 7, 8])
    return session.logits(hidden)


def predicted(
    path: Path, placement: Placement, context: int = 64, available: int = 10**10
) -> tuple[MemoryPlan, dict[tuple[str, str], Storage]]:
    with GGUFFile.open(path) as file:
        _, config = identify(file)
        found, storage = predict(
            file, config, placement, context, CacheType.F32, available=available
        )
        return found, dict(storage)


@pytest.fixture
def own_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Gives the simulated device so many bytes of memory of its own."""

    def give(available: int) -> None:
        def bytes_of(device: torch.device) -> int | None:
            return available if device == DEVICE else None

        monkeypatch.setattr("kernels.backend.torch_backend.available_bytes", bytes_of)

    return give


# --- parts --------------------------------------------------------------------------------------


def test_parts_give_consecutive_layers_to_backends() -> None:
    found = place(5, parts=[("reference", 2), ("torch:cpu", 0)])
    assert [one.name for one in found.layers] == ["reference"] * 2 + ["torch:cpu"] * 3
    assert (found.embedding.name, found.head.name) == ("reference", "torch:cpu")
    assert {one.name for one in place(3, "reference").layers} == {"reference"}


@pytest.mark.parametrize("counts", [(2, 4), (2, 2), (5, 0), (6, 0), (0, 5), (-1, 6), (2, 0, 3)])
def test_parts_that_do_not_divide_the_layers_are_refused(counts: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="do not divide the 5 layers of the model"):
        place(5, parts=[("reference", count) for count in counts])


def test_unknown_backends_are_refused() -> None:
    for name in ("quantum", "torch:quantum"):
        with pytest.raises(RequestError, match="'quantum'"):
            place(5, name)
        with pytest.raises(RequestError, match="'quantum'"):
            place(5, parts=[("reference", 1), (name, 0)])


# --- loading ------------------------------------------------------------------------------------


@NATIVE
def test_a_split_model_is_loaded_and_described(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=5)
    whole = load(path, backend="cpu")
    model = load(path, parts=[("cpu", 2), ("torch:cpu", 0)], cache=CacheType.Q8_0)
    words = BACKENDS["cpu"].words
    assert whole.backends == words
    assert model.backends == f"layers 1-2: {words}, 3-5: torch cpu"
    assert model.kernels["linear Q4_0"] == f"{words} + torch cpu"
    assert model.slow == ()
    assert model.new_runner().is_recorded
    layouts = [block.attention.query.weight.layout for block in model.decoder.blocks]
    assert layouts == ["cpu", "cpu", "file", "file", "file"]
    assert float((logits(model) - logits(whole)).abs().max()) < 0.1 * float(
        logits(whole).abs().max()
    )


@NATIVE
def test_a_model_is_loaded_on_a_device_and_checked_against_the_file(tmp_path: Path) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=3)
    wanted = logits(load(path, backend="torch:cpu"))
    with OtherDevice():
        model = load(path, backend=f"torch:{DEVICE}")
        assert isinstance(model.decoder.head.weight.data, Elsewhere)
        assert model.backends == f"torch {DEVICE}"
        assert torch.equal(logits(model), wanted)


def test_a_device_that_computes_wrongly_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fallback would be the same operations on the same device."""
    other = torch_backend(str(DEVICE))
    right = other.kernels["softcap", "F32"]
    wrong = {**other.kernels, ("softcap", "F32"): lambda *given: right(*given) * 1.2}
    faulty = Backend(other.name, wrong, lambda: "torch faulty", other.device)
    monkeypatch.setattr("kernels.backends.torch_backend", lambda device: faulty)
    path = tiny.write(
        tmp_path / "m.gguf",
        architecture="gemma3",
        metadata={"gemma3.final_logit_softcapping": 5.0},
    )
    with (
        OtherDevice(),
        pytest.raises(RequestError, match=r"torch faulty computes wrongly .*softcap"),
    ):
        load(path, backend=f"torch:{DEVICE}")


@NATIVE
def test_a_failed_kernel_is_refused_on_its_backend_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=4)
    right = cpu.KERNELS["linear", "Q4_0"]
    monkeypatch.setitem(
        cpu.KERNELS,
        ("linear", "Q4_0"),
        lambda x, weight: right(x, weight) * (1.0 if weight.layout == "file" else 1.1),
    )
    model = load(path, parts=[("torch:cpu", 2), ("cpu", 0)])
    assert model.slow == (SlowPart(SlowReason.WRONG_KERNEL, "linear Q4_0"),)
    assert model.kernels["linear Q4_0"] == "torch cpu + reference"
    assert model.backends == f"layers 1-2: torch cpu, 3-4: {BACKENDS['cpu'].words} + reference"
    wanted = logits(load(path, backend="reference"))
    assert torch.allclose(logits(model), wanted, rtol=0.05, atol=0.05)


# --- memory -------------------------------------------------------------------------------------


def test_bytes_are_counted_on_the_device_that_takes_them(
    tmp_path: Path, own_memory: Callable[[int], None]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q8_0", layers=4, hidden=128, ffn=512)
    device, reference = torch_backend(str(DEVICE)), BACKENDS["reference"]
    own_memory(10**9)
    whole, _ = predicted(path, Placement.on(reference, 4))
    assert whole.devices == ()
    with OtherDevice():
        parts = predicted(path, Placement.split([(reference, 1), (device, 3)]))[0]
        model = load(path, parts=[("reference", 1), (f"torch:{DEVICE}", 3)], context=64)
        sizes = {True: 0, False: 0}
        for block in model.decoder.blocks:
            for product in block.projections:
                weight = product.weight
                sizes[isinstance(weight.data, Elsewhere)] += weight.size_bytes
        embedding, head = model.decoder.embedding, model.decoder.head.weight
        sizes[False] += embedding.size_bytes
        sizes[True] += head.size_bytes
        pool = model.new_runner().new_pool()
        held = dict.fromkeys(pool.layout.places, 0)
        for group, place in enumerate(pool.layout.places):
            held[place] += pool.take(group).data.nbytes
    host, other = parts.devices
    assert (host.device, other.device) == ("cpu", str(DEVICE))
    assert host.cache_bytes == 64 * held[reference.name] // PAGE_TOKENS
    assert other.cache_bytes == 64 * held[device.name] // PAGE_TOKENS
    vocabulary = whole.weights_bytes - sum(sizes.values())
    assert 0 <= host.weights_bytes - sizes[False] <= vocabulary
    assert 0 <= other.weights_bytes - sizes[True] < 20_000  # norms
    assert parts.weights_bytes == host.weights_bytes + other.weights_bytes == whole.weights_bytes
    assert parts.available_bytes == 10**10 + 10**9
    assert model.plan.devices[1].weights_bytes == other.weights_bytes


def test_a_model_that_does_not_fit_on_its_device_is_refused(
    tmp_path: Path, own_memory: Callable[[int], None]
) -> None:
    path = tiny.write(tmp_path / "m.gguf", layers=2)
    own_memory(1 * MB)
    with (
        OtherDevice(),
        pytest.raises(OutOfMemory, match=f"part of the model on the device {DEVICE}"),
    ):
        load(path, parts=[("reference", 1), (f"torch:{DEVICE}", 1)])


def test_the_context_fits_on_every_device() -> None:
    host, other = (Needs(10 * MB, per_token, lambda context: MB) for per_token in (1_000, 10_000))
    small = DeviceNeeds("cuda:0", other, 30 * MB)
    found = plan_memory(
        host, context_wanted=0, context_model=32_768, available=10**10, others=[small]
    )
    assert found.fits
    assert found.context == 1_024  # 11 MB and 10 MB of keys and values fit 27 MB
    assert found.most_context == (27 - 11) * MB // 10_000
    assert found.total_bytes == sum(one.total_bytes for one in found.devices)
    measured = found.with_weights(11 * MB)
    assert [one.weights_bytes for one in measured.devices] == [11 * MB, 10 * MB]
    assert measured.weights_bytes == 21 * MB
    assert measured.total_bytes == found.total_bytes + MB
    assert found.with_weights(1 * MB) is found
    full = replace(found, devices=(found.devices[0], replace(found.devices[1], available_bytes=1)))
    assert not full.fits


# --- weights without a kernel -------------------------------------------------------------------

STORED = [("reference", "Q4_0"), ("torch:cpu", "Q4_0"), ("torch:cpu", "F16")]


@pytest.fixture
def large(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a model whose weights are much larger than its scratch memory."""

    def write(format: str) -> Path:
        return tiny.write(
            tmp_path / f"{format}.gguf", format=format, hidden=512, ffn=1024, vocabulary=40_000
        )

    return write


@pytest.mark.parametrize(("backend", "format"), STORED)
def test_weights_too_large_in_float32_stay_packed(
    backend: str, format: str, large: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = large(format)
    wide = load(path, backend=backend, context=64)
    assert wide.slow == ()
    assert wide.decoder.embedding.format.name == "F32"
    free = int(0.95 * wide.plan.total_bytes / 0.9)
    monkeypatch.setattr("engine.loading.placement.available_memory", lambda: free)
    model = load(path, backend=backend, context=64)
    assert model.decoder.embedding.format.name == format
    assert model.slow == (SlowPart(SlowReason.DECODED, f"linear {format}"),)
    assert model.plan.fits
    assert model.plan.weights_bytes < 0.7 * wide.plan.weights_bytes
    assert torch.allclose(logits(model), logits(wide), rtol=1e-3, atol=1e-3)


@NATIVE
def test_a_format_without_a_native_kernel_is_decoded_only_if_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="IQ1_S", hidden=512, ffn=1024, vocabulary=40_000)
    missing = (
        SlowPart(SlowReason.NO_KERNEL, "linear IQ1_S"),
        SlowPart(SlowReason.NO_KERNEL, "embed IQ1_S"),
    )
    wide = load(path, context=64)
    assert wide.slow == missing
    assert inspect_model(path, context=64).weights_bytes == wide.plan.weights_bytes
    free = int(0.95 * wide.plan.total_bytes / 0.9)
    monkeypatch.setattr("engine.loading.placement.available_memory", lambda: free)
    model = load(path, context=64)
    assert model.slow == (*missing, SlowPart(SlowReason.DECODED, "linear IQ1_S"))
    assert model.decoder.embedding.size_bytes < wide.decoder.embedding.size_bytes / 15
    assert inspect_model(path, context=64).fits
    assert torch.allclose(logits(model), logits(wide), rtol=1e-3, atol=1e-3)


@NATIVE
def test_each_backend_of_a_split_model_has_its_storage(
    large: Callable[[str], Path], own_memory: Callable[[int], None]
) -> None:
    """The device is too small for float32, the native kernels need none."""
    path = large("Q4_0")
    device = torch_backend(str(DEVICE))
    placement = Placement(BACKENDS["cpu"], (BACKENDS["cpu"], device), device)
    own_memory(10**9)
    with OtherDevice():
        wide, storage = predicted(path, placement)
        assert storage == {}
        own_memory(int(0.9 * wide.devices[1].total_bytes))
        found, storage = predicted(path, placement)
    assert storage == {(device.name, "Q4_0"): Storage.FILE}
    assert found.fits
    assert found.devices[0].weights_bytes == wide.devices[0].weights_bytes
    assert found.devices[1].weights_bytes < wide.devices[1].weights_bytes / 6
