"""One model on several backends: right results, state on its device, no silent mixing of devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import oracle
import tiny
import tiny_lora
from engine import CacheType
from engine.adapters.stack import Stack, load_adapter
from engine.core.runner import Runner
from engine.core.session import Session
from engine.models.forward import forward_program
from kernels.backend import pipeline
from kernels.backend.placement import Placement
from kernels.backend.torch_backend import torch_backend
from kernels.backends import BACKENDS
from kernels.ops import Transfer
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program
from other_device import Elsewhere, MixedDevices, OtherDevice
from placed import layers_of, open_placed, placement
from sessions import TOKENS, read, session_over

pytestmark = pytest.mark.sweep

NATIVE = BACKENDS.get("cpu", BACKENDS["reference"])
TORCH = torch_backend("cpu")

# Backends of embedding, layers (the last is repeated) and head: n native, t torch.
PLACEMENTS = ("n nt t", "t tn n", "n tnt n", "t nnt n", "t n n", "n n t", "n t t", "t t n")


def on(path: Path, text: str, second: str = "cpu") -> Placement:
    """A placement from its short form, where t is torch on the device `second`."""
    backends = {"n": NATIVE, "t": torch_backend(second)}
    embedding, layers, head = text.split()
    return placement(path, backends[embedding], [backends[one] for one in layers], backends[head])


def written(name: str, path: Path) -> Path:
    """A recorded model of another family as a file."""
    state = oracle.recorded(name)
    del state["tokens"], state["logits"]
    return oracle.write_gguf(oracle.CASES[name], state, path)


def every_target(path: Path, session: Session, folder: Path) -> Stack:
    """An adapter that changes every matrix, embedding and head included."""
    targets = (*tiny_lora.EVERY, "token_embd", "output")
    file = tiny_lora.write(folder / "lora.gguf", path, seed=3, targets=targets)
    return Stack([(load_adapter(file, session.runner.model.base), 0.7)])


# --- results ------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["llama", "qwen3", "gemma3"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with weights in F32; that of gemma3 has a tied head and two kinds of layers."""
    layers = 7 if request.param == "gemma3" else 4
    file = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return tiny.write(file, architecture=request.param, layers=layers)


@pytest.mark.parametrize("type", [CacheType.F32, CacheType.Q8_0])
def test_a_split_model_answers_as_on_one_backend(path: Path, type: CacheType) -> None:
    pure = [
        read(open_placed(path, Placement.on(backend, layers_of(path)), type))
        for backend in (NATIVE, TORCH)
    ]
    # The codes of an 8-bit cache may differ by one where a value lies between two.
    tolerance = 2e-2 if type is CacheType.Q8_0 else 2e-3
    for text in PLACEMENTS:
        found = read(open_placed(path, on(path, text), type))
        for wanted in pure:
            torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
            assert torch.equal(found.argmax(-1), wanted.argmax(-1)), text


@pytest.mark.parametrize("format", ["Q4_0", "Q4_K", "Q1_0"])
@pytest.mark.parametrize("text", ["n nt t", "t tn n"])
def test_packed_weights_on_both_sides(text: str, format: str, tmp_path: Path) -> None:
    """Native products round their inputs to 8 bits, those of torch do not."""
    file = tiny.write(tmp_path / "m.gguf", format=format, layers=4)
    wanted = read(open_placed(file, Placement.on(TORCH, 4)), steps=0)
    found = read(open_placed(file, on(file, text)), steps=0)
    assert float((found - wanted).abs().max()) < 0.1 * float(wanted.abs().max())


@pytest.mark.parametrize("text", PLACEMENTS)
def test_lowered_stages_equal_interpreted_ones_bit_for_bit(path: Path, text: str) -> None:
    placed = on(path, text)
    lowered = open_placed(path, placed)
    interpreted = Runner(
        lowered.runner.model,
        recorder=lambda program: pipeline.recorded_stages(
            program, placed, lambda backend, stage: Interpreter(stage, backend.ops)
        ),
    )
    assert lowered.runner.is_recorded == ("cpu" in BACKENDS)
    assert not interpreted.is_recorded
    assert torch.equal(read(lowered), read(Session(interpreted, interpreted.new_pool(), 256)))


# --- another device -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", PLACEMENTS)
def test_no_operation_mixes_devices(path: Path, text: str) -> None:
    """With the second backend on another device: the bits it gives on the processor."""
    wanted = read(open_placed(path, on(path, text), CacheType.Q8_0))
    with OtherDevice():
        found = read(open_placed(path, on(path, text, "meta"), CacheType.Q8_0))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", list(oracle.CASES))
