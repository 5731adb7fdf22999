"""The Triton kernel of norms and gates of heads against the reference, in the interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpu_results import check_close, guarded
from kernels.backend import reference
from kernels.cuda import heads, launch
from kernels.cuda.heads import HeadGates, HeadNorms
from kernels.ops import Activation

TOKENS = 3


def values(made: launch.Quantized) -> Tensor:
    """The values of quantized activations."""
    codes = made.words[:, :8].transpose(1, 2).contiguous().view(torch.int8).float()
    return (codes * made.words[:, 8].view(torch.float32)[..., None]).flatten(1)


def normed(x: Tensor, one: HeadNorms | None) -> Tensor:
    if one is None:
        return x
    parts, ones = x.view(TOKENS, *one.weight.shape), torch.ones(one.weight.shape[1])
    if one.centred:
        y = reference.layer_norm(parts, ones, None, one.epsilon)
    else:
        y = reference.rms_norm(parts, ones, one.epsilon)
    return (y * one.weight).flatten(1)


def gated(x: Tensor, one: HeadGates) -> Tensor:
    if one.gate is None:
        return reference.gated(x, None, one.activation, one.limit)
    if one.kind == heads.BY_HEAD:
        factor = reference.gated(one.gate, None, one.activation)
        return (x.view(TOKENS, factor.shape[1], -1) * factor[..., None]).flatten(1)
    return reference.gated(one.gate, x, one.activation, one.limit)


@pytest.mark.parametrize("kind", [heads.NONE, heads.BEFORE, heads.AFTER, heads.BY_HEAD])
@pytest.mark.parametrize("centred", [False, True, None])
@pytest.mark.parametrize(("count", "width"), [(3, 20), (2, 96), (1, 64)])
def test_norms_and_gates(
    count: int, width: int, centred: bool | None, kind: int, random: torch.Generator
) -> None:
    if centred is not None and kind == heads.BY_HEAD:
        pytest.skip("no layer has both")
    x, gate = torch.randn(2, TOKENS, count * width, generator=random) * 2
    norms = None
    if centred is not None:
        norms = HeadNorms(torch.randn(count, width, generator=random), 1e-5, centred)
    gates = None
    if kind == heads.BY_HEAD:
        gates = HeadGates(kind, gate[:, :count].contiguous(), Activation.SIGMOID)
    elif kind != heads.NONE:
        gates = HeadGates(kind, gate, Activation.SILU)
    wanted = x if gates is None or kind != heads.BEFORE else gated(x, gates)
    wanted = normed(wanted, norms)
    wanted = wanted if gates is None or kind == heads.BEFORE else gated(wanted, gates)
    out, check = guarded(*x.shape)
    heads.launch(x, norms, gates, TOKENS, out)
    check()
    check_close(out, wanted, 1e-11)
    if heads.can_quantize(norms, gates, x.shape[1]):
        then = launch.new_quantized(TOKENS, x.shape[1], x.device)
        heads.launch(x, norms, gates, TOKENS, out, then)
        check_close(values(then)[:TOKENS, : x.shape[1]], wanted, 5e-4)
    heads.launch(x, norms, gates, TOKENS, x)  # in place
    assert torch.equal(x, out)


def test_activations_with_a_limit_of_wide_rows(random: torch.Generator) -> None:
    x, gate = torch.randn(2, TOKENS, 1100, generator=random) * 4
    for gates in (
        HeadGates(heads.ITSELF, None, Activation.RELU_SQUARED, 1.5),
        HeadGates(heads.AFTER, gate, Activation.GPT_OSS, 1.5),
    ):
        out, check = guarded(*x.shape)
        heads.launch(x, None, gates, TOKENS, out)
        check()
        check_close(out, gated(x, gates), 1e-11)
        then = launch.new_quantized(TOKENS, 1100, x.device)
        heads.launch(x, None, gates, TOKENS, out, then)
        check_close(values(then)[:TOKENS, :1100], gated(x, gates), 5e-4)
