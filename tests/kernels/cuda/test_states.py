"""Triton kernels of recurrences and convolutions against the reference, in the interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from gpu_results import check_close, guarded
from kernels import cuda
from kernels.backend import reference
from kernels.cuda import attention, launch, states
from kernels.cuda.states import RecurrenceOperands, Steps
from kernels.ops import Activation, Recurrence, ShortConv
from kernels.states.kv_pages import PAGE_TOKENS, KVLayout, PagedState, PageTable, StateLayer
from kernels.states.layer_state import ConvState, FixedState, RecurrentState

MOST_ERROR = 1e-11
BACKEND = cuda.backend_on(torch.device("cpu"))
POSITIONS = (0, 1, 255, 256, 300)  # the first token, and about the ends of pages


class Sequences:
    """Sequences at some positions, with the states of one layer in their pages; the rest is NaN."""

    def __init__(self, state: FixedState, random: torch.Generator) -> None:
        layout = KVLayout([ConvState(3, 2), state], torch.float16)  # a layer before, of 12 bytes
        self.layer: StateLayer = layout.state(1)
        self.tables: list[PageTable] = []
        for position in POSITIONS:
            table = PageTable()
            index = -(-position // PAGE_TOKENS)
            for at in range(index + 1):
                known = at >= index - 1  # the older ones were dropped
                size = layout.page_bytes[0]
                page = torch.full((size,), 0xFF, dtype=torch.uint8) if known else None
                table.append(page)
            if index:
                PagedState(self.layer, table).write(
                    index - 1, torch.randn(state.shape, generator=random)
                )
            self.tables.append(table)

    @property
    def steps(self) -> Steps:
        return Steps(torch.tensor(POSITIONS), attention.addresses(self.tables, 4))

    def read(self, after: bool) -> list[Tensor]:
        """The states before a step of every sequence, or after it."""
        return [
            PagedState(self.layer, table).read(-(-position // PAGE_TOKENS) - (not after))
            for table, position in zip(self.tables, POSITIONS, strict=True)
        ]

    def check_others(self) -> None:
        """No other byte of the pages that a step writes was written."""
        for table in self.tables:
            page = table.pages[-1]
            assert page is not None
            assert (page[: self.layer.offset] == 0xFF).all()


# --- recurrence ---------------------------------------------------------------------------------

H, K, C, V = 4, 2, 20, 24


def recurrence(random: torch.Generator) -> Recurrence:
    """A gated delta rule of random rates."""
    return Recurrence(
        *("q", "k", "v", "d", "s", "o"),
        layer=1,
        rate=-torch.rand(H, generator=random),
        decay_bias=torch.randn(H, generator=random),
        scale=C**-0.5,
        epsilon=1e-6,
    )


CASES: dict[str, Callable[[Recurrence], Recurrence]] = {
    "delta rule": lambda one: one,
    "tiled": lambda one: replace(one, tiled=True),
    "not corrected": lambda one: replace(one, corrected=False),
    "by channel": lambda one: replace(one, decay_bias=one.decay_bias.repeat(C)),
    "floor": lambda one: replace(one, floor=-5.0, rate=-one.rate),
    "state space": lambda one: replace(
        one, strength="", epsilon=-1.0, corrected=False, skip=one.decay_bias * 2, scale=1.0
    ),
}


def rows_of(one: Recurrence, tokens: int, random: torch.Generator) -> RecurrenceOperands:
    """Random operands of so many tokens, and a result of NaN."""

    def normal(columns: int) -> Tensor:
        return torch.randn(tokens, columns, generator=random)

    strength = normal(H) if one.strength else None
    decay = normal(one.decay_bias.numel())
    return RecurrenceOperands(
        normal(K * C), normal(K * C), normal(H * V), decay, strength,
        torch.full((tokens, H * V), math.nan),
    )  # fmt: skip


def wanted(
    one: Recurrence, rows: RecurrenceOperands, part: slice, state: Tensor
) -> tuple[Tensor, Tensor]:
    q, k, v = (
        x[part].unflatten(1, (-1, width)).double()
        for x, width in ((rows.q, C), (rows.k, C), (rows.v, V))
    )
    strength = None if rows.strength is None else rows.strength[part].double()
    exact = replace(one, rate=one.rate.double(), decay_bias=one.decay_bias.double())
    y, after = reference.recurrence(
        q, k, v, rows.decay[part].double(), strength, state.double(), exact
    )
    return y.flatten(1), after


@pytest.mark.parametrize("case", CASES)
def test_a_step_of_a_recurrence(case: str, random: torch.Generator) -> None:
    one = CASES[case](recurrence(random))
    made = Sequences(RecurrentState(H, C, V), random)
    rows = rows_of(one, len(POSITIONS), random)
    before = made.read(after=False)
    states.recurrence_step(one, made.layer, rows, made.steps)
    found = made.read(after=True)
    made.check_others()
    for at, state in enumerate(before):
        y, after = wanted(one, rows, slice(at, at + 1), state)
        check_close(rows.out[at : at + 1], y, MOST_ERROR)
        check_close(found[at], after, MOST_ERROR)
        assert torch.equal(made.read(after=False)[at], state)


@pytest.mark.parametrize("case", CASES)
def test_a_prompts_recurrence(case: str, random: torch.Generator) -> None:
    one = CASES[case](recurrence(random))
    rows = rows_of(one, 7, random)
    state = torch.randn(H, C, V, generator=random)
    after, check = guarded(H, C, V)
    states.recurrence_rows(one, rows, state.clone(), after)
    check()
    y, right = wanted(one, rows, slice(0, 7), state)
    check_close(rows.out, y, MOST_ERROR)
    check_close(after, right, MOST_ERROR)


def test_the_op_recurrence(random: torch.Generator) -> None:
    """By the table of the backend, of rows that are parts of wider ones."""
    one = recurrence(random)
    wide = torch.randn(3, 2, 3 * H * V, generator=random)
    q, k = (wide[at, :, : K * C].unflatten(1, (K, C)) for at in (0, 1))
    v = wide[2, :, 8 : 8 + H * V].unflatten(1, (H, V))
    decay, strength = wide[0, :, :H], wide[1, :, 5 : 5 + H]
    operands = q, k, v, decay, strength, torch.randn(H, C, V, generator=random), one
    found = BACKEND.ops.recurrence(*operands)
    for mine, right in zip(found, reference.recurrence(*operands), strict=True):
        check_close(mine, right, MOST_ERROR)
    floored = (*operands[:-1], replace(one, floor=-5.0))
    found = BACKEND.ops.recurrence(*floored)
    check_close(found[0], reference.recurrence(*floored)[0], MOST_ERROR)


# --- convolution --------------------------------------------------------------------------------


def convolution(channels: int, taps: int, random: torch.Generator, **more: object) -> ShortConv:
    weight = torch.randn(channels, taps, generator=random)
    return replace(ShortConv("x", weight, 1), **more)


@pytest.mark.parametrize("taps", [1, 2, 4])
def test_a_step_of_a_convolution(taps: int, random: torch.Generator) -> None:
    channels = 300
    bias = torch.randn(channels, generator=random)
    one = convolution(channels, taps, random, bias=bias, activation=Activation.SILU)
    made = Sequences(ConvState(channels, taps), random)
    x = torch.randn(len(POSITIONS), channels, generator=random)
    y, check = guarded(*x.shape)
    y.copy_(x)
    before = made.read(after=False)
    states.convolution_step([(one, made.layer, y)], made.steps)
    check()
    made.check_others()
    for at, state in enumerate(before):
        right, after = reference.short_conv(x[at : at + 1], one.weight, bias, state)
        right = reference.gated(right, None, Activation.SILU)
        check_close(y[at : at + 1], right, MOST_ERROR)
        assert torch.equal(made.read(after=True)[at], after)


def test_a_step_of_a_gated_convolution(random: torch.Generator) -> None:
    """With factors before and after it, as floats and quantized."""
    channels = 288
    one = convolution(channels, 3, random)
    x, first, last = torch.randn(3, len(POSITIONS), channels, generator=random)
    for quantize in (False, True):
        made = Sequences(ConvState(channels, 3), random)
        y = x.clone()
        then = launch.new_quantized(len(x), channels, x.device) if quantize else None
        before = made.read(after=False)
        states.convolution_step([(one, made.layer, y)], made.steps, first, last, then)
        for at, state in enumerate(before):
            product = (x * first)[at : at + 1]
            right, after = reference.short_conv(product, one.weight, None, state)
            right = right * last[at]
            found = y if then is None else values(then)[:, :channels]
            check_close(found[at : at + 1], right, 5e-4 if quantize else MOST_ERROR)
            assert torch.equal(made.read(after=True)[at], after)


def values(made: launch.Quantized) -> Tensor:
    """The values of quantized activations."""
    codes = made.words[:, :8].transpose(1, 2).contiguous().view(torch.int8).float()
    return (codes * made.words[:, 8].view(torch.float32)[..., None]).flatten(1)


def test_a_step_of_three_convolutions(random: torch.Generator) -> None:
    channels = (40, 300, 256)
    layout = KVLayout([ConvState(count, 4) for count in channels], torch.float16)
    table = PageTable()
    for _ in range(2):
        table.append(torch.full((layout.page_bytes[0],), 0xFF, dtype=torch.uint8))
    every, right = [], []
    for at, count in enumerate(channels):
        bias = torch.randn(count, generator=random) if at == 1 else None
        one = convolution(count, 4, random, bias=bias)
        x = torch.randn(1, count, generator=random)
        state = torch.randn(3, count, generator=random)
        PagedState(layout.state(at), table).write(0, state)
        right.append(reference.short_conv(x, one.weight, bias, state))
        every.append((one, layout.state(at), x.clone()))
    steps = Steps(torch.tensor([17]), attention.addresses([table], 4))
    states.convolution_step(every, steps)
    for (_, layer, found), (y, after) in zip(every, right, strict=True):
        check_close(found, y, MOST_ERROR)
        assert torch.equal(PagedState(layer, table).read(1), after)


@pytest.mark.parametrize("tokens", [1, 2, 19])
@pytest.mark.parametrize("taps", [1, 4])
def test_a_prompts_convolution(tokens: int, taps: int, random: torch.Generator) -> None:
    channels = 130
    x = torch.randn(tokens, channels, generator=random)
    weight = torch.randn(channels, taps, generator=random)
    state = torch.randn(taps - 1, channels, generator=random)
    for bias in (None, torch.randn(channels, generator=random)):
        y, check = guarded(tokens, channels)
        after, check_after = guarded(taps - 1, channels)
        states.convolution_rows(x, weight, bias, y, state, after)
        check()
        check_after()
        operands = x, weight, bias, state
        right, kept = reference.short_conv(*operands)
        check_close(y, right, MOST_ERROR)
        assert torch.equal(after, kept)
        found = BACKEND.ops.short_conv(*operands)
        assert torch.equal(found[0], y)
        assert torch.equal(found[1], kept)
