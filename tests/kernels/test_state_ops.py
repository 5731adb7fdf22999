"""Ops of layers with a state of fixed size, against independent definitions in f64."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from kernels.backends import BACKENDS
from kernels.ops import Recurrence
from kernels.states.kv_pages import KVLayout, PagedState, PageTable, pieces
from kernels.states.layer_state import (
    AT_END,
    ConvState,
    LayerShape,
    RecurrentState,
    SharedState,
    needed_pages,
)

OPS = BACKENDS["reference"].ops


def values(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=random)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("count", "width", "taps"), [(1, 1, 1), (5, 3, 2), (2, 7, 4), (40, 33, 4)])
def test_short_conv_is_a_grouped_convolution(
    count: int, width: int, taps: int, biased: bool, random: torch.Generator
) -> None:
    x, weight = values(random, count, width), values(random, width, taps)
    state = values(random, taps - 1, width)
    bias = values(random, width) if biased else None
    y, after = OPS.short_conv(x, weight, bias, state)
    inputs = torch.cat((state, x)).double()
    wanted = functional.conv1d(
        inputs.T[None],
        weight.double()[:, None],
        None if bias is None else bias.double(),
        groups=width,
    )[0].T
    torch.testing.assert_close(y, wanted.float(), rtol=1e-5, atol=1e-5)
    assert torch.equal(after, inputs[count:].float())


def options(
    rate: Tensor, bias: Tensor, scale: float = 1.0, corrected: bool = True, **more: Any
) -> Recurrence:
    """An instruction, of which the op reads only the options."""
    options: dict[str, Any] = {"epsilon": 1e-6, "corrected": corrected, **more}
    return Recurrence(*"qkvdso", 0, rate, bias, scale, **options)


def matrices(
    q: Tensor, k: Tensor, v: Tensor, kept: Tensor, strength: Tensor, state: Tensor, corrected: bool
) -> tuple[Tensor, Tensor]:
    """The recurrence of one head as products of matrices: S = a (I - b k k^T) S + b k v^T."""
    outs: list[Tensor] = []
    for t in range(len(q)):
        key = k[t][:, None]
        change = torch.eye(len(key), dtype=q.dtype)
        if corrected:
            change = change - strength[t] * key @ key.T
        state = kept[t] * change @ state + strength[t] * key @ v[t][None]
        outs.append(q[t] @ state)
    return torch.stack(outs), state


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 1), (3, 4, 2, 5, 7), (2, 6, 2, 1, 3), (30, 2, 2, 16, 9)]
)
def test_recurrence_of_every_head(
    sizes: tuple[int, ...], corrected: bool, random: torch.Generator
) -> None:
    count, heads, key_heads, width, depth = sizes
    q, k = (values(random, count, key_heads, width) for _ in range(2))
    v, state = values(random, count, heads, depth), values(random, heads, width, depth)
    decay, strength = (values(random, count, heads) for _ in range(2))
    rate, bias = -values(random, heads).abs(), values(random, heads)
    one = options(rate, bias, 0.3, corrected)
    y, after = OPS.recurrence(q, k, v, decay, strength, state, one)
    q64, k64 = (x.double() / (x.double().square().sum(-1, True) + 1e-6).sqrt() for x in (q, k))
    kept = (rate * torch.log1p((decay + bias).double().exp())).exp()
    share = 1 / (1 + (-strength.double()).exp())
    for head in range(heads):
        group = head // (heads // key_heads)
        operands = q64[:, group] * 0.3, k64[:, group], v[:, head].double()
        wanted, last = matrices(
            *operands, kept[:, head], share[:, head], state[head].double(), corrected
        )
        torch.testing.assert_close(y[:, head], wanted.float(), rtol=2e-4, atol=2e-5)
        torch.testing.assert_close(after[head], last.float(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("stepped", [False, True])
def test_recurrences_of_other_models(
    stepped: bool, by_channel: bool, tiled: bool, random: torch.Generator
) -> None:
    """Decays by channel, key heads in turn, and state-space models with a step and a skip."""
    T, H, K, C, V = 9, 6, 2, 4, 5
    q, k, v = values(random, T, K, C), values(random, T, K, C), values(random, T, H, V)
    state, wide = values(random, H, C, V), H * C if by_channel else H
    decay, bias, strength = values(random, T, wide), values(random, wide), values(random, T, H)
    rate, skip = -values(random, H).abs(), values(random, H)
    more: dict[str, Any] = {"tiled": tiled}
    if stepped:
        more |= {"epsilon": -1.0, "skip": skip}
    if stepped and by_channel:
        pytest.skip("no such model: the step is one number")
    one = options(rate, bias, 0.5, corrected=not stepped, **more)
    y, after = OPS.recurrence(q, k, v, decay, None if stepped else strength, state, one)
    step = torch.log1p((decay + bias).double().exp()).view(T, H, -1)
    for head in range(H):
        S = state[head].double()
        group = head % K if tiled else head // (H // K)
        for t in range(T):
            query, key = q[t, group].double(), k[t, group].double()
            if not stepped:
                query, key = (x / (x.square().sum() + 1e-6).sqrt() for x in (query, key))
            S = (rate[head] * step[t, head]).exp()[:, None] * S
            value = v[t, head].double()
            if stepped:
                S = S + torch.outer(key, step[t, head, 0] * value)
            else:
                share = torch.special.expit(strength[t, head].double())
                S = S + torch.outer(key, share * (value - S.T @ key))
            wanted = S.T @ query * 0.5 + (skip[head] * value if stepped else 0)
            torch.testing.assert_close(y[t, head].double(), wanted, rtol=2e-4, atol=2e-5)
        torch.testing.assert_close(after[head].double(), S, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("by_channel", [False, True])
def test_a_floor_bounds_the_decay(by_channel: bool, random: torch.Generator) -> None:
    heads, width, depth = 3, 5, 7
    q, k = (values(random, 9, heads, width) for _ in range(2))
    v, state = values(random, 9, heads, depth), values(random, heads, width, depth)
    decays = heads * width if by_channel else heads
    decay, bias, strength = (
        3 * values(random, 9, decays), values(random, decays), values(random, 9, heads)
    )  # fmt: skip
    rate = values(random, heads).exp()
    y, after = OPS.recurrence(q, k, v, decay, strength, state, options(rate, bias, floor=-2.5))
    q64, k64 = (x.double() / (x.double().square().sum(-1, True) + 1e-6).sqrt() for x in (q, k))
    shape = 9, heads, -1
    inner = (decay + bias).double().view(shape) * rate.double()[:, None]
    kept = (-2.5 / (1 + (-inner).exp())).exp().expand(9, heads, width)
    share = 1 / (1 + (-strength.double()).exp())
    for head in range(heads):
        matrix, outs = state[head].double(), list[Tensor]()
        for t in range(9):
            matrix = torch.diag(kept[t, head]) @ matrix
            key = k64[t, head][:, None]
            matrix = (
                matrix + share[t, head] * key @ (v[t, head].double() - key[:, 0] @ matrix)[None]
            )
            outs.append(q64[t, head] @ matrix)
        torch.testing.assert_close(y[:, head], torch.stack(outs).float(), rtol=2e-4, atol=2e-5)
        torch.testing.assert_close(after[head], matrix.float(), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("floor", "strong"), [(1.0, True), (-1.0, False)])
def test_a_wrong_floor_is_refused(floor: float, strong: bool) -> None:
    ones = torch.ones(2, 1, 3)
    strength = torch.ones(2, 1) if strong else None
    one = options(torch.ones(1), torch.ones(1), floor=floor)
    with pytest.raises(ValueError, match="recurrence: a floor of"):
        OPS.recurrence(ones, ones, ones, torch.ones(2, 1), strength, torch.ones(1, 3, 3), one)


def test_the_bits_do_not_depend_on_the_cut(random: torch.Generator) -> None:
    q, k, v = (values(random, 20, heads, 6) for heads in (2, 2, 4))
    decay, strength, bias = values(random, 20, 4), values(random, 20, 4), values(random, 4)
    state, conv = values(random, 4, 6, 6), values(random, 3, 6)
    weight, x = values(random, 6, 4), values(random, 20, 6)
    one = options(-bias.abs(), bias, 0.4)
    y, after = OPS.recurrence(q, k, v, decay, strength, state, one)
    z, last = OPS.short_conv(x, weight, None, conv)
    for start, end in ((0, 1), (1, 8), (8, 20)):
        part = slice(start, end)
        operands = (each[part] for each in (q, k, v, decay, strength))
        found, state = OPS.recurrence(*operands, state, one)
        assert torch.equal(found, y[part])
        found, conv = OPS.short_conv(x[part], weight, None, conv)
        assert torch.equal(found, z[part])
    assert torch.equal(state, after)
    assert torch.equal(conv, last)


def test_operands_are_not_changed(random: torch.Generator) -> None:
    q, v, gates = values(random, 3, 1, 4), values(random, 3, 2, 5), values(random, 3, 2)
    operands = (q, q.clone(), v, gates, gates.clone(), values(random, 2, 4, 5), gates[0], gates[1])
    copies = [each.clone() for each in operands]
    OPS.recurrence(*operands[:6], options(*operands[6:]))
    assert all(map(torch.equal, operands, copies))


REFUSED: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("short_conv: x", OPS.short_conv, (torch.ones(2, 3), torch.ones(4, 2), None, torch.ones(1, 4))),
    ("short_conv: x", OPS.short_conv, (torch.ones(0, 3), torch.ones(3, 2), None, torch.ones(1, 3))),
    (
        "short_conv: state",
        OPS.short_conv,
        (torch.ones(2, 3), torch.ones(3, 2), None, torch.ones(2, 3)),
    ),
    (
        "short_conv: an operand",
        OPS.short_conv,
        (torch.ones(2, 3), torch.ones(3, 2).half(), None, torch.ones(1, 3)),
    ),
]


@pytest.mark.parametrize(("words", "op", "operands"), REFUSED)
def test_wrong_operands_are_refused(
    words: str, op: Callable[..., Any], operands: tuple[Any, ...]
) -> None:
    with pytest.raises(ValueError, match=words):
        op(*operands)


@pytest.mark.parametrize("wrong", range(8))
def test_a_recurrence_refuses_an_operand_of_another_shape(wrong: int) -> None:
    shapes = [(3, 2, 5), (3, 2, 5), (3, 4, 6), (3, 4), (3, 4), (4, 5, 6), (4,), (4,)]
    operands = [torch.ones(shape) for shape in shapes]
    OPS.recurrence(*operands[:6], options(*operands[6:]))
    operands[wrong] = torch.ones(*shapes[wrong][:-1], shapes[wrong][-1] + 1)
    with pytest.raises(ValueError, match="recurrence: "):
        OPS.recurrence(*operands[:6], options(*operands[6:]))


# --- pages --------------------------------------------------------------------------------------

STATES = (LayerShape(1, 8), ConvState(5, 4), RecurrentState(3, 2, 7), SharedState(0),
          LayerShape(1, 8, 300), ConvState(3, 3), SharedState(4))  # fmt: skip


def test_states_of_fixed_size_are_one_group_whose_pages_they_fill() -> None:
    layout = KVLayout(STATES, torch.float16)
    assert layout.windows == (0, AT_END, 300)
    size = 4 * (3 * 5 + 3 * 2 * 7 + 2 * 3)
    assert layout.page_bytes[1] == layout.state_bytes == size
    assert layout.kv_bytes_per_page == layout.bytes_per_page - size
    assert layout.kv(3) is layout.kv(0)
    assert layout.kv(6) is layout.kv(4)
    page = torch.full((size,), 0xFF, dtype=torch.uint8)
    table = PageTable()
    table.append(page)
    for number, layer in enumerate((1, 2, 5)):
        state = PagedState(layout.state(layer), table)
        state.write(0, torch.full(state.layer.shape.shape, float(number)))
    assert torch.equal(page.view(torch.float32), torch.tensor([0.0] * 15 + [1.0] * 42 + [2.0] * 6))
    assert bool((PagedState(layout.state(2), table).read(0) == 1).all())
    assert bool((PagedState(layout.state(2), table).read(-1) == 0).all())


def test_a_layer_of_the_other_kind_is_refused() -> None:
    layout = KVLayout(STATES, torch.float32)
    with pytest.raises(AssertionError):
        layout.kv(1)
    with pytest.raises(AssertionError):
        layout.state(0)


@pytest.mark.parametrize("position", [0, 1, 255, 256, 300])
@pytest.mark.parametrize("tokens", [1, 2, 255, 256, 257, 700])
def test_pieces_end_where_pages_end(position: int, tokens: int) -> None:
    found = pieces(position, tokens)
    assert [at for piece in found for at in piece] == list(range(tokens))
    assert all(piece for piece in found)
    assert all((position + piece.stop) % 256 == 0 for piece in found[:-1])
    assert all(len({(position + at) // 256 for at in piece}) == 1 for piece in found)


def test_a_removed_page_lets_the_later_ones_move_up() -> None:
    table = PageTable()
    pages = [torch.zeros(8, dtype=torch.uint8) for _ in range(17)]
    for page in pages:
        table.append(page)
    table.remove(3)
    assert table.pages == [*pages[:3], *pages[4:]]
    table.append(pages[3])
    for index, page in enumerate(table.pages):
        assert page is not None
        address = torch.frombuffer(_memory(table.address, 17), dtype=torch.int64)[index]
        assert int(address) == page.data_ptr()


def _memory(address: int, count: int) -> Any:
    return (ctypes.c_int64 * count).from_address(address)


@pytest.mark.parametrize(
    ("window", "length", "wanted"),
    [(AT_END, 0, []), (AT_END, 1, [0]), (AT_END, 256, [0]), (AT_END, 257, [1]), (0, 0, []),
     (0, 600, [0, 1, 2]), (300, 600, [1, 2]), (300, 555, [1, 2]), (300, 554, [0, 1, 2]),
     (1, 512, []), (1, 513, [2])],
)  # fmt: skip
def test_needed_pages(window: int, length: int, wanted: list[int]) -> None:
    assert list(needed_pages(window, length)) == wanted
