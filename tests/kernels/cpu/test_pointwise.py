"""Native norms, rotations, gates, caps and rows of pages, on every instruction set.

Outputs lie inside memory filled with NaN, so what a kernel leaves out or writes too much of shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import paging
from kernels.backend import reference
from kernels.cpu import library, ops, program, weights
from kernels.cpu.ops import FewOps
from kernels.cpu.schema import NativeActivation, OpKind
from kernels.ops import Activation, Attend, Clip, Embed, InPlace, Segment, Xielu
from kernels.ops.softcap import softcap
from kernels.programs.program import Program
from kernels.states.kv_pages import KVLayout, LayerShape, PagedKV, PageTable
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

pytestmark = pytest.mark.usefixtures("instruction_set")

GUARD = 64  # floats before and after a result
WIDTHS = (1, 3, 15, 16, 17, 64, 80, 100, 576, 2049)
COUNTS = (1, 7, 16, 33, 1000, 70_001)
NAN, INF = math.nan, math.inf
SPECIAL = (0.0, -0.0, INF, -INF, NAN, 1e38, -1e38, 1e20, -1e20, 89.0, -89.0, 104.0, -104.0, 1e-30)
ACTIVATIONS = {Activation[one.name]: one for one in NativeActivation}

pointer = library.pointer


class Result:
    """A tensor [shape] f32 of NaN with guards around it."""

    def __init__(self, *shape: int) -> None:
        size = math.prod(shape)
        self._memory = torch.full((size + 2 * GUARD,), NAN)
        self.tensor = self._memory[GUARD : GUARD + size].view(shape)

    def checked(self) -> Tensor:
        """What was written, once nothing around it was."""
        assert self._memory[:GUARD].isnan().all()
        assert self._memory[-GUARD:].isnan().all()
        return self.tensor


def run(kind: OpKind, rows: int, **fields: object) -> None:
    """Run one operation over so many rows."""
    few = FewOps()
    few.add(kind, **fields)
    few.run(rows)


def assert_close(got: Tensor, wanted: Tensor, relative: float, absolute: float = 1e-37) -> None:
    """Each number by itself; `wanted` is in double precision."""
    error = (got.double() - wanted).abs()
    allowed = wanted.abs() * relative + absolute
    worst = int((error - allowed).argmax())
    assert (error <= allowed).all(), (got.view(-1)[worst], wanted.view(-1)[worst])


# --- norm ---------------------------------------------------------------------------------------


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    y = Result(*x.shape)
    run(OpKind.NORM, len(x), x=x, out=y.tensor, width=x.shape[1], weight=weight, epsilon=epsilon)
    return y.checked()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("magnitude", [1.0, 1e-3, 3e4])
def test_norm_equals_the_reference(width: int, magnitude: float, random: torch.Generator) -> None:
    for tokens in (1, 3, 40):
        x = torch.randn(tokens, width, generator=random) * magnitude
        weight = torch.randn(width, generator=random)
        wanted = reference.rms_norm(x.double(), weight.double(), 1e-6)
        assert_close(norm(x, weight, 1e-6), wanted, 1e-6)


def test_norm_in_place_and_token_by_token_gives_the_same_bits(random: torch.Generator) -> None:
    x, weight = torch.randn(37, 147, generator=random), torch.randn(147, generator=random)
    together = norm(x, weight, 1e-5)
    assert torch.equal(torch.cat([norm(row[None], weight, 1e-5) for row in x]), together)
    run(OpKind.NORM, len(x), x=x, out=x, width=x.shape[1], weight=weight, epsilon=1e-5)
    assert torch.equal(x, together)


# --- rotation -----------------------------------------------------------------------------------


def turned(x: Tensor, positions: Tensor, frequencies: Tensor, interleaved: bool) -> Tensor:
    y, pairs = Result(*x.shape), len(frequencies)
    y.tensor.copy_(x)
    few, cosines = FewOps(), Result(len(x), 2 * pairs)
    angles = few.buffer(cosines.tensor)
    few.add(OpKind.ANGLES, out=angles, pairs=pairs, weight=frequencies, scale=1.25)
    shape = {"heads": x.shape[1], "head_width": x.shape[2], "pairs": pairs}
    few.add(OpKind.ROPE, x=y.tensor, out=angles, interleaved=interleaved, **shape)
    few.run([(1, position, ()) for position in positions.tolist()])
    cosines.checked()
    return y.checked()


@pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "neighbours"])
@pytest.mark.parametrize(
    ("width", "pairs"), [(2, 1), (64, 32), (80, 40), (80, 20), (34, 17), (256, 96), (5, 1), (7, 0)]
)
def test_rotation_equals_the_reference(
    width: int, pairs: int, interleaved: bool, random: torch.Generator
) -> None:
    x = torch.randn(9, 3, width, generator=random)
    positions = torch.randint(0, 3000, (9,), generator=random)
    frequencies = torch.rand(pairs, generator=random)
    wanted = reference.rope(x, positions, frequencies, interleaved, 1.25)
    assert_close(turned(x, positions, frequencies, interleaved), wanted.double(), 0, 3e-6)


def test_rotation_of_consecutive_tokens_gives_the_same_bits(random: torch.Generator) -> None:
    x, frequencies = torch.randn(5, 2, 70, generator=random), torch.rand(33, generator=random)
    positions = torch.arange(100, 105)
    wanted = turned(x, positions, frequencies, interleaved=False)
    assert torch.equal(ops.rope(x, positions, frequencies, False, 1.25), wanted)


# --- gates and caps -----------------------------------------------------------------------------


def gate(x: Tensor, up: Tensor | None, activation: Activation, limit: float = 0.0) -> Tensor:
    y, factor = Result(len(x)), {} if up is None else {"y": up}
    fields = {"width": len(x), "activation": ACTIVATIONS[activation], "limit": limit}
    run(OpKind.GATE, 1, x=x, **factor, out=y.tensor, **fields)
    return y.checked()


def cap(x: Tensor, most: float) -> Tensor:
    y = Result(len(x))
    y.tensor.copy_(x)
    run(OpKind.SOFTCAP, 1, x=y.tensor, width=len(x), cap=most)
    return y.checked()


def changed(one: InPlace, x: Tensor) -> Tensor:
    """What an instruction makes of elements [n]."""
    return ops.in_place(one, x[None], x[None])[0]


def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def gelu_tanh(x: Tensor) -> Tensor:
    """x / 2 * (1 + tanh u) without the difference that leaves nothing of small results."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x / (1 + torch.exp(-2 * u))


