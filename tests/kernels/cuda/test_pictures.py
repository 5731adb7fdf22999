"""Texts with pictures: recorded steps after one, and prompts, as the same program op by op."""

from __future__ import annotations

import pytest
import torch

from cuda_device import FakeDevice
from gpu_pictures import KINDS, Sighted, sighted
from gpu_products import MakeRows
from kernels import cuda
from kernels.cuda.program import Recorded
from kernels.gpu.turns import is_token
from kernels.ops import ImageRows, Segment
from kernels.programs.program import Program
from launch_names import launches

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("few_programs")]

BACKEND = cuda.backend_on(torch.device("cpu"))


def made(
    kind: str, rows: MakeRows, random: torch.Generator, device: FakeDevice | None = None
) -> tuple[Sighted, Recorded]:
    def record(program: Program) -> Recorded:
        return Recorded(program, BACKEND.ops, torch.device("cpu"), device)

    found, plain = sighted(BACKEND, kind, rows, random, record, 5e-4)
    assert isinstance(plain, Recorded)
    return found, plain


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind == "axes" else pytest.mark.slow) for kind in KINDS],
)
def test_steps_after_a_picture_are_captured_with_the_launches_of_any_other(
    kind: str, even_rows: MakeRows, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice()
    one, plain = made(kind, even_rows, random, device)
    recorded = one.recorded
    assert isinstance(recorded, Recorded)
    monkeypatch.setattr(recorded._interpreter, "hidden", lambda *of: pytest.fail("op by op"))
    count = 2 if kind == "axes" else 1  # the second step has other positions of RoPE
    one.check_steps(count)
    assert (device.captured, device.replayed) == (1, count - 1)
    names = launches(monkeypatch, run=False)
    every: list[list[str]] = []
    for some in (plain, recorded):
        names.clear()
        some.prepare()
        every.append(names.copy())
    assert every[0] == every[1]
    assert every[0].count("attend_step") == 2 * every[0].count("embedded")


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if "windowed" in kind else pytest.mark.slow) for kind in KINDS],
)
def test_prompts_with_a_picture_are_two_launches_of_attention_a_piece(
    kind: str, even_rows: MakeRows, random: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = made(kind, even_rows, random)
    one.check_prompt()
    launched = launches(monkeypatch)
    one.recorded.hidden([one.prompt(one.empty())])
    assert launched.count("append_rows") == 2
    pieces = {"axes": 1 + 1, "whole spans": 3 + 3, "windowed spans": 1 + 3}  # of both layers
    assert launched.count("attend_rows") == pieces[kind]


def test_a_row_of_a_picture_alone_is_no_step() -> None:
    """It is read op by op, as a prompt is; a token after a picture is a step."""
    place = torch.zeros(1, 3, dtype=torch.int64)
    row = ImageRows(torch.zeros(1, 4), torch.zeros(1, dtype=torch.int64), place)
    assert not is_token(Segment([0], 5, (), row))
    assert is_token(Segment([0], 5, (), ImageRows(positions=place)))
    assert not is_token(Segment([0, 1], 5, ()))
