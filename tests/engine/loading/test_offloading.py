"""Memory limits: as few layers as possible are offloaded, the answer stays, all is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import tiny
from engine import Failed, Finished, Load, ModelLoaded, OutOfMemory
from engine.errors import FaultKind, RequestError
from engine.gguf.reader import GGUFFile
from engine.loading import placement
from engine.loading.inspect import inspect_model
from engine.loading.loader import LoadedModel, load
from engine.loading.memory import MemoryPlan, usable
from engine.loading.offloading import layer_bytes
from engine.loading.placement import place, predict
from engine.loading.preflight import identify
from engine.messages import CacheType, SlowReason
from engine_bench import Bench, answer_text
from kernels import cpu
from kernels.backends import BACKENDS
from kernels.weights.weight import Weight

LAYERS, CONTEXT = 12, 128
NATIVE = pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels here")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose layers take most of its memory: some megabyte each."""
    file = tmp_path_factory.mktemp("offloading") / "m.gguf"
    return tiny.write(
        file, format="Q4_0", layers=LAYERS, hidden=512, head_dim=128, ffn=1_024, context=1_024
    )


def planned(
    path: Path,
    context: int = CONTEXT,
    *,
    limit: int = 0,
    available: int = 10**10,
    cache: CacheType = CacheType.F32,
) -> MemoryPlan:
    with GGUFFile.open(path) as file:
        _, config = identify(file)
        operands = file, config, place(config.layers), context, cache
        return predict(*operands, available=available, limit=limit)[0]


def layer_size(path: Path) -> int:
    with GGUFFile.open(path) as file:
        return layer_bytes(file, place(LAYERS), {})[0][0]


def logits(model: LoadedModel) -> Tensor:
    session = model.new_session()
    (hidden,) = session.prefill([5, 6, 7, 8])
    return torch.cat([session.logits(hidden), session.step(9)[None]])


