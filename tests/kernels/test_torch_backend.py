"""The backend torch: every format and op on another device, as the reference gives them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernels.backend.selfcheck import KernelChecker
from kernels.backend.torch_backend import available_bytes, torch_backend, used_bytes
from kernels.backends import BACKENDS, choose
from kernels.ops import Activation, Softcap
from kernels.ops.routing import Routing
from kernels.states.kv_pages import KVLayout, LayerShape, PagedKV, PageTable
from kernels.weights.formats import FORMATS, Format
from kernels.weights.weight import Storage, Weight
from other_device import DEVICE, Elsewhere, MixedDevices, OtherDevice
from paging import POISON

REFERENCE, OTHER = BACKENDS["reference"], torch_backend(str(DEVICE))


def there(values: Tensor) -> Tensor:
    return values.to(DEVICE)


@pytest.mark.parametrize("storage", [Storage.BACKEND, Storage.FILE])
@pytest.mark.parametrize("format", FORMATS.values(), ids=lambda format: format.name)
def test_weights_stay_on_the_device_in_every_format(
    format: Format,
    storage: Storage,
    random_rows: Callable[[Format, int, int], Tensor],
    random: torch.Generator,
) -> None:
    """Decoded once, or packed as in the file and decoded there for every product."""
    rows, columns = 21, 2 * max(format.block, 32)
    data = random_rows(format, rows, columns).numpy().tobytes()
    weight = Weight.from_bytes(data, format, (rows, columns))
    x, ids = torch.randn(3, columns, generator=random), torch.tensor([20, 0, 7])
    host = REFERENCE.prepare(weight, storage=storage)
    with OtherDevice():
        prepared = OTHER.prepare(weight, storage=storage)
        assert isinstance(prepared.data, Elsewhere)
        assert prepared.size_bytes == OTHER.held_bytes(format, weight.shape, storage)
        product = OTHER.ops.linear(there(x), prepared)
        found = OTHER.ops.embed(there(ids), prepared)
        assert isinstance(product, Elsewhere)
        assert torch.equal(product.cpu(), REFERENCE.ops.linear(x, host))
        assert torch.equal(found.cpu(), REFERENCE.ops.embed(ids, host))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize(("window", "cap"), [(0, 0.0), (3, 2.0)])
def test_attention_reads_a_cache_on_the_device(
    dtype: torch.dtype, window: int, cap: float, random: torch.Generator
) -> None:
    """Two pages of 2 heads of 40 channels; 5 rows are appended at position 254, across pages."""
    q, new, old = (torch.randn(t, h, 40, generator=random) for t, h in ((5, 4), (5, 2), (254, 2)))
    layout = KVLayout([LayerShape(2, 40)], dtype)

    def run(move: Callable[[Tensor], Tensor]) -> Tensor:
        kv = PagedKV(layout.layers[0], PageTable())
        for _ in range(2):
            kv.table.append(move(torch.full(layout.page_bytes, POISON, dtype=torch.uint8)))
        kv.append(move(old), move(old), 0)
        kv.append(move(new), move(new), 254)
        found = OTHER.ops.attention(move(q), kv, 254, 0.2, window, cap)
        checker = KernelChecker(lambda weight, rows: None)  # compares on the host
        checker("attention", (move(q), kv, 254, 0.2, window, cap), found)
        assert not checker.faults
        checker("attention", (move(q), kv, 254, 0.3, window, cap), found)
        assert checker.faults
        return found

    # In inference mode, as sessions are, torch does not choose its kernel by the device's name.
    with OtherDevice(), torch.inference_mode():
        found = run(there)
        assert isinstance(found, Elsewhere)
        assert torch.equal(found.cpu(), run(lambda values: values))


def test_the_other_ops_run_on_the_device(random: torch.Generator) -> None:
    x, weight = torch.randn(4, 48, generator=random), torch.randn(48, generator=random)
    positions, frequencies = torch.arange(3, 7), torch.rand(8, generator=random)
    ops = OTHER.ops

    def run(move: Callable[[Tensor], Tensor]) -> list[Tensor]:
        y, w = move(x), move(weight)
        return [
            ops.rms_norm(y, w, 1e-5),
            ops.layer_norm(y, w, w, 1e-5),
            ops.rope(y.view(4, 2, 24), move(positions), move(frequencies), True, 1.1),
            ops.gated(y, y, Activation.SILU),
            ops.gated(y, None, Activation.GELU_TANH),
            ops.route(y, Routing(3)),
            ops.in_place(Softcap("x", 2.0), y, y),
        ]

    with OtherDevice():
        for found, wanted in zip(run(there), run(lambda values: values), strict=True):
            assert isinstance(found, Elsewhere)
            assert torch.equal(found.cpu(), wanted)


def test_the_checker_compares_a_result_of_several_tensors(random: torch.Generator) -> None:
    x, weight, state = (torch.randn(n, 6, generator=random) for n in (5, 6, 3))
    checker = KernelChecker(lambda weight, rows: None)  # compares on the host
    with OtherDevice():
        operands = there(x), there(weight[:, :4]), None, there(state)
        y, kept = OTHER.ops.short_conv(*operands)
        checker("short_conv", operands, (y, kept))
        assert not checker.faults
        checker("short_conv", operands, (y + 1, kept))
        assert checker.faults


def test_operands_on_two_devices_are_detected() -> None:
    x, weight = torch.randn(4, 48), torch.randn(48)
    with OtherDevice(), pytest.raises(MixedDevices, match=r"aten\.mul"):
        OTHER.ops.rms_norm(there(x), weight, 1e-5)


def test_memory_is_on_the_device() -> None:
    with OtherDevice():
        memory = OTHER.memory(64)
        assert isinstance(memory, Elsewhere)
        assert (memory.dtype, memory.shape) == (torch.uint8, (64,))
    assert choose("torch:cpu").memory(64).is_cpu
    assert choose("torch:cpu").read_bandwidth(1 << 20) > 0
    assert available_bytes(torch.device("cpu")) is None
    assert used_bytes(torch.device("cpu")) == 0


def test_a_device_is_chosen_by_its_name() -> None:
    assert choose("torch:cpu") is torch_backend("cpu")
    assert choose("torch:cpu").name == "torch:cpu"
    assert choose("torch:cpu").words == "torch cpu"
    assert choose("torch").name == "torch"
    assert not choose("torch").records_programs()
    for device in ("nothing", "vulkan", "cpu:x"):
        with pytest.raises(ValueError, match=f"torch has no device '{device}' on this computer"):
            choose(f"torch:{device}")
