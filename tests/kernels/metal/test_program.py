"""Recorded decode steps: launches per layer, results, page tables, programs that fuse otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import tiny
from engine.inference.runner import Runner
from engine.loading.loader import LoadedModel, load
from engine.messages import CacheType
from engine.models.forward import forward_program
from engine.state.sequence import Sequence
from kernels import metal
from kernels.formats import Format, by_name
from kernels.interpreter import Interpreter
from kernels.kv_pages import KVLayout, LayerShape, PageTable
from kernels.metal import compile
from kernels.metal.program import Recorded
from kernels.program import (
    Activation,
    Add,
    Attend,
    Embed,
    Gate,
    Linear,
    Norm,
    Program,
    Segment,
    Softcap,
)
from kernels.weight import Weight

MakeRows = Callable[[Format, int, int], Tensor]

MOST_ERROR = 1e-6
BACKEND = metal.backend_on(torch.device("cpu"))


def check_close(found: Tensor, wanted: Tensor) -> None:
    error = float((found.double() - wanted).square().sum() / wanted.double().square().sum())
    assert error <= MOST_ERROR, error


class Decoding:
    """A tiny model on the backend, and sequences that it continues by single tokens."""

    def __init__(self, model: LoadedModel) -> None:
        runner = Runner(model.decoder, CacheType.F16)
        self.pool = runner.new_pool()
        program = forward_program(model.decoder, self.pool.layout)
        self.recorded = Recorded(program, BACKEND.ops, torch.device("cpu"))
        self.interpreter = Interpreter(program, BACKEND.ops)

    def sequence(self, *tokens: int) -> Sequence:
        made = Sequence(self.pool, 600)
        if tokens:
            made.reserve(len(tokens))
            self.interpreter.hidden([made.segment(list(tokens))])
            made.commit(list(tokens))
        return made

    def step(self, run: Interpreter | Recorded, sequences: list[Sequence], token: int) -> Tensor:
        """One token more for each of the sequences, whose rows are not committed."""
        for one in sequences:
            one.reserve(1)
        return run.step([one.segment([token]) for one in sequences])

    def check(self, sequences: list[Sequence], token: int) -> None:
        found = self.step(self.recorded, sequences, token)
        check_close(found, self.step(self.interpreter, sequences, token))


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
    decoding = Decoding(model)
    one = decoding.sequence(5, 6)
    one.reserve(1)
    segments = [one.segment([7])]
    step = decoding.recorded.step(segments)
    apart = decoding.recorded.logits(decoding.recorded.hidden(segments))
    assert torch.equal(step, apart)
    stopped = RuntimeError("stop")

    def stop() -> None:
        raise stopped

    with pytest.raises(RuntimeError, match="stop"):
        decoding.recorded.hidden(segments, stop)


def test_a_longer_page_table_is_prepared_again(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernels.metal.program._FEWEST_PAGES", 1)
    monkeypatch.setattr("kernels.metal.attention.SPLIT_TOKENS", 100)
    decoding = Decoding(model)
    decoding.step(decoding.recorded, [decoding.sequence()], 9)
    long = decoding.sequence()
    long.reserve(257)  # two pages, whose rows are zeros
    for page in long.segment([9]).tables[0].pages:
        assert page is not None
        page.zero_()
    long.commit([3] * 256)
    decoding.check([long], 9)


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
        format = by_name("Q8_0")
        data = even_rows(format, width + 1, width)[1:]
        made = Weight.from_bytes(data.numpy().data.cast("B"), format, (width, width))
        return BACKEND.prepare(made)

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
    table = PageTable()
    table.append(torch.zeros(layout.page_bytes[0], dtype=torch.uint8))
    segments = [Segment([7], 0, [table])]
    found = recorded.step(segments)
    check_close(found, Interpreter(program, BACKEND.ops).step(segments))


def test_hidden_states_that_are_given(even_rows: MakeRows, random: torch.Generator) -> None:
    format = by_name("Q4_0")
    data = even_rows(format, 65, 64)[1:]
    matrix = BACKEND.prepare(Weight.from_bytes(data.numpy().data.cast("B"), format, (64, 64)))
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
