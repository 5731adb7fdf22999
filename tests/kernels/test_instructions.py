"""A checklist of instructions, and how a backend runs one that it has no kernel for."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from kernels.backend.backend import Backend
from kernels.backends import BACKENDS
from kernels.cpu import library
from kernels.cpu.operations import kind_of
from kernels.cpu.schema import OpKind
from kernels.ops import InPlace, Instruction, Pass, StreamWeights
from kernels.ops.in_place import op_name
from kernels.programs.interpreter import Interpreter
from kernels.programs.not_lowerable import NotLowerable
from kernels.programs.program import Program
from paging import no_attention

TESTS = Path(__file__).parent
IN_PLACE = tuple({one.__name__: one for one in InPlace.__subclasses__()}.values())
INSTRUCTIONS: tuple[type, ...] = (
    *(one for one in get_args(Instruction) if one is not InPlace),
    *IN_PLACE,
)


@dataclass(frozen=True, slots=True, eq=False)
class MadeUp:
    """x = 3 x² - 2 x³, of x cut to 0 to 1."""

    x: str

    def run(self, on: Pass) -> None:
        x = on.buffers[self.x].clamp(0, 1)
        on.set(self.x, x * x * (3 - 2 * x))


def program() -> Program:
    one: Any = MadeUp("x")
    return Program((one,), (0,), (one,), "x", "x", {"x": 3}, no_attention())


def recording(name: str) -> Any:
    """The function of a backend that lowers programs."""
    if name == "cuda":
        pytest.importorskip("triton", reason="its kernels are compiled by Triton")
    if name == "cpu" and not library.available():
        pytest.skip(library.reason())
    return import_module(f"kernels.{name}.program").record


@pytest.mark.parametrize("name", ["cpu", "cuda", "metal"])
def test_a_made_up_instruction_is_interpreted_and_named(name: str) -> None:
    record, ops = recording(name), BACKENDS["reference"].ops
    operands = () if name == "cpu" else (ops, torch.device("cpu"))

    def lower(made: Program) -> object:
        return record(made, *operands)

    with pytest.raises(NotLowerable, match=r"^MadeUp$"):
        lower(program())
    recorded = Backend(name, {("record", "F32"): lower}).record(program())
    assert isinstance(recorded, Interpreter)
    assert recorded.reason == "MadeUp"
    found: Tensor = recorded.logits(torch.tensor([[-1.0, 0.5, 0.25]]))
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.5, 0.15625]]))


def test_a_fetch_is_given_the_checkpoint_of_the_pass() -> None:
    calls: list[object] = []

    class Noted:
        read_bytes = 0

        def fetch(
            self, layer: int, upcoming: Sequence[int], checkpoint: Callable[[], None]
        ) -> None:
            calls.append((layer, upcoming, checkpoint))

    def checkpoint() -> None:
        pass

    body = (StreamWeights(Noted(), 2, (3, 5)),)
    made = Program(body, (0,), (), "x", "x", {"x": 1}, no_attention())
    Interpreter(made, BACKENDS["reference"].ops).hidden([], checkpoint, torch.zeros(0, 1))
    assert calls == [(2, (3, 5), checkpoint)]


@pytest.mark.parametrize("one", INSTRUCTIONS, ids=lambda one: one.__name__)
def test_an_instruction_has_a_file_and_a_test(one: type) -> None:
    assert one.__module__ == f"kernels.ops.{op_name(one)}"
    uses = re.compile(rf"\b{one.__name__}\(")
    assert any(uses.search(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("one", IN_PLACE, ids=op_name)
def test_an_instruction_that_changes_in_place_is_a_native_operation(one: type) -> None:
    assert kind_of(one) is OpKind[op_name(one).upper()]
