"""HadamardRotation of activations: the transform by its matrix in float64, and what programs make of it."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kernels.backends import BACKENDS
from kernels.ops import Activation, Embed, Experts, Instruction, Linear, LoraDelta, Segment
from kernels.ops.hadamard_rotation import HadamardRotation, hadamard, rotated, rotated_back
from kernels.ops.routing import Routing
from kernels.programs.interpreter import Interpreter
from kernels.programs.not_lowerable import NotLowerable
from kernels.programs.program import Program
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight
from paging import no_attention

T, D, F = 5, 48, 32


def matrix(block: int) -> Tensor:
    """Entry (i, j) is -1 where i & j has an odd number of bits; f64."""
    entries = [
        [-1.0 if (i & j).bit_count() % 2 else 1.0 for j in range(block)] for i in range(block)
    ]
    return torch.tensor(entries, dtype=torch.float64) / block**0.5


def defined(x: Tensor, one: HadamardRotation) -> Tensor:
    """R x in f64: the other order of heads entry by entry, signs, blocks by the matrix."""
    first, second = one.heads
    width = x.shape[1] // (first * second)
    order = [
        (a * second + b) * width + column
        for b in range(second)
        for a in range(first)
        for column in range(width)
    ]
    x = x.double()[:, order]
    if one.signs is not None:
        x = x * one.signs.double()
    blocks = x.view(len(x), -1, one.block)
    return torch.einsum("tbi,ij->tbj", blocks, matrix(one.block)).flatten(1)


def some_signs(width: int, random: torch.Generator) -> Tensor:
    return torch.randint(0, 2, (width,), generator=random).float() * 2 - 1


def f32(rows: int, columns: int, random: torch.Generator) -> Weight:
    return Weight(torch.randn(rows, columns, generator=random), by_name("F32"), (rows, columns))


def rows(x: Weight) -> Tensor:
    return x.data.double()


def close(found: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def head(*instructions: Instruction, **widths: int) -> Program:
    """From x to y."""
    return Program((), (), instructions, "x", "y", widths | {"x": D}, no_attention())


def run(*instructions: Instruction, x: Tensor, **widths: int) -> Tensor:
    return Interpreter(head(*instructions, **widths), BACKENDS["reference"].ops).logits(x)


@pytest.mark.parametrize("block", [1, 2, 8, 32, 128, 1024])
def test_the_transform_is_its_matrix(block: int, random: torch.Generator) -> None:
    x = torch.randn(3, 2 * block, generator=random)
    close(hadamard(x, block), defined(x, HadamardRotation(block)))


@pytest.mark.parametrize("heads", [(1, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize("signed", [False, True])
def test_a_rotation_orders_heads_then_signs_then_transforms(
    heads: tuple[int, int], signed: bool, random: torch.Generator
) -> None:
    x = torch.randn(T, D, generator=random)
    one = HadamardRotation(16, some_signs(D, random) if signed else None, heads)
    found = rotated(x, one)
    close(found, defined(x, one))
    close(rotated_back(found, one), x.double())


def test_a_product_reads_rotated_x_and_its_lora_term_x_itself(random: torch.Generator) -> None:
    x, one = torch.randn(T, D, generator=random), HadamardRotation(8, some_signs(D, random))
    plain, turned = f32(F, D, random), f32(F, D, random)
    delta = LoraDelta(f32(2, D, random), f32(F, 2, random), torch.tensor([0.5, 2.0]))
    instruction = Linear("x", (plain, turned), ("other", "y"), (None, delta), rotations=(None, one))
    low = x.double() @ rows(delta.down).T * delta.scales.double()
    close(
        run(instruction, x=x, y=F, other=F),
        defined(x, one) @ rows(turned).T + low @ rows(delta.up).T,
    )
    swapped = replace(instruction, outs=("y", "other"))
    close(run(swapped, x=x, y=F, other=F), x.double() @ rows(plain).T)


def test_rows_of_a_table_are_rotated_back_before_the_lora_term(random: torch.Generator) -> None:
    one = HadamardRotation(16, some_signs(D, random))
    primal, table = torch.randn(T, D, generator=random), f32(T, D, random)
    table.data.copy_(defined(primal, one))
    delta = LoraDelta(f32(T, 2, random), f32(D, 2, random), torch.tensor([0.5, 2.0]))
    low = rows(delta.down) * delta.scales.double()
    embed = Embed(table, "x", 3.0, delta, rotation=one)
    body = replace(head(), body=(embed,))
    batch = [Segment(tuple(range(T)), 0, ())]
    found = Interpreter(body, BACKENDS["reference"].ops).hidden(batch)
    close(found, (primal.double() + low @ rows(delta.up).T) * 3)


def test_experts_read_rotated_inputs(random: torch.Generator) -> None:
    x, router = torch.randn(T, D, generator=random), f32(2, D, random)
    of_x, inner = HadamardRotation(8, some_signs(D, random)), HadamardRotation(32)
    gates, ups = ([f32(F, D, random) for _ in range(2)] for _ in range(2))
    downs = [f32(D, F, random) for _ in range(2)]
    experts = Experts(
        *("x", "scores", tuple(gates), tuple(ups), tuple(downs), Routing(2)),
        *(Activation.SILU, "y"),
        gate_rotation=of_x,
        up_rotation=of_x,
        down_rotation=inner,
    )
    shares = (x.double() @ rows(router).T).softmax(1)
    wanted, turned = torch.zeros(T, D, dtype=torch.float64), defined(x, of_x)
    for number in range(2):
        gate, up = turned @ rows(gates[number]).T, turned @ rows(ups[number]).T
        middle = defined(functional.silu(gate) * up, inner)
        wanted += shares[:, number, None] * (middle @ rows(downs[number]).T)
    found = run(Linear("x", (router,), ("scores",)), experts, x=x, y=D, scores=2)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("backend", ["cuda", "metal"])
def test_no_gpu_lowers_what_is_rotated(backend: str, random: torch.Generator) -> None:
    if backend == "cuda":
        pytest.importorskip("triton", reason="its kernels are compiled by Triton")
    record = import_module(f"kernels.{backend}.program").record
    one = HadamardRotation(16)
    linear = Linear("x", (f32(F, D, random),), ("y",), rotations=(one,))
    embed = Embed(f32(T, D, random), "y", rotation=one)
    for one, reason in ((linear, "Linear with rotations"), (embed, "Embed with")):
        with pytest.raises(NotLowerable, match=reason):
            record(head(one, y=F), BACKENDS["reference"].ops, torch.device("cpu"))
