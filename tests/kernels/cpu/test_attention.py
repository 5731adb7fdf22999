"""Native attention over caches of all types, on every instruction set, against float64.

Rows of the cache that no query may see are NaN, and results lie inside memory filled with NaN.
"""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import math
import random as plain_random
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from kernels import reference
from kernels.cpu import library
from kernels.cpu.schema import NativeLayerKV
from rotation import rotation

pytestmark = pytest.mark.usefixtures("instruction_set")

GUARD = 64  # floats before and after a result
MOST_ERROR = 1e-10  # normalized squared error: only rounding differs
FEW = 1  # tokens: kFewTokens
FEWEST_RESULTS = 16  # that an error is measured over
F32, F16, Q8 = range(3)  # enum nk_cache
TYPES = pytest.mark.parametrize("type", [F32, F16, Q8], ids=("f32", "f16", "q8"))

WIDTHS = (64, 80, 96, 128, 256, 1, 7, 17, 33, 50)
HEADS = ((1, 1), (9, 3), (4, 1), (6, 6), (10, 2), (7, 1))  # of queries, of keys
TOKENS = (1, 2, 3, 4, 5, 8, 17, 70)
POSITIONS = (0, 1, 31, 40, 259, 600)


@dataclass(frozen=True)
class Case:
    T: int  # queries
    position: int  # of the first
    H: int = 4
    K: int = 2
    C: int = 64
    type: int = F16
    window: int = 0
    cap: float = 0.0
    sinks: bool = False
    magnitude: float = 1.0  # of queries: large ones make sharp weights


@dataclass
class Cache:
    """Keys or values [K, capacity, C] as held, and as the numbers they stand for."""

    data: Tensor
    scales: Tensor | None
    exact: Tensor = field(init=False)  # f64 [K, capacity, C]

    def __post_init__(self) -> None:
        self.exact = self.data.double()
        if self.scales is not None:
            each = self.scales.double().repeat_interleave(32, -1)
            width = self.data.shape[-1]
            self.exact = self.exact * each[..., :width] @ rotation(width)

    def rows(self) -> NativeLayerKV:
        scales = None if self.scales is None else self.scales.data_ptr()
        return NativeLayerKV(self.data.data_ptr(), scales, self.data.shape[1])


@dataclass
class Operands:
    q: Tensor  # [T, H, C] f32
    keys: Cache
    values: Cache
    sinks: Tensor | None  # [H] f32