@pytest.fixture
def little_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scratch as of native kernels: that of the reference is more than these layers take."""
    monkeypatch.setattr(placement, "DECODING_BYTES", 0)
    monkeypatch.setattr(placement, "scratch_bytes", lambda *sizes, recorded: 4_000_000)


def near(found: Tensor, wanted: Tensor) -> bool:
    """Whether logits agree but for rounding."""
    return float((found - wanted).abs().max()) < 1e-3 * float(wanted.abs().max())


# --- planning -----------------------------------------------------------------------------------


def test_a_model_that_fits_has_no_offloaded_layers(path: Path) -> None:
    whole = planned(path)
    assert whole.fits
    assert whole.offloading is None
    assert planned(path, limit=whole.total_bytes).offloading is None


@NATIVE
def test_as_few_layers_as_possible_are_offloaded(path: Path) -> None:
    whole, size = planned(path).total_bytes, layer_size(path)
    counts: list[int] = []
    for layers in range(1, LAYERS):
        found = planned(path, limit=whole - layers * size)
        if found.offloading is None:
            break
        assert found.fits
        assert found.total_bytes <= whole - layers * size < found.total_bytes + size
        assert list(found.offloading.layers) == sorted(set(found.offloading.layers))
        counts.append(len(found.offloading.layers))
    assert counts[0] > 2  # two slots would hold two layers
    assert counts == sorted(counts)
    assert max(counts) == LAYERS
    assert found.least_bytes > found.limit_bytes  # the last limit is too small for any number


@NATIVE
def test_offloaded_layers_are_spread_evenly(path: Path) -> None:
    found = planned(path, limit=planned(path).total_bytes - 2 * layer_size(path)).offloading
    assert found is not None
    steps = {b - a for a, b in zip(found.layers, found.layers[1:], strict=False)}
    assert max(steps) - min(steps) <= 1


@NATIVE
def test_bytes_of_a_pass_are_those_of_the_offloaded_matrices(path: Path) -> None:
    found = planned(path, limit=planned(path).total_bytes - 2 * layer_size(path)).offloading
    assert found is not None
    with GGUFFile.open(path) as file:
        sizes = [
            info.size_bytes
            for info in file.tensors.values()
            for layer in found.layers
            if info.name.startswith(f"blk.{layer}.") and len(info.shape) > 1
        ]
    assert found.token_bytes == sum(sizes)


@NATIVE
def test_free_memory_is_left_to_other_programs(path: Path) -> None:
    whole = planned(path)
    available = int(whole.total_bytes / 0.9) - layer_size(path)
    found = planned(path, available=available)
    assert found.offloading is not None
    assert found.total_bytes <= 0.8 * usable(available)


@NATIVE
def test_a_shorter_context_is_chosen_before_layers_are_offloaded(path: Path) -> None:
    short = planned(path, 512)
    found = planned(path, 0, limit=short.total_bytes)
    assert (found.context, found.offloading) == (512, None)
    found = planned(path, 0, limit=short.total_bytes - 1)
    assert found.offloading is not None
    assert found.context >= 512
    found = planned(path, 0, limit=planned(path, 512, limit=1).least_bytes)
    assert found.offloading is not None
    assert (found.context, len(found.offloading.layers)) == (512, LAYERS)


def test_a_limit_that_holds_no_layer_is_refused(path: Path) -> None:
    with pytest.raises(OutOfMemory, match=r"GB read from the disk; the limit is 0\.0 GB") as caught:
        load(path, memory_bytes=1_000_000, context=CONTEXT)
    assert caught.value.remedy == "Raise the limit, or choose a smaller model."
    assert caught.value.fault.kind is FaultKind.MEMORY
    with pytest.raises(RequestError, match="limit is -1 bytes"):
        load(path, memory_bytes=-1)


# --- loading ------------------------------------------------------------------------------------


@NATIVE
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.usefixtures("little_scratch")
def test_a_offloaded_model_gives_the_same_bits(path: Path, backend: str) -> None:
    whole = load(path, backend=backend, context=CONTEXT)
    whole_bytes = whole.plan.total_bytes
    if backend == "reference":  # it decodes what fits: offloading begins below the packed size
        whole_bytes = load(
            path, backend=backend, context=CONTEXT, memory_bytes=whole_bytes // 2
        ).plan.total_bytes
    limit = whole_bytes - 3 * layer_size(path)
    told: list[MemoryPlan] = []
    offloaded = load(
        path, backend=backend, context=CONTEXT, memory_bytes=limit, planned=told.append
    )
    assert told == [offloaded.plan]
    assert offloaded.plan.total_bytes <= limit
    assert offloaded.plan.offloading is not None
    assert [one.reason for one in offloaded.slow][-1] is SlowReason.OFFLOADED
    if backend == "cpu":
        assert torch.equal(logits(offloaded), logits(whole))
    else:  # in memory it is decoded, once: another order of sums
        assert near(logits(offloaded), logits(whole))


@NATIVE
@pytest.mark.usefixtures("little_scratch")
def test_a_offloaded_model_whose_kernel_is_wrong_runs_on_the_reference(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = load(path, context=CONTEXT)
    right = cpu.KERNELS["linear", "Q4_0"]

    def wrong(x: Tensor, weight: Weight) -> Tensor:
        y = right(x, weight)
        return y if weight.layout == "file" else y * 1.5

    monkeypatch.setitem(cpu.KERNELS, ("linear", "Q4_0"), wrong)
    limit = whole.plan.total_bytes - 2 * layer_size(path)
    offloaded = load(path, context=CONTEXT, memory_bytes=limit)
    assert offloaded.plan.total_bytes <= limit
    reasons = {one.reason for one in offloaded.slow}
    assert reasons >= {SlowReason.WRONG_KERNEL, SlowReason.OFFLOADED}
    assert "the kernel of linear on Q4_0 is wrong" in caplog.text
    assert near(logits(offloaded), logits(load(path, backend="reference", context=CONTEXT)))


@NATIVE
def test_the_engine_answers_with_offloaded_layers(bench: Bench, path: Path) -> None:
    bench.send(1, Load(path, CONTEXT))
    whole = bench.until(ModelLoaded, Failed)[-1]
    assert isinstance(whole, ModelLoaded)
    assert (whole.offloaded_layers, whole.offloaded_bytes) == (0, 0)
    wanted = answer_text(bench.generate(2, "hello", max_tokens=8))
    limit = planned(path, cache=CacheType.F16).total_bytes - 3 * layer_size(path)
    bench.send(3, Load(path, CONTEXT, memory_bytes=limit))
    offloaded = bench.until(ModelLoaded, Failed)[-1]
    assert isinstance(offloaded, ModelLoaded), offloaded
    assert 2 < offloaded.offloaded_layers < LAYERS
    assert offloaded.offloaded_bytes > 0
    assert offloaded.memory_bytes <= limit
    events = bench.generate(4, "hello", max_tokens=8)
    assert isinstance(events[-1], Finished)
    assert answer_text(events) == wanted


@NATIVE  # the reference needs more memory to decode than offloading saves of this small model
def test_inspecting_tells_what_is_read_for_a_token(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = inspect_model(path, CONTEXT)
    assert (whole.layers, whole.offloaded_layers, whole.fits) == (LAYERS, 0, True)
    monkeypatch.setattr(
        placement, "available_memory", lambda: int(whole.memory_bytes / 0.9) - 5_000_000
    )
    found = inspect_model(path, CONTEXT)
    assert 2 < found.offloaded_layers <= LAYERS
    assert found.fits
    assert not found.problem
    assert found.offloaded_bytes > 0
