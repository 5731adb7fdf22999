"""Full attention and activations: definitions, refused operands, and programs that are not lowered."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from chosen_backend import ops
from kernels import reference
from kernels.program import Activation


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
    monkeypatch.setattr(reference, "_SCORES", 3 * heads * tokens)  # several tiles of queries
    torch.testing.assert_close(reference.full_attention(q, k, v, 0.7, window).double(), expected,
                               rtol=1e-5, atol=1e-5)  # fmt: skip


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