@pytest.mark.parametrize("count", COUNTS)
def test_gates_equal_their_formulas(count: int, random: torch.Generator) -> None:
    x, up = torch.randn(2, count, generator=random) * 3
    exact = x.double()
    assert_close(gate(x, up, Activation.SILU), silu(exact) * up.double(), 1e-6)
    # The exponent is a cube here, and rounding it weighs more the larger it is.
    assert_close(gate(x, up, Activation.GELU_TANH), gelu_tanh(exact) * up.double(), 2e-5, 1e-30)


@pytest.mark.parametrize("limit", [0.0, 1.5])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_with_and_without_a_factor_and_a_limit(
    activation: Activation, limit: float, random: torch.Generator
) -> None:
    x, up = torch.randn(2, 1003, generator=random) * 4
    for factor in (None, up):
        exact = None if factor is None else factor.double()
        wanted = reference.gated(x.double(), exact, activation, limit)
        assert_close(gate(x, factor, activation, limit), wanted, 2e-5, 1e-7)


def test_softplus_and_sigmoid_are_right_over_the_whole_range() -> None:
    x, one = torch.linspace(-85, 120, 40_001), torch.ones(40_001)
    for activation in (Activation.SOFTPLUS, Activation.SIGMOID):
        wanted = reference.gated(x.double(), None, activation)
        if activation is Activation.SOFTPLUS:
            wanted = torch.log1p(x.double().exp())
        assert_close(gate(x, one, activation), wanted, 1e-6)


def test_xielu_equals_its_formula(random: torch.Generator) -> None:
    one = Xielu("x", 0.8, 0.4, 0.5, -1e-6)
    for count in COUNTS:
        x = torch.randn(count, generator=random) * 3
        assert_close(changed(one, x), one.definition(x.double(), x), 1e-6, 1e-6)