@pytest.mark.parametrize("text", ["t tn n", pytest.param("n nt t", marks=pytest.mark.slow)])
def test_no_architecture_mixes_devices(name: str, text: str, tmp_path: Path) -> None:
    """With experts, fused tensors, biases, learned positions and parallel layers."""
    file = written(name, tmp_path / "m.gguf")
    wanted = read(open_placed(file, on(file, text), CacheType.F16))
    with OtherDevice():
        found = read(open_placed(file, on(file, text, "meta"), CacheType.F16))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("text", ["n nt t", "t tn n", "n t n", "t n t"])
def test_adapters_are_on_the_devices_of_the_weights_they_change(
    path: Path, text: str, tmp_path: Path
) -> None:
    session = open_placed(path, on(path, text))
    before = read(session)
    stack = every_target(path, session, tmp_path)
    session.set_stack(stack)
    wanted = read(session)
    assert not torch.equal(wanted, before)
    with OtherDevice():
        elsewhere = open_placed(path, on(path, text, "meta"))
        elsewhere.set_stack(stack)
        assert torch.equal(read(elsewhere), wanted)


def test_an_operand_left_on_the_host_is_detected(path: Path) -> None:
    """So that the tests above can fail."""
    with OtherDevice():
        session = open_placed(path, on(path, "t t t", "meta"))
        model = session.runner.model
        norm = model.norm
        assert isinstance(norm.weight, Elsewhere)
        left = replace(norm, weight=norm.weight.cpu())
        wrong = session_over(replace(model, norm=left))
        with pytest.raises(MixedDevices, match=r"aten\.mul"):
            read(wrong)


@pytest.mark.parametrize(
    ("text", "copies"),
    [
        # Hidden states, then once per stage the token and its position, at last the logits.
        ("n nt t", ["to", "to", "from"]),
        ("t tn n", ["to", "from"]),
        ("n tnt n", ["to", "to", "from", "to", "to", "from"]),
        ("t t t", ["to", "from"]),
    ],
)
def test_a_step_copies_only_what_crosses(path: Path, text: str, copies: list[str]) -> None:
    with OtherDevice() as device:
        session = open_placed(path, on(path, text, "meta"))
        session.step(5)
        device.moves.clear()
        session.step(6)
        assert device.moves == copies


def test_keys_and_values_are_on_the_device_of_their_layer(path: Path) -> None:
    with OtherDevice():
        session = open_placed(path, on(path, "n nt t", "meta"), CacheType.Q8_0)
        read(session)
        layout = session.pool.layout
        (pages,) = session.sequence.pages
        for layer, place in enumerate(layout.layers):
            page = pages[place.group]
            assert page is not None
            assert isinstance(page.data, Elsewhere) == (layer > 0)


# --- state --------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", ["cpu", "meta"])
@pytest.mark.parametrize(
    "type", [CacheType.F32, CacheType.Q8_0, pytest.param(CacheType.F16, marks=pytest.mark.slow)]
)
def test_trimming_a_split_session_equals_a_fresh_one(
    path: Path, second: str, type: CacheType
) -> None:
    with OtherDevice():
        session, fresh = (open_placed(path, on(path, "n nt t", second), type) for _ in range(2))
        read(session)
        session.rewind(25)
        wanted = read(fresh)
        for hidden in session.prefill(TOKENS[25:]):
            assert torch.equal(session.logits(hidden), wanted[25:40])


# --- the program --------------------------------------------------------------------------------


def program_of(path: Path, placed: Placement) -> Program:
    runner = open_placed(path, placed).runner
    return forward_program(runner.model, runner.layout)


def test_a_program_has_transfers_where_backends_meet(path: Path) -> None:
    program = program_of(path, on(path, "t nnt n"))
    crossings = [
        (at, one.backend) for at, one in enumerate(program.body) if isinstance(one, Transfer)
    ]
    assert crossings == [
        (program.layers[0] - 1, NATIVE.name),
        (program.layers[2] - 1, TORCH.name),
    ]
    assert isinstance(program.head[0], Transfer)
    whole = program_of(path, on(path, "n n n"))
    assert not [one for one in (*whole.body, *whole.head) if isinstance(one, Transfer)]


def test_a_tied_head_shares_its_weight_unless_it_is_elsewhere(tmp_path: Path) -> None:
    file = tiny.write(tmp_path / "m.gguf", tied=True)
    whole = open_placed(file, on(file, "n n n")).runner.model
    assert whole.head.weight is whole.embedding
    parted = open_placed(file, on(file, "n n t")).runner.model
    assert parted.head.weight is not parted.embedding
    assert (parted.embedding.layout, parted.head.weight.layout) == (whole.embedding.layout, "file")
