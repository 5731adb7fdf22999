"""Native attention over pages of all types, on every instruction set, against float64.

Positions that no query may see are NaN, and results lie inside memory filled with NaN.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random as plain_random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import paging
from kernels.backend import reference
from kernels.cpu import library, ops
from kernels.states.kv_pages import PagedKV
from kernels.states.quantized_kv import QuantizedKV

pytestmark = pytest.mark.usefixtures("instruction_set")

GUARD = 64  # floats before and after a result
MOST_ERROR = 1e-10  # normalized squared error: only rounding differs
FEWEST_RESULTS = 16  # that an error is measured over
F32, F16, Q8 = torch.float32, torch.float16, torch.int8
TYPES = pytest.mark.parametrize("type", [F32, F16, Q8], ids=("f32", "f16", "q8"))

WIDTHS = (64, 80, 96, 128, 256, 1, 7, 17, 33, 40, 50)
HEADS = ((1, 1), (9, 3), (4, 1), (6, 6), (10, 2), (7, 1), (8, 1))  # of queries, of keys
TOKENS = (1, 2, 3, 4, 5, 8, 17, 70)
POSITIONS = (0, 1, 15, 16, 31, 40, 254, 255, 256, 259, 600)


@dataclass(frozen=True)
class Case:
    T: int  # queries
    position: int  # of the first
    H: int = 4
    K: int = 2
    C: int = 64
    type: torch.dtype = F16
    window: int = 0
    cap: float = 0.0
    sinks: bool = False
    magnitude: float = 1.0  # of queries: large ones make sharp weights
    once: bool = False  # the values are the keys, as in latent attention


@dataclass
class Operands:
    q: Tensor  # [T, H, C] f32
    kv: PagedKV
    sinks: Tensor | None  # [H] f32

    def values(self, case: Case) -> Tensor:
        return paging.exact(self.kv.rows(0, case.position + case.T)[1])


def operands(case: Case, random: torch.Generator) -> Operands:
    """Random rows for the tokens of the case; what follows them in the pages is NaN."""
    q = torch.randn(case.T, case.H, case.C, generator=random) * case.magnitude
    used = case.position + case.T
    kv = paging.stored(
        *(torch.randn(used, case.K, case.C, generator=random) for _ in "kv"),
        case.type,
        once=case.once,
    )
    sinks = torch.randn(case.H, generator=random) * 3 if case.sinks else None
    return Operands(q, kv, sinks)


def attend(case: Case, given: Operands) -> Tensor:
    """The native result [T, H * C], once nothing around it was written to."""
    return attend_batch([(case, given)])[0]


def attend_batch(batch: Sequence[tuple[Case, Operands]]) -> list[Tensor]:
    """The native results of several segments in one call; their cases have one shape."""
    case, one = batch[0]
    q = torch.cat([given.q for _, given in batch])
    size = q.numel()
    memory = torch.full((size + 2 * GUARD,), math.nan)
    segments = [(each.T, each.position, [given.kv.table]) for each, given in batch]
    y = memory[GUARD : GUARD + size]
    ops.attend(q, segments, one.kv.layer, case.C**-0.5, case.window, case.cap, one.sinks, y)
    assert memory[:GUARD].isnan().all()
    assert memory[-GUARD:].isnan().all()
    rows = memory[GUARD : GUARD + size].view(len(q), -1)
    return list(rows.split([each.T for each, _ in batch]))


def part(case: Case, given: Operands, first: int, count: int) -> tuple[Case, Operands]:
    """Some of the queries, as a segment of its own."""
    return (
        dataclasses.replace(case, T=count, position=case.position + first),
        dataclasses.replace(given, q=given.q[first : first + count].clone()),
    )


def scores_of(case: Case, given: Operands) -> Tensor:
    """The scores of all queries against all keys, in double precision: [H, T, S]; hidden: -inf."""
    used, group = case.position + case.T, case.H // case.K
    keys = paging.exact(given.kv.rows(0, used)[0]).transpose(0, 1).repeat_interleave(group, 0)
    scores = given.q.double().transpose(0, 1) @ keys.mT * case.C**-0.5  # [H, T, S]
    if case.cap:
        scores = case.cap * torch.tanh(scores / case.cap)
    back = torch.arange(case.position, used)[:, None] - torch.arange(used)  # from query to key
    hidden = (back < 0) | (back >= (case.window or used))
    return scores.masked_fill(hidden, -math.inf)


def by_formula(case: Case, given: Operands) -> Tensor:
    """All queries against all keys in double precision: [T, H * C]."""
    used, group = case.position + case.T, case.H // case.K
    values = paging.exact(given.kv.rows(0, used)[1]).transpose(0, 1).repeat_interleave(group, 0)
    scores = scores_of(case, given)
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


def without_ties(case: Case, random: torch.Generator) -> Operands:
    """Operands whose two largest scores of each query differ by a thousandth of the larger.

    Under huge queries the largest score alone has weight: in a tie, rounding would choose.
    """
    while True:
        given = operands(case, random)
        first, second = scores_of(case, given).topk(2, -1).values.unbind(-1)
        if bool(((first - second) > 1e-3 * first.abs()).all()):
            return given


def check(
    case: Case,
    random: torch.Generator,
    draw: Callable[[Case, torch.Generator], Operands] = operands,
) -> None:
    """The error of a case, over several draws where it has few results: one may vanish by chance."""
    draws = -(-FEWEST_RESULTS // (case.T * case.H * case.C))
    given = [draw(case, random) for _ in range(draws)]
    error = nmse(
        torch.cat([attend(case, one) for one in given]),
        torch.cat([by_formula(case, one) for one in given]),
        torch.cat([one.values(case) for one in given]),
        share_of_values(case),
    )
    assert error <= most_error(case), case


def most_error(case: Case) -> float:
    """Queries and weights over 8-bit pages are rounded, to 15 and 14 bits of the largest."""
    return 1e-6 if case.type == Q8 else MOST_ERROR


def share_of_values(case: Case) -> float:
    """What is rounded is weights, whatever their mean of values comes to."""
    return 0.1 if case.type == Q8 else 0.0


def some_cases(type: torch.dtype, random: torch.Generator, count: int) -> list[Case]:
    """Cases that are new on every run."""
    chance = plain_random.Random(random.initial_seed())
    shapes = list(itertools.product(TOKENS, POSITIONS, HEADS, WIDTHS))
    return [
        Case(
            *(T, position, H, K, C, type),
            window=chance.choice((0, 0, 1, 2, 5, 9, 256, 300, 1000, position + 1, position + T)),
            cap=chance.choice((0.0, 0.0, 1.5, 50.0)),
            sinks=chance.random() < 0.3,
            magnitude=chance.choice((1.0, 1.0, 8.0)),
            once=chance.random() < 0.3,
        )
        for T, position, (H, K), C in chance.sample(shapes, count)
    ]


@TYPES
def test_equals_the_formula_on_random_shapes(type: torch.dtype, random: torch.Generator) -> None:
    for case in some_cases(type, random, 40):
        check(case, random)


@pytest.mark.slow
@TYPES
def test_equals_the_formula_on_many_shapes(type: torch.dtype, random: torch.Generator) -> None:
    for case in some_cases(type, random, 1500):
        check(case, random)


EDGES = (
    Case(T=1, position=0),
    Case(T=5, position=0, C=1, H=1, K=1),
    Case(T=1, position=2100, H=2, K=1),  # ranges of pages, merged
    Case(T=1, position=2100, H=2, K=1, window=700),
    Case(T=1, position=600, H=2, K=1, window=2),
    Case(T=1, position=255, window=1, sinks=True),
    Case(T=1, position=256, window=1),
    Case(T=1, position=6000, H=3, K=3, C=8, sinks=True),  # more than 16 pages
    Case(T=2, position=2100, H=2, K=1, window=700),  # each query sees others
    Case(T=4, position=600, H=2, K=1, window=2),
    Case(T=40, position=240, H=2, K=1, window=5),  # queries that see the second page alone
    Case(T=40, position=240, H=2, K=1, window=256),
    Case(T=300, position=0, H=3, K=1),
    Case(T=300, position=90, H=2, K=2, window=64, cap=30.0, sinks=True),
    Case(T=130, position=33, H=22, K=2, C=16),  # tiles that end within a token
    Case(T=65, position=4, H=1, K=1, C=128, window=1),
    Case(T=70, position=500, H=8, K=1, window=100),
    Case(T=6, position=1000, H=70, K=1, C=8),  # one token is more than a tile
    Case(T=2, position=30, H=70, K=1, C=8),
    Case(T=16, position=1500, H=9, K=3),  # few tokens with ranges of pages
    Case(T=1, position=700, H=20, K=1, C=576, once=True),  # latent attention
    Case(T=5, position=250, H=16, K=1, C=72, window=100, once=True),
    Case(T=90, position=200, H=4, K=2, C=40, once=True),
    Case(T=1, position=3000, H=3, K=1, C=33, once=True, sinks=True),
)


@pytest.mark.sweep
@TYPES
def test_equals_the_formula_at_the_edges(type: torch.dtype, random: torch.Generator) -> None:
    for case in EDGES:
        check(dataclasses.replace(case, type=type), random)


@pytest.mark.parametrize("case", [Case(1, 300), Case(90, 20, C=80)], ids=str)
def test_equals_the_reference(case: Case, random: torch.Generator) -> None:
    given = operands(case, random)
    wanted = reference.attention(given.q, given.kv, case.position, case.C**-0.5, 0, 0.0)
    assert nmse(attend(case, given), wanted.double(), given.values(case)) <= MOST_ERROR


# --- bits ---------------------------------------------------------------------------------------


MANY_AND_FEW = pytest.mark.parametrize(
    "case",
    [
        Case(1, 1500, sinks=True),
        Case(1, 5000, K=1, C=40),
        Case(7, 900, H=9, K=3, window=300),
        Case(200, 230, window=70, C=80),
        Case(3, 1200, H=10, K=1, C=72, once=True),
    ],
    ids=str,
)


@TYPES
@MANY_AND_FEW
def test_bits_do_not_depend_on_threads(
    case: Case, type: torch.dtype, random: torch.Generator
) -> None:
    case = dataclasses.replace(case, type=type)
    given = operands(case, random)
    library.set_threads(1)
    alone = attend(case, given)
    for threads in (2, 3):
        library.set_threads(threads)
        assert torch.equal(attend(case, given), alone)


@pytest.mark.sweep
@TYPES
@pytest.mark.parametrize("heads", [(6, 2), (1, 1), (8, 1)], ids=str)
def test_bits_do_not_depend_on_how_a_prompt_is_cut(
    heads: tuple[int, int], type: torch.dtype, random: torch.Generator
) -> None:
    cuts = [(0, 1), (0, 2), (0, 5), (1, 3), (7, 64), (37, 4), (60, 90), (61, 1), (148, 2)]
    for window, once in itertools.product((0, 1, 5, 100, 256, 300), (False, True)):
        case = Case(150, 450, *heads, 40, type, window=window, cap=20.0, sinks=True, once=once)
        given = operands(case, random)
        together = attend(case, given)
        for first, count in cuts:
            got = attend(*part(case, given, first, count))
            assert torch.equal(got, together[first : first + count]), (case, first, count)


@TYPES
def test_bits_of_a_long_context_do_not_depend_on_how_a_prompt_is_cut(
    type: torch.dtype, random: torch.Generator
) -> None:
    """One token's pages are split among threads, those of many tokens are not."""
    case = Case(90, 5000, 3, 1, 32, type)
    given = operands(case, random)
    together = attend(case, given)
    for first, count in ((0, 1), (89, 1), (30, 4)):
        got = attend(*part(case, given, first, count))
        assert torch.equal(got, together[first : first + count]), (first, count)


