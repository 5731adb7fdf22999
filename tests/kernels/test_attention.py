"""Attention: against float64 loops, on every edge of the window, and never a key it must not see."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import paging
from chosen_backend import ops
from kernels.states.kv_pages import PagedKV

pytestmark = pytest.mark.usefixtures("backend")

TOLERANCE = 1e-10  # normalized squared error of float32 against float64: only rounding differs


@dataclass(frozen=True)
class Case:
    T: int  # queries
    position: int  # of the first
    H: int
    K: int
    C: int
    window: int = 0
    softcap: float = 0.0
    dtype: torch.dtype = torch.float32
    spare: int = 3  # rows after the last key
    magnitude: float = 1.0  # of queries: large ones make sharp weights

    def __str__(self) -> str:
        return (
            f"T{self.T}-at{self.position}-H{self.H}-K{self.K}-C{self.C}-w{self.window}"
            f"-cap{self.softcap:g}-{str(self.dtype)[6:]}"
        )


CASES = (
    Case(T=1, position=0, H=1, K=1, C=2),
    Case(T=1, position=0, H=9, K=3, C=64, window=4),
    Case(T=1, position=40, H=9, K=3, C=64),
    Case(T=1, position=40, H=4, K=1, C=80, window=1),
    Case(T=1, position=7, H=4, K=4, C=16, window=8),  # the window just holds all
    Case(T=1, position=8, H=4, K=4, C=16, window=8),  # and just not
    Case(T=1, position=33, H=6, K=2, C=80, window=10, softcap=2.0),
    Case(T=7, position=0, H=3, K=1, C=80),
    Case(T=7, position=5, H=9, K=3, C=64, magnitude=8.0),
    Case(T=7, position=5, H=4, K=4, C=16, window=1),
    Case(T=7, position=5, H=4, K=2, C=16, window=6),
    Case(T=7, position=5, H=4, K=2, C=16, window=12),
    Case(T=7, position=5, H=4, K=2, C=16, window=13),
    Case(T=13, position=20, H=6, K=2, C=24, window=5, softcap=1.5),
    Case(T=13, position=20, H=6, K=2, C=24, softcap=50.0, magnitude=20.0),
    Case(T=5, position=3, H=6, K=3, C=32, dtype=torch.float16),
    Case(T=1, position=20, H=6, K=3, C=32, window=9, dtype=torch.float16),
)

every_case = pytest.mark.parametrize("case", CASES, ids=str)


@dataclass(frozen=True)
class Operands:
    q: Tensor  # [T, H, C]
    k: Tensor  # [S, K, C] as stored
    v: Tensor
    kv: PagedKV


def operands(case: Case, random: torch.Generator) -> Operands:
    """Random queries, and rows in pages that are NaN where nothing was stored."""
    rows = case.position + case.T + case.spare
    q = torch.randn(case.T, case.H, case.C, generator=random) * case.magnitude
    k, v = (torch.randn(rows, case.K, case.C, generator=random) for _ in range(2))
    return Operands(q, k.to(case.dtype), v.to(case.dtype), paging.stored(k, v, case.dtype))


def attend(case: Case, given: Operands) -> Tensor:
    return ops.attention(
        given.q,
        given.kv,
        position=case.position,
        scale=case.C**-0.5,
        window=case.window,
        softcap=case.softcap,
    )


def by_loops(case: Case, given: Operands) -> Tensor:
    """The formula, one query and head at a time, in float64: [T, H*C]."""
    y = torch.zeros(case.T, case.H, case.C, dtype=torch.float64)
    for t in range(case.T):
        for h in range(case.H):
            y[t, h] = one_head(case, given, t, h)
    return y.view(case.T, -1)


def one_head(case: Case, given: Operands, t: int, h: int) -> Tensor:
    here, shared = case.position + t, h // (case.H // case.K)
    seen = [j for j in range(here + 1) if not case.window or here - j < case.window]
    keys, values = given.k[seen, shared].double(), given.v[seen, shared].double()
    scores = keys @ given.q[t, h].double() * case.C**-0.5
    if case.softcap:
        scores = case.softcap * torch.tanh(scores / case.softcap)
    weights = torch.exp(scores - scores.max())
    return weights / weights.sum() @ values


def nmse(got: Tensor, wanted: Tensor) -> float:
    """Normalized squared error; not a number where the result holds one."""
    assert got.dtype == torch.float32
    assert got.shape == wanted.shape
    return float((got.double() - wanted).square().sum() / wanted.square().sum())


@every_case
def test_equals_the_formula(case: Case, random: torch.Generator) -> None:
    given = operands(case, random)
    assert nmse(attend(case, given), by_loops(case, given)) <= TOLERANCE


@every_case
def test_rows_no_query_sees_do_not_leak(case: Case, random: torch.Generator) -> None:
    given = operands(case, random)
    clean = attend(case, given)
    first = max(case.position - case.window + 1, 0) if case.window else 0
    for start, count in ((0, first), (case.position + case.T, case.spare)):
        hidden = torch.full((count, case.K, case.C), torch.nan)
        given.kv.append(hidden, hidden, start)
    assert torch.equal(attend(case, given), clean)


@every_case
def test_operands_are_not_written_to(case: Case, random: torch.Generator) -> None:
    given = operands(case, random)
    pages = [page for page in given.kv.table.pages if page is not None]
    before = [given.q.clone(), *(page.clone() for page in pages)]
    attend(case, given)
    assert all(map(torch.equal, before, (given.q, *pages)))


@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("window", [0, 600])
def test_long_prompts_are_worked_through_in_tiles(
    window: int, softcap: float, random: torch.Generator
) -> None:
    case = Case(T=300, position=7700, H=8, K=4, C=4, window=window, softcap=softcap)
    given = operands(case, random)
    got = attend(case, given).view(case.T, case.H, case.C)
    # Scores of all queries would take 77 MB, so a tile ends within: look on both sides of it. The
    # channels of one head alone may all but vanish by chance, and a relative error with them.
    for t in (0, 1, 149, 261, 262, 263, 298, 299):
        wanted = torch.stack([one_head(case, given, t, h) for h in range(case.H)])
        assert nmse(got[t], wanted) <= TOLERANCE, f"token {t}"


def test_prompt_in_one_piece_equals_prompt_in_steps(random: torch.Generator) -> None:
    case = Case(T=9, position=4, H=6, K=2, C=16, window=6)
    given = operands(case, random)
    whole = attend(case, given)
    steps = [
        ops.attention(given.q[t : t + 1], given.kv, case.position + t, 0.25, case.window)
        for t in range(case.T)
    ]
    assert nmse(torch.cat(steps), whole.double()) <= TOLERANCE
