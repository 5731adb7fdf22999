"""Ops of the Metal backend that read no weights, against the reference."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import gpu_results
from kernels import metal
from kernels.backend import reference
from kernels.metal import elementwise
from kernels.ops import Activation
from kernels.ops.softcap import softcap

OPS = metal.backend_on(torch.device("cpu")).ops

MOST_ERROR = 1e-9


def check_close(found: Tensor, wanted: Tensor) -> None:
    gpu_results.check_close(found, wanted, MOST_ERROR)


@pytest.mark.parametrize("width", [1, 33, 512, 1029])
def test_norms(width: int, random: torch.Generator) -> None:
    x = torch.randn(2, 3, width, generator=random) + 0.5
    weight, bias = torch.randn(2, width, generator=random)
    check_close(OPS.rms_norm(x, weight, 1e-5), reference.rms_norm(x, weight, 1e-5))
    for added in (bias, None):
        found = OPS.layer_norm(x, weight, added, 1e-3)
        if width > 1:  # else zeros but for the bias
            check_close(found, reference.layer_norm(x, weight, added, 1e-3))


def test_a_norm_in_place(random: torch.Generator) -> None:
    x, weight = torch.randn(3, 700, generator=random), torch.randn(700, generator=random)
    wanted = reference.rms_norm(x, weight, 1e-6)
    elementwise.norm_launch(x, weight, None, 1e-6, False, x)()
    check_close(x, wanted)


@pytest.mark.parametrize("activation", Activation)
def test_gates(activation: Activation, random: torch.Generator) -> None:
    gate, up = torch.randn(2, 3, 100, generator=random) * 4
    gate[0, :2] = torch.tensor([-100.0, 100.0])
    check_close(OPS.gated(gate, up, activation), reference.gated(gate, up, activation))
    check_close(OPS.gated(gate, None, activation), reference.gated(gate, None, activation))


def test_sums_and_soft_caps(random: torch.Generator) -> None:
    x, y = torch.randn(2, 3, 41, generator=random)
    x[0, 0] = 1e4
    wanted = x + 0.3 * y
    elementwise.add_launch(x, y, 0.3)()
    check_close(x, wanted)
    elementwise.softcap_launch(x, 30.0)()
    check_close(x, softcap(wanted, 30.0))
    assert math.isclose(float(x[0, 0]), 30.0)
