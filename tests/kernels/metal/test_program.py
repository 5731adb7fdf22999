"""Recorded decode steps: launches per layer, results, page tables, programs that fuse otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import gpu_decoding
import gpu_results
import tiny
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType
from gpu_decoding import check_body_and_head, check_first_step
from gpu_products import MakeRows, weight_of
from kernels import metal
from kernels.metal import compile
from kernels.metal.program import Recorded
from kernels.ops import Activation, Add, Attend, Embed, Gate, Linear, Norm, Segment, Softcap
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout, LayerShape, PageTable
from kernels.weights.weight import Weight

MOST_ERROR = 1e-6
BACKEND = metal.backend_on(torch.device("cpu"))


def check_close(found: Tensor, wanted: Tensor) -> None:
    gpu_results.check_close(found, wanted, MOST_ERROR)


class Decoding(gpu_decoding.Decoding):
    """A tiny model on the backend."""

    def __init__(self, model: LoadedModel) -> None:
        def record(program: Program) -> Recorded:
            return Recorded(program, BACKEND.ops, torch.device("cpu"))

        super().__init__(model, BACKEND, record, MOST_ERROR)


class Called(TorchDispatchMode):
    """Notes the operations of torch that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.names.append(func.name().split(".")[0])
        return func(*args, **kwargs or {})


