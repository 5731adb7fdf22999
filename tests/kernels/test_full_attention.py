"""Full attention and activations: definitions, refused operands, and programs that are not lowered."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from chosen_backend import ops
from kernels.backend import reference
from kernels.cpu import library
from kernels.ops import Activation, attend

MOST_ERROR = 1e-10  # normalized squared error: only rounding differs


def plain(q: Tensor, k: Tensor, v: Tensor, scale: float, window: int) -> Tensor:
    """One head and one query at a time, in float64."""
    y = torch.empty(q.shape, dtype=torch.float64)
    group = q.shape[1] // k.shape[1]
    for t in range(len(q)):
        near = [s for s in range(len(k)) if not window or abs(s - t) <= window // 2]
        for h in range(q.shape[1]):
            keys, values = k[near, h // group].double(), v[near, h // group].double()
            y[t, h] = (keys @ q[t, h].double() * scale).softmax(0) @ values
    return y.flatten(1)


@pytest.mark.parametrize("window", [0, 1, 2, 5, 100])
@pytest.mark.parametrize(("tokens", "heads", "kv_heads", "width"), [(1, 1, 1, 2), (13, 6, 2, 5)])
def test_every_token_attends_to_all_near_it(
    tokens: int, heads: int, kv_heads: int, width: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    q = torch.randn(tokens, heads, width)
    k, v = torch.randn(2, tokens, kv_heads, width)
    expected = plain(q, k, v, 0.7, window)
    torch.testing.assert_close(ops.full_attention(q, k, v, 0.7, window).double(), expected,
                               rtol=1e-5, atol=1e-5)  # fmt: skip
    monkeypatch.setattr(attend, "_SCORES", 3 * heads * tokens)  # several tiles of queries
    torch.testing.assert_close(reference.full_attention(q, k, v, 0.7, window).double(), expected,
                               rtol=1e-5, atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("window", [0, 1, 90, 700])
@pytest.mark.parametrize(
    ("tokens", "heads", "kv_heads", "width"),
    [
        (1, 3, 1, 16),
        (16, 2, 2, 20),
        (65, 6, 2, 33),
        (300, 4, 4, 32),
        (256, 1, 1, 64),
        (530, 3, 1, 8),
    ],
)
def test_texts_longer_than_a_page_and_any_sizes_are_right_on_any_number_of_threads(
    instruction_set: str, tokens: int, heads: int, kv_heads: int, width: int, window: int
) -> None:
    q = torch.randn(tokens, heads, width) * 3
    k, v = torch.randn(2, tokens, kv_heads, width)
    expected = reference.full_attention(q.double(), k.double(), v.double(), 0.4, window)
    results: list[Tensor] = []
    with ops.only("cpu"):
        for threads in (1, 2, 3):
            library.set_threads(threads)
            results.append(ops.full_attention(q, k, v, 0.4, window))
    error = (results[0] - expected).square().sum() / expected.square().sum()
    assert error < MOST_ERROR
    assert all(torch.equal(one, results[0]) for one in results)


@pytest.mark.parametrize("window", [0, 60])
def test_the_bits_of_a_query_depend_on_its_text_alone(instruction_set: str, window: int) -> None:
    q, k, v = torch.randn(3, 300, 4, 16)
    with ops.only("cpu"):
        whole = ops.full_attention(q, k, v, 0.4, window)
        for head in range(4):
            one = [each[:, head : head + 1] for each in (q, k, v)]
            found = ops.full_attention(*one, 0.4, window)
            assert torch.equal(found, whole[:, 16 * head : 16 * head + 16])


def test_what_is_not_finite_stays_in_its_row_of_queries(instruction_set: str) -> None:
    q, k, v = torch.randn(3, 70, 2, 16)
    q[7, 1] = math.nan
    with ops.only("cpu"):
        rows = ops.full_attention(q, k, v, 0.4).view(70, 2, 16).isnan().any(-1)
    assert rows.nonzero().tolist() == [[7, 1]]


@pytest.mark.parametrize(
    ("q", "k", "v", "window"),
    [
        (torch.ones(3, 2, 4), torch.ones(3, 2, 5), torch.ones(3, 2, 5), 0),
        (torch.ones(3, 2, 4), torch.ones(4, 2, 4), torch.ones(4, 2, 4), 0),
        (torch.ones(3, 3, 4), torch.ones(3, 2, 4), torch.ones(3, 2, 4), 0),
        (torch.ones(3, 2, 4), torch.ones(3, 2, 4), torch.ones(3, 1, 4), 0),
        (torch.ones(3, 8), torch.ones(3, 2, 4), torch.ones(3, 2, 4), 0),
        (torch.ones(3, 2, 4).double(), torch.ones(3, 2, 4), torch.ones(3, 2, 4), 0),
        (torch.ones(3, 2, 4), torch.ones(3, 2, 4), torch.ones(3, 2, 4), -1),
    ],
)
def test_operands_that_do_not_fit_are_refused(q: Tensor, k: Tensor, v: Tensor, window: int) -> None:
    with pytest.raises(ValueError, match="full_attention"):
        ops.full_attention(q, k, v, 1.0, window)


def test_native_gelu_is_the_exact_one_on_every_instruction_set(instruction_set: str) -> None:
    x = torch.cat([torch.linspace(-14, 14, 40_001), torch.tensor([-1e30, 0.0, 1e30, math.inf])])
    wanted = torch.nn.functional.gelu(x.double().clamp(-1e31, 1e31)).float()
    wanted[-1] = math.inf
    with ops.only("cpu"):
        found = ops.gated(x, None, Activation.GELU)
        assert ops.gated(torch.tensor([math.nan]), None, Activation.GELU).isnan().all()
        assert torch.equal(ops.gated(x[7:20], None, Activation.GELU), found[7:20])
    torch.testing.assert_close(found, wanted, rtol=3e-7, atol=3e-7)


def test_gelu_is_the_exact_one() -> None:
    x = torch.linspace(-6, 6, 301)
    expected = torch.tensor([v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()])
    torch.testing.assert_close(ops.gated(x, None, Activation.GELU), expected)
    torch.testing.assert_close(ops.gated(x, x, Activation.GELU), expected * x)


def test_a_cut_silu_is_cut_after_the_activation() -> None:
    x = torch.linspace(-6, 6, 301)
    silu = [v / (1 + math.exp(-v)) for v in x.tolist()]
    expected = torch.tensor([min(one, 2.0) for one in silu])
    up = torch.linspace(5, -5, 301)
    torch.testing.assert_close(ops.gated(x, None, Activation.SILU_CUT), torch.tensor(silu))
    torch.testing.assert_close(ops.gated(x, None, Activation.SILU_CUT, 2.0), expected)
    found = ops.gated(x, up, Activation.SILU_CUT, 2.0)
    torch.testing.assert_close(found, expected * up.clamp(-2, 2))
    cut = torch.tensor([v / (1 + math.exp(-v)) for v in x.clamp(max=2).tolist()])
    torch.testing.assert_close(ops.gated(x, None, Activation.SILU, 2.0), cut)