def test_gates_are_right_over_the_whole_range() -> None:
    x, one = torch.linspace(-85, 120, 40_001), torch.ones(40_001)
    assert_close(gate(x, one, Activation.SILU), silu(x.double()), 1e-6)
    x = torch.linspace(-3, 50, 40_001)
    assert_close(gate(x, one, Activation.GELU_TANH), gelu_tanh(x.double()), 2e-6)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gates_take_infinities_and_nan_as_the_reference_does(activation: Activation) -> None:
    # torch's exact GELU of infinity is NaN in its vectors and infinite elsewhere; ours is infinite.
    is_gelu = activation is Activation.GELU
    x = torch.tensor([one for one in SPECIAL if not (is_gelu and one == INF)])
    for up in (torch.ones(len(x)), torch.full((len(x),), -2.0)):
        wanted = reference.gated(x, up, activation)
        got = gate(x, up, activation)
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("most", [30.0, 0.5, 50.0])
def test_cap_equals_its_formula(most: float, random: torch.Generator) -> None:
    for count in COUNTS:
        x = torch.randn(count, generator=random) * most
        x[::3] *= 1e-4  # where a difference of large numbers would leave nothing
        assert_close(cap(x, most), torch.tanh(x.double() / most) * most, 1e-6)
    got = cap(torch.tensor(SPECIAL), most)
    wanted = softcap(torch.tensor(SPECIAL), most)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0, equal_nan=True)
    assert got[~got.isnan()].abs().max() <= most


@pytest.mark.parametrize("bounds", [(-1.5, 2.0), (0.5, 0.5), (-INF, 1.0), (-INF, INF)])
def test_clip_cuts_to_its_range(bounds: tuple[float, float], random: torch.Generator) -> None:
    for x in (
        torch.tensor(SPECIAL),
        *(3 * torch.randn(count, generator=random) for count in COUNTS),
    ):
        one = Clip("x", *bounds)
        torch.testing.assert_close(
            changed(one, x), one.definition(x, x), rtol=0, atol=0, equal_nan=True
        )


ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": lambda x: gate(x, torch.ones_like(x), Activation.SILU),
    "gelu_tanh": lambda x: gate(x, torch.ones_like(x), Activation.GELU_TANH),
    "softcap": lambda x: cap(x, 30.0),
    "clip": lambda x: changed(Clip("x", -2.0, 3.0), x),
    "softplus": lambda x: gate(x, None, Activation.SOFTPLUS),
    "sigmoid": lambda x: gate(x, x, Activation.SIGMOID, 3.0),
    "xielu": lambda x: changed(Xielu("x", 0.8, 0.4, 0.5, -1e-6), x),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elements_do_not_depend_on_where_a_tensor_is_cut(
    name: str, random: torch.Generator
) -> None:
    x = torch.randn(300, generator=random) * 5
    whole = ELEMENTWISE[name](x)
    for first, end in ((0, 1), (1, 300), (3, 20), (17, 33), (100, 131), (299, 300)):
        assert torch.equal(ELEMENTWISE[name](x[first:end].clone()), whole[first:end])


@pytest.mark.parametrize("threads", [2, 3])
def test_elements_do_not_depend_on_threads(threads: int, random: torch.Generator) -> None:
    x = torch.randn(200_003, generator=random) * 5
    library.set_threads(1)
    alone = [run(x) for run in ELEMENTWISE.values()]
    library.set_threads(threads)
    assert all(torch.equal(run(x), y) for run, y in zip(ELEMENTWISE.values(), alone, strict=True))


# --- rows of pages ------------------------------------------------------------------------------


def layout_of(width: int, dtype: torch.dtype) -> KVLayout:
    """Two layers of different windows, and the second layer of the first group."""
    return KVLayout([LayerShape(2, 8, 512), LayerShape(2, 8), LayerShape(2, width)], dtype)