def loaded(path: Path, **options: Any) -> LoadedModel:
    tiny.write(path, heads=2, kv_heads=1, head_dim=32, ffn=64, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernels.metal.metal_backend", lambda device: BACKEND)
        return load(path, backend="metal", cache=CacheType.F16)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    return loaded(path, architecture="qwen3", format="Q8_0", layers=2)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that are launched, of launches that are prepared from now on."""
    names: list[str] = []

    class Noted:
        def __init__(self, library: Any) -> None:
            self._library = library

        def __getattr__(self, name: str) -> Callable[..., None]:
            kernel = getattr(self._library, name)

            def launch(*operands: object, **sizes: object) -> None:
                names.append(name)
                kernel(*operands, **sizes)

            return launch

    library = compile.library
    for module in ("attention", "elementwise", "products"):
        monkeypatch.setattr(f"kernels.metal.{module}.library", lambda *of: Noted(library(*of)))
    return names


def test_a_model_is_recorded(model: LoadedModel) -> None:
    assert model.new_runner().is_recorded
    assert not model.new_runner().has_equal_bits()


def test_steps_of_any_number_of_sequences(model: LoadedModel) -> None:
    decoding = Decoding(model)
    sequences = [decoding.sequence(5, 6, 7), decoding.sequence(), decoding.sequence(3, 4)]
    decoding.check(sequences, 9)  # in a bucket of four
    decoding.check(sequences[:1], 8)
    decoding.check([*sequences, *sequences[:2]], 8)  # op by op


def test_body_and_head_are_the_step(model: LoadedModel) -> None:
    check_body_and_head(Decoding(model))


def test_a_longer_page_table_is_prepared_again(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.metal.program._FEWEST_PAGES", 1)
    monkeypatch.setattr("kernels.metal.attention.SPLIT_TOKENS", 100)
    decoding = Decoding(model)
    decoding.step(decoding.recorded, [decoding.sequence()], 9)
    decoding.check([decoding.sequence_of_two_pages()], 9)


def test_pages_of_too_many_buffers_are_run_op_by_op(
    model: LoadedModel, launched: list[str]
) -> None:
    decoding = Decoding(model)
    one = decoding.sequence(4, 3)
    one.reserve(1)
    segment = one.segment([9])
    table = PageTable()
    for page in segment.tables[0].pages * 20:
        assert page is not None
        table.append(page.clone())
    many = Segment([9], 2, [table])
    check_close(decoding.recorded.step([many]), decoding.interpreter.step([segment]))
    assert "attend_step" not in launched
    assert "append_rows" not in launched


def test_a_prompt_is_written_and_attended_by_two_launches(
    model: LoadedModel, launched: list[str]
) -> None:
    decoding = Decoding(model)
    both = [decoding.sequence(5, 6, 7), decoding.sequence()]
    tokens = [[8, 9, 3], [1, 2, 3, 4]]
    for one in both:
        one.reserve(4)
    segments = [one.segment(some) for one, some in zip(both, tokens, strict=True)]
    launched.clear()
    found = decoding.recorded.step(segments)
    assert launched.count("append_rows") == launched.count("attend_rows") == 4
    launched.clear()
    check_close(found, decoding.interpreter.step(segments))
    assert launched.count("append_rows") == 0


def test_a_step_waits_for_nothing(model: LoadedModel) -> None:
    """Inputs are copied to the device at once; no number is read from it."""
    decoding = Decoding(model)
    one = decoding.sequence(5)
    decoding.step(decoding.recorded, [one], 9)
    with Called() as called:
        decoding.step(decoding.recorded, [one], 9)
    assert called.names.count("aten::copy_") == 1
    assert not set(called.names) & {"aten::_local_scalar_dense", "aten::_to_copy", "aten::nonzero"}


def test_a_layer_is_seven_launches(model: LoadedModel, launched: list[str]) -> None:
    """Before the two layers the embedding, after them a norm and the head."""
    decoding = Decoding(model)
    decoding.step(decoding.recorded, [decoding.sequence()], 9)
    attention = ["norm", "products", "attend_step", "product_added"]
    layer = [*attention, "norm", "products_gated", "product_added"]
    assert launched == ["embedded", *layer, *layer, "norm", "products"]


def test_programs_that_fuse_otherwise(even_rows: MakeRows, random: torch.Generator) -> None:
    """Sums and gates of other buffers, four products, attention to another instruction's rows."""
    width = 64

    def matrix() -> Weight:
        return BACKEND.prepare(weight_of("Q8_0", width, width, even_rows))

    def norm(columns: int) -> Tensor:
        return torch.rand(columns, generator=random) + 0.5

    heads = 32, norm(32), norm(32), 1e-6, 1.0 / torch.arange(1, 17), False, 1.0, 32**-0.5
    shared = 32, norm(32), None, *heads[3:]
    body = (
        Embed(matrix(), "x", 1.5),
        Norm("x", norm(width), 1e-6, "n"),
        Linear("n", (matrix(),), ("y",)),
        Add("x", "y", 0.5),
        Linear("x", (matrix(), matrix(), matrix(), matrix()), ("q", "k", "v", "r")),
        Attend("q", "k", "v", "y", 0, *heads),
        Add("x", "y"),
        Attend("r", "", "", "y", 0, *shared),
        Linear("y", (matrix(), matrix()), ("q", "k")),
        Gate("k", "q", Activation.GELU, "q"),
        Gate("q", "", Activation.SILU, "q"),
        Norm("q", norm(width), 1e-6, "q", centred=True, bias=norm(width)),
        Add("x", "q", 2.0),
    )
    head = Linear("x", (matrix(),), ("y",)), Softcap("y", 3.0)
    layout = KVLayout([LayerShape(2, 32)], torch.float16)
    widths = dict.fromkeys(("x", "n", "y", "q", "k", "v", "r"), width)
    program = Program(body, (0,), head, "x", "y", widths, layout)
    recorded = BACKEND.record(program)
    assert isinstance(recorded, Recorded)
    check_first_step(program, recorded, BACKEND, MOST_ERROR)


def test_hidden_states_that_are_given(even_rows: MakeRows, random: torch.Generator) -> None:
    matrix = BACKEND.prepare(weight_of("Q4_0", 64, 64, even_rows))
    body = Linear("x", (matrix,), ("y",)), Add("x", "y")
    layout = KVLayout([], torch.float16)
    widths = {"x": 64, "y": 64}
    program = Program(body, (0,), (Linear("x", (matrix,), ("y",)),), "x", "y", widths, layout)
    recorded = BACKEND.record(program)
    assert isinstance(recorded, Recorded)
    given = torch.randn(3, 64, generator=random)
    segments = [Segment([at], 0, []) for at in range(3)]
    wanted = Interpreter(program, BACKEND.ops)
    check_close(recorded.step(segments, given), wanted.step(segments, given))
    check_close(recorded.hidden(segments, given=given), wanted.hidden(segments, given=given))


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_steps_of_other_families(architecture: str, tmp_path: Path) -> None:
    made = loaded(tmp_path / "m.gguf", architecture=architecture, format="Q4_0", layers=2)
    decoding = Decoding(made)
    decoding.check([decoding.sequence(5, 6, 7)], 9)
