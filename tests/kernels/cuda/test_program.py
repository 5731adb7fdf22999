"""Recorded decode steps: launches per layer, results, capture and replay on a device that fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import every_architecture
import gpu_decoding
import tiny
import tiny_lora
from answers import Request
from cuda_device import FakeDevice
from engine.adapters.stack import NO_ADAPTERS, Stack, load_adapter
from engine.cli.quantize import quantize
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType, Sampling
from gpu_decoding import check_body_and_head, check_first_step
from gpu_products import MakeRows, weight_of
from kernels import cuda
from kernels.cuda.graphs import Replay, Step
from kernels.cuda.program import Recorded
from kernels.cuda.sampling import CudaSampler
from kernels.ops import Add, Attend, Embed, Linear, Norm, Segment
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout, LayerShape
from kernels.weights.weight import Weight
from launch_names import launches

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("few_programs")]

MOST_ERROR = 5e-4
BACKEND = cuda.backend_on(torch.device("cpu"))


class Decoding(gpu_decoding.Decoding):
    """A tiny model on the backend, whose launches a device captures."""

    def __init__(
        self, model: LoadedModel, device: FakeDevice | None = None, stack: Stack = NO_ADAPTERS
    ) -> None:
        def record(program: Program) -> Recorded:
            return Recorded(program, BACKEND.ops, torch.device("cpu"), device)

        super().__init__(model, BACKEND, record, MOST_ERROR, stack)


def loaded(path: Path, **options: Any) -> LoadedModel:
    """A tiny model whose heads are whole units of columns, on the backend."""
    return opened(tiny.write(path, heads=2, kv_heads=1, head_dim=32, ffn=64, **options))


def opened(path: Path) -> LoadedModel:
    """A model on the backend."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernels.cuda.cuda_backend", lambda device: BACKEND)
        patch.setattr("kernels.cuda.attention.MOST_SPLITS", 2)
        patch.setattr("kernels.cuda.launch._ROWS", 128)
        return load(path, backend="cuda", cache=CacheType.F16, ids_only=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    return loaded(path, architecture="qwen3", format="Q8_0", layers=2)


def test_a_model_is_recorded(model: LoadedModel) -> None:
    assert model.new_runner().is_recorded
    assert not model.new_runner().has_equal_bits()


def test_steps_of_any_number_of_sequences(model: LoadedModel) -> None:
    device = FakeDevice()
    decoding = Decoding(model, device)
    sequences = [decoding.sequence(5, 6, 7), decoding.sequence(), decoding.sequence(3, 4)]
    decoding.check(sequences, 9)  # in a bucket of four
    assert (device.captured, device.replayed) == (1, 0)
    decoding.step(decoding.recorded, sequences[:1], 8)
    decoding.check(sequences[:1], 8)
    assert (device.captured, device.replayed) == (2, 1)


def test_body_and_head_are_the_step(model: LoadedModel) -> None:
    check_body_and_head(Decoding(model))


def test_the_first_step_is_captured_before_it_is_asked_for(model: LoadedModel) -> None:
    device = FakeDevice()
    decoding = Decoding(model, device)
    decoding.recorded.prepare()
    assert (device.captured, device.replayed) == (1, 0)
    decoding.check([decoding.sequence(5)], 9)
    assert (device.captured, device.replayed) == (1, 1)
    device.fails = True
    with pytest.raises(RuntimeError, match="illegal memory access"):
        decoding.recorded.prepare()


def test_a_longer_page_table_is_captured_again(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.cuda.program._FEWEST_PAGES", 1)
    device = FakeDevice()
    decoding = Decoding(model, device)
    decoding.step(decoding.recorded, [decoding.sequence()], 9)
    assert device.captured == 1
    decoding.check([decoding.sequence_of_two_pages()], 9)
    assert device.captured == 2


def test_a_refused_capture_leaves_the_launches(
    model: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    device = FakeDevice()
    device.refuses = True
    decoding = Decoding(model, device)
    one = decoding.sequence(5)
    with caplog.at_level(logging.INFO, "kernels.cuda.graphs"):
        decoding.step(decoding.recorded, [one], 9)
        decoding.check([one], 8)
    assert caplog.text.count("its capture failed") == 1
    assert device.captured == 0


def test_a_failing_replay_is_raised_and_the_next_one_runs(model: LoadedModel) -> None:
    device = FakeDevice()
    decoding = Decoding(model, device)
    one = decoding.sequence(5)
    decoding.step(decoding.recorded, [one], 9)
    device.fails = True
    with pytest.raises(RuntimeError, match="illegal memory access"):
        decoding.step(decoding.recorded, [one], 9)
    device.fails = False
    decoding.check([one], 9)


def test_a_step_is_captured_after_it_has_run() -> None:
    calls: list[str] = []

    def capture(launches: Callable[[], None]) -> Replay:
        calls.append("capture")
        return lambda: calls.append("replay")

    step = Step(lambda: calls.append("launch"), capture)
    assert not step.is_captured
    step()
    assert step.is_captured
    step()
    assert calls == ["launch", "capture", "replay"]


def test_a_layer_is_five_launches(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the two layers the embedding and a norm, after them a norm and the head."""
    decoding = Decoding(model)
    one = decoding.sequence(5)
    launched = launches(monkeypatch)
    decoding.step(decoding.recorded, [one], 9)
    layer = ["products", "attend_step", "product_added", "products_gated", "product_added"]
    assert launched == ["embedded", "norm", *layer, *layer, "norm", "products"]


def test_programs_that_fuse_otherwise(even_rows: MakeRows, random: torch.Generator) -> None:
    """A product after a norm that is added at once, and attention to rows of another instruction."""
    width = 64

    def matrix() -> Weight:
        return BACKEND.prepare(weight_of("Q8_0", width, width, even_rows))

    def norm(columns: int) -> Tensor:
        return torch.rand(columns, generator=random) + 0.5

    heads = 32, norm(32), norm(32), 1e-6, 1.0 / torch.arange(1, 17), False, 1.0, 32**-0.5
    shared = 32, norm(32), None, *heads[3:]
    body = (
        Embed(matrix(), "x"),
        Norm("x", norm(width), 1e-6, "n"),
        Linear("n", (matrix(),), ("y",)),
        Add("x", "y"),
        Norm("x", norm(width), 1e-6, "n"),
        Linear("n", (matrix(),), ("y",)),  # of a norm that the product before prepared
        Add("x", "y", 0.5),
        Linear("x", (matrix(), matrix(), matrix(), matrix()), ("q", "k", "v", "r")),
        Attend("q", "k", "v", "y", 0, *heads),
        Add("x", "y"),
        Attend("r", "", "", "y", 0, *shared),
        Linear("y", (matrix(),), ("n",)),
        Add("x", "n"),
    )
    layout = KVLayout([LayerShape(2, 32)], torch.float16)
    widths = dict.fromkeys(("x", "n", "y", "q", "k", "v", "r"), width)
    program = Program(body, (0,), (Linear("x", (matrix(),), ("y",)),), "x", "y", widths, layout)
    recorded = BACKEND.record(program)
    assert isinstance(recorded, Recorded)
    check_first_step(program, recorded, BACKEND, MOST_ERROR)


def test_a_product_that_is_added_to_its_own_input(
    even_rows: MakeRows, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of one launch must not read rows that others of it have written."""
    monkeypatch.setattr("kernels.cuda.launch._ROWS", 16)
    matrix = BACKEND.prepare(weight_of("F16", 64, 64, even_rows))
    body = Linear("x", (matrix,), ("y",)), Add("x", "y")
    head = (Linear("x", (matrix,), ("y",)),)
    layout = KVLayout([], torch.float16)
    program = Program(body, (0,), head, "x", "y", {"x": 64, "y": 64}, layout)
    recorded = BACKEND.record(program)
    assert isinstance(recorded, Recorded)
    given = torch.randn(3, 64, generator=random)
    segments = [Segment([at], 0, []) for at in range(3)]
    found = recorded.hidden(segments, given=given)
    wanted = Interpreter(program, BACKEND.ops).hidden(segments, given=given)
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_steps_of_other_families(architecture: str, tmp_path: Path) -> None:
    made = loaded(tmp_path / "m.gguf", architecture=architecture, format="Q4_0", layers=2)
    decoding = Decoding(made)
    decoding.check([decoding.sequence(5, 6, 7)], 9)


# Experts; biases and learned positions; delta nets; short convolutions.
SOME_ARCHITECTURES = ("qwen3moe", "starcoder2", "qwen35", "lfm2")


@pytest.mark.parametrize(
    "architecture",
    [
        name if name in SOME_ARCHITECTURES else pytest.param(name, marks=pytest.mark.slow)
        for name in every_architecture.names()
    ],
)
def test_steps_of_every_architecture(architecture: str, tmp_path: Path) -> None:
    made = opened(
        every_architecture.write(architecture, tmp_path / "m.gguf", context=64, window=16)
    )
    assert isinstance(made.new_runner().recorded(NO_ADAPTERS), Recorded)
    decoding = Decoding(made)
    decoding.check([decoding.sequence(5, 6, 7), decoding.sequence(4)], 9)


def test_a_quantized_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its router reads floats and its experts codes, which one norm leaves."""
    path = every_architecture.write("qwen3moe", tmp_path / "f.gguf", context=64, window=16)
    quantize(path, tmp_path / "m.gguf", "Q8_0")
    decoding = Decoding(opened(tmp_path / "m.gguf"))
    one = decoding.sequence(5, 6)
    launched = launches(monkeypatch)
    decoding.check([one], 9)
    at = launched.index("routed")
    mixture = ["norm", "products", "routed", "experts_gated", "experts_added"]
    assert launched[at - 2 : at + 3] == mixture, launched


def test_steps_of_more_sequences_than_a_program_multiplies(model: LoadedModel) -> None:
    device = FakeDevice()
    decoding = Decoding(model, device)
    sequences = [decoding.sequence(), decoding.sequence(5, 6)]
    sequences += [decoding.sequence() for _ in range(3)]
    decoding.check(sequences, 9)
    assert device.captured == 1
    decoding.step(decoding.recorded, [*sequences, decoding.sequence()], 8)
    assert (device.captured, device.replayed) == (1, 1)  # both in the bucket of eight


def test_steps_with_adapters(model: LoadedModel, tmp_path: Path) -> None:
    """Of every matrix; each stack is captured once, however often it is chosen."""
    device = FakeDevice()
    plain = Decoding(model, device)
    file = tmp_path / "lora.gguf"
    every = (*tiny_lora.EVERY, "token_embd", "output")
    tiny_lora.write(file, model.path, seed=3, rank=5, targets=every)
    stack = Stack([(load_adapter(file, model.decoder.base), 0.7)])
    adapted = Decoding(model, device, stack)
    one, other = plain.sequence(5, 6), adapted.sequence(5, 6)
    adapted.check([other], 9)
    without = plain.step(plain.recorded, [one], 9)
    assert not torch.allclose(adapted.step(adapted.recorded, [other], 9), without, atol=0.1)
    assert torch.equal(plain.step(plain.recorded, [one], 9), without)
    assert (device.captured, device.replayed) == (2, 2)


@pytest.mark.slow
def test_steps_of_more_sequences_with_adapters_and_experts(
    model: LoadedModel, tmp_path: Path
) -> None:
    file = tiny_lora.write(tmp_path / "lora.gguf", model.path, targets=tiny_lora.EVERY)
    adapted = Decoding(model, stack=Stack([(load_adapter(file, model.decoder.base), 0.7)]))
    adapted.check([adapted.sequence(number) for number in range(5)], 9)
    path = every_architecture.write("qwen3moe", tmp_path / "f.gguf", context=64, window=16)
    quantize(path, tmp_path / "m.gguf", "Q8_0")
    mixture = Decoding(opened(tmp_path / "m.gguf"))
    mixture.check([mixture.sequence(number) for number in range(5)], 9)


def test_an_answer_is_drawn_on_the_device(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same tokens as on the host, with penalties, a seed, and several answers."""
    monkeypatch.setattr("kernels.cuda.sampling.MOST_CANDIDATES", 64)
    monkeypatch.setattr("kernels.cuda.sampling._BLOCK", 32)
    sampling = Sampling(temperature=0.8, top_k=6, repeat_penalty=1.2, seed=4)
    scheduler = model.new_scheduler()
    assert isinstance(scheduler.runner.device_sampler, CudaSampler)
    launched = launches(monkeypatch)

    def answer() -> dict[int, list[int]]:
        return scheduler.run(Request([5, 6], sampling, max_tokens=3, count=2)).answers

    found = answer()
    assert launched.count("drawn") == 2  # after the first token, which both answers begin with
    scheduler.runner.device_sampler = None
    assert answer() == found
    assert launched.count("drawn") == 2