def paged(x: Tensor, layout: KVLayout, pieces: Sequence[tuple[int, int]]) -> list[Tensor]:
    """Pages in which a recorded pass stored the keys and values x [T, 2, width] of the last layer.

    The pass looks its values up in a table that holds them, turns no channel, and attends. It runs
    for each piece: position and number of tokens.
    """
    tokens, heads, width = x.shape
    table = Weight(x.reshape(tokens, -1).view(torch.uint8), by_name("F32"), (tokens, heads * width))
    packed, still = weights.prepare(table), torch.ones(0)  # no frequencies: no rotation
    names = ("q", "k", "v", "y")
    body = (
        *(Embed(packed, name) for name in names[:3]),
        Attend(*names, 2, width, None, None, 0.0, still, False, 1.0, scale=1.0),
    )
    widths = dict.fromkeys((*names, "logits"), heads * width)
    recorded = program.record(Program(body, (0,), (), "y", "logits", widths, layout))
    assert recorded
    tables = paging.tables(layout, 600)
    first = 0
    for position, count in pieces:
        recorded.hidden([Segment(range(first, first + count), position, tables)])
        first += count
    return [page for table in tables for page in table.pages if page is not None]


def by_definition(x: Tensor, layout: KVLayout, pieces: Sequence[tuple[int, int]]) -> list[Tensor]:
    """The pages of `paged`, written by the definition of pages."""
    tables = paging.tables(layout, 600)
    kv = PagedKV(layout.layers[2], tables[layout.layers[2].group])
    first = 0
    for position, count in pieces:
        rows = x[first : first + count]
        kv.append(rows, rows, position)
        first += count
    return [page for table in tables for page in table.pages if page is not None]


def hostile_rows(tokens: int, width: int, random: torch.Generator) -> Tensor:
    """[tokens, 2, width]: zeros, numbers far too large or small for halves, infinities, ties."""
    x = torch.randn(tokens, 2, width, generator=random)
    x *= 10.0 ** torch.randint(-12, 9, (tokens, 2, 1), generator=random)
    x[0] = 0.0
    x[1, 0, 0], x[1, 1, -1] = INF, -INF
    x[2] = torch.randint(-254, 255, (2, width), generator=random) / 2  # halves of a step
    x[2, :, 0] = 127.0
    x[3] = torch.randint(0, 4, (2, width), generator=random) * 2.0**-25  # below the least half
    return x


@pytest.mark.parametrize("dtype", library.CACHES, ids=str)
@pytest.mark.parametrize("width", [1, 7, 16, 31, 32, 33, 48, 80, 100, 128])
def test_pages_have_the_bytes_of_their_definition(
    dtype: torch.dtype, width: int, random: torch.Generator
) -> None:
    """Rows, padding, and what lies around them."""
    layout, pieces = layout_of(width, dtype), ((3, 40), (250, 1), (251, 20))
    x = hostile_rows(61, width, random)
    found, wanted = paged(x, layout, pieces), by_definition(x, layout, pieces)
    assert len(found) == len(wanted) == 6
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("dtype", library.CACHES, ids=str)
def test_nan_is_not_lost_on_the_way_into_a_page(dtype: torch.dtype) -> None:
    x = torch.ones(1, 2, 100)
    x[0, 0, 70] = NAN
    layout, kept = layout_of(100, dtype), []
    for make in (paged, by_definition):
        table = PageTable()
        for page in make(x, layout, ((5, 1),))[3:]:
            table.append(page)
        kept.append(paging.exact(PagedKV(layout.layers[2], table).rows(5, 6)[0]))
    assert torch.equal(kept[0].isnan(), kept[1].isnan())
    assert kept[0][0, 0].isnan().any()
    assert torch.equal(kept[0].nan_to_num(), kept[1].nan_to_num())


def test_norm_of_zeros_and_of_nan(random: torch.Generator) -> None:
    weight = torch.randn(50, generator=random)
    assert torch.equal(norm(torch.zeros(1, 50), weight, 1e-5).abs(), torch.zeros(1, 50))
    x = torch.randn(2, 50, generator=random)
    x[0, 49] = NAN
    got = norm(x, weight, 1e-5)
    assert got[0].isnan().all()
    assert not got[1].isnan().any()


def test_gated_reference_is_what_the_formula_here_says(random: torch.Generator) -> None:
    x = torch.randn(1000, generator=random, dtype=torch.float64)
    torch.testing.assert_close(gelu_tanh(x), functional.gelu(x, approximate="tanh"))
    torch.testing.assert_close(silu(x), functional.silu(x))