@TYPES
@pytest.mark.parametrize("window", [0, 300])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_bits_do_not_depend_on_other_segments(
    threads: int, window: int, type: torch.dtype, random: torch.Generator
) -> None:
    library.set_threads(threads)
    sizes = [(1, 0), (1, 3000), (5, 255), (1, 256), (70, 490), (2, 15)]
    cases = [Case(T, position, 6, 2, 40, type, window=window) for T, position in sizes]
    batch = [(case, operands(case, random)) for case in cases]
    alone = [attend(*one) for one in batch]
    assert all(map(torch.equal, attend_batch(batch), alone))
    assert all(map(torch.equal, attend_batch(batch[::-1])[::-1], alone))


SETS = library.instruction_sets() if library.available() else ()


@pytest.mark.sweep
@TYPES
def test_bits_do_not_depend_on_the_instruction_set(
    type: torch.dtype, random: torch.Generator, instruction_set: str
) -> None:
    for case in (dataclasses.replace(one, type=type) for one in EDGES):
        given = operands(case, random)
        library.use(instruction_set)
        found = attend(case, given)
        library.use(SETS[0])
        assert torch.equal(attend(case, given), found), case


def test_later_tokens_change_no_bit_of_earlier_ones(random: torch.Generator) -> None:
    for tokens, bad in itertools.product((3, 40), (1e30, math.nan, math.inf)):
        case = Case(T=tokens, position=240, type=F32)
        given = operands(case, random)
        before = attend(case, given)
        last = torch.randn(1, case.K, case.C, generator=random) * 1e4
        given.kv.append(last * bad, torch.full_like(last, bad), case.position + tokens - 1)
        after = attend(case, given)
        assert torch.equal(after[:-1], before[:-1])
        assert not torch.equal(after[-1], before[-1])