def some_cache(case: Case, random: torch.Generator) -> Cache:
    """Random rows for the tokens of the case, behind them a few of NaN."""
    used, capacity = case.position + case.T, case.position + case.T + 3
    shape = (case.K, capacity, case.C)
    if case.type == Q8:
        codes = torch.randint(-127, 128, shape, generator=random).to(torch.int8)
        scales = torch.rand(case.K, capacity, -(-case.C // 32), generator=random) / 50
        scales[:, used:] = math.nan
        return Cache(codes, scales.to(torch.float16))
    data = torch.randn(shape, generator=random)
    data[:, used:] = math.nan
    return Cache(data if case.type == F32 else data.to(torch.float16), None)


def operands(case: Case, random: torch.Generator) -> Operands:
    q = torch.randn(case.T, case.H, case.C, generator=random) * case.magnitude
    keys, values = some_cache(case, random), some_cache(case, random)
    sinks = torch.randn(case.H, generator=random) * 3 if case.sinks else None
    return Operands(q, keys, values, sinks)


def attend(case: Case, given: Operands) -> Tensor:
    """The native result [T, H * C], once nothing around it was written to."""
    size = case.T * case.H * case.C
    memory = torch.full((size + 2 * GUARD,), math.nan)
    library.call(
        "attention",
        library.pointer(given.q),
        *(case.T, case.H, case.K, case.C, case.position, case.type),
        ctypes.byref(given.keys.rows()),
        ctypes.byref(given.values.rows()),
        case.C**-0.5,
        case.window,
        case.cap,
        None if given.sinks is None else library.pointer(given.sinks),
        memory.data_ptr() + 4 * GUARD,
    )
    assert memory[:GUARD].isnan().all()
    assert memory[-GUARD:].isnan().all()
    return memory[GUARD : GUARD + size].view(case.T, -1)


def by_formula(case: Case, given: Operands) -> Tensor:
    """All queries against all keys in double precision: [T, H * C]."""
    used, group = case.position + case.T, case.H // case.K
    keys, values = (
        cache.exact[:, :used].repeat_interleave(group, 0) for cache in (given.keys, given.values)
    )
    scores = given.q.double().transpose(0, 1) @ keys.mT * case.C**-0.5  # [H, T, S]
    if case.cap:
        scores = case.cap * torch.tanh(scores / case.cap)
    back = torch.arange(case.position, used)[:, None] - torch.arange(used)  # from query to key
    hidden = (back < 0) | (back >= (case.window or used))
    scores = scores.masked_fill(hidden, -math.inf)
    if given.sinks is not None:
        sinks = given.sinks.double()[:, None, None].expand(-1, case.T, 1)
        scores = torch.cat((scores, sinks), -1)
    weights = scores.softmax(-1)[..., :used]
    return (weights @ values).transpose(0, 1).reshape(case.T, -1)


def nmse(got: Tensor, wanted: Tensor, values: Tensor, share: float = 0.0) -> float:
    """Normalized squared error; not a number where the result holds one.

    With a `share`, a mean that comes near nothing by chance is measured against so much of the values.
    """
    energy = max(wanted.square().mean(), share * values.square().nanmean())
    return float((got.double() - wanted).square().mean() / energy)


def check(case: Case, random: torch.Generator) -> None:
    """The error of a case, over several draws where it has few results: one may vanish by chance."""
    draws = -(-FEWEST_RESULTS // (case.T * case.H * case.C))
    given = [operands(case, random) for _ in range(draws)]
    error = nmse(
        torch.cat([attend(case, one) for one in given]),
        torch.cat([by_formula(case, one) for one in given]),
        torch.cat([one.values.exact for one in given]),
        share_of_values(case),
    )
    assert error <= most_error(case), case


def in_whole_numbers(case: Case) -> bool:
    """Whether queries and weights are rounded, to 15 and 14 bits of the largest."""
    return case.type == Q8 and case.T <= FEW


def most_error(case: Case) -> float:
    return 1e-6 if in_whole_numbers(case) else MOST_ERROR


def share_of_values(case: Case) -> float:
    """What is rounded is weights, whatever their mean of values comes to."""
    return 0.1 if in_whole_numbers(case) else 0.0


def some_cases(type: int, random: torch.Generator, count: int) -> list[Case]:
    """Cases that are new on every run."""
    chance = plain_random.Random(random.initial_seed())
    shapes = list(itertools.product(TOKENS, POSITIONS, HEADS, WIDTHS))
    return [
        Case(
            *(T, position, H, K, C, type),
            window=chance.choice((0, 0, 1, 2, 9, position + 1, position + T)),
            cap=chance.choice((0.0, 0.0, 1.5, 50.0)),
            sinks=chance.random() < 0.3,
            magnitude=chance.choice((1.0, 1.0, 8.0)),
        )
        for T, position, (H, K), C in chance.sample(shapes, count)
    ]


@TYPES
def test_equals_the_formula_on_random_shapes(type: int, random: torch.Generator) -> None:
    for case in some_cases(type, random, 40):
        check(case, random)


@pytest.mark.slow
@TYPES
def test_equals_the_formula_on_many_shapes(type: int, random: torch.Generator) -> None:
    for case in some_cases(type, random, 1500):
        check(case, random)


EDGES = (
    Case(T=1, position=0),
    Case(T=5, position=0, C=1, H=1, K=1),
    Case(T=1, position=2100, H=2, K=1),  # chunks, merged
    Case(T=1, position=2100, H=2, K=1, window=700),
    Case(T=1, position=600, H=2, K=1, window=2),  # most chunks are not there
    Case(T=1, position=255, window=1, sinks=True),
    Case(T=2, position=2100, H=2, K=1, window=700),  # each query sees others
    Case(T=4, position=600, H=2, K=1, window=2),
    Case(T=300, position=0, H=3, K=1),
    Case(T=300, position=90, H=2, K=2, window=64, cap=30.0, sinks=True),
    Case(T=130, position=33, H=22, K=2, C=16),  # tiles that end within a token
    Case(T=65, position=4, H=1, K=1, C=128, window=1),
    Case(T=70, position=500, H=8, K=1, window=100),  # blocks that no query sees are left out
    Case(T=6, position=1000, H=70, K=1, C=8),  # one token is more than a tile
    Case(T=2, position=30, H=70, K=1, C=8),
)


@TYPES
@pytest.mark.parametrize("case", EDGES, ids=str)
def test_equals_the_formula_at_the_edges(case: Case, type: int, random: torch.Generator) -> None:
    check(dataclasses.replace(case, type=type), random)


@pytest.mark.parametrize("case", [Case(1, 300), Case(90, 20, C=80)], ids=str)
def test_equals_the_reference(case: Case, random: torch.Generator) -> None:
    given = operands(case, random)
    used = case.position + case.T
    k, v = (cache.data[:, :used].transpose(0, 1) for cache in (given.keys, given.values))
    wanted = reference.attention(given.q, k, v, case.position, case.C**-0.5, 0, 0.0)
    assert nmse(attend(case, given), wanted.double(), given.values.exact) <= MOST_ERROR


MANY_AND_FEW = pytest.mark.parametrize(
    "case", [Case(1, 1500, sinks=True), Case(200, 30, window=70, C=80)], ids=str
)


@TYPES
@MANY_AND_FEW
def test_bits_do_not_depend_on_threads(case: Case, type: int, random: torch.Generator) -> None:
    case = dataclasses.replace(case, type=type)
    given = operands(case, random)
    library.set_threads(1)
    alone = attend(case, given)
    for threads in (2, 3):
        library.set_threads(threads)
        assert torch.equal(attend(case, given), alone)


@TYPES
def test_queries_in_one_call_equal_queries_one_by_one(type: int, random: torch.Generator) -> None:
    case = Case(T=40, position=290, type=type, window=100, cap=20.0)
    given = operands(case, random)
    together = attend(case, given)
    for t in (0, 1, 17, 39):
        one = dataclasses.replace(case, T=1, position=case.position + t)
        got = attend(one, dataclasses.replace(given, q=given.q[t : t + 1].clone()))
        wanted = together[t : t + 1].double()
        assert nmse(got, wanted, given.values.exact, share_of_values(one)) <= most_error(one)


@TYPES
@pytest.mark.parametrize("window", [0, 1, 50, 100])
def test_bits_do_not_depend_on_how_a_prompt_is_cut(
    window: int, type: int, random: torch.Generator
) -> None:
    case = Case(T=150, position=290, H=6, type=type, window=window, cap=20.0, sinks=True)
    given = operands(case, random)
    together = attend(case, given)
    for first, count in ((0, 2), (0, 5), (1, 3), (7, 64), (37, 4), (60, 90), (148, 2)):
        part = dataclasses.replace(case, T=count, position=case.position + first)
        got = attend(part, dataclasses.replace(given, q=given.q[first : first + count].clone()))
        assert torch.equal(got, together[first : first + count]), (first, count)


@pytest.mark.parametrize("tokens", [3, 40])
def test_later_tokens_change_no_bit_of_earlier_ones(tokens: int, random: torch.Generator) -> None:
    case = Case(T=tokens, position=70, type=F32)
    given = operands(case, random)
    before = attend(case, given)
    last = case.position + tokens - 1
    given.keys.data[:, last] = 1e4 * torch.randn(case.K, case.C, generator=random)
    given.values.data[:, last] = 1e30
    after = attend(case, given)
    assert torch.equal(after[:-1], before[:-1])
    assert not torch.equal(after[-1], before[-1])


@pytest.mark.parametrize("tokens", [1, 40])
def test_tokens_outside_the_window_may_hold_anything(tokens: int, random: torch.Generator) -> None:
    case = Case(T=tokens, position=400, type=F32, window=50)
    given = operands(case, random)
    before = attend(case, given)
    for cache in (given.keys, given.values):
        cache.data[:, : case.position - case.window + 1] = math.nan
    assert torch.equal(attend(case, given), before)


@pytest.mark.parametrize("tokens", [1, 40])
def test_huge_scores_make_a_weight_of_one(tokens: int, random: torch.Generator) -> None:
    case = Case(T=tokens, position=100, type=F32, magnitude=1e4)
    given = operands(case, random)
    y = attend(case, given)
    assert y.isfinite().all()
    assert (
        nmse(y, by_formula(case, given), given.values.exact) <= 1e-5
    )  # scores of 10,000 are right to 0.001


@pytest.mark.parametrize("tokens", [1, 40])
def test_a_sink_that_outweighs_all_leaves_nothing(tokens: int, random: torch.Generator) -> None:
    case = Case(T=tokens, position=100, sinks=True)
    given = operands(case, random)
    assert given.sinks is not None
    given.sinks[:] = 1000.0
    assert torch.equal(attend(case, given), torch.zeros(tokens, case.H * case.C))
    given.sinks[:] = -math.inf
    without = attend(dataclasses.replace(case, sinks=False), dataclasses.replace(given, sinks=None))
    torch.testing.assert_close(attend(case, given), without, rtol=1e-6, atol=1e-7)


@TYPES
@pytest.mark.parametrize("tokens", [1, 40])
def test_nan_in_a_query_stays_in_its_row(tokens: int, type: int, random: torch.Generator) -> None:
    case = Case(T=tokens, position=60, type=type)
    given = operands(case, random)
    given.q[-1, 1, 5] = math.nan
    y = attend(case, given).view(tokens, case.H, case.C)
    assert y[-1, 1].isnan().all()
    y[-1, 1] = 0.0
    assert y.isfinite().all()


@pytest.mark.parametrize(
    ("part", "bad"), [("keys", math.nan), ("values", math.nan), ("values", math.inf)]
)
def test_a_scale_that_is_no_number_is_not_lost_among_integers(
    part: str, bad: float, random: torch.Generator
) -> None:
    case = Case(T=1, position=60, C=96, type=Q8)
    given = operands(case, random)
    scales = getattr(given, part).scales
    scales[1, 17, 2] = bad
    y = attend(case, given).view(case.K, -1, case.C)
    assert y[0].isfinite().all()
    assert not y[1, :, 64:].isfinite().any()


@pytest.mark.parametrize("magnitude", [0.0, 1e-36, 1e30])
def test_integers_stand_for_numbers_of_any_size(magnitude: float, random: torch.Generator) -> None:
    check(Case(T=2, position=200, C=80, type=Q8, magnitude=magnitude), random)


def test_prompt_takes_memory_of_a_tile_whatever_its_length() -> None:
    native = library.native()
    sizes = [native.nk_attention_bytes(2, 512, 8, 2, 64, at, F16) for at in (0, 1 << 20)]
    assert 0 < sizes[0] == sizes[1]
    assert sizes[0] < 2 << 20
