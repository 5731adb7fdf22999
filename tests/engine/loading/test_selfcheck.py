"""Kernel self-check at load: faulty kernels are not used, memory is planned, answers are right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import forward_pass
import oracle
import tiny
from chosen_backend import ops
from engine.errors import Cancelled, OutOfMemory
from engine.gguf.reader import GGUFFile
from engine.loading.loader import LoadedModel, load
from engine.loading.preflight import identify
from engine.loading.selfcheck import Faults, find_faults
from engine.messages import CacheType, SlowPart, SlowReason
from engine.models.feed_forward import Experts
from engine.models.layers import Decoder
from engine.models.weights import Weights
from kernels import cpu
from kernels.backends import BACKENDS
from kernels.ops import Add
from kernels.programs.program import Program, Recorded
from kernels.weights.weight import Storage, Weight

pytestmark = pytest.mark.skipif("cpu" not in BACKENDS, reason="no native kernels here")

EXPERTS = next(name for name in oracle.CASES if "moe" in name)


class Kernels:
    """The table of native kernels, for injecting faults."""

    def __init__(self) -> None:
        self.table = cpu.KERNELS
        self.before = dict(self.table)

    def __getitem__(self, key: tuple[str, str]) -> Callable[..., Any]:
        return self.table[key]

    def __setitem__(self, key: tuple[str, str], kernel: Callable[..., Any]) -> None:
        self.table[key] = kernel


@pytest.fixture
def kernels() -> Iterator[Kernels]:
    """The kernel table; restored after the test."""
    kernels = Kernels()
    yield kernels
    for key, kernel in kernels.before.items():
        kernels[key] = kernel


def logits(model: LoadedModel) -> Tensor:
    session = model.new_session()
    (hidden,) = session.prefill([5, 6, 7, 8])
    return session.logits(hidden)


def near(found: Tensor, wanted: Tensor) -> bool:
    """Whether logits agree within the error of 8-bit activations."""
    return float((found - wanted).abs().max()) < 0.1 * float(wanted.abs().max())


def written(name: str, path: Path) -> Path:
    """A recorded model of another family as a file."""
    state = oracle.recorded(name)
    del state["tokens"], state["logits"]
    return oracle.write_gguf(oracle.CASES[name], state, path)


def checked(file: GGUFFile) -> tuple[Faults, Decoder, Weights]:
    """Run the check on a model without a vocabulary."""
    build, config = identify(file)
    weights = Weights(file)
    decoder = build(file, weights, config.context)
    return find_faults(config, decoder, weights), decoder, weights


def break_products(kernels: Kernels, format: str, factor: float) -> None:
    right = kernels["linear", format]

    def wrong(x: Tensor, weight: Weight) -> Tensor:
        y = right(x, weight)
        return y if weight.layout == "file" else y * factor

    kernels["linear", format] = wrong


def break_packing(kernels: Kernels, format: str, stored: bytes) -> None:
    """Pack the weight whose bytes in the file are `stored` with its rows in another order."""
    right = kernels["prepare", format]

    def wrong(weight: Weight, *callbacks: object) -> Weight:
        if weight.data.view(torch.uint8).numpy().tobytes() != stored:
            return right(weight, *callbacks)
        return right(Weight(weight.data.roll(1, 0), weight.format, weight.shape), *callbacks)

    kernels["prepare", format] = wrong


# --- correct kernels ----------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["Q4_K", "Q1_0", "F16"])
def test_correct_kernels_stay_in_use(format: str, tmp_path: Path) -> None:
    model = load(tiny.write(tmp_path / "m.gguf", format=format))
    assert model.slow == ()
    assert "reference" not in model.kernels.values()
    assert model.new_session().runner.is_recorded


@pytest.mark.parametrize("name", list(oracle.CASES))
def test_correct_kernels_pass_for_every_architecture(name: str, tmp_path: Path) -> None:
    """With fused tensors, tied heads, experts and learned positions."""
    with GGUFFile.open(written(name, tmp_path / "m.gguf")) as file:
        assert checked(file)[0].errors == {}


# --- faulty kernels -----------------------------------------------------------------------------


def test_a_faulty_matrix_product_is_not_used(
    kernels: Kernels, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0")
    wanted = logits(load(path))
    break_products(kernels, "Q4_0", 1.1)
    model = load(path)
    assert "linear on Q4_0 is wrong" in caplog.text
    assert model.slow == (SlowPart(SlowReason.WRONG_KERNEL, "linear Q4_0"),)
    on_reference = {op for op, backend in model.kernels.items() if backend == "reference"}
    assert on_reference == {"linear Q4_0", "embed Q4_0"}
    assert near(logits(model), wanted)


def test_wrongly_packed_weights_are_detected(
    kernels: Kernels, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q8_0")
    with GGUFFile.open(path) as file:
        break_packing(kernels, "Q8_0", bytes(file.data("token_embd.weight")))
    assert SlowPart(SlowReason.WRONG_KERNEL, "embed Q8_0") in load(path).slow
    assert "embed on Q8_0 is wrong" in caplog.text


@pytest.mark.parametrize("layer", [0, 3, 6])
def test_first_middle_and_last_layer_are_checked(
    layer: int,
    kernels: Kernels,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q8_0", layers=7)
    with GGUFFile.open(path) as file:
        break_packing(kernels, "Q8_0", bytes(file.data(f"blk.{layer}.ffn_up.weight")))
    assert SlowPart(SlowReason.WRONG_KERNEL, "linear Q8_0") in load(path).slow
    assert "linear on Q8_0 is wrong" in caplog.text


def test_experts_are_checked(
    kernels: Kernels, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All are packed wrongly, so it does not matter which of them the tokens pass."""
    with GGUFFile.open(written(EXPERTS, tmp_path / "m.gguf")) as file:
        info = file.tensors["blk.0.ffn_down_exps.weight"]
        format, shape = info.format.name, info.shape[1:]
        _, sound, _ = checked(file)
        right = kernels["prepare", format]

        def wrong(weight: Weight, *callbacks: object) -> Weight:
            if weight.shape != shape:
                return right(weight, *callbacks)
            return right(Weight(weight.data.roll(1, 0), weight.format, weight.shape), *callbacks)

        kernels["prepare", format] = wrong
        faults, decoder, weights = checked(file)
        assert isinstance(decoder.blocks[0].mlp, Experts)
        assert faults.slow == (SlowPart(SlowReason.WRONG_KERNEL, f"linear {format}"),)
        again = identify(file)[0](file, weights.reread({("cpu", format): Storage.FILE}), 256)
        one, other = (forward_pass.logits(each, [5, 6, 7, 8]) for each in (again, sound))
        assert near(one, other)