# --- rows that are not numbers ------------------------------------------------------------------


@TYPES
@pytest.mark.parametrize("tokens", [1, 2, 40])
def test_tokens_outside_the_window_may_hold_anything(
    tokens: int, type: torch.dtype, random: torch.Generator
) -> None:
    case = Case(T=tokens, position=400, type=type, window=50)
    given = operands(case, random)
    before = attend(case, given)
    hidden = torch.full((case.position - case.window + 1, case.K, case.C), math.nan)
    given.kv.append(hidden, hidden, 0)
    assert torch.equal(attend(case, given), before)
    given.kv.table.set(0, None)  # positions up to 255 are not read
    assert torch.equal(attend(case, given), before)


@TYPES
def test_pages_may_hold_anything_where_nothing_is_stored(
    type: torch.dtype, random: torch.Generator
) -> None:
    cases = Case(1, 20, C=40), Case(9, 255, C=7), Case(3, 253, K=1, C=40, once=True)
    for case in (dataclasses.replace(each, type=type) for each in cases):
        given = operands(case, random)
        rows = given.kv.rows(0, case.position + case.T)
        keys, values = (
            (one.dense() if isinstance(one, QuantizedKV) else one.float()) for one in rows
        )
        clean, poisoned = (
            paging.stored(keys, values, type, fill=fill, once=case.once)
            for fill in (0, paging.POISON)
        )
        found = [attend(case, dataclasses.replace(given, kv=kv)) for kv in (clean, poisoned)]
        assert torch.equal(*found)


