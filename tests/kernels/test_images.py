"""Images in a batch: given rows, RoPE with several axes, and spans that attend in both directions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import paging
from chosen_backend import ops
from kernels.backends import BACKENDS
from kernels.ops import GivenRows, ImageRows, Pass, Segment, Spans
from paging import no_attention

pytestmark = pytest.mark.usefixtures("backend")


def by_formula(q: Tensor, k: Tensor, v: Tensor, position: int, window: int, spans: Spans) -> Tensor:
    """Attention of a span, one query and head at a time, in float64: [T, H*C]."""
    count, heads, _ = q.shape
    y = torch.zeros(q.shape, dtype=torch.float64)
    for t in range(count):
        here = position + t
        whole = position if spans is Spans.WHOLE else here
        seen = [j for j in range(position + count) if j >= whole or not window or here - j < window]
        for h in range(heads):
            shared = h // (heads // k.shape[1])
            scores = k[seen, shared].double() @ q[t, h].double() * 0.2
            y[t, h] = scores.softmax(0) @ v[seen, shared].double()
    return y.view(count, -1)


@pytest.mark.parametrize(
    ("count", "position", "window"),
    [(1, 0, 0), (7, 0, 0), (9, 5, 0), (9, 30, 4), (9, 30, 20), (300, 250, 0), (300, 250, 40)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("spans", [Spans.WHOLE, Spans.WINDOWED])
def test_the_tokens_of_a_span_see_each_other(
    count: int,
    position: int,
    window: int,
    spans: Spans,
    dtype: torch.dtype,
    random: torch.Generator,
) -> None:
    q = torch.randn(count, 6, 24, generator=random)
    rows = position + count + 3  # those after the span are never seen
    k, v = (torch.randn(rows, 2, 24, generator=random) for _ in "kv")
    k[position + count :] = v[position + count :] = float("nan")
    kv = paging.stored(k, v, dtype)
    found = ops.attention(q, kv, position, 0.2, window, spans=spans)
    wanted = by_formula(q, k.to(dtype), v.to(dtype), position, window, spans)
    assert float((found - wanted).square().sum() / wanted.square().sum()) <= 1e-10


@pytest.mark.parametrize("interleaved", [False, True])
def test_each_pair_rotates_by_a_position_of_its_own(
    interleaved: bool, random: torch.Generator
) -> None:
    x = torch.randn(5, 3, 16, generator=random)
    frequencies = torch.rand(6, generator=random)
    positions = torch.randint(900, (5, 6), generator=random)
    found = ops.rope(x, positions, frequencies, interleaved, 1.5)
    for pair in range(6):  # RoPE of all pairs by the positions of one has the channels of this one
        same = ops.rope(x, positions[:, pair].contiguous(), frequencies, interleaved, 1.5)
        channels = [2 * pair, 2 * pair + 1] if interleaved else [pair, pair + 6]
        assert torch.equal(found[..., channels], same[..., channels])
    assert torch.equal(found[..., 12:], x[..., 12:])


def test_positions_are_those_of_images_where_they_say_so() -> None:
    images = ImageRows(positions=torch.tensor([[4, 5, 6], [4, 5, 7]]))
    batch = [Segment([1, 2, 3], 10, ()), Segment([1, 2], 20, (), images)]
    on = Pass(BACKENDS["reference"].ops, {}, no_attention(), {}, batch)
    found = on.rope_positions(torch.tensor([0, 2, 1, 2], dtype=torch.int32), torch.device("cpu"))
    assert found.tolist() == [[10] * 4, [11] * 4, [12] * 4, [4, 6, 5, 6], [4, 7, 5, 7]]
    assert on.rope_positions(None, torch.device("cpu")).tolist() == [10, 11, 12, 20, 21]


def given(x: Tensor, batch: list[Segment], one: GivenRows) -> Tensor:
    on = Pass(BACKENDS["reference"].ops, {"x": x.shape[1]}, no_attention(), {"x": x}, batch)
    one.run(on)
    return on.buffers["x"]


def test_given_rows_are_in_place_of_those_of_their_tokens_or_are_added() -> None:
    rows = torch.arange(8.0).view(2, 4)
    images = ImageRows(rows, torch.tensor([0, 2]))
    batch = [Segment([1, 2], 0, ()), Segment([3, 3, 3], 0, (), images)]
    x = torch.full((5, 2), 10.0)
    assert given(x, batch, GivenRows("x")).tolist() == [
        *([10, 10], [10, 10]),
        *([0, 1], [10, 10], [4, 5]),
    ]
    assert given(x, batch, GivenRows("x", 2, added=True)).tolist() == [
        *([10, 10], [10, 10]),
        *([12, 13], [10, 10], [16, 17]),
    ]
    assert x.eq(10).all()
    with pytest.raises(ValueError, match=r"^given_rows: rows float32 \[2, 4\]"):
        given(x, batch, GivenRows("x", 3))


def test_a_body_may_begin_with_given_rows() -> None:
    rows = torch.randn(3, 2)
    on = Pass(
        BACKENDS["reference"].ops,
        {"x": 2},
        no_attention(),
        {},
        [Segment([0] * 3, 0, (), ImageRows(rows, torch.arange(3)))],
    )
    GivenRows("x").run(on)
    assert torch.equal(on.buffers["x"], rows)


@pytest.mark.parametrize(
    "images",
    [
        ImageRows(torch.zeros(2, 4), torch.tensor([1])),
        ImageRows(torch.zeros(2, 4), torch.tensor([1, 3])),
        ImageRows(torch.zeros(2, 4), torch.tensor([2, 1])),
        ImageRows(torch.zeros(2, 4), torch.tensor([-1, 1])),
        ImageRows(torch.zeros(2, 4), torch.tensor([0, 1], dtype=torch.int32)),
        ImageRows(positions=torch.zeros(2, 3, dtype=torch.int64)),
        ImageRows(positions=torch.zeros(3, dtype=torch.int64)),
        ImageRows(spans=[range(1, 4)]),
        ImageRows(spans=[range(2), range(1, 3)]),
    ],
)
def test_images_that_do_not_fit_their_segment(images: ImageRows) -> None:
    with pytest.raises(ValueError, match=r"^images: "):
        images.check(3)
