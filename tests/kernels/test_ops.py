"""Ops refuse operands that do not fit, in a sentence that names the op and the shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import paging
from chosen_backend import ops
from kernels.ops import Activation, Clip, GaussianTopK, InPlace, MatchMagnitude, Softcap
from kernels.weights.formats import by_name
from kernels.weights.weight import Weight

MATRIX = Weight(torch.ones(5, 8), by_name("F32"), (5, 8))
VECTOR = Weight(torch.ones(1, 8), by_name("F32"), (8,))
POSITIONS, FREQUENCIES = torch.arange(2), torch.ones(4)
Q = torch.ones(2, 6, 8)
IDS = torch.tensor([1])


def x(*shape: int) -> Tensor:
    return torch.ones(*shape)


def in_place(one: InPlace, rows: Tensor | None = None, y: Tensor | None = None) -> Tensor:
    rows = x(2, 3) if rows is None else rows
    return ops.in_place(one, rows, rows if y is None else y)


def attend(
    q: Tensor = Q, position: int = 2, window: int = 0, cap: float = 0.0, dropped: int = -1
) -> Tensor:
    """Over two pages, of which one may be missing."""
    kv = paging.stored(torch.ones(300, 3, 8), torch.ones(300, 3, 8), torch.float32)
    if dropped >= 0:
        kv.table.set(dropped, None)
    return ops.attention(q, kv, position, 1.0, window, cap)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "linear width": (lambda: ops.linear(x(2, 7), MATRIX), r"linear: x \[2, 7\] .* \[5, 8\]"),
    "linear one row": (lambda: ops.linear(x(8), MATRIX), r"linear: x \[8\]"),
    "linear vector": (lambda: ops.linear(x(2, 8), VECTOR), r"linear: .* \[8\]"),
    "linear dtype": (lambda: ops.linear(x(2, 8).half(), MATRIX), "linear: x is float16"),
    "embed table": (lambda: ops.embed(IDS, VECTOR), r"embed: .* got \[8\]"),
    "embed ids": (lambda: ops.embed(IDS[None], MATRIX), r"embed: .* int64 \[1, 1\]"),
    "embed dtype": (lambda: ops.embed(IDS.int(), MATRIX), "embed: .* got int32"),
    "norm width": (lambda: ops.rms_norm(x(2, 7), x(8), 1e-6), r"rms_norm: x \[2, 7\] .* \[8\]"),
    "norm weight": (lambda: ops.rms_norm(x(2, 8), x(2, 8), 1e-6), r"rms_norm: .* \[2, 8\]"),
    "norm dtype": (lambda: ops.rms_norm(x(2, 8), x(8).half(), 1e-6), "rms_norm: .* weight float16"),
    "rope positions": (
        lambda: ops.rope(x(3, 2, 8), POSITIONS, FREQUENCIES, True),
        r"rope: positions \[2\] do not fit x \[3, 2, 8\]",
    ),
    "rope frequencies": (
        lambda: ops.rope(x(2, 2, 6), POSITIONS, FREQUENCIES, True),
        r"rope: frequencies \[4\] .* \[2, 2, 6\]",
    ),
    "rope dtype": (
        lambda: ops.rope(x(2, 2, 8).double(), POSITIONS, FREQUENCIES, True),
        "rope: x is float64",
    ),
    "rope position dtype": (
        lambda: ops.rope(x(2, 2, 8), x(2), FREQUENCIES, True),
        "rope: positions are float32",
    ),
    "attention heads": (
        lambda: attend(q=x(2, 5, 8)),
        r"attention: .* \[2, 5, 8\] for 3 key/value heads of width 8",
    ),
    "attention width": (lambda: attend(q=x(2, 6, 4)), r"attention: .* \[2, 6, 4\]"),
    "attention end": (
        lambda: attend(position=511),
        "attention: 2 queries from position 511 need more than 2 pages",
    ),
    "attention start": (lambda: attend(position=-1), "attention: .* position -1"),
    "attention dtype": (lambda: attend(q=Q.double()), "attention: q is float64"),
    "attention window": (lambda: attend(window=-1), "attention: window -1"),
    "attention cap": (lambda: attend(cap=-1.0), "attention: .* softcap -1.0"),
    "attention page": (lambda: attend(position=280, dropped=0), "attention: a page .* is missing"),
    "gated shapes": (
        lambda: ops.gated(x(2, 3), x(2, 4), Activation.SILU),
        r"gated: gate \[2, 3\] and up \[2, 4\]",
    ),
    "gated dtype": (
        lambda: ops.gated(x(2, 3).half(), x(2, 3).half(), Activation.SILU),
        "gated: gate is float16",
    ),
    "softcap cap": (lambda: in_place(Softcap("x", 0.0)), "softcap: the cap is 0.0"),
    "softcap dtype": (
        lambda: in_place(Softcap("x", 30.0), IDS[None]),
        "softcap: an operand is int64",
    ),
    "clip range": (
        lambda: in_place(Clip("x", 1.0, -1.0)),
        "clip: nothing is between 1.0 and -1.0",
    ),
    "shapes of two buffers": (
        lambda: in_place(MatchMagnitude("x", "y", 1e-5), y=x(2, 4)),
        r"match_magnitude: x \[2, 3\] is not like y \[2, 4\]",
    ),
    "highest of one column": (
        lambda: in_place(GaussianTopK("x", 1.0), x(2, 1)),
        r"gaussian_top_k: x \[2, 1\]",
    ),
}


@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_operands_that_do_not_fit(call: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}"):
        call()


@pytest.mark.parametrize("id", [5, -1])
def test_embed_refuses_an_id_outside_the_table(id: int) -> None:
    with pytest.raises(IndexError):
        ops.embed(torch.tensor([id]), MATRIX)
