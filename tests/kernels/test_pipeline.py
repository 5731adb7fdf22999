"""Stages: a program is cut at its transfers, and each part runs on its backend."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernels.backend.backend import Backend
from kernels.backend.pipeline import PipelineProgram, record, recorded_stages, split
from kernels.backend.placement import Placement
from kernels.backend.torch_backend import torch_backend
from kernels.backends import BACKENDS
from kernels.cpu import library
from kernels.ops import Add, Embed, Linear, Norm, Segment, Softcap, Transfer
from kernels.programs.interpreter import Interpreter
from kernels.programs.program import Program, Recorded
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from paging import no_attention

ONE, TWO = BACKENDS["reference"], torch_backend("cpu")
D, V = 8, 11


def weight(rows: int, seed: int) -> Weight:
    values = torch.randn(rows, D, generator=torch.Generator().manual_seed(seed))
    return Weight(values, by_name("F32"), (rows, D))


def layer(seed: int) -> list[Norm | Linear | Add]:
    """x = x + W norm(x)."""
    norm = Norm("x", torch.linspace(0.5, 2, D), 1e-5, "normed")
    return [norm, Linear("normed", (weight(D, seed),), ("y",)), Add("x", "y")]


def program(*crossings: str, head: str = "") -> Program:
    """Three layers, before which the program crosses to the backends named; "" stays."""
    body: list[Embed | Norm | Linear | Add | Transfer] = [Embed(weight(V, 0), "x")]
    starts: list[int] = []
    for seed, crossing in enumerate((*crossings, "", "", "")[:3]):
        body += [Transfer("x", crossing)] if crossing else []
        starts.append(len(body))
        body += layer(seed + 1)
    ends: list[Transfer | Linear | Softcap] = [Transfer("x", head)] if head else []
    ends += [Linear("x", (weight(V, 0),), ("logits",)), Softcap("logits", 9.0)]
    widths = {"x": D, "normed": D, "y": D, "logits": V}
    return Program(tuple(body), tuple(starts), tuple(ends), "x", "logits", widths, no_attention())


def batch(*tokens: int) -> list[Segment]:
    """One sequence without keys and values."""
    return [Segment(tokens, 0, ())]


def placed(*backends: Backend) -> Placement:
    return Placement(ONE, backends, backends[-1])


def test_a_program_without_transfers_is_one_stage() -> None:
    whole = program()
    (stage,) = split(whole, ONE.name)
    assert stage.backend == ONE.name
    assert (stage.program.body, stage.program.head) == (whole.body, whole.head)
    assert stage.program.layers == whole.layers
    assert stage.program.widths == whole.widths


def test_stages_have_their_instructions_layers_and_buffers() -> None:
    whole = program("", TWO.name, ONE.name, head=TWO.name)
    first, second, third, head = split(whole, ONE.name)
    assert [one.backend for one in (first, second, third, head)] == [
        ONE.name, TWO.name, ONE.name, TWO.name,
    ]  # fmt: skip
    parts = [one.program for one in (first, second, third, head)]
    assert parts[0].body == whole.body[:4]
    assert parts[1].body == whole.body[5:8]
    assert parts[2].body == whole.body[9:]
    assert parts[3].body == ()
    assert [part.layers for part in parts] == [(1,), (0,), (0,), ()]
    assert [part.head for part in parts[:3]] == [(), (), ()]
    assert parts[3].head == whole.head[1:]
    assert set(parts[0].widths) == {"x", "normed", "y"}
    assert set(parts[3].widths) == {"x", "logits"}


def test_a_stage_of_only_the_embedding_has_only_its_buffer() -> None:
    first, last = split(program(TWO.name), ONE.name)
    assert [type(one) for one in first.program.body] == [Embed]
    assert first.program.widths == {"x": D}
    assert len(last.program.head) == 2


@pytest.mark.parametrize(
    ("crossings", "head"),
    [((), TWO.name), ((TWO.name,), ""), (("", TWO.name, ONE.name), TWO.name), (("", TWO.name), "")],
)
def test_stages_give_the_bits_of_the_whole_program(crossings: tuple[str, ...], head: str) -> None:
    names = {ONE.name: ONE, TWO.name: TWO}
    backends: list[Backend] = []
    current = ONE.name
    for crossing in (*crossings, "", "", "")[:3]:
        current = crossing or current
        backends.append(names[current])
    placement = Placement(ONE, tuple(backends), names[head or current])
    staged = record(program(*crossings, head=head), placement)
    assert isinstance(staged, PipelineProgram)
    whole = Interpreter(program(), ONE.ops)
    several = [*batch(3, 0), *batch(10), *batch(3)]
    hidden = staged.hidden(several)
    assert torch.equal(hidden, whole.hidden(several))
    assert torch.equal(staged.logits(hidden), whole.logits(hidden))
    assert torch.equal(staged.step(several), whole.step(several))


def test_a_checkpoint_is_called_before_each_layer_of_each_stage() -> None:
    calls: list[int] = []
    staged = record(program("", TWO.name), placed(ONE, TWO, TWO))
    staged.hidden(batch(1), lambda: calls.append(1))
    assert len(calls) == 3


def test_refused_ops_are_those_of_the_backend_named(caplog: pytest.LogCaptureFixture) -> None:
    """The other backend may run them: a failed check is one of a backend's kernels."""
    seen: dict[str, Recorded] = {}

    def wrong(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        return torch.full_like(x, 3.0) * weight * epsilon

    faulty = Backend("faulty", {("rms_norm", "F32"): wrong})
    placement = Placement(ONE, (ONE, faulty, faulty), faulty)
    sound = Interpreter(program(), ONE.ops).step(batch(1))
    crossing = program("", "faulty")
    assert not torch.equal(record(crossing, placement).step(batch(1)), sound)
    kept = record(crossing, placement, {"faulty": {"rms_norm"}})
    assert torch.equal(kept.step(batch(1)), sound)
    assert not torch.equal(
        record(crossing, placement, {ONE.name: {"rms_norm"}}).step(batch(1)), sound
    )
    recorded_stages(
        crossing,
        placement,
        lambda backend, stage: seen.setdefault(backend.name, Interpreter(stage, backend.ops)),
    )
    assert list(seen) == [ONE.name, "faulty"]


def test_transfers_elsewhere_are_refused() -> None:
    whole = program()
    with pytest.raises(ValueError, match="'y' is not the buffer of the hidden states"):
        split(replace(whole, body=(*whole.body, Transfer("y", "b"))), "a")
    with pytest.raises(ValueError, match="only be the first instruction of a head"):
        split(replace(whole, head=(*whole.head, Transfer("x", "b"))), "a")
    with pytest.raises(ValueError, match="not split in stages"):
        Interpreter(program(TWO.name), ONE.ops).hidden(batch(1))


@pytest.mark.skipif(not library.available(), reason=library.reason())
def test_a_native_backend_lowers_no_program_with_transfers() -> None:
    assert isinstance(BACKENDS["cpu"].record(program(TWO.name)), Interpreter)


# --- words --------------------------------------------------------------------------------------


def test_a_placement_is_described_by_runs_of_layers() -> None:
    shown = {ONE.name: "cpu avx512", TWO.name: "torch cuda"}
    assert Placement.on(ONE, 4).words(shown) == "cpu avx512"
    split_words = Placement.split([(ONE, 12), (TWO, 11), (ONE, 1)]).words(shown)
    assert split_words == "layers 1-12: cpu avx512, 13-23: torch cuda, 24: cpu avx512"
    assert Placement(TWO, (ONE, ONE), TWO).words(shown) == (
        "embedding: torch cuda, layers 1-2: cpu avx512, head: torch cuda"
    )


def test_a_placement_lists_its_backends_once() -> None:
    assert Placement(TWO, (ONE, TWO, ONE), ONE).backends == (TWO, ONE)
    assert Placement.split([(ONE, 2), (TWO, 1)]).of_layers([0, 2]).layers == (ONE, TWO)
    assert Placement.on(ONE, 3).macs_per_100_ms() == ONE.macs_per_100_ms()
