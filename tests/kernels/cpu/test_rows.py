"""Native ops of residual streams, sparse activations and rotations, on every instruction set.

Each is compared with its definition in f64, alone; `test_hybrid_programs` has programs of them.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from kernels.backend import reference
from kernels.backends import BACKENDS
from kernels.cpu import library
from kernels.cpu import ops as native
from kernels.cpu.schema import MAX_STREAMS
from kernels.ops import GaussianTopK, MatchMagnitude, hadamard_rotation

pytestmark = pytest.mark.usefixtures("instruction_set")

WIDTHS = (1, 3, 16, 17, 255, 257, 640)
TOKENS = (1, 2, 33)
MATCHED, HIGHEST = MatchMagnitude("x", "y", 1e-5), GaussianTopK("x", 0.5)


def close(got: Tensor, wanted: Tensor) -> None:
    assert got.shape == wanted.shape
    scale = float(wanted.square().mean().sqrt())
    torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=3e-6 * scale + 1e-30)


@pytest.mark.parametrize("block", [2**power for power in (*range(13), 16)])
def test_a_transform_is_that_of_the_definition(block: int, random: torch.Generator) -> None:
    for tokens, blocks in ((1, 1), (1, 3), (5, 2)):
        x = torch.randn(tokens, block * blocks, generator=random)
        close(native.hadamard(x, block), defined_transform(x, block))


def defined_transform(x: Tensor, block: int) -> Tensor:
    """By bits: the sum and the difference of the two halves of a block, in f64."""
    y = x.double().view(-1, block)
    half = block // 2
    while half:
        pairs = y.view(len(y), -1, 2, half)
        y = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), 2)
        y, half = y.reshape(len(y), block), half // 2
    return (y / math.sqrt(block)).view(x.shape)


def test_a_transform_is_its_own_inverse(random: torch.Generator) -> None:
    x = torch.randn(3, 4096, generator=random)
    for block in (64, 1024):
        close(native.hadamard(native.hadamard(x, block), block), x.double())
        close(native.hadamard(x, block), hadamard_rotation.hadamard(x, block).double())


@pytest.mark.parametrize("count", [1, 2, 4, 5, MAX_STREAMS, MAX_STREAMS + 1])
def test_streams_are_mixed(count: int, random: torch.Generator) -> None:
    for width in WIDTHS:
        for tokens in TOKENS:
            x = torch.randn(tokens, count * width, generator=random)
            factors = torch.randn(tokens, count**2, generator=random)
            wanted = reference.mix_streams(x.double(), factors.double())
            close(native.mix_streams(x, factors), wanted)


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_added_to_streams(weighted: bool, first: int, random: torch.Generator) -> None:
    for width in WIDTHS:
        for tokens in TOKENS:
            x, y = (torch.randn(tokens, n * width, generator=random) for n in (4, 1))
            some = torch.randn(tokens, 4, generator=random) if weighted else None
            exact = None if some is None else some.double()
            wanted = reference.add_to_streams(x.double(), y.double(), exact, first)
            close(native.add_to_streams(x, y, some, first), wanted)


def test_rows_get_the_magnitude_of_others(random: torch.Generator) -> None:
    for width in WIDTHS:
        x, like = (torch.randn(33, width, generator=random) for _ in range(2))
        x[2], like[3] = 0.0, 0.0
        x[4] *= 1e-4  # below the least magnitude
        wanted = MATCHED.definition(x.double(), like.double())
        close(native.in_place(MATCHED, x, like), wanted)


@pytest.mark.parametrize("deviations", [1.6448533535003662, 0.0, -0.5])
def test_the_highest_channels_are_kept(deviations: float, random: torch.Generator) -> None:
    for width in WIDTHS[1:]:
        x = torch.randn(33, width, generator=random) * 3 + 1
        one = GaussianTopK("x", deviations)
        wanted = one.definition(x.double(), x)
        found = native.in_place(one, x, x).double()
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_operands_stay_and_need_not_be_contiguous(random: torch.Generator) -> None:
    x, y = (torch.randn(64, 40, generator=random) for _ in range(2))
    factors = torch.randn(16, 64, generator=random).T[:, :16]
    before = x.clone()
    for some in (x, x.T, x[:, :32]):
        whole, like = some.contiguous(), y.flatten()[: some.numel()].view(some.shape)
        assert torch.equal(native.hadamard(some, 8), native.hadamard(whole, 8))
        for one in (HIGHEST, MATCHED):
            found = native.in_place(one, some, like)
            assert torch.equal(found, native.in_place(one, whole, like))
    assert torch.equal(native.mix_streams(x, factors), native.mix_streams(x, factors.contiguous()))
    assert torch.equal(x, before)


def test_nan_stays_and_no_rows_give_none() -> None:
    x = torch.full((2, 32), math.nan)
    for one in (HIGHEST, MATCHED):
        assert native.in_place(one, x, torch.ones(2, 32)).isnan().all()
    for shape in ((0, 32),):
        nothing = torch.empty(shape)
        assert native.hadamard(nothing, 16).shape == shape
        assert native.mix_streams(nothing, torch.empty(0, 16)).shape == shape


@pytest.mark.parametrize("threads", [2, 3])
def test_results_do_not_depend_on_threads(threads: int, random: torch.Generator) -> None:
    x, y = torch.randn(7, 4 * 700, generator=random), torch.randn(7, 700, generator=random)
    factors = torch.randn(7, 16, generator=random)

    def results() -> list[Tensor]:
        return [
            native.hadamard(x, 4),
            native.mix_streams(x, factors),
            native.add_to_streams(x, y, factors[:, :4], 1),
            native.in_place(MATCHED, x, x.flip(1)),
            native.in_place(HIGHEST, x, x),
        ]

    library.set_threads(1)
    alone = results()
    library.set_threads(threads)
    assert all(map(torch.equal, results(), alone))


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_operands_that_do_not_fit_are_refused(name: str) -> None:
    ops, x = BACKENDS[name].ops, torch.zeros(2, 48)
    with pytest.raises(ValueError, match=r"^hadamard: "):
        ops.hadamard(x, 32)
    with pytest.raises(ValueError, match=r"^hadamard: "):
        ops.hadamard(x, 3)
    with pytest.raises(ValueError, match=r"^mix_streams: "):
        ops.mix_streams(x, torch.zeros(2, 25))
    with pytest.raises(ValueError, match=r"^add_to_streams: "):
        ops.add_to_streams(x, torch.zeros(2, 12), None, 4)
    with pytest.raises(ValueError, match=r"^add_to_streams: "):
        ops.add_to_streams(x, torch.zeros(2, 12), torch.zeros(2, 3), 0)