@pytest.mark.parametrize("tokens", [1, 40])
def test_huge_scores_make_a_weight_of_one(tokens: int, random: torch.Generator) -> None:
    case = Case(T=tokens, position=100, type=F32, magnitude=1e4)
    given = operands(case, random)
    y = attend(case, given)
    assert y.isfinite().all()
    assert (
        nmse(y, by_formula(case, given), given.values(case)) <= 1e-5
    )  # scores of 10,000 are right to 0.001


@pytest.mark.parametrize("tokens", [1, 40])
def test_a_sink_that_outweighs_all_leaves_nothing(tokens: int, random: torch.Generator) -> None:
    case = Case(T=tokens, position=100, sinks=True)
    given = operands(case, random)
    assert given.sinks is not None
    given.sinks[:] = 1000.0
    assert torch.equal(attend(case, given).abs(), torch.zeros(tokens, case.H * case.C))
    given.sinks[:] = -math.inf
    without = attend(dataclasses.replace(case, sinks=False), dataclasses.replace(given, sinks=None))
    torch.testing.assert_close(attend(case, given), without, rtol=1e-6, atol=1e-7)


@TYPES
@pytest.mark.parametrize("tokens", [1, 40])
def test_nan_in_a_query_stays_in_its_row(
    tokens: int, type: torch.dtype, random: torch.Generator
) -> None:
    case = Case(T=tokens, position=260, type=type)
    given = operands(case, random)
    given.q[-1, 1, 5] = math.nan
    y = attend(case, given).view(tokens, case.H, case.C)
    assert y[-1, 1].isnan().all()
    y[-1, 1] = 0.0
    assert y.isfinite().all()


@TYPES
@pytest.mark.parametrize("tokens", [1, 12])
@pytest.mark.parametrize("part", ["keys", "values"])
def test_a_stored_nan_reaches_all_who_see_it(
    part: str, tokens: int, type: torch.dtype, random: torch.Generator
) -> None:
    case = Case(T=tokens, position=60, C=96, type=type)
    given = operands(case, random)
    at = case.position + tokens // 2
    rows = {name: torch.randn(1, case.K, case.C, generator=random) for name in ("keys", "values")}
    rows[part][0, 1, 70] = math.nan
    given.kv.append(rows["keys"], rows["values"], at)
    y = attend(case, given).view(tokens, case.K, -1, case.C)
    seen = torch.arange(case.position, case.position + tokens) >= at
    assert y[:, 0].isfinite().all()
    assert y[~seen].isfinite().all()
    assert not y[seen, 1, :, 70].isfinite().any()


@pytest.mark.parametrize("magnitude", [0.0, 1e-36, 1e30])
def test_integers_stand_for_numbers_of_any_size(magnitude: float, random: torch.Generator) -> None:
    draw = without_ties if magnitude > 1 else operands
    check(Case(T=2, position=200, C=80, type=Q8, magnitude=magnitude), random, draw)


# --- memory -------------------------------------------------------------------------------------


def test_prompt_takes_memory_of_a_tile_whatever_its_length() -> None:
    native = library.native()
    kind = library.CACHES[F16]
    sizes = [native.nk_attention_bytes(2, 512, 8, 2, 64, at, kind) for at in (0, 1 << 20)]
    assert 0 < sizes[0] == sizes[1]
    assert sizes[0] < 2 << 20