@pytest.mark.parametrize("op", ["rms_norm", "rope", "attention", "gated"])
def test_ops_without_weights_are_checked(
    op: str,
    kernels: Kernels,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    right = kernels[op, "F32"]
    path = tiny.write(tmp_path / "m.gguf", architecture="qwen3")
    wanted = logits(load(path))

    def wrong(*operands: object) -> Tensor:
        y = right(*operands)
        return torch.where(torch.arange(y.shape[-1]) == y.shape[-1] - 1, torch.nan, y)

    kernels[op, "F32"] = wrong
    model = load(path)
    assert model.slow == (SlowPart(SlowReason.WRONG_KERNEL, op),)
    assert model.kernels[op] == "reference"
    assert model.kernels["linear F32"] != "reference"
    assert torch.allclose(logits(model), wanted, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_faulty_recorded_program_is_not_used(
    layer: int,
    kernels: Kernels,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Op by op the results are right, so no kernel is at fault and the model runs op by op."""
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0", layers=3)
    wanted = logits(load(path))
    right = kernels["record", "F32"]

    def wrong(program: Program) -> Recorded:
        body = list(program.body)
        end = (*program.layers[1:], len(body))[layer]
        last = max(at for at in range(end) if isinstance(body[at], Add))
        body[last] = replace(body[last], scale=1.01)
        return right(replace(program, body=tuple(body)))

    kernels["record", "F32"] = wrong
    model = load(path)
    assert model.slow == (SlowPart(SlowReason.WRONG_PROGRAM, "program"),)
    assert "reference" not in model.kernels.values()
    assert not model.new_session().runner.is_recorded
    assert near(logits(model), wanted)


# --- memory -------------------------------------------------------------------------------------


def weight_bytes(model: LoadedModel) -> int:
    """Bytes of the weights of all linear layers in memory."""
    blocks = sum(block.size_bytes for block in model.decoder.blocks)
    return blocks + model.decoder.embedding.size_bytes + model.decoder.head.weight.size_bytes


@pytest.fixture
def one_bit(tmp_path: Path) -> Path:
    """A 1-bit model, which would be 28 times as large in float32."""
    return tiny.write(
        tmp_path / "m.gguf", format="Q1_0", hidden=1024, ffn=4096, layers=4, vocabulary=20_000
    )


def test_weights_beyond_the_plan_before_the_check_stay_packed(
    one_bit: Path, kernels: Kernels, caplog: pytest.LogCaptureFixture
) -> None:
    """Though there is memory for them in float32: the user was told less."""
    before = load(one_bit, context=64)
    wanted = logits(before)
    break_products(kernels, "Q1_0", 1.1)
    model = load(one_bit, context=64)
    assert SlowPart(SlowReason.DECODED, "linear Q1_0") in model.slow
    assert SlowPart(SlowReason.WRONG_KERNEL, "linear Q1_0") in model.slow
    assert model.plan.context == before.plan.context
    assert weight_bytes(model) <= model.plan.weights_bytes <= 1.1 * before.plan.weights_bytes
    # Only the scratch of products op by op is new: it was not known that these would be needed.
    added = model.plan.total_bytes - before.plan.total_bytes
    assert added - (model.plan.scratch_bytes - before.plan.scratch_bytes) <= 0
    assert near(logits(model), wanted)


def test_few_weights_are_decoded_after_a_failed_check(
    tmp_path: Path, kernels: Kernels, caplog: pytest.LogCaptureFixture
) -> None:
    """In float32 they are smaller than the buffer in which packed ones are decoded."""
    path = tiny.write(tmp_path / "m.gguf", format="Q1_0")
    before = load(path, context=64)
    break_products(kernels, "Q1_0", 1.1)
    model = load(path, context=64)
    assert model.slow == (SlowPart(SlowReason.WRONG_KERNEL, "linear Q1_0"),)
    assert weight_bytes(model) > 5 * weight_bytes(before)
    assert weight_bytes(model) <= model.plan.weights_bytes
    assert model.plan.context == before.plan.context


def test_weights_that_do_not_fit_decoded_stay_in_the_file_format(
    one_bit: Path,
    kernels: Kernels,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = load(one_bit, context=64)
    wanted = logits(before)
    # Op by op a pass takes more scratch than recorded; float32 weights would take 8 times the total.
    free = 3 * before.plan.total_bytes + ops.DECODING_BYTES
    monkeypatch.setattr("engine.loading.placement.available_memory", lambda: free)
    break_products(kernels, "Q1_0", 1.1)
    model = load(one_bit, context=64)
    assert weight_bytes(model) <= model.plan.weights_bytes <= 1.1 * before.plan.weights_bytes
    assert model.plan.total_bytes <= 0.9 * free
    assert near(logits(model), wanted)


@pytest.mark.sweep
def test_weights_that_do_not_fit_in_any_storage_are_refused(
    one_bit: Path,
    kernels: Kernels,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    needed = load(one_bit, context=64).plan.total_bytes
    monkeypatch.setattr(
        "engine.loading.placement.available_memory", lambda: int(needed / 0.9) + 1000
    )
    break_products(kernels, "Q1_0", 1.1)
    with pytest.raises(OutOfMemory, match="GB of memory are free"):
        load(one_bit, context=64)


def test_only_weights_of_the_faulty_format_are_read_again(
    kernels: Kernels, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny.write(tmp_path / "m.gguf", format="Q4_0")
    prepared: list[str] = []
    for format in ("Q4_0", "F32"):
        right = kernels["prepare", format]

        def counted(weight: Weight, *callbacks: object, right: object = right) -> Weight:
            prepared.append(weight.format.name)
            return right(weight, *callbacks)

        kernels["prepare", format] = counted
    load(path)
    once = prepared.count("F32")
    break_products(kernels, "Q4_0", 1.1)
    prepared.clear()
    load(path)
    assert prepared.count("F32") == once


def test_attention_on_the_reference_is_planned_for(
    kernels: Kernels, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tiny.write(tmp_path / "m.gguf", context=4096)
    before = load(path, cache=CacheType.Q8_0).plan.scratch_bytes
    right = kernels["attention", "F32"]
    kernels["attention", "F32"] = lambda *operands: right(*operands) * 1.1
    assert load(path, cache=CacheType.Q8_0).plan.scratch_bytes > before


# --- models loaded later ------------------------------------------------------------------------


def test_another_format_is_recorded_after_one_failed_the_check(
    kernels: Kernels, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    break_products(kernels, "Q4_0", 1.1)
    refused = load(tiny.write(tmp_path / "a.gguf", format="Q4_0"))
    other = load(tiny.write(tmp_path / "b.gguf", format="Q8_0"))
    assert other.slow == ()
    assert other.new_session().runner.is_recorded
    assert not refused.new_session().runner.is_recorded


def test_each_model_is_checked_separately(
    kernels: Kernels, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A kernel may be wrong for one shape only."""
    path = tiny.write(tmp_path / "m.gguf")
    right = kernels["rms_norm", "F32"]
    kernels["rms_norm", "F32"] = lambda *operands: right(*operands) * 1.1
    refused = load(path)
    wrong = kernels["rms_norm", "F32"]
    kernels["rms_norm", "F32"] = right
    sound = load(path)
    assert refused.slow
    assert sound.slow == ()
    assert sound.new_session().runner.is_recorded
    kernels["rms_norm", "F32"] = wrong
    assert near(logits(refused), logits(sound))


# --- cancelling ---------------------------------------------------------------------------------


def test_load_can_be_cancelled_before_each_step_of_the_check(tmp_path: Path) -> None:
    with GGUFFile.open(tiny.write(tmp_path / "m.gguf", format="Q8_0")) as file:
        build, config = identify(file)
        weights = Weights(file)
        decoder = build(file, weights, config.context)
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1

        find_faults(config, decoder, weights, count)
        assert steps == 4  # a prefill and a token, op by op and as the recorded program
        for allowed in range(steps):
            left = iter(range(allowed))

            def cancel(left: Iterator[int] = left) -> None:
                if next(left, None) is None:
                    raise Cancelled

            with pytest.raises(Cancelled):
                find_faults(config, decoder, weights, cancel)
        assert not find_faults(config, decoder, weights).errors
